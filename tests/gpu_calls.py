#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Calls of attention as users write them, drawn by a seed and compared with float64: dense, packed, paged, decoded; layouts, strides, windows, caps,
sinks, fp8, texts with buffers, dropout, gradients, torch.compile, CUDA graphs. NaN lies wherever no kernel may read. Prints what is wrong, with its seed
and number: --only computes that call alone. What is refused is counted by its sentence."""
import argparse
import ast
import collections
import functools
import math
import os
import random
import re
import tempfile
import time
import traceback

os.environ.setdefault("FA_TUNE_STORE", os.path.join(tempfile.mkdtemp(prefix="fa-tune-calls-"), "store.db"))  # mode 0700
os.environ.setdefault("FA_TUNE_SYSTEM", "")

import torch  # noqa: E402

import fa_tune  # noqa: E402

DEVICE, FP8 = "cuda", torch.float8_e4m3fn
# Scores, masks, and the buffers that they read: a shape by these names or a number.
TEXTS = [("score + slope[h] * (k - q)", "", {"slope": "H"}), ("score + bias[h][q][k]", "", {"bias": "HQK"}), ("score + pair[q][k]", "k <= q", {"pair": "QK"}),
         ("score + key[b][k]", "", {"key": "BK"}), ("score - 0.02 * abs(q - k)", "(q + k) % 3 != 1", {}), ("20 * tanh(score / 20) + far * min(abs(k - q), 40)", "", {"far": -0.0625}),
         ("score * gain[hk]", "(k < 20) or (k <= q)", {"gain": "G"}), ("score + table[h][k - q + n]", "", {"table": "HT", "n": 100}),
         ("", "(document[b][q] == document[b][k]) and (k <= q)", {"document": "BK int"}), ("", "there[b][k] != 0", {"there": "BK bool"}),
         ("", "(k < 3) or ((k <= q) and (q - k < width))", {"width": 70}), ("score + key[b][k]", "(group[k] == group[q]) or (k < 5)", {"key": "BK", "group": "K int"})]


class Held:
    """A tensor in a text: an index outside is the nearest element's."""

    def __init__(self, of, at=()):
        self.of, self.at = of, at

    def __getitem__(self, i):
        at = (*self.at, i.long().clamp(0, self.of.shape[len(self.at)] - 1))
        return self.of[torch.broadcast_tensors(*at)] if len(at) == self.of.dim() else Held(self.of, at)


def product(a, b):   # of numbers of 32 bits: its upper and lower half
    return (a * (b >> 16) + (a * (b & 0xffff) >> 16)) >> 16, (a * (b & 0xffff) + ((a * (b >> 16) & 0xffff) << 16)) & 0xffffffff


