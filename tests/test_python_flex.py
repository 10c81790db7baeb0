#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""FlexAttention by fa_tune.flex, and transformers' masks, in PyTorch itself, where it is installed; no GPU is needed: what kernels compute is computed from their texts,
in double precision, and compared with what PyTorch's own functions say."""
import ast
import concurrent.futures
import functools
import itertools
import math
import os
import re
import sys
import unittest.mock
import warnings

import tap

sys.path.insert(0, os.path.join(os.environ["FA_TEST_BUILD"], "python"))
try:
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import flex_attention as theirs
    import fa_tune
    from fa_tune import _core, _dynamo, _mods, _torch_ops, flex
    WHY = None if torch.__version__.startswith(flex.TRIED) else "PyTorch is %s" % torch.__version__
except (ImportError, OSError):
    torch, WHY = None, "PyTorch is not installed"

BATCH, HEADS, KEY_HEADS, ROWS, DIM = 2, 4, 2, 128, 16
BESIDE = concurrent.futures.ThreadPoolExecutor(1)  # a thread that no autograd or compiler has its hand on
CALLS = []  # what kernels were asked for
CONFIGS = WHY or _core.configs


# ---- kernels: texts, read as Python ---------------------------------------------------------------
def value_of(node, names):
    """What an expression is for all positions at once."""
    def of(node):
        return value_of(node, names)

    if isinstance(node, (ast.Constant, ast.Name)):
        value = node.value if isinstance(node, ast.Constant) else names[node.id]
        return value if isinstance(value, torch.Tensor) else torch.tensor(value, dtype=torch.double if isinstance(value, float) else None)
    if isinstance(node, ast.UnaryOp):
        return -of(node.operand) if isinstance(node.op, ast.USub) else ~of(node.operand)
    if isinstance(node, ast.IfExp):
        return torch.where(of(node.test), of(node.body), of(node.orelse))
    if isinstance(node, ast.BoolOp):
        return functools.reduce(torch.logical_and if isinstance(node.op, ast.And) else torch.logical_or, map(of, node.values))
    if isinstance(node, (ast.BinOp, ast.Compare)):
        a, b, operator = (node.left, node.right, node.op) if isinstance(node, ast.BinOp) else (node.left, node.comparators[0], node.ops[0])
        name = {"Mult": "mul", "Div": "true_divide", "BitAnd": "bitwise_and", "BitOr": "bitwise_or", "Mod": "remainder", "RShift": "bitwise_right_shift", "LShift": "bitwise_left_shift", "BitXor": "bitwise_xor", "FloorDiv": "floor_divide", "LtE": "le", "GtE": "ge", "NotEq": "ne"}
        operator = type(operator).__name__
        return getattr(torch, name.get(operator, operator.lower()))(of(a), of(b))
    if isinstance(node, ast.Call):
        name = {"int": "long", "float": "double", "min": "minimum", "max": "maximum"}.get(node.func.id, node.func.id)
        return getattr(torch if hasattr(torch, name) and name not in ("long", "double") else torch.Tensor, name)(*map(of, node.args))
    index = []
    while isinstance(node, ast.Subscript):
        index.insert(0, of(node.slice))
        node = node.value
    tensor = names[node.id]
    return tensor[tuple(i.long().clamp(0, size - 1) for i, size in zip(index, tensor.shape))]


