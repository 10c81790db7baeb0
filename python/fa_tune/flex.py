# SPDX-License-Identifier: Apache-2.0
"""FlexAttention on fa-tune's kernels: fa_tune.flex.use().

What is replaced is the one entrance of PyTorch's higher-order operator flex_attention. It is called when torch.compile traces a
call, and by each call without a compiler. Score and mask become texts there, and the call one of torch.ops.fa_tune, which has
gradients of its own; a call that we do not cover goes on to PyTorch's operator, as if nobody had replaced anything.

A BlockMask says more than its function: a tile that is not in its lists is hidden, and one in the full lists is seen whatever the
function says. Ours computes by the function alone, so it takes only those that create_block_mask() made and that are as they were
made. The BlockMask itself knows that, in front of the compiler; behind it there is only what the function has become: a function
that says so ends with a comparison that is always true.
"""
from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import json
import math
import sys
import threading
import weakref
from typing import Any

import torch
import torch._dynamo
import torch.nn.attention.flex_attention as module

from . import _core, _mods, _torch_ops
from ._errors import ArgumentError, Error, NotSupported
from ._policy import warn_once

Operator = type(module.flex_attention_hop)
TRIED = ("2.11.",)  # versions of PyTorch: what is replaced is not public
WHOLE = -16416846  # no batch is this one
TYPES = {torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32", torch.int32: "i32", torch.int64: "i64",
         torch.uint8: "u8", torch.bool: "u8"}
ELEMENTS = {torch.float16: "fp16", torch.bfloat16: "bf16"}
_theirs: dict[str, Any] = {}
_inside = threading.local()
_kept: Any = weakref.WeakKeyDictionary()  # of a traced function what it became: calls without a compiler have the same one


# ---- a BlockMask that says no more than its function ---------------------------------------------
@functools.lru_cache(maxsize=256)
def _whole(mask_mod):
    def whole(b, h, q_idx, kv_idx):
        return mask_mod(b, h, q_idx, kv_idx) & (b != -16416846)  # WHOLE: a global may be no constant
    return whole


def _make(block_mask, mask_mod, *args, **more):
    made = _theirs["make"](block_mask, mask_mod, *args, **more)
    if mask_mod is not None:
        made._fa_tune_made = (_whole(mask_mod), mask_mod, made.kv_num_blocks, made.kv_indices, made.full_kv_num_blocks, made.full_kv_indices)
    return made


def _as_tuple(self, flatten=True):
    said = _theirs["as_tuple"](self, flatten)
    made = getattr(self, "_fa_tune_made", None)
    if flatten and made is not None and made[1] is self.mask_mod and made[2] is self.kv_num_blocks and made[3] is self.kv_indices:
        if made[4] is self.full_kv_num_blocks and made[5] is self.full_kv_indices:
            return (*said[:-1], made[0])
    return said


def _mark(mask):
    """The comparison at the end of a traced function, and what is in front of it; None: it has none."""
    if not isinstance(mask, torch.fx.GraphModule):
        return None
    last = next(node for node in reversed(mask.graph.nodes) if node.op == "output").args[0]
    last = last[0] if isinstance(last, (tuple, list)) and len(last) == 1 else last
    both = last.args if isinstance(last, torch.fx.Node) and last.op == "call_function" and len(last.args) == 2 else ()
    mark = both[1] if both and isinstance(both[1], torch.fx.Node) else None
    return (last, mark) if mark is not None and len(mark.args) == 2 and mark.args[1] == WHOLE else None


def _plain(mask):
    """The same function without that comparison."""
    if _mark(mask) is None:
        return mask
    if "plain" in _kept.setdefault(mask, {}):
        return _kept[mask]["plain"]
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(mask.graph, {}))
    made = torch.fx.GraphModule(mask, graph)
    last, mark = _mark(made)
    last.replace_all_uses_with(last.args[0])
    made.graph.erase_node(last)
    made.graph.erase_node(mark)
    made.recompile()
    _kept[mask]["plain"] = made
    return made