def dropped(p, seed, first_head, heads, rows, keys):
    """What dropout makes of each weight, as attn_dropout.cuh describes it."""
    (first, offset), least = (int(x) % 2**64 for x in seed.tolist()), int(p * 256 + 0.5)
    h, q, k = (torch.arange(size, device=DEVICE).view(shape) for size, shape in ((heads, (-1, 1, 1)), (rows, (-1, 1)), (keys, (-1,))))
    x = torch.broadcast_tensors(q // 16 * 4 + q % 8 // 2, k // 16 * 4 + k % 8 // 2, h + first_head, torch.tensor(offset & 0xffffffff, device=DEVICE))
    for i in range(7):
        y, z = product(x[0], 0xd2511f53), product(x[2], 0xcd9e8d57)
        x = z[0] ^ x[1] ^ (first + i * 0x9e3779b9 & 0xffffffff), z[1], y[0] ^ x[3] ^ ((first >> 32) + i * 0xbb67ae85 & 0xffffffff), y[1]
    word = torch.stack(x).gather(0, (q % 16 // 8 * 2 + (q + k // 16) % 2).expand(1, heads, rows, keys))[0]
    return ((word >> (k % 16 // 8 * 2 + (k + q // 16) % 2) * 8 & 255) >= least) * (256 / (256 - least))


def tensor_of(x):
    return torch.as_tensor(x, device=DEVICE)


class ForTensors(ast.NodeTransformer):
    """A text for all positions at once."""

    def visit_IfExp(self, node):
        return ast.Call(ast.Name("where", ast.Load()), [self.visit(part) for part in (node.test, node.body, node.orelse)], [])

    def visit_BoolOp(self, node):
        return functools.reduce(lambda a, b: ast.BinOp(a, ast.BitAnd() if isinstance(node.op, ast.And) else ast.BitOr(), b), map(self.visit, node.values))

    def visit_UnaryOp(self, node):
        return ast.UnaryOp(ast.Invert() if isinstance(node.op, ast.Not) else node.op, self.visit(node.operand))

    def visit_Constant(self, node):
        return ast.Call(ast.Name("tensor_of", ast.Load()), [node], [])


def value_of(text, names):
    return eval(compile(ast.fix_missing_locations(ForTensors().visit(ast.parse(text, mode="eval"))), text, "eval"), names)   # pylint: disable=eval-used


def attend(case, b, q, k, v, sinks, held, seed, narrow=None):
    """(o, lse, weights, which rows see a key) of sequence b, of (heads, rows, dim), as the call is defined; weights are rounded to `narrow`."""
    (h, rows, dim), keys, group = q.shape, k.shape[1], q.shape[0] // k.shape[0]
    k, v = (x.repeat_interleave(group, 0) for x in (k, v))
    i, j, head = (torch.arange(n, device=DEVICE).view(shape) for n, shape in ((rows, (-1, 1)), (keys, (1, -1)), (h, (-1, 1, 1))))
    cap, (left, right) = case["softcap"], case["window"] or (-1, -1)
    score = q @ k.transpose(1, 2) * (case["scale"] or dim ** -0.5)
    score = cap * torch.tanh(score / cap) if cap else score
    at, right = i if case["causal"] == "top-left" else i + keys - rows, 0 if case["causal"] else right
    names = {"b": torch.tensor(b, device=DEVICE), "h": head, "hk": head // group, "q": at, "k": j, "len_q": rows, "len_k": keys, "where": torch.where, "tensor_of": tensor_of,
             **{name: lambda *x, call=call: call(*map(tensor_of, x)) for name, call in (("abs", torch.abs), ("tanh", torch.tanh), ("exp", torch.exp), ("log", torch.log),
                                                                                    ("sqrt", torch.sqrt), ("min", torch.minimum), ("max", torch.maximum))},
             **{name: Held(of) if torch.is_tensor(of) else tensor_of(of) for name, of in held.items()}}
    score = value_of(case["score"], {**names, "score": score}) + 0 * score if case["score"] else score
    seen = (j - at <= (right if right >= 0 else keys + rows)) & (at - j <= (left if left >= 0 else keys + rows)) & torch.ones_like(score, dtype=torch.bool)
    if case["mask"]:
        seen = seen & value_of(case["mask"], names)
    score, some = score.masked_fill(~seen, -1e30), seen.any(-1)
    lse = score.logsumexp(-1)
    lse = lse if sinks is None else torch.logaddexp(lse, sinks.to(lse.dtype)[:, None])
    w = torch.exp(score - lse[..., None]) * seen
    if narrow is not None and keys:
        most, unit = w.amax(-1, keepdim=True).clamp(min=1e-30), 256 if narrow == FP8 else 1
        w = (w / most * unit).to(narrow).to(w.dtype) / unit * most
    kept = dropped(case["dropout"], seed, b * h, h, rows, keys).to(w.dtype) if case["dropout"] else 1
    return w * kept @ v, lse if sinks is not None else lse.masked_fill(~some, -math.inf), w, some


# ---- drawing -------------------------------------------------------------------------------------
BUFFERS = {"slope": "H", "key": "BK", "bias": "HQK", "pair": "QK", "gain": "G", "table": "HT", "far": -0.0625, "n": 100, "document": "BK int", "group": "K int", "width": 70, "seen": "QK blocks"}
# What random texts grow of: a number <f>, a whole one <i>, a truth <t>, constants <c> and <n>; leaves, and the rest. What jumps does so by whole numbers.
GRAMMAR = {"f": (["score", "score", "slope[h]", "key[b][k]", "bias[h][q][k]", "pair[q][k]", "gain[hk]", "table[h][k - q + n]", "far", "<c>", "<i> / 64"],
                 ["tanh(<f>)", "abs(<f>)", "-(<f>)", "sqrt(abs(<f>) + 0.5)", "exp(min(<f>, 1))", "log(abs(<f>) + 1)", "max(<f>, 0)", "(<f> + <f>)", "(<f> - <f>)", "(<f>) * tanh(<f>)",
                  "min(<f>, <f>)", "max(<f>, <f>)", "(<f>) / (1 + abs(<f>))", "(<f> if <t> else <f>)"]),
           "i": (["q", "k", "q", "k", "h", "hk", "b", "<n>", "(q - k)", "document[b][q]", "document[b][k]", "group[k]", "width"],
                 ["(<i>) // <n>", "(<i>) % <n>", "(<i> + <n>)", "min(<i>, <n>)", "max(<i>, <n>)", "abs(<i> - <n>)", "(<i>) * <n>"]),
           "t": (["(<i> %s <i>)" % sign for sign in ("<", "<=", ">", ">=", "==", "!=")], ["(<t> and <t>)", "(<t> or <t>)", "(<t> or <t>)", "(not <t>)", "(seen[q][k] != 0 and <t>)"])}


def grown(chance, kind, depth):
    form = chance.choice(GRAMMAR[kind][depth > 0 and chance.random() < 0.8])
    return re.sub("<(.)>", lambda of: str(chance.randint(1, 40)) if of[1] == "n" else str(chance.randint(-24, 24) / 8) if of[1] == "c" else grown(chance, of[1], min(depth - 1, 3 if of[1] == "f" else 1)), form)


def draw_text(chance):
    while True:
        kind, around = chance.random(), chance.choice(["score + %s", "score + %s", "score * 0.5 + min(max(%s, -6), 6)", "%s"])
        score, mask = around % grown(chance, "f", chance.randint(1, 4)) if kind < 0.75 else "", grown(chance, "t", chance.randint(0, 2)) if kind > 0.5 else ""
        held = {name: of for name, of in BUFFERS.items() if re.search(r"\b%s\b" % name, score + " " + mask)}
        if len(held) < 8 and max(len(score), len(mask)) < 1000:
            return score, mask, held


def lengths(chance, form, most=1400):
    """How many sequences, and the longest of their queries and keys, near which all are."""
    rows, keys = (max(1, int(math.exp(chance.uniform(0, math.log(6000 if form == "decode" else most))))) for _ in "qk")
    rows = chance.choice([1, 1, 2, 5, 17]) if form == "decode" else rows
    return {"batch": chance.randint(1, 4), "rows": rows, "keys": rows if form != "decode" and chance.random() < 0.5 else keys, "scale": chance.choice([None, None, 0.25])}


def draw(chance, trees=False):
    """What a kernel is compiled for, and lengths. trees: of random texts alone."""
    form, kv, group = "dense" if trees else chance.choice(["dense"] * 5 + ["packed"] * 3 + ["paged", "decode"] * 2), chance.choice([1, 1, 2, 3, 4]), chance.choice([1, 1, 1, 2, 3, 4, 8])
    case = dict(
        form=form, kv=kv, heads=kv * group, dim=chance.choice([64, 64, 128, 128, 256, 96, *[chance.randrange(32, 257, 8)] * 6]), **lengths(chance, form, 300 if trees else 1400),
        type=chance.choice([torch.float16, torch.bfloat16]),
        layout=chance.choice(["bhsd", "bshd"]), causal=chance.choice([False, True, True, *["top-left"] * (form == "dense")]), window=None, fp8=None,
        softcap=chance.choice([None] * 5 + [20.0]), sinks=chance.random() < 0.15, unaligned=form == "dense" and chance.random() < 0.15, graph=chance.random() < 0.12, dropout=None, trains=False,
        compiled=form != "decode" and chance.random() < 0.05, page=chance.choice([0] * (form == "decode") + [16, 32, 64, 128, 256]), score="", mask="", texts={}, into=chance.random() < 0.2,
        lse=chance.random() < 0.5)
    if chance.random() < 0.25:
        case["window"] = chance.choice([(100, 0), (31, 7), (700, 100), *[(100, -1), (0, 0), (-1, 5)] * (form == "dense")])
    if trees or chance.random() < 0.3:
        case["score"], case["mask"], case["texts"] = draw_text(chance) if trees or chance.random() < 0.5 else chance.choice(TEXTS)
    if form != "dense" and chance.random() < 0.3:
        case.update(fp8=chance.choice(["k, v", "all"]), dim=chance.choice([64, 128, 256, 96]), compiled=False)   # dynamo refuses descales
    elif form in ("dense", "packed"):
        case["dropout"], case["trains"] = chance.choice([None] * 5 + [0.1, 0.5]), chance.random() < 0.4
    if trees:
        case.update(kv=min(kv, 2), heads=min(kv, 2) * min(group, 3), graph=False, compiled=False, trains=chance.random() < 0.85, most=300)
    case["dim_v"] = chance.randrange(32, case["dim"] + 1, 8) if not case["fp8"] and chance.random() < 0.1 else case["dim"]
    if form == "decode" and not case["fp8"] and chance.random() < 0.15:   # multi-head latent attention
        case.update(dim=576, dim_v=512, kv=1, heads=chance.choice([8, 16, 24, 64, 128]), softcap=None, window=None, sinks=False, score="", mask="", texts={})
    return case


def memory(generator, shape, kind, how):
    """A tensor of this shape whose last dimension alone lies as it is; NaN lies between its rows."""
    dims, first = list(range(len(shape))), int(how == "unaligned")
    if how == "turned":   # another order of the dimensions in front of the last
        dims[-3], dims[-2] = dims[-2], dims[-3]
    room = [shape[d] for d in dims[:-1]] + [shape[-1] + (32 if how == "padded" else 0)]
    flat = torch.full((math.prod(room) + first,), math.nan, device=DEVICE).to(kind)
    made = flat[first:].view(room)[..., :shape[-1]]
    made.copy_(torch.randn(made.shape, device=DEVICE, generator=generator))
    return made.permute(dims)


def hide(x, kept):
    """NaN where no sequence has its keys: it may be anything there. kept: rows of all positions behind one another."""
    hidden = torch.ones(x.shape[0] * x.shape[1], dtype=torch.bool, device=DEVICE)
    hidden[torch.cat(kept)] = False
    x, nan = (x.view(torch.uint8), 0x7F) if x.dtype == FP8 else (x, math.nan)
    x[hidden.view(x.shape[:2])] = nan


def make(case, most, keys_most, chance, generator):
    """The tensors of a call, its words, and a function that splits tensors like these into each sequence's (heads, rows, dim). Shapes follow from the
    case and the longest lengths alone."""
    form, b, dim, dims, page = case["form"], case["batch"], case["dim"], (case["dim"], case["dim_v"]), case["page"] or keys_most
    hows = ["unaligned"] if case["unaligned"] else ["plain", "padded", "turned"]
    kinds = [FP8 if case["fp8"] == "all" else case["type"], *[FP8 if case["fp8"] else case["type"]] * 2]
    if form == "dense":
        turned = case["layout"] == "bshd"
        shapes = [(b, case["heads"], most, dim), *((b, case["kv"], keys_most, size) for size in dims)]
        x = [memory(generator, shape, kind, chance.choice(hows)) for shape, kind in zip(shapes, kinds)]
        return [y.transpose(1, 2) if turned else y for y in x], {"layout": case["layout"]}, lambda *x: list(zip(*(y.transpose(1, 2) if turned else y for y in x)))
    ints = lambda of: torch.tensor(of, device=DEVICE, dtype=torch.int32)  # noqa: E731
    rows = [most] * b if form == "decode" else [most, *[chance.randint(0, most) for _ in range(b - 1)]]
    keys = [keys_most, *[chance.randint(0, keys_most) for _ in range(b - 1)]]
    starts, ends = ([sum(n[:i]) for i in range(b + 1)] for n in (rows, keys))
    total, total_k = (starts[-1], ends[-1]) if case["trains"] else (b * most, b * keys_most)   # rows of no sequence behind them
    words, shape, columns = {"max_seqlen_k": keys_most}, (total_k,), -(-keys_most // page)
    if form == "packed":
        at = [torch.arange(ends[i], ends[i + 1], device=DEVICE) for i in range(b)]
        words["cu_seqlens_k"] = ints(ends)
    else:
        pool, table = b * columns + 2 * bool(case["page"]), torch.full((b, columns + 1), 1 << 30)
        order, shape = chance.sample(range(pool), pool) if case["page"] else list(range(b))[::-1], (pool, page)
        for i, n in enumerate(keys):
            for j in range(-(-n // page) if case["page"] else 1):
                table[i, j] = order.pop()
        at = [(table[i, torch.arange(n) // page] * page + torch.arange(n) % page).to(DEVICE) for i, n in enumerate(keys)]
        words.update({"block_table": ints(table.tolist())} if case["page"] else {}, **{"cache_seqlens" if form == "decode" else "seqused_k": ints(keys)})
    q = memory(generator, (b, most, case["heads"], dim) if form == "decode" else (total, case["heads"], dim), kinds[0], chance.choice(hows))
    k, v = (memory(generator, (*shape, case["kv"], size), kinds[1], chance.choice(hows)) for size in dims)
    v = k[..., :512] if dims == (576, 512) else v
    if form != "packed":
        hide(k, at), hide(v, at)
    if form != "decode":
        words.update(cu_seqlens_q=ints(starts), max_seqlen_q=most)

    def split(q, k, v):
        k, v = (x if form == "packed" else x.flatten(0, 1) for x in (k, v))
        return [((q[i] if form == "decode" else q[starts[i]:starts[i + 1]]).transpose(0, 1), k[at[i]].transpose(0, 1), v[at[i]].transpose(0, 1)) for i in range(b)]
    return [q, k, v], words, split


def buffers_of(case, rows, keys, chance, generator):
    sizes = {"H": case["heads"], "G": case["kv"], "B": case["batch"], "Q": rows, "K": keys, "T": rows + keys}
    made = {}
    for name, of in case["texts"].items():
        shape, kind = ([sizes[letter] for letter in of.split()[0]], of.split()[1:]) if isinstance(of, str) else (None, None)
        drawn = None if shape is None else torch.randn(shape, device=DEVICE, generator=generator) * (0.05 if name == "slope" else 0.5)
        made[name] = of if shape is None else drawn > -0.6 if kind == ["bool"] else (
            (torch.arange(shape[-1], device=DEVICE) // 170).expand(shape).int() if kind == ["int"] else (
                torch.rand([-(-n // 64) for n in shape], device=DEVICE, generator=generator) < 0.4).repeat_interleave(64, 0).repeat_interleave(64, 1)[:shape[0], :shape[1]] if kind else drawn.to(chance.choice([torch.float32, torch.bfloat16])))
    return made


# ---- judging -------------------------------------------------------------------------------------
def judge(case, chance, generator):
    """Raises where a call is wrong; its largest error over what is allowed."""
    rows, keys, b = *(max(1, n - chance.randint(0, n // 32)) for n in (case["rows"], case["keys"])), case["batch"]
    given, words, split = make(case, rows, keys, chance, generator)
    call = {"dense": fa_tune.attention, "decode": fa_tune.attention_decode}.get(case["form"], fa_tune.attention_varlen)
    dense, kind = call is fa_tune.attention, torch.bfloat16 if case["fp8"] == "all" else case["type"]
    held, sinks = buffers_of(case, rows, keys, chance, generator), torch.randn(case["heads"], device=DEVICE, generator=generator) if case["sinks"] else None
    scales = [torch.rand(b, case["kv"], device=DEVICE, generator=generator) + 0.5 if case["fp8"] and (i or case["fp8"] == "all") else None for i in range(3)]
    seed = torch.randint(-2**62, 2**62, (2,), device=DEVICE, generator=generator) if case["dropout"] else None
    words.update({"window" if dense else "window_size": case["window"], "scale" if dense else "softmax_scale": case["scale"], "causal": case["causal"], "softcap": case["softcap"],
                  "return_lse" if dense else "return_softmax_lse": case["lse"], "sinks": sinks, "score": case["score"], "mask": case["mask"], "buffers": held, "dropout_p": case["dropout"],
                  "dropout_seed": seed, **dict(zip(("q_descale", "k_descale", "v_descale"), scales))})
    words = {name: word for name, word in words.items() if word is not None and not (isinstance(word, (str, dict)) and not word)}
    leaves = [x.detach().requires_grad_() for x in given] + [x.requires_grad_() for x in (sinks, *held.values()) if torch.is_tensor(x) and x.is_floating_point()] if case["trains"] else given
    if case["trains"]:
        given = leaves[:3]
    outer = None
    if dense and case["into"] and not (case["trains"] or case["lse"] or case["compiled"]):   # dynamo refuses such an `out`
        outer = torch.full((*given[0].shape[:-1], case["dim_v"] + 16), math.nan, device=DEVICE, dtype=kind)
        words["out"] = outer[..., 8:-8]
    run = (lambda *x: call(*x, **words)) if not case["compiled"] else torch.compile(lambda *x: call(*x, **words), fullgraph=True)
    made = run(*given)
    if case["graph"] and not case["trains"] and not case["compiled"]:
        graph, shown = torch.cuda.CUDAGraph(), dict(words)
        with torch.cuda.graph(graph):
            made = run(*given)
        fresh, its, split = make(case, rows, keys, chance, generator)   # other numbers, lengths and pages
        for to, of in [*zip(given, fresh), *((shown[name], of) for name, of in its.items() if torch.is_tensor(of))]:
            to.copy_(of)
        graph.replay()
    o, lse = made if case["lse"] else (made, None)
    assert o.dtype == kind and o.shape == (*given[0].shape[:-1], case["dim_v"]), "it is %s of shape %s" % (o.dtype, tuple(o.shape))
    assert outer is None or bool(outer[..., :8].isnan().all() and outer[..., -8:].isnan().all()), "it wrote outside its output"

    def definition(number, narrow):
        """O of all sequences, their LSE, their weights, which rows see a key, and what it was computed of, in this type of numbers."""
        twins = [x.detach().to(number).requires_grad_(case["trains"]) for x in leaves]
        more = iter(twins[3:])
        bare = lambda x: x if not torch.is_tensor(x) else next(more) if case["trains"] and x.is_floating_point() else x.to(number) if x.is_floating_point() else x  # noqa: E731
        own_sinks, own = None if sinks is None else bare(sinks), {name: bare(x) for name, x in held.items()}
        result = []
        for i, part in enumerate(split(*twins[:3])):
            q, k, v = (x if scale is None else x * scale[i].to(number).repeat_interleave(x.shape[0] // case["kv"])[:, None, None] for x, scale in zip(part, scales))
            result.append(attend(case, i, q, k, v, own_sinks, own, seed, narrow))
        return twins, result
    twins, exact = definition(torch.float64, None)
    with torch.no_grad():
        plain = definition(torch.float32, FP8 if case["fp8"] == "all" else kind)[1]
    ours = [x[0] for x in split(o, *twins[1:3])]
    largest, epsilon, ratio, near = max(float(x[0].abs().max()) if x[0].numel() else 0 for x in exact), torch.finfo(kind).eps, 0.0, 3e-3 if case["fp8"] != "all" else 0.06
    off = max([float((x[0].double() - y[0]).abs().max()) for x, y in zip(plain, exact) if y[0].numel()], default=0)
    for i, (mine, right) in enumerate(zip(ours, exact)):
        error, allowed = (mine.double() - right[0]).abs(), 3 * off + epsilon * largest + 1e-6
        assert bool(torch.isfinite(mine).all()), "O of sequence %d has %d values that are not finite" % (i, int((~torch.isfinite(mine)).sum()))
        ratio = max(ratio, float(error.max()) / allowed if error.numel() else 0)
        assert ratio <= 1, "O of sequence %d is off by %.3g at %s, allowed %.3g (a plain computation %.3g)" % (i, error.max(), torch.nonzero(error == error.max())[0].tolist(), allowed, off)
    if lse is not None:
        starts = words["cu_seqlens_q"].tolist() if "cu_seqlens_q" in words else None
        for i, right in enumerate(exact):
            mine = (lse[:, starts[i]:starts[i + 1]] if starts else lse[i]).double()
            assert torch.equal(torch.isfinite(mine), torch.isfinite(right[1])), "the LSE of sequence %d is finite elsewhere" % i
            error = (mine - right[1]).nan_to_num(0, 0, 0).abs() / (1 + right[1].nan_to_num(0, 0, 0).abs() * 0.05)
            assert not error.numel() or float(error.max()) <= near, "the LSE of sequence %d is off by %.3g" % (i, error.max())
    return max(ratio, gradients(case, leaves, twins, ours, exact, split, generator) if case["trains"] else 0)


def gradients(case, leaves, twins, ours, exact, split, generator):
    """dS is rounded where it is largest: dQ and dK are allowed the sum of such roundings, as if they were random, and 0.02 of the largest."""
    weights = [torch.randn(x[0].shape, device=DEVICE, generator=generator).to(leaves[0].dtype) for x in exact]
    mine, right = (torch.autograd.grad(sum((o * w.to(o.dtype)).sum() for o, w in zip(of, weights)), tensors) for of, tensors in ((ours, leaves), ([x[0] for x in exact], twins)))
    epsilon, scale, worst = torch.finfo(leaves[0].dtype).eps, case["scale"] or case["dim"] ** -0.5, 0
    rises, columns, sizes = [], [], [float(x.detach().nan_to_num(0).abs().max()) for x in twins[:3]]
    for part, (_, _, w, _), d_o in zip(split(*(x.detach() for x in twins[:3])), exact, weights):
        if w.numel():
            rises.append(float((d_o.double() @ part[2].repeat_interleave(w.shape[0] // part[2].shape[0], 0).transpose(1, 2)).abs().max()))
            columns.append(float(w.detach().square().sum(-2).max().sqrt()) * (w.shape[0] / part[2].shape[0]) ** 0.5)
    rise, column, most = max(rises, default=0) / (1 - (case["dropout"] or 0)), max(columns, default=0), max(float(x.abs().max()) if x.numel() else 0 for x in weights)
    floors = [4 * scale * epsilon * rise * sizes[1], 4 * scale * epsilon * rise * sizes[0] * column, 4 * epsilon * most * column]
    names = ["q", "k", "v", *["sinks"] * case["sinks"], *(name for name, of in case["texts"].items() if isinstance(of, str) and " " not in of)]
    for i, (name, got, wanted) in enumerate(zip(names, mine, right, strict=True)):
        largest, what = float(wanted.abs().max()), "dQ dK dV".split()[i] if i < 3 else "the gradient of a buffer or sink, of shape %s," % list(wanted.shape)
        allowed = 0.02 * largest + floors[i] if i < 3 else 0.1 * largest + 4 * epsilon * rise * column + 1e-4
        if name in ("slope", "gain"):   # their terms cancel
            continue
        assert bool(torch.isfinite(got).all()), what + " has values that are not finite"
        error = float((got.double() - wanted).abs().max()) if got.numel() else 0
        assert error <= allowed + 1e-6, "%s is off by %.3g, allowed %.3g, the largest is %.3g" % (what, error, allowed, largest)
        worst = max(worst, error / (allowed + 1e-6))
    return worst


def random_calls(seed, seconds=0, count=1 << 30, only=None, variants=8, trees=False):
    """Judges calls until the time is over; a sentence about all. Behind the first of a problem come calls of any other lengths, by kernels that are loaded."""
    refused, kinds, wrong, missed, worst, begin = collections.Counter(), collections.Counter(), [], 0, 0.0, time.monotonic()
    for number in range(count) if only is None else [only]:
        if seconds and time.monotonic() - begin > seconds:
            break
        chance, generator = random.Random(seed * 1000003 + number), torch.Generator(DEVICE).manual_seed(seed * 1000003 + number)
        case, told = draw(chance, trees), 0
        try:
            for told in range(1 if case["compiled"] else variants):
                case.update(lengths(chance, case["form"], case.get("most", 1400)) if told else {})
                try:
                    with fa_tune.policy(effort="cached" if told else "predict", on_miss="nearest" if told else "raise"):
                        worst, kinds[case["form"]] = max(worst, judge(case, chance, generator)), kinds[case["form"]] + 1
                except fa_tune.NotTuned:
                    missed += 1
        except fa_tune.NotSupported as error:
            refused[str(error)[:110]] += 1
        except Exception as error:  # pylint: disable=broad-exception-caught
            wrong.append(number)
            what, how = {name: word for name, word in case.items() if word}, error if isinstance(error, AssertionError) else traceback.format_exc()[-1200:]
            print("WRONG --seed %d --only %d, variant %d: %s\n    %s" % (seed, number, told, what, how), flush=True)
            if isinstance(error, torch.AcceleratorError if hasattr(torch, "AcceleratorError") else ()):
                break   # the context is lost
    for words, times in refused.most_common(12):
        print("refused %d times: %s" % (times, words), flush=True)
    summary = "calls of %s, the largest error %.2f of what is allowed; %d refused, %d without a kernel that is near; seed %d" % (
        dict(kinds), worst, sum(refused.values()), missed, seed)
    assert not wrong, "%s; wrong: %s" % (summary, wrong)
    return summary


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--only", type=int, help="the number of one call")
    parser.add_argument("--trees", action="store_true", help="of random texts alone, with gradients")
    parser.add_argument("--variants", type=int, default=8, help="lengths for a kernel (8)")
    options = parser.parse_args()
    print(random_calls(options.seed, options.seconds, only=options.only, variants=options.variants, trees=options.trees), flush=True)
