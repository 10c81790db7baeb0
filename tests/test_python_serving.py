#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Attention as serving engines call it, from Python on the fake driver: what is passed makes the problem that it
says, by attention() and under the names of other libraries, comes out right, and is refused by name."""
import inspect
import math
import os
import random

import tap
from attention_case import DIM, Inputs, answered, attend, captured, close, logged, numbers, refused
from serving_case import Ragged, floats, ints
import producer
from producer import Exchanged
import fa_tune
from fa_tune._mods import traced

SLOW = os.environ.get("FA_TEST_SLOW") == "1"
held, Held = {}, type("Held", (), {})


def asked(*tensors, by=fa_tune.attention, **keywords):
    """The problem that is asked for tells what was understood: its fields that are not the usual ones."""
    seen = []
    with answered(lambda problem, *_: seen.append(problem) or "instead"):
        tap.equal(by(*tensors, **keywords), "instead")
    usual = fa_tune._core.problem({"seq_q": 1})
    return {name: value for name, value in seen[0].items()
            if value != usual.get(name) and name not in ("head_dim", "dtype")}


def a_paged_cache_with_lengths_is_attended_to():
    batch, heads, heads_kv, keys, page = 2, 4, 2, 40, 16
    lengths, table = [40, 19], [[3, 1, 4], [0, 2, 7]]
    numbers_q = numbers(batch * heads * DIM)
    pool = [numbers(9 * heads_kv * page * DIM) for _ in range(2)]

    def of_sequence(cache, b, length):
        """[heads_kv, length, DIM] as the table says."""
        return [cache[((table[b][j // page] * heads_kv + h) * page + j % page) * DIM + d]
                for h in range(heads_kv) for j in range(length) for d in range(DIM)]
    expected = []
    for b, length in enumerate(lengths):
        k, v = (of_sequence(cache, b, length) for cache in pool)
        q = numbers_q[b * heads * DIM:(b + 1) * heads * DIM]
        expected += attend(q, k, v, 1, heads, heads_kv, 1, length)[0]
    q = Exchanged((batch, heads, 1, DIM), numbers_q)
    k, v = (Exchanged((9, heads_kv, page, DIM), cache) for cache in pool)
    seqused = Exchanged((batch,), lengths, dtype=(producer.INT, 32))
    block_table = Exchanged((batch, 3), [entry for row in table for entry in row], dtype=(producer.INT, 32))
    out = fa_tune.attention(q, k, v, seqused_k=seqused, block_table=block_table, max_seqlen_k=keys)
    close(out.read(), expected)
    tap.equal(Exchanged.made, [])  # a workspace, if one was taken, has been given back


def what_serving_passes_makes_the_problem_it_says():
    q, cache = Exchanged((3, 4, 1, DIM)), [Exchanged((3, 2, 40, DIM)) for _ in range(2)]
    decode = {"batch": 3, "heads_q": 4, "heads_kv": 2, "seq_k": 40}
    tap.equal(asked(q, *cache, window=(16, 0), softcap=30.0, sinks=floats(4), batch_invariant=True),
              dict(decode, window=True, window_left=16, softcap=True, sinks=True, batch_invariant=True))
    tap.equal(asked(q, *cache, window=(-1, -1), softcap=0.0), decode)
    tap.equal(asked(q, *cache, seqused_k=ints(3)), dict(decode, lengths_k="seqused"))
    pool = [Exchanged((9, 2, 16, DIM)) for _ in range(2)]
    tap.equal(asked(q, *pool, block_table=ints(3, 5), seqused_k=ints(3)), dict(decode, seq_k=80, page=16, lengths_k="seqused"))
    fp8 = [Exchanged((9, 2, 16, DIM), dtype=(10, 8)) for _ in range(2)]
    one = asked(q, *fp8, block_table=ints(3, 5), seqused_k=ints(3), max_seqlen_k=70, k_scale=floats(), v_scale=floats(3, 2))
    tap.equal(one, dict(decode, seq_k=70, page=16, lengths_k="seqused", kv_dtype="fp8"))
    narrow, scales = [Exchanged((3, heads, 40, DIM), dtype=(10, 8)) for heads in (4, 2, 2)], {"k_scale": floats(3, 2), "v_scale": floats()}
    for more in ({}, {"out": Exchanged((3, 4, 40, DIM), dtype=(4, 16))}, {"out": Exchanged((3, 4, 40, DIM))}):
        tap.equal(asked(*narrow, **scales, **more), dict(decode, seq_q=40, kv_dtype="fp8", q_dtype="fp8"))
    refused(fa_tune.DtypeError, "out is float8_e4m3fn and needs bfloat16", *narrow, **scales, out=narrow[0])
    refused(fa_tune.ShapeError, "q_scale must be one scale, or as many as k_scale has", *narrow, **scales, q_scale=floats(3))
    rows, keys = Exchanged((50, 4, DIM)), [Exchanged((70, 2, DIM)) for _ in range(2)]
    ragged = {"cu_seqlens_q": ints(4), "cu_seqlens_k": ints(4), "max_seqlen_q": 30, "max_seqlen_k": 40}
    tap.equal(asked(rows, *keys, causal=True, out=Exchanged((50, 4, DIM)), **ragged),
              dict(decode, seq_q=30, causal="bottom-right", layout="bshd", varlen=True, lengths_k="cu_seqlens"))
    dense = [Exchanged((3, 40, 2, DIM)) for _ in range(2)]  # rows of queries only
    tap.equal(asked(rows, *dense, cu_seqlens_q=ints(4), max_seqlen_q=30), dict(decode, seq_q=30, layout="bshd", varlen=True))
    for kind, part, tensors, keywords in [
            (fa_tune.ShapeError, "seqused_k has 2 entries and needs 3", (q, *cache), {"seqused_k": ints(2)}),
            (fa_tune.DtypeError, "sinks is int32 and needs float32", (q, *cache), {"sinks": ints(4)}),
            (fa_tune.ArgumentError, "need max_seqlen_q", (rows, *dense), {"cu_seqlens_q": ints(4)}),
            (fa_tune.ShapeError, "k has 3 sequences and there are 4", (rows, *dense), {"cu_seqlens_q": ints(5), "max_seqlen_q": 30}),
            (fa_tune.ArgumentError, "both k_scale and v_scale", (q, *fp8), {"k_scale": floats()}),
            (fa_tune.ShapeError, "[total, heads, head_dim]", (q, *cache), ragged),
            (fa_tune.ArgumentError, "window must be a pair", (q, *cache), {"window": 16}),
            (fa_tune.ArgumentError, "window must hold two ints", (q, *cache), {"window": (1 << 70, 0)}),
            (fa_tune.ArgumentError, "softcap must be a number", (q, *cache), {"softcap": "30"}),
            (fa_tune.ArgumentError, "softcap must be positive", (q, *cache), {"softcap": 1e-60}),
            (fa_tune.ArgumentError, "max_seqlen_k must be an int", (q, *cache), {"seqused_k": ints(3), "max_seqlen_k": 3.5}),
            (fa_tune.ArgumentError, "max_seqlen_k is 41, and a sequence has room for 40 keys", (q, *cache),
             {"seqused_k": ints(3), "max_seqlen_k": 41}),
            (fa_tune.ArgumentError, "room for 80 keys", (q, *pool), {"block_table": ints(3, 5), "max_seqlen_k": 81}),
            (fa_tune.ArgumentError, "cu_seqlens_k and seqused_k both", (rows, *keys), dict(ragged, seqused_k=ints(3))),
            (fa_tune.ShapeError, "cu_seqlens_q has no sequence", (rows, *keys), dict(ragged, cu_seqlens_q=ints(1))),
            (fa_tune.ShapeError, "k_scale has the shape (2): pass one scale, (3) or (3, 2)", (q, *fp8),
             {"block_table": ints(3, 5), "seqused_k": ints(3), "k_scale": floats(2), "v_scale": floats()}),
            (fa_tune.ShapeError, "v_scale has the shape (3, 4)", (q, *fp8),
             {"block_table": ints(3, 5), "seqused_k": ints(3), "k_scale": floats(), "v_scale": floats(3, 4)})]:
        refused(kind, part, *tensors, **keywords)


def windows_count_from_the_last_key_unless_the_mask_is_top_left():
    """The rule of flash-attn, for every key; sequences of one length give the same by every name."""
    chance = random.Random(2915)  # each mask and all kinds of windows among its first six
    for at in range(10 if SLOW else 6):
        rows, keys = chance.choice([1, 3, 5, 8]), chance.choice([2, 4, 9, 13])
        left, right = chance.choice([(-1, 0), (0, -1), (2, -1), (-1, 3), (0, 0), (1, 2), (6, 1), (-1, -1)])
        causal = chance.choice([False, True, True, "top-left"])
        shift = 0 if causal == "top-left" else keys - rows

        def sees(i, j):
            return not ((causal and j > i + shift) or (0 <= left < i + shift - j) or (0 <= right < j - i - shift))
        case = Inputs(batch=2, heads=2, heads_kv=1, rows=rows, keys=keys)
        q, k, v = case.tensors
        expected = case.expected(sees=sees)[0]
        how = "case %d: %d queries, %d keys, window %d, %d, causal %s" % (at, rows, keys, left, right, causal)
        close(fa_tune.attention(q, k, v, window=(left, right), causal=causal).read(), expected, how=how)
        if causal == "top-left":
            continue

        def turned(flat, tensor):  # [batch, seq, heads, DIM]
            batch, heads, seq, _ = tensor.shape
            return [flat[((b * heads + h) * seq + i) * DIM + d] for b in range(batch) for i in range(seq)
                    for h in range(heads) for d in range(DIM)]
        expected = turned(expected, q)
        whole, packed = ([Exchanged(shape + (t.shape[1], DIM), turned(t.read(), t)) for t in case.tensors
                          for shape in [(2, t.shape[2]) if apart else (2 * t.shape[2],)]] for apart in (True, False))
        lengths = dict(cu_seqlens_q=ints(3, values=[0, rows, 2 * rows]), max_seqlen_q=rows,
                       cu_seqlens_k=ints(3, values=[0, keys, 2 * keys]), max_seqlen_k=keys)
        close(fa_tune.attention_decode(*whole, window_size=(left, right), causal=causal).read(), expected, how=how)
        if causal or SLOW:  # without, it is a kernel of its own
            close(fa_tune.attention_varlen(*packed, window_size=(left, right), causal=causal, **lengths).read(), expected, how=how)


def tables_that_would_lead_the_device_astray_are_refused():
    q, pool = Exchanged((3, 4, 1, DIM)), [Exchanged((9, 2, 16, DIM)) for _ in range(2)]
    good = {"block_table": ints(3, 5, values=[0] * 15), "seqused_k": ints(3, values=[80] * 3)}
    for part, change in [
            ("seqused_k begins at", {"seqused_k": Exchanged((3,), dtype=(producer.INT, 32), offset=2)}),
            ("block_table begins at", {"block_table": Exchanged((3, 5), dtype=(producer.INT, 32), offset=1)}),
            ("the rows of block_table overlap", {"block_table": Exchanged((3, 5), dtype=(producer.INT, 32), strides=(0, 1))}),
            ("the rows of block_table overlap", {"block_table": Exchanged((3, 5), dtype=(producer.INT, 32), strides=(-5, 1))}),
            ("no memory is so large", {"block_table": Exchanged((3, 5), dtype=(producer.INT, 32), strides=(2 ** 63 - 1, 1))}),
            ("below 2^31", {"cu_seqlens_q": Exchanged((-2 ** 31,), dtype=(producer.INT, 32), memory=q.memory)})]:
        refused(fa_tune.Error, part, q, *pool, **dict(good, **change))
    fp8 = [Exchanged((9, 2, 16, DIM), dtype=(10, 8)) for _ in range(2)]
    far = Exchanged((3, 2), dtype=(producer.FLOAT, 32), strides=(2, 2 ** 40))
    refused(fa_tune.ArgumentError, "k_scale_stride", q, *fp8, k_scale=far, v_scale=far, **good)
    fa_tune.attention(q, *pool, **good)  # the device is as well as before


def attention_varlen_takes_rows_behind_one_another():
    case = Ragged([5, 1, 3], [9, 4, 3])
    q, k, v, cu_q, cu_k = case.tensors()
    how = dict(max_seqlen_q=5, cu_seqlens_q=cu_q, max_seqlen_k=9, cu_seqlens_k=cu_k)
    for causal in (False, True) if SLOW else (True,):  # without, it is a kernel of its own
        out, lse = fa_tune.attention_varlen(q, k, v, causal=causal, return_softmax_lse=True, **how)
        tap.equal((out.shape, lse.shape), (q.shape, (case.HEADS, 9)))
        expected = case.expected(causal)
        close(out.read(), expected[0])
        close(lse.read(), expected[1])
    mine = Exchanged(q.shape)
    assert fa_tune.attention_varlen(q=q, k=k, v=v, out=mine, causal=True, window_size=[-1, -1], softcap=0.0, fa_version=3,
                                    dropout_p=0.0, alibi_slopes=None, num_splits=4, cp_world_size=1, **how) is mine
    tap.equal(mine.read(), out.read())


def attention_varlen_takes_a_paged_cache_whose_heads_may_lie_before_its_keys():
    case = Ragged([2, 4, 1], [20, 33, 7])
    q, _, _, cu_q, _ = case.tensors()
    k, v, table = case.pages(16, 40)
    how = dict(max_seqlen_q=4, cu_seqlens_q=cu_q, seqused_k=ints(3, values=case.keys), block_table=table, max_seqlen_k=40, causal=True)
    out = fa_tune.attention_varlen(q, k, v, **how)
    close(out.read(), case.expected(causal=True)[0])

    def heads_first(tensor):
        pages, page, heads, _ = tensor.shape
        flat = tensor.read()
        turned = [flat[((p * page + j) * heads + h) * DIM + d] for p in range(pages) for h in range(heads)
                  for j in range(page) for d in range(DIM)]
        memory = Exchanged((pages, heads, page, DIM), turned).memory
        return Exchanged(tensor.shape, strides=(heads * page * DIM, DIM, page * DIM, 1), memory=memory)
    tap.equal(fa_tune.attention_varlen(q, heads_first(k), heads_first(v), **how).read(), out.read())


def attention_decode_takes_a_cache_in_pages_or_whole():
    case = Ragged([1, 1, 1], [20, 33, 7])
    rows, _, _, cu_q, _ = case.tensors()
    k, v, table = case.pages(16, 40)
    lengths = ints(3, values=case.keys)
    q = Exchanged((3, 1, case.HEADS, DIM), memory=rows.memory)
    expected = case.expected()
    out, lse = fa_tune.attention_decode(q, k, v, cache_seqlens=lengths, page_table=table, return_softmax_lse=True)
    tap.equal((out.shape, lse.shape), (q.shape, (3, case.HEADS, 1)))
    close(out.read(), expected[0])
    close([lse.read()[b * case.HEADS + h] for h in range(case.HEADS) for b in range(3)], expected[1])
    packed = fa_tune.attention_decode(rows, k, v, cache_seqlens=lengths, block_table=table, cu_seqlens_q=cu_q, max_seqlen_q=1, causal=True)
    tap.equal(packed.shape, rows.shape)
    close(packed.read(), expected[0])


def lengths_and_tables_are_read_by_the_device_alone():
    """A captured launch takes what the device holds when it runs; and a call copies nothing to the host."""
    case, other = Ragged([1, 1, 1], [20, 33, 7]), Ragged([1, 1, 1], [5, 40, 16])
    how = {"cache_seqlens": ints(3, values=case.keys), "max_seqlen_k": 40}
    q = Exchanged((3, 1, case.HEADS, DIM), case.q)
    k, v, how["block_table"] = case.pages(16, 40)
    close(fa_tune.attention_decode(q, k, v, **how).read(), case.expected()[0])
    close(fa_tune.attention_decode(q, k, v, mean_k=1 << 20, **how).read(), case.expected()[0])  # a constant of the caller's
    k2, v2, table = other.pages(16, 40)
    for mine, theirs in ((q, other.q), (k, k2.read()), (v, v2.read()), (how["cache_seqlens"], other.keys), (how["block_table"], table.read())):
        mine.write(theirs)
    out, loads = Exchanged(q.shape), len(logged("load"))
    with captured():
        fa_tune.attention_decode(q, k, v, out=out, **how)
    close(out.read(), other.expected()[0])
    tap.equal(len(logged("load")), loads)


def names_of_other_libraries_make_the_same_problem():
    q, pool = Exchanged((50, 4, DIM)), [Exchanged((9, 16, 2, DIM)) for _ in range(2)]
    lengths, table, cu = ints(3), ints(3, 5), ints(4)
    ours = asked(q, *pool, cu_seqlens_q=cu, max_seqlen_q=30, seqused_k=lengths, block_table=table, max_seqlen_k=70,
                 causal=True, window=(16, 0), softcap=30.0, sinks=floats(4), layout="bshd", batch_invariant=True)
    theirs = dict(cu_seqlens_q=cu, max_seqlen_q=30, seqused_k=lengths, block_table=table, max_seqlen_k=70, causal=True,
                  window_size=(16, 0), softcap=30.0, s_aux=floats(4), batch_invariant=True)
    tap.equal(asked(q, *pool, by=fa_tune.attention_varlen, **theirs), ours)
    theirs["cache_seqlens"], theirs["sinks"] = theirs.pop("seqused_k"), theirs.pop("s_aux")
    tap.equal(asked(q, *pool, by=fa_tune.attention_decode, **theirs), ours)
    fp8 = [Exchanged((9, 16, 2, DIM), dtype=(10, 8)) for _ in range(2)]
    tap.equal(asked(q, *fp8, by=fa_tune.attention_varlen, max_seqlen_q=30, cu_seqlens_q=cu, seqused_k=lengths,
                    block_table=table, k_descale=floats(3, 2), v_descale=floats(1, 1)),
              {"batch": 3, "heads_q": 4, "heads_kv": 2, "seq_q": 30, "seq_k": 80, "layout": "bshd", "varlen": True,
               "lengths_k": "seqused", "page": 16, "kv_dtype": "fp8"})


def values_may_have_a_head_dim_of_their_own():
    q, k, v = Exchanged((3, 4, 1, 192)), Exchanged((3, 2, 40, 192)), Exchanged((3, 2, 40, 128))
    out = Exchanged((3, 4, 1, 128))
    tap.equal(asked(q, k, v, out=out)["head_dim_v"], 128)
    latent, query = Exchanged((9, 16, 1, 576)), Exchanged((3, 1, 16, 576))
    names = dict(by=fa_tune.attention_decode, cache_seqlens=ints(3), block_table=ints(3, 6), max_seqlen_k=80)
    for values, once in ((Exchanged((9, 16, 1, 512), memory=latent.memory, strides=latent.strides), True), (Exchanged((9, 16, 1, 512)), None)):
        one = asked(query, latent, values, **names)
        tap.equal((one["head_dim_v"], one.get("v_in_k")), (512, once))

    class Sliced(Exchanged):
        def __getitem__(self, place):
            tap.equal(place[0], ...)
            columns = len(range(*place[1].indices(self.shape[-1])))
            return Exchanged((*self.shape[:-1], columns), memory=self.memory, strides=self.strides, dtype=self.dtype)
    latent = Sliced((9, 16, 1, 576))
    one = asked(query, latent, v_dim=512, **names)
    tap.equal((one["head_dim_v"], one.get("v_in_k")), (512, True))
    for wrong, kind, part in ((600, fa_tune.ShapeError, "v_dim must be a number of k_cache's columns"), (-8, fa_tune.ShapeError, "v_dim must be")):
        refused(kind, part, query, latent, v_dim=wrong, **names)
    rows = Sliced((9, 16, 1, 656), dtype=(1, 8))
    one = asked(query, rows, v_dim=512, **names)
    tap.equal([one.get(name) for name in ("head_dim_v", "v_in_k", "kv_dtype")], [512, True, "fp8_ds_mla"])
    refused(fa_tune.ShapeError, "k_cache has the shape (9, 16, 1, 576) and needs (9, 16, 1, 656)", query, Sliced((9, 16, 1, 576), dtype=(1, 8)), v_dim=512, **names)
    refused(fa_tune.DtypeError, "k_cache is uint8 and has a scale", query, rows, v_dim=512, k_descale=floats(1), v_descale=floats(1), **names)
    refused(fa_tune.ArgumentError, "v_cache and v_dim are given", query, latent, v_cache=latent, v_dim=512, **names)
    refused(fa_tune.ShapeError, "out has the shape (3, 4, 1, 192) and needs (3, 4, 1, 128)", q, k, v, out=q)
    case = Ragged([1], [9])
    narrow = [case.v[at * DIM + d] for at in range(9 * case.HEADS_KV) for d in range(48)]
    q, k, _, cu_q, cu_k = case.tensors()
    out = fa_tune.attention_varlen(q, k, Exchanged((9, case.HEADS_KV, 48), narrow), cu_seqlens_q=cu_q, max_seqlen_q=1,
                                   cu_seqlens_k=cu_k, max_seqlen_k=9)
    tap.equal(out.shape, (1, case.HEADS, 48))
    whole = case.expected()[0]
    close(out.read(), [whole[h * DIM + d] for h in range(case.HEADS) for d in range(48)])


def scores_and_masks_are_expressions():
    """Of the query head, the batch and the positions, beside a causal mask."""
    case, wanted = Inputs(batch=2, heads=4, heads_kv=2, rows=6, keys=9), []
    q, k, v = ([flat[i:i + DIM] for i in range(0, len(flat), DIM)] for flat in case.numbers)
    for row, query in enumerate(q):
        b, h, at = row // 24, row // 6 % 4, row % 6 + 3
        first = (b * 2 + h // 2) * 9
        weights = {first + j: math.exp(sum(x * y for x, y in zip(query, k[first + j])) * DIM ** -0.5 - 0.25 * (h + 1) * abs(at - j))
                   for j in range(at + 1) if b == 0 or j % 2 == 0}
        wanted += [sum(w * v[j][d] for j, w in weights.items()) / sum(weights.values()) for d in range(DIM)]
    close(fa_tune.attention(*case.tensors, causal=True, mask="b == 0 or k % 2 == 0", score="score - 0.25 * (h + 1) * abs(q - k)").read(), wanted)
    held = {"slope": Exchanged((4,), [0.25 * (h + 1) for h in range(4)], dtype=(producer.FLOAT, 32)), "n": 2}
    close(fa_tune.attention(*case.tensors, causal=True, mask="b == 0 or k % n == 0", score="score - slope[h] * abs(q - k)",
                            buffers=held).read(), wanted)
    close(fa_tune.attention(*case.tensors, causal=True, mask=lambda b, h, q, k: (b == 0) | (k % held["n"] == 0),
                            score=lambda score, b, h, q, k, by=0.25: score - by * (h + 1) * abs(q - k)).read(), wanted)
    for part, mask in (("a mask is true or false", "k + 1"), ("mask must be a str", 3), ("without NUL", "k <= q\0 and k < 9"), ("no quotes", "k <= 'q'")):
        refused(fa_tune.ArgumentError, part, *case.tensors, mask=mask)


def functions_say_what_numbers_are_today():
    for by in (0.5, 0.25):
        held["by"], Held.by = by, by
        of_keyword = lambda score, b, h, q, k, *, by=by: score * by if isinstance(by, float) else score
        tap.equal(traced(of_keyword, None, None)[::2], ("(score * x0)", {"x0": by}))
        functions = (lambda s, *_: s * held["by"], lambda s, *_: s * Held.by, lambda s, *_: (lambda x: x * Held.by)(s), lambda s, *_, by=by: s * by if by.hex() else s)
        tap.equal([traced(function, None, None)[0] for function in functions], ["(score * %s)" % by] * 4)
    for cell, text in ((0.5, "x0"), (0.25, "x0"), (3, "x0"), (1 << 40, 1 << 40), (4.0, "x0"), (False, "(0 == 1)"), (5, "x0")):  # of one code
        tap.equal(traced(lambda score, *_: score * cell, None, None)[::2], ("(score * %s)" % text, {"x0": cell} if text == "x0" else None))
    by_count = lambda *at: at[-5] * len(at)
    tap.equal([traced(one, None, None)[0] for one in (by_count, by_count.__get__(0))], ["(score * 5)", "(score * 6)"])  # a method has its function's code
    tap.equal(traced(None, lambda b, h, q, k: b.new_ones((), dtype="bool") & (q >= k), None)[1], "(q >= k)")  # and_masks
    tap.equal(traced(lambda score, b, h, q, k, nine=[0.5] * 9: score.to("cuda:0") + sum(nine), None, None)[::2], ("(score + 4.5)", None))


def what_these_names_cannot_mean_is_refused_by_name():
    q, pool, cu = Exchanged((50, 4, DIM)), [Exchanged((9, 16, 2, DIM)) for _ in range(2)], ints(4)
    good = dict(max_seqlen_q=30, cu_seqlens_q=cu, seqused_k=ints(3), block_table=ints(3, 5))
    for kind, part, change in [
            (TypeError, "attention_varlen() has no argument 'layout'", {"layout": "bhsd"}),
            (TypeError, "attention_varlen() has no argument 'window': did you mean 'window_size'?", {"window": (3, 0)}),
            (TypeError, "attention_varlen() got sinks twice", {"s_aux": floats(4), "sinks": floats(4)}),
            (fa_tune.ArgumentError, "attention_varlen() needs cu_seqlens_q", {"cu_seqlens_q": None}),
            (fa_tune.ArgumentError, "needs the lengths of the keys", {"seqused_k": None}),
            (fa_tune.ArgumentError, "need max_seqlen_q", {"max_seqlen_q": None}),
            (fa_tune.ArgumentError, "softmax_scale must be positive", {"softmax_scale": -1}),
            (fa_tune.ArgumentError, "softmax_scale must be a number", {"softmax_scale": "1"}),
            (fa_tune.ArgumentError, "window_size must be a pair", {"window_size": (1, 2, 3)}),
            (fa_tune.ArgumentError, "both k_descale and v_descale", {"k_descale": floats()}),
            (fa_tune.DtypeError, "k is float16 and has a scale", {"k_descale": floats(), "v_descale": floats()}),
            (fa_tune.DtypeError, "s_aux is int32 and needs float32", {"s_aux": ints(4)}),
            (fa_tune.ArgumentError, "(out, lse) with return_softmax_lse=True", {"out": (q, q)}),
            (fa_tune.ArgumentError, "dropout_p is a number from 0 up to less than 1, not 1.5", {"dropout_p": 1.5}),
            (fa_tune.NotSupported, "q_descale is for a q of float8_e4m3fn", {"q_descale": floats()}),
            (fa_tune.NotSupported, "does not take return_attn_probs", {"return_attn_probs": True}),
            (fa_tune.NotSupported, "does not take cp_world_size", {"cp_world_size": 2})]:
        refused(kind, part, q, *pool, **dict(good, **change), by=fa_tune.attention_varlen)
    q, good = Exchanged((3, 1, 4, DIM)), dict(cache_seqlens=ints(3), block_table=ints(3, 5))
    for kind, part, change in [
            (TypeError, "attention_decode() has no argument 'seqused_k'", {"seqused_k": ints(3)}),
            (fa_tune.TensorError, "cache_seqlens is of type int", {"cache_seqlens": 40}),
            (fa_tune.ShapeError, "cache_seqlens has 2 entries and needs 3", {"cache_seqlens": ints(2)}),
            (fa_tune.DtypeError, "page_table is float32 and needs int32", {"block_table": None, "page_table": floats(3, 5)}),
            (fa_tune.NotSupported, "attention_decode() does not take k: write new keys", {"k": q, "v": q}),
            (fa_tune.NotSupported, "does not take cache_batch_idx", {"cache_batch_idx": ints(3)})]:
        refused(kind, part, q, *pool, **dict(good, **change), by=fa_tune.attention_decode)
    refused(fa_tune.ShapeError, "v_cache has the shape (9, 16, 1, 64)", q, pool[0], Exchanged((9, 16, 1, DIM)), **good, by=fa_tune.attention_decode)
    refused(TypeError, "takes q, k_cache and v_cache by position", q, *pool, ints(3), by=fa_tune.attention_decode)


def signatures_and_docstrings_name_every_argument():
    for function in (fa_tune.attention, fa_tune.attention_varlen, fa_tune.attention_decode):
        named = [name for name in inspect.signature(function).parameters if name not in ("more", "stream")]
        body = function.__doc__
        for name in named:
            assert name in body, "%s's docstring does not tell %s" % (function.__name__, name)
        assert len(named) >= 9


tap.main()