# ---- functions as texts --------------------------------------------------------------------------
def _least(node, most):
    """The least value of an index, -inf where it is not known; most: the greatest of b, h, q and k."""
    def ends(node):
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value, node.value
        if isinstance(node, ast.Name) and node.id in most:
            return 0, most[node.id]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            low, high = ends(node.operand)
            return -high, -low
        if isinstance(node, ast.IfExp):
            (a, b), (c, d) = ends(node.body), ends(node.orelse)
            return min(a, c), max(b, d)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("min", "max") and len(node.args) == 2:
            of = min if node.func.id == "min" else max
            return tuple(map(of, *map(ends, node.args)))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "abs":
            low, high = ends(node.args[0])
            return max(0, low, -high), max(-low, high)
        if isinstance(node, ast.BinOp):
            (a, b), (c, d) = ends(node.left), ends(node.right)
            if isinstance(node.op, ast.Add):
                return a + c, b + d
            if isinstance(node.op, ast.Sub):
                return a - d, b - c
            if c == d and 0 < c < math.inf and isinstance(node.op, ast.FloorDiv):
                return (a // c if a > -math.inf else a), (b // c if b < math.inf else b)
            if c == d and 0 < c < math.inf and isinstance(node.op, ast.Mod):
                return 0, c - 1
            if min(a, c) >= 0 and isinstance(node.op, ast.Mult):
                return a * c, math.inf
        return -math.inf, math.inf
    return ends(node)[0]


class _Trace(_mods._Trace):
    """A negative index counts from the end, as PyTorch has it."""

    def __init__(self, tensors, prefix, position, most, device):
        _mods._Trace.__init__(self, list(tensors), prefix, False)
        self.position, self.most, self.device = position, most, device  # most: the greatest of b, h, q and k
        self.sizes = {}  # that are not known before the call

    def index(self, text, size):
        if _least(ast.parse(text.replace(self.position, "q"), mode="eval").body, self.most) >= 0:
            return text
        if not isinstance(size, int):
            size = self.sizes.setdefault(str(size), torch.full((), size, dtype=torch.int32, device=self.device))
        return "(%s if %s >= 0 else %s + %s)" % (text, text, text, _mods._wrap(size, self).text)


def _text(function, what, tensors, position, most, device):
    """(text, tensors by the names that it has for them); (None, {}): it changes nothing, or hides nothing."""
    key = position, *most.values(), *(part for x in tensors for part in ((x.dtype, *x.shape) if isinstance(x, torch.Tensor) else (x,)))
    keeps = isinstance(function, torch.fx.GraphModule) and not any(isinstance(part, torch.SymInt) for part in key)
    found = _kept.setdefault(function, {}).get(key) if keeps else None
    if found is None:
        *found, has_read = _traced(function, what, tensors, position, most, device)
        if keeps and not has_read and all(isinstance(leaf, int) for leaf in found[1].values()):  # and no tensor that was computed in the function
            _kept[function][key] = found
    text, used = found
    return text, {name: tensors[leaf] if isinstance(leaf, int) else leaf for name, leaf in used.items()}


def _traced(function, what, tensors, position, most, device):
    trace = _Trace(tensors, "xy"[what == "mask"], position, most, device)
    arguments = [_mods._Expr(position if name == "q" else name, "float" if name == "score" else "int", trace)
                 for name in _mods.ARGUMENTS[what]]
    with _mods._modes() as mode:
        result = (_plain(function) if what == "mask" else function)(*arguments, *tensors)
        result = _mods._wrap(result[0] if isinstance(result, (tuple, list)) else result, trace)
    text = result.bool().text if what == "mask" else result.text
    return (*((None, {}) if text in ("score", "(0 == 0)") else (text, trace.used)), mode.has_read)


# ---- calls ---------------------------------------------------------------------------------------
class _Theirs(Exception):
    """The call is PyTorch's. Its text: why, for a warning; empty: none is due."""


def _is_ours(device):
    return device.type == "cuda"


def _hint(size):
    return size if isinstance(size, int) else size.node.hint


@functools.lru_cache(maxsize=1024)
def _refusal(fields, device):
    """Why no kernel family takes a problem; None: one does."""
    try:
        _core.configs(json.loads(fields), None, device)
    except (ArgumentError, NotSupported) as error:   # no store's that cannot be opened: PyTorch would keep it in its caches on disk
        return str(error)
    return None


def _check(q, k, v, block_mask, kernel_options, tensors):
    """Raises _Theirs for what is not ours whatever the functions are."""
    if torch._C._are_functorch_transforms_active() or not _is_ours(q.device):
        raise _Theirs
    if kernel_options.get("BACKEND", "AUTO") != "AUTO":
        raise _Theirs  # which the caller wants
    if kernel_options.get("OUTPUT_MAX"):
        raise _Theirs("the largest scores are asked for")
    dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") and q.dtype in _torch_ops.AUTOCAST else q.dtype
    if dtype not in ELEMENTS:
        raise _Theirs("fa_tune takes float16 and bfloat16 only")
    if q.shape[0] != k.shape[0]:
        raise _Theirs("one batch of keys for several of queries")
    if block_mask[-3:-1] != (module._LARGE_SPARSE_BLOCK_SIZE,) * 2 and _mark(block_mask[-1]) is None:
        raise _Theirs("a BlockMask that create_block_mask() did not make, or that was changed since: its lists may say more than its function")
    if not all(isinstance(x, int) or isinstance(x, torch.Tensor) and (x.device == q.device or x.device.type == "cpu" and x.dim() == 0) and
               x.dtype in TYPES and x.dim() <= 4 for x in tensors):
        raise _Theirs("a captured value is neither a number nor a tensor on the GPU (without dimensions, also on the CPU) of up to four dimensions and of a type that fa_tune reads")
    if any(size is None for x in (q, k, v) for size in map(_hint, x.shape)):
        raise _Theirs("a size is known to the GPU alone")
    if _hint(q.shape[2]) < 128 and _hint(k.shape[2]) > _hint(q.shape[2]):
        raise _Theirs("few queries for many keys, whose work fa_tune does not split for a score or mask: PyTorch's decoding kernel is faster")
    return dtype


def _problem(dtype, q, k, v, words, wanted=()):
    buffers = [(name, words["buffers"][name]) for name in sorted(words["buffers"] or ())]
    fields = {"dtype": ELEMENTS[dtype], "head_dim": _hint(q.shape[3]), "head_dim_v": _hint(v.shape[3]) if v.shape[3] != q.shape[3] else 0,
              **dict(zip(("batch", "heads_q", "seq_q"), map(_hint, q.shape))), "heads_kv": _hint(k.shape[1]), "seq_k": _hint(k.shape[2]),
              "causal": words["causal"] or "none", "softcap": words["softcap"] is not None,
              "score": words["score"] or "", "mask": words["mask"] or "", "buffers": " ".join(
                  "%s:%s[%s]%s" % (name, TYPES[x.dtype], ",".join(":" * x.dim()), "*" * (name in wanted)) for name, x in buffers)}
    return {name: value for name, value in fields.items() if value}


def _here(x, device):
    """A tensor without dimensions on the CPU comes to the GPU, without a copy that the host waits for where its value is known."""
    if x.device == device:
        return x
    return torch.full((), x.item(), dtype=x.dtype, device=device) if type(x) is torch.Tensor and not x.requires_grad else x.to(device)


def _words(q, k, scale, score_mod, mask_mod, tensors):
    """Arguments of fa_tune.attention()."""
    sizes = zip("bhqk", (*q.shape[:3], k.shape[2]))
    most = {name: size - 1 if isinstance(size, int) else math.inf for name, size in sizes}
    position = "q" if q.shape[2] == k.shape[2] else "(q - (len_k - len_q))"
    try:
        score, buffers = _text(score_mod, "score", tensors[0], position, most, q.device)
        mask, more = _text(mask_mod, "mask", tensors[1], position, most, q.device)
    except (Error, _mods._NotLifted, TypeError, AttributeError, StopIteration) as error:
        raise _Theirs("score_mod or mask_mod cannot become a text: %s" % error) from None
    causal = None
    if position != "q" and mask in ("(%s >= k)" % position, "(k <= %s)" % position):
        mask, causal = None, "top-left"
    score, mask, buffers, softcap = _mods.traced(score, mask, {**buffers, **more})
    if len(buffers or ()) > 8:
        raise _Theirs("they read more than 8 tensors")
    held = {name: _here(x, q.device) if isinstance(x, torch.Tensor) else x for name, x in (buffers or {}).items()}
    return {"scale": scale, "score": score, "mask": mask, "buffers": held or None, "softcap": softcap, "causal": causal}


def _prepared(q, k, v, score_mod, block_mask, scale, kernel_options, *held):
    """Arguments of fa_tune.attention(). Raises _Theirs where it does not take the call."""
    tensors = [tuple(torch.full((), x, dtype=torch.int32, device=q.device) if isinstance(x, torch.SymInt) else x for x in part) for part in held]
    dtype = _check(q, k, v, block_mask, kernel_options, tensors[0] + tensors[1])
    words = _words(q, k, scale, score_mod, block_mask[-1], tensors)
    read = list((words["buffers"] or {}).values())
    problems = [{**_problem(dtype, q, k, v, words), "lse": True}]
    if _torch_ops.wants_gradient(q, k, v, *read):
        wanted = [name for name, x in (words["buffers"] or {}).items() if x.requires_grad]
        if sum(_hint(words["buffers"][name].numel()) for name in wanted) > _torch_ops.ELEMENTS_MAX:
            raise _Theirs("the gradients of what score_mod reads have more than %d elements" % _torch_ops.ELEMENTS_MAX)
        problems.append({"operation": "attn_bwd", **_problem(dtype, q, k, v, words, wanted), **({"d_buffers": 64} if wanted else {})})
    for problem in problems:
        reason = _refusal(json.dumps(problem), q.device.index or 0)
        if reason is not None:
            raise _Theirs(reason)
    return {name: value for name, value in words.items() if value is not None}


def _ours(q, k, v, *call):
    try:
        words = _prepared(q, k, v, *call)
    except (_Theirs, Error):
        raise
    except Exception as error:  # pylint: disable=broad-exception-caught  # nobody's call may fail because of us
        raise _Theirs("it cannot be read: %r" % error) from None
    # The output has the order of q's strides, so that what made q of a projection undoes it without a copy.
    swaps = q.shape[1] > 1 and q.stride(1) < q.stride(2)
    given = [x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v)]
    if swaps:
        given = [x.transpose(1, 2) for x in given]
    o, lse = torch.ops.fa_tune.attention_lse(*given, **_torch_ops.options_of(layout="bshd" if swaps else "bhsd", **words))
    return o.transpose(1, 2) if swaps else o, lse / math.log(2), q.new_empty(0, dtype=torch.float32)