def dense(q, k, v, score, mask, scale):
    """(o, lse), where score and mask are functions of all positions."""
    scores = q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).transpose(2, 3) * (scale or q.shape[3] ** -0.5)
    at = [torch.arange(size).view([-1 if i == axis else 1 for i in range(4)]) for axis, size in enumerate(scores.shape)]
    scores = score(scores, *at).expand(scores.shape).masked_fill(~mask(*at), -math.inf)
    lse = scores.logsumexp(-1)
    weights = torch.exp(scores - lse.masked_fill(lse == -math.inf, 0)[..., None])
    return weights @ v.repeat_interleave(q.shape[1] // k.shape[1], 1), lse


def definition(q, k, v, causal=False, scale=None, score=None, mask=None, buffers=None, softcap=None, layout="bhsd", **_):
    if layout == "bshd":
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    rows, keys = q.shape[2], k.shape[2]

    def read(text, b, h, i, j, scores=None):
        return value_of(ast.parse(text, mode="eval").body, {"b": b, "h": h, "q": i + keys - rows, "k": j, "score": scores, "len_q": rows, "len_k": keys, **(buffers or {})})

    def bent(scores, *at):
        scores = softcap * torch.tanh(scores / softcap) if softcap else scores
        return read(score, *at, scores) if score else scores

    def seen(b, h, i, j):
        sees = j <= i + (0 if causal == "top-left" else keys - rows) if causal else j >= 0
        return sees & read(mask, b, h, i, j) if mask else sees

    o, lse = dense(q, k, v, bent, seen, scale)
    return o.transpose(1, 2).contiguous() if layout == "bshd" else o, lse


def forward(q, k, v, return_lse=False, out=None, **words):
    CALLS.append(words)
    words.update(zip(("score", "mask", "buffers", "softcap"), _mods.traced(*(words.get(name) for name in ("score", "mask", "buffers", "softcap")))))
    with torch.inference_mode() if q.is_inference() else torch.no_grad():
        o, lse = definition(*(x.double() for x in (q, k, v)), **words)
        o = o.to(q.dtype) if out is None else out.copy_(o.to(q.dtype))
    return (o, lse.float()) if return_lse else o


def backward(d_o, _o, _lse, d_lse, _deterministic, wanted, q, k, v, **words):
    CALLS.append("backward")
    leaves = [x.detach().double().requires_grad_() for x in (q, k, v, *(words["buffers"][name] for name in sorted(wanted)))]  # as their list has them
    words["buffers"] = {**(words.get("buffers") or {}), **dict(zip(sorted(wanted), leaves[3:]))}
    with torch.enable_grad():
        o, lse = definition(*leaves[:3], **words)
    made = torch.autograd.grad((o, lse), leaves, (d_o.double(), torch.zeros_like(lse) if d_lse is None else d_lse.double()))
    return (*(torch.empty_like(y).copy_(x) for x, y in zip(made, (q, k, v))), None, [x.float() for x in made[3:]])


def kernels():
    """Puts the above in the place of kernels."""
    if WHY is not None:
        raise tap.Skip(WHY)
    torch.manual_seed(1)
    warnings.simplefilter("ignore")
    _torch_ops.register()
    _core.attention = lambda *args, **words: BESIDE.submit(forward, *args, **words).result()
    _core.attention_backward = lambda *args, **words: BESIDE.submit(backward, *args, **words).result()
    _core.configs = lambda problem, _gpu, _device: CONFIGS(problem, "H200", 0)
    flex._is_ours = lambda device: True
    theirs._validate_device = lambda *_: None  # which has no gradients on the CPU
    flex.use()


def close(got, right, what):
    assert torch.equal(torch.isfinite(got), torch.isfinite(right)), what
    right = right.nan_to_num(neginf=0)
    assert float((got.nan_to_num(neginf=0) - right).abs().max()) <= 2e-2 * max(1, float(right.abs().max())), what


def functions_are_texts_that_say_the_same():
    """Also where what they have captured is another in the next call."""
    kernels()
    at = [torch.arange(size).view([-1 if i == axis else 1 for i in range(4)]) for axis, size in enumerate((BATCH, HEADS, 24, 24))]
    scores, held = torch.randn(BATCH, HEADS, 24, 24), {"slope": torch.rand(HEADS), "by": 0.5, "document": torch.randint(0, 3, (BATCH, 24))}

    class Module(torch.nn.Module):
        score = lambda self, s, b, h, q, k: s + self.slope[h] * self.by  # noqa: E731

    def made(slope, by, document):
        def keyword(s, b, h, q, k, *, factor=by):
            return s * factor + slope[h]
        module, one, some, table = Module(), torch.tensor(by), torch.tensor(int(by * 20)), torch.randn(48 + int(by * 8))
        module.slope, module.by = torch.nn.Parameter(slope), by
        scores = [keyword, module.score, lambda s, b, h, q, k, by=by: s - torch.exp2(-(h + 1) * 8.0 / HEADS) * (q - k) * by,
                  lambda s, b, h, q, k: torch.where(q >= k, s, -float("inf")), lambda s, b, h, q, k: s.masked_fill(q < k, -1e4) + torch.relu(s),
                  lambda s, b, h, q, k: s + torch.div(q - k, 3, rounding_mode="floor") + (q - k) % 3, lambda s, b, h, q, k: torch.tanh(s / 20) * 20,
                  lambda s, b, h, q, k: s * torch.sigmoid(s) + torch.log1p((q - k).abs()), lambda s, b, h, q, k: s - 1e3 * (q < k) + s.type(torch.float32),
                  lambda s, b, h, q, k: s + (q / 3).int() + torch.clamp(k - q, -4, 4) + torch.zeros_like(s), lambda s, b, h, q, k: s.to(q.device) * one.item() + (one * 2).to(s.dtype) + slope[h].to(s.device).type_as(s),
                  lambda s, b, h, q, k: s * one + slope[1] * F.relu(s) + torch.where(q < k, F.silu(s), torch.tensor(-1.0)) + torch.round((q - k) / 2) + torch.sign(k - q),
                  lambda s, b, h, q, k: s + table[k - q + len(table) // 2] + table[-1] * table.shape[0],
                  lambda s, b, h, q, k: torch.add(F.softplus(s), F.elu(s), alpha=2) + F.logsigmoid(s) + F.gelu(s) + F.mish(s) - F.celu(s, 2.0) + torch.erf(s) + F.selu(s) + torch.nan_to_num(F.softsign(s)) + torch.fmod(k - q, 3) + torch.div(k - q, 3, rounding_mode="trunc")]
        masks = [lambda b, h, q, k: (document[b, q] == document[b, k]) ^ (q >= k), lambda b, h, q, k: torch.logical_or(q - k < by * 9, document[b, k].bool()),
                 lambda b, h, q, k: torch.logical_xor((document[0, 0] | q ^ k) < some, torch.ceil(q / 3) > document[1, 2] // (k + 1)),
                 theirs.or_masks(lambda b, h, q, k: (q - k) % 3 == 0, lambda b, h, q, k: ~(k > q)), theirs.noop_mask]
        return [(score, None) for score in scores] + [(None, mask) for mask in masks]
    for _ in range(3):
        for i, (score, mask) in enumerate(made(**held)):
            bend, see, buffers, cap = _mods.traced(score, mask, None)
            names = {**dict(zip("bhqk", at)), "score": scores, **{name: x for name, x in (buffers or {}).items() if not isinstance(x, torch.Tensor) or x.dim()}}
            got = cap * torch.tanh(scores / cap) if cap else value_of(ast.parse(bend or see, mode="eval").body, names)
            right = score(scores, *at) if score else mask(*at)
            close(*torch.broadcast_tensors(got.double(), right.double()), (i, bend, see))
        held = {"slope": torch.rand(HEADS), "by": held["by"] + 0.25, "document": torch.randint(0, 3, (BATCH, 24))}
    ends, top, place = torch.tensor([0, 9, 20]), torch.randint(0, 6, (BATCH, 24, 3)), torch.rand(BATCH, 24, 3)
    for mask in (lambda b, h, q, k: (q >= ends).sum() == (ends <= k).sum(), lambda b, h, q, k: (top[b, q] == k // 4).any() | torch.isin(k, ends), lambda b, h, q, k: torch.isin(k // 4, top[b, q]),
                 lambda b, h, q, k: torch.dot(place[b, q], place[b, k]) > 0.7, lambda b, h, q, k: torch.bucketize(q, ends) == torch.searchsorted(ends, k, right=True),
                 lambda b, h, q, k: torch.norm(place[b, q] - place[b, k]) < 0.5 + place[b, k].mean(), lambda b, h, q, k: torch.stack([q >= k, q - k < 9]).all()):
        _, see, buffers, _ = _mods.traced(None, mask, None)
        got = value_of(ast.parse(see, mode="eval").body, {**dict(zip("bhqk", at)), **(buffers or {})})
        assert torch.equal(got.expand(BATCH, HEADS, 24, 24), theirs.create_mask(mask, BATCH, HEADS, 24, 24, device="cpu")), see
    for call in (lambda s, *_: torch.round(s, decimals=1), lambda s, *_: s.squeeze(-1), lambda s, b, h, q, k: place[b, q].sum(0, keepdim=True)):
        tap.refused(_mods.NotSupported, "", lambda call=call: _mods.traced(call, None, None))


# ---- calls ----------------------------------------------------------------------------------------
def tensors(rows=ROWS, keys=ROWS, swapped=False, **more):
    shapes = [(BATCH, heads, length, DIM) for heads, length in ((HEADS, rows), (KEY_HEADS, keys), (KEY_HEADS, keys))]
    made = [torch.randn([x[0], x[2], x[1], x[3]]).transpose(1, 2) if swapped else torch.randn(x) for x in shapes]
    return [x.bfloat16().requires_grad_(**more) if more else x.bfloat16() for x in made]


def ways(*backends):
    yield "eager", theirs.flex_attention
    yield from ((backend, torch.compile(theirs.flex_attention, backend=backend, fullgraph=True)) for backend in backends)


def functions():
    slope, table, bias = torch.rand(HEADS), torch.randn(2 * ROWS), torch.randn(BATCH, HEADS, ROWS, ROWS).bfloat16()
    document, padding = (torch.arange(ROWS) // 50)[None].repeat(BATCH, 1).int(), torch.rand(BATCH, ROWS) > 0.1
    scores = [None, lambda s, b, h, i, j: s + slope[h] * (j - i), lambda s, b, h, i, j: s + table[j - i + ROWS], lambda s, b, h, i, j: s + table[j - i],
              lambda s, b, h, i, j: s + bias[b, h, i, j], lambda s, b, h, i, j: 30 * torch.tanh(s / 30),
              lambda s, b, h, i, j: torch.where((i // 16) % 2 == (j // 16) % 2, s * 2, s.abs() - (i - j).abs() * 0.01)]
    masks = [lambda b, h, i, j: i >= j, lambda b, h, i, j: (i >= j) & (i - j <= 64), lambda b, h, i, j: (document[b, i] == document[b, j]) & (i >= j),
             lambda b, h, i, j: padding[b, j], lambda b, h, i, j: (j < 100) | (i >= j)]
    return scores, [*masks, theirs.and_masks(masks[0], masks[3]), theirs.or_masks(*(lambda b, h, i, j, n=n: (i + n) % 40 == j % 40 for n in range(12)))]


def own(x, score, mask):
    return dense(*x, score or (lambda s, *_: s), mask or (lambda b, h, i, j: j >= 0), None)


def calls_of_flex_attention_are_ours_whoever_compiles_them():
    kernels()
    scores, masks = functions()
    for way, call in ways("aot_eager"):
        for i, (score, mask) in enumerate([(score, None) for score in scores] + [(None, mask) for mask in masks] + [(scores[1], masks[2])]):
            torch._dynamo.reset()
            CALLS.clear()
            x = tensors()
            seen = mask and theirs.create_block_mask(mask, BATCH, HEADS, ROWS, ROWS, device="cpu")
            made = call(*x, score_mod=score, block_mask=seen, enable_gqa=True, return_lse=True)
            tap.equal((way, i, len(CALLS)), (way, i, 1))
            for got, right in zip(made, own([t.float() for t in x], score, mask)):
                close(got.float(), right, (way, i))
    tap.equal([theirs.flex_attention(*tensors(), score_mod=scores[i], enable_gqa=True) is None or CALLS[-1]["score"] for i in (2, 3)], [
        "(score + x0[((k - q) + 128)])", "(score + x0[((k - q) if (k - q) >= 0 else (k - q) + 256)])"])  # as PyTorch counts from the end


def they_have_gradients():
    kernels()
    scores, masks = functions()
    for (way, call), swapped in itertools.product(ways("inductor"), (False, True)):
        for score, mask in ((None, masks[0]), (scores[6], masks[4]), (scores[5], masks[1]), (scores[1], masks[2])):
            torch._dynamo.reset()
            CALLS.clear()
            slope = score.__closure__[0].cell_contents.requires_grad_() if score is scores[1] else torch.zeros(1, requires_grad=True)
            x = [*tensors(swapped=swapped, requires_grad=True), slope]
            exact = [*(t.detach().float().requires_grad_() for t in x[:3]), slope]
            seen = theirs.create_block_mask(mask, None, None, ROWS, ROWS, device="cpu")
            made, right = call(*x[:3], score_mod=score, block_mask=seen, enable_gqa=True, return_lse=True), own(exact[:3], score, mask)
            assert made[0].transpose(1, 2).is_contiguous() == swapped  # in the order of q
            for weight in (0, 1):
                loss = [(o ** 2).sum() + weight * lse.sum() for o, lse in ((made[0].float(), made[1]), right)]
                for got, wanted in zip(*(torch.autograd.grad(one, of, retain_graph=True, materialize_grads=True) for one, of in zip(loss, (x, exact)))):
                    close(got.float(), wanted, (way, swapped, weight))
            tap.equal(CALLS.count("backward"), 2)
    with torch.no_grad():
        x, more = tensors(), {"score": "score + z[q] + a", "buffers": "z a", "buffer_tensors": [torch.zeros(ROWS), torch.zeros(())]}
        o, lse = torch.ops.fa_tune.attention_lse(*x, **more)
        asked = [torch.ops.fa_tune.attention_backward(o, *x, o, lse, **more, wanted=names)[4] for names in ("a z", "z a")]
    tap.equal([[list(t.shape) for t in each] for each in asked], [[[], [ROWS]], [[ROWS], []]])


def lengths_may_differ_and_be_unknown_to_the_compiler():
    kernels()
    scores, masks = functions()
    for rows, keys in ((128, 192), (192, 128)):
        for i, mask in enumerate((masks[0], masks[4])):
            x = tensors(rows, keys)
            seen = theirs.create_block_mask(mask, None, None, rows, keys, device="cpu")
            made = theirs.flex_attention(*x, block_mask=seen, enable_gqa=True, return_lse=True)
            tap.equal((CALLS[-1].get("causal"), CALLS[-1].get("mask")), ("top-left", None) if i == 0 else (False, "((k < 100) or ((q - (len_k - len_q)) >= k))"))
            for got, right in zip(made, own([t.float() for t in x], None, mask)):
                close(got.float(), right, (rows, keys))
    compiled, asked = torch.compile(theirs.flex_attention, dynamic=True, backend="aot_eager"), len(CALLS)
    for rows in (64, 80, 96, 128):
        x = tensors(rows, rows)
        seen = theirs.create_block_mask(masks[0], None, None, rows, rows, device="cpu")
        close(compiled(*x, score_mod=scores[2], block_mask=seen, enable_gqa=True).float(), own([t.float() for t in x], scores[2], masks[0])[0], rows)
    tap.equal(len(CALLS), asked + 4)


def a_block_mask_is_honoured_as_it_is():
    """Lists that are not the function's, by hand or since they were made, are PyTorch's; so is whatever no kernel takes."""
    kernels()
    causal, window = functions()[1][:2]
    x, make = tensors(), dict(B=None, H=None, Q_LEN=ROWS, KV_LEN=ROWS, device="cpu", BLOCK_SIZE=64)
    by_hand = theirs.BlockMask.from_kv_blocks(torch.ones(1, 1, 2, dtype=torch.int32), torch.zeros(1, 1, 2, 2, dtype=torch.int32), BLOCK_SIZE=64,
                                              mask_mod=causal, seq_lengths=(ROWS, ROWS))
    changed = theirs.create_block_mask(causal, **make)
    changed.mask_mod = window
    for _, call in ways("inductor"):
        made = []
        for on in (False, True):
            flex.use(on)
            CALLS.clear()
            made.append([call(*x, block_mask=seen, enable_gqa=True) for seen in (by_hand, changed)])
        for got, wanted in zip(*made):
            assert torch.equal(got, wanted)
        for y, more in ((x, {"score_mod": lambda s, *_: torch.sin(s)}), (x, {"kernel_options": {"BACKEND": "TRITON"}}), ([t.float() for t in x], {}),
                        (tensors(64, 192), {})):  # few queries
            call(*y, **more, enable_gqa=True)
    tap.equal(CALLS, [])
    compiled = torch.compile(theirs.flex_attention)
    for on in (False, True):
        flex.use(on)
        compiled(*x, enable_gqa=True)  # no cache has what was compiled without us
    within = torch.compile(lambda q, k, v: theirs.flex_attention(q, k, v, block_mask=theirs.create_block_mask(window, **make), enable_gqa=True))
    close(within(*x).float(), own([t.float() for t in x], None, window)[0], "made within")
    seen = torch.compile(theirs.create_block_mask)(window, **make)
    close(compiled(*x, block_mask=seen, enable_gqa=True).float(), own([t.float() for t in x], None, window)[0], "compiled")
    tap.equal([call.get("mask") for call in CALLS], [None, "((q >= k) and ((q - k) <= 64))", "((q >= k) and ((q - k) <= 64))"])
    flex._refusal.cache_clear()
    with unittest.mock.patch.object(_core, "configs", side_effect=fa_tune.Error("no such store")):  # is not left to PyTorch, whose caches would keep it
        tap.refused(Exception, "no such store", lambda: theirs.flex_attention(*x, enable_gqa=True))


def the_page_runs_word_for_word():
    """But for the device and the lengths; tests/gpu_scores.py has these, too."""
    kernels()
    names = {}
    with unittest.mock.patch.object(fa_tune, "attention", _core.attention):
        for block in re.findall(r"(?ms)^```python\n(.*?)^```$", tap.read(os.path.join(os.environ["FA_TEST_SOURCE"], "docs", "scores.md"))):
            for there, here in (("cuda", "cpu"), ("1024", "64"), ("2047", "127"), ("1023", "63"), ("[300, 500, 224]", "[20, 30, 14]")):
                block = block.replace(there, here)
            exec(block, names)  # pylint: disable=exec-used
    close(names["sinks"].float(), names["flex"].float(), "functions and FlexAttention")


def texts_and_what_they_read_may_be_compiled():
    kernels()
    x, slope = tensors(), torch.rand(HEADS)
    call = torch.compile(lambda q, k, v, slope: _dynamo.attention(q, k, v, score="score + slope[h] * (k - q) * a", mask="k < n", buffers={
        "a": 0.5, "slope": slope, "n": 100}), fullgraph=True, backend="aot_eager")
    close(call(*x, slope).float(), own([t.float() for t in x], lambda s, b, h, i, j: s + slope[h] * (j - i) * 0.5, lambda b, h, i, j: j < 100)[0], "text")


def masks_of_transformers_are_read_by_kernels():
    """The logits of small models are those of "sdpa"; what each layer asks for is what its model's mask comes to."""
    kernels()
    try:
        import transformers
        from fa_tune import _hf
    except ImportError:
        raise tap.Skip("transformers is not installed") from None
    _hf._is_ours, torch.cuda.is_current_stream_capturing = (lambda x: True), (lambda: False)
    spans, causal = "first[b][h][q] <= k and k < end[b][h][q]", (None, None, True)
    small = {"vocab_size": 100, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    text = {**small, "head_dim": 16, "sliding_window": 16, "layer_types": ["sliding_attention", "full_attention"]}
    image = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28, "patch_size": 14}
    ids, left, right, holes = torch.randint(0, 99, (2, 40)), *torch.ones(3, 2, 40, dtype=torch.long)
    left[1, :7], right[1, 30:], holes[0, 10:12] = 0, 0, 0
    added = torch.randn(2, 1, 40, 40).bfloat16().masked_fill(torch.ones(40, 40).triu(1).bool(), -3e38)
    image_at = (torch.arange(40)[None].repeat(2, 1) // 15 == 1).long()
    bias, row = "score + bias[b][h][q][k]", "[q - (len_k - len_q)]"
    llama = lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**small))  # noqa: E731
    cases = [
        (llama, {}, {causal}), (llama, {"attention_mask": left}, {(None, spans, False)}), (llama, {"attention_mask": right}, {(None, spans, False)}),
        *((llama, {"attention_mask": mask}, {("score + added[b][h][q][k]", None, False)}) for mask in (holes, added)),
        (lambda: transformers.Gemma3ForCausalLM(transformers.Gemma3TextConfig(**text)), {}, {(None, spans, False), causal}),
        (lambda: transformers.Gemma3ForConditionalGeneration(transformers.Gemma3Config(
            text_config=text, vision_config=image, mm_tokens_per_image=4, image_token_index=99)), {"token_type_ids": image_at}, {(None, spans, False)}),
        (lambda: transformers.T5ForConditionalGeneration(transformers.T5Config(
            vocab_size=100, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, decoder_start_token_id=0)),
         {"attention_mask": right, "decoder_input_ids": ids[:, :33]}, {(bias, spans, False), (bias, None, True), (bias.replace("[q]", row), spans.replace("[q]", row), False)})]
    for make, given, asked in cases:
        torch.manual_seed(1)
        model, logits = make().bfloat16().eval(), []
        for name in ("sdpa", "fa_tune"):
            CALLS.clear()
            for part in filter(lambda part: isinstance(part, transformers.PreTrainedModel), model.modules()):  # of T5 5.17 reaches the outer one alone
                part.set_attn_implementation(name)
            with torch.inference_mode():
                logits.append(model(input_ids=ids, **given).logits.float())
        close(logits[1], logits[0], (type(model).__name__, list(given)))
        tap.equal({(call.get("score"), call.get("mask"), call["causal"]) for call in CALLS}, asked)
    with torch.inference_mode():
        seen = torch.ones(1, 1, 4, 4, dtype=torch.bool).tril()
        assert _hf._spans(seen, torch.bfloat16, 0) is _hf._spans(seen, torch.bfloat16, 1)
        seen[..., 0] = False  # for the next step
        tap.equal(_hf._spans(seen, torch.bfloat16, 0)[0].tolist(), [[[0, 1, 1, 1]]])


tap.main()