def _call(self, query, key, value, score_mod, block_mask, scale, kernel_options, score_mod_other_buffers=(), mask_mod_other_buffers=()):
    if not getattr(_inside, "theirs", False):  # whose operator calls itself
        try:
            return _ours(query, key, value, score_mod, block_mask, scale, kernel_options, score_mod_other_buffers, mask_mod_other_buffers)
        except _Theirs as error:
            if str(error):
                warn_once(("flex", str(error)), "PyTorch's own kernel computes a call of flex_attention, and others of its kind: %s" % error)
    before, _inside.theirs = getattr(_inside, "theirs", False), True
    try:
        return _theirs["call"](self, query, key, value, score_mod, (*block_mask[:-1], _plain(block_mask[-1])), scale, kernel_options,
                               score_mod_other_buffers, mask_mod_other_buffers)
    finally:
        _inside.theirs = before


def _tag():
    """What PyTorch's caches on disk are to tell apart: they keep graphs with the texts in them, and another source may make other texts,
    another version have kernels for calls that were left to PyTorch."""
    made = hashlib.sha256(_core.version().encode())
    for name in (_mods.__name__, __name__):
        made.update(inspect.getsource(sys.modules[name]).encode())
    return " fa_tune.flex %s" % made.hexdigest()[:16]


def use(on: bool = True) -> None:
    """PyTorch's flex_attention, with torch.compile and without, runs on fa-tune's kernels in this process from here on.

    on   False: PyTorch's own again

    What was compiled before is forgotten (torch._dynamo.reset()). A BlockMask that was made before goes to PyTorch. Raises
    fa_tune.NotSupported for a PyTorch of another version than those that this was tried with: 2.11.
    """
    if not isinstance(on, bool):
        raise ArgumentError("on is True or False, not %r" % (on,))
    if on == bool(_theirs):
        return
    if not torch.__version__.startswith(TRIED):
        raise NotSupported("fa_tune.flex replaces what PyTorch does not publish, so it takes the versions that it was tried with: %s, "
                           "not %s; fa_tune.attention(score=…, mask=…) takes the same functions" % (
                               ", ".join(version + "*" for version in TRIED), torch.__version__))
    _torch_ops.register()
    if on:
        _theirs.update(call=Operator.__call__, make=module._create_sparse_block_from_block_mask,
                       as_tuple=module.BlockMask.as_tuple, tag=torch.compiler.config.cache_key_tag)
        Operator.__call__, module._create_sparse_block_from_block_mask = _call, _make
        module.BlockMask.as_tuple = _as_tuple
        torch.compiler.config.cache_key_tag += _tag()
    else:
        Operator.__call__, module._create_sparse_block_from_block_mask = _theirs["call"], _theirs["make"]
        module.BlockMask.as_tuple, torch.compiler.config.cache_key_tag = _theirs["as_tuple"], _theirs["tag"]
        _theirs.clear()
    torch._dynamo.reset()
