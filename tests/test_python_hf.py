#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""attn_implementation="fa_tune" of Hugging Face transformers, against stand-ins of as much of torch and of transformers
5.17 as it uses: which masks become numbers of keys, and what calls and continuous batching hand over. transformers itself
is not here; tests/gpu_python.py runs it."""
import importlib
import itertools
import math
import os
import sys
import types
import warnings
from unittest import mock

import tap

sys.path.insert(0, os.path.join(os.environ["FA_TEST_BUILD"], "python"))
import fa_tune  # noqa: E402


# ---- as much of torch as it uses -----------------------------------------------------------------
class Tensor:
    """Numbers in rows. `waits` counts what makes the host wait for them."""
    waits, device, is_cuda, requires_grad = 0, "cuda", True, False

    def __init__(self, shape, flat=None, dtype="int64"):
        self.shape, self.dtype = tuple(shape), dtype
        self.flat = [0] * math.prod(self.shape) if flat is None else list(flat)
        assert len(self.flat) == math.prod(self.shape), (self.shape, self.flat)

    def dim(self):
        return len(self.shape)

    def at(self, place):
        index = 0
        for i, size in zip(place[len(place) - len(self.shape):], self.shape):
            index = index * size + (i if size > 1 else 0)
        return self.flat[index]

    def _with(self, other, compute, dtype=None):
        if not isinstance(other, Tensor):
            other = Tensor((), [other])
        shape = [max(pair) for pair in itertools.zip_longest(self.shape[::-1], other.shape[::-1], fillvalue=1)][::-1]
        return Tensor(shape, [compute(self.at(place), other.at(place)) for place in itertools.product(*map(range, shape))], dtype or self.dtype)

    def __add__(self, other): return self._with(other, lambda a, b: a + b)
    def __sub__(self, other): return self._with(other, lambda a, b: a - b)
    def __floordiv__(self, other): return self._with(other, lambda a, b: a // b)
    def __and__(self, other): return self._with(other, lambda a, b: a & b)
    def __or__(self, other): return self._with(other, lambda a, b: a | b)
    def __lt__(self, other): return self._with(other, lambda a, b: a < b, "bool")
    def __le__(self, other): return self._with(other, lambda a, b: a <= b, "bool")
    def __invert__(self): return Tensor(self.shape, [not x for x in self.flat], "bool")

    def __bool__(self):
        Tensor.waits += 1
        return bool(self.flat[0])

    def __getitem__(self, at):
        if isinstance(at, int):
            size = math.prod(self.shape[1:])
            return Tensor(self.shape[1:], self.flat[at * size:(at + 1) * size], self.dtype)
        if isinstance(at, Tensor):
            return Tensor(at.shape, [self.flat[i] for i in at.flat], self.dtype)
        if at is None:
            return self.view(1, *self.shape)
        if isinstance(at, slice):  # of rows, which a view shares with nobody here
            return Tensor((len(range(*at.indices(self.shape[0]))), *self.shape[1:]), self.flat[at], self.dtype)
        if at[1] is None:
            return self[at[0]].view(-1, 1)
        rows = [self.flat[i:i + self.shape[1]][at[1]] for i in range(0, len(self.flat), self.shape[1])]
        return Tensor((len(rows), len(rows[0])), sum(rows, []), self.dtype)

    def view(self, *shape):
        known = math.prod(size for size in shape if size != -1)
        return Tensor([len(self.flat) // known if size == -1 else size for size in shape], self.flat, self.dtype)

    reshape = view

    def transpose(self, one, other):
        shape = list(self.shape)
        shape[one], shape[other] = shape[other], shape[one]
        return Tensor(shape, self.flat, self.dtype)  # whose numbers nobody looks at

    def new_empty(self, shape): return Tensor(shape, dtype=self.dtype)
    def to(self, dtype): return Tensor(self.shape, self.flat, dtype)
    def bool(self): return Tensor(self.shape, [x != 0 for x in self.flat], "bool")
    def float(self): return Tensor(self.shape, self.flat, "float32")
    def any(self): return Tensor((), [any(self.flat)], "bool")
    def diff(self): return Tensor((len(self.flat) - 1,), [b - a for a, b in zip(self.flat, self.flat[1:])], self.dtype)
    def clamp(self, max): return self._with(max, lambda a, b: min(a, b))
    def repeat(self, *times): return Tensor(times, self.flat * math.prod(times), self.dtype)

    def sum(self, dim):
        tap.equal((dim, len(self.shape)), (-1, 2))
        return Tensor(self.shape[:1], [sum(self.flat[i:i + self.shape[1]]) for i in range(0, len(self.flat), self.shape[1])])


def arange(*ends, device):
    return Tensor((len(range(*ends)),), range(*ends))


state = types.SimpleNamespace(tracing=False, captured=False, compiling=False)
asserted = []
torch = types.ModuleType("torch")
vars(torch).update(
    Tensor=Tensor, int32="int32", arange=arange, is_grad_enabled=lambda: False,
    full=lambda shape, value, dtype, device: Tensor(shape, [value] * math.prod(shape), dtype),
    _assert_async=lambda condition, sentence: asserted.append((condition.flat[0], sentence)),
    compiler=types.SimpleNamespace(is_compiling=lambda: state.compiling),
    cuda=types.SimpleNamespace(is_current_stream_capturing=lambda: state.captured))


# ---- as much of transformers ---------------------------------------------------------------------
def causal_mask_function(*_):
    raise AssertionError("nobody computes it here")


def sliding_window_overlay(sliding_window):
    def inner_mask(*_):
        return sliding_window
    return inner_mask


def and_masks(*mask_functions):
    def and_mask(*_):
        return mask_functions
    return and_mask


def sdpa_mask(**more):
    """None where transformers leaves it out."""
    return None if more.get("allow_is_causal_skip", True) and more.get("left_out") else "a mask"


def sdpa_attention_forward(module, query, key, value, attention_mask, **more):
    fallen_back.append(attention_mask)
    return "SDPA's", None


class Interface(dict):
    def register(self, name, function):
        self[name] = function


fallen_back = []
transformers = types.ModuleType("transformers")
transformers.masking_utils = types.SimpleNamespace(
    causal_mask_function=causal_mask_function, sdpa_mask=sdpa_mask, is_tracing=lambda _: state.tracing)
transformers.AttentionInterface, transformers.AttentionMaskInterface = Interface(), Interface()
sdpa_attention = types.ModuleType("transformers.integrations.sdpa_attention")
sdpa_attention.sdpa_attention_forward = sdpa_attention_forward
sys.modules.update({"torch": torch, "transformers": transformers, "transformers.integrations": types.ModuleType("integrations"),
                    "transformers.integrations.sdpa_attention": sdpa_attention})
hf = importlib.import_module("fa_tune._hf")
hf.register()
ATTENTION, PAGED = (transformers.AttentionInterface[name] for name in ("fa_tune", "paged|fa_tune"))
make_mask = transformers.AttentionMaskInterface["fa_tune"]


def mask(q_length=1, kv_length=8, q_offset=0, mask_function=causal_mask_function, **more):
    """The numbers of keys, or what else is made."""
    made = make_mask(batch_size=2, q_length=q_length, kv_length=kv_length, q_offset=q_offset, mask_function=mask_function,
                     device="cuda", allow_is_causal_skip=more.pop("skip", q_length > 1), **more)
    if not isinstance(made, Tensor):
        return made
    tap.equal((made.shape, made.dtype, hf._are_lengths(made)), ((2, 1, 1, 1), "int32", True))
    return made.flat


def number(value):
    return Tensor((), [value])


def padding(*rows):
    return Tensor((len(rows), len(rows[0])), [x == "1" for row in rows for x in row], "bool")


def masks_of_a_cache_become_numbers_of_keys():
    tap.equal(mask(q_offset=number(5)), [6, 6])                  # a step of decoding with a static cache
    tap.equal(mask(q_offset=number(3), q_length=4), [7, 7])      # a chunk of a prompt
    tap.equal(mask(q_offset=0), [1, 1])                          # a prompt of one token: the cache is not made yet
    tap.equal(mask(q_length=4, left_out=True), None)             # the prompt of an empty cache
    tap.equal(mask(skip=True, kv_length=6, q_offset=5, left_out=True), None)  # a growing cache
    tap.equal(mask(q_length=2, kv_length=8, q_offset=6), [8, 8])  # two tokens of it
    tap.equal(mask(q_length=2, kv_length=8, q_offset=7), "a mask")  # more than there are
    window = and_masks(sliding_window_overlay(8), causal_mask_function)
    tap.equal(mask(q_offset=3, mask_function=window, local_size=8), [4, 4])
    tap.equal(mask(q_offset=30, kv_offset=23, mask_function=window, local_size=8), [8, 8])  # a full window
    tap.equal(mask(q_offset=30, kv_offset=23, kv_length=9, q_length=2, mask_function=window, local_size=8), "a mask")
    for other in (and_masks(causal_mask_function, sliding_window_overlay(8)), and_masks(sliding_window_overlay(8)),
                  and_masks(window, causal_mask_function), sliding_window_overlay(8), lambda *_: True):
        tap.equal(mask(q_offset=3, mask_function=other, local_size=8), "a mask")
    tap.equal(make_mask(batch_size=2, cache_position=None, kv_length=8, mask_function=causal_mask_function,
                        allow_is_causal_skip=False), "a mask")  # transformers 4
    with mock.patch.object(state, "tracing", True):
        tap.equal(mask(q_offset=number(5)), [6, 6])
        tap.equal(mask(q_offset=number(5), attention_mask=padding("111111", "111111")), "a mask")
        tap.equal(mask(q_offset=3, mask_function=window, local_size=8), "a mask")
    tap.equal(Tensor.waits, 0)


def padding_is_looked_at_once_and_then_on_the_gpu():
    cache = number(5)
    tap.equal(mask(q_offset=cache, attention_mask=padding("011111", "111111")), "a mask")
    tap.equal((mask(q_offset=cache, attention_mask=padding("111111", "111111")), Tensor.waits), ([6, 6], 2))
    cache.flat[0] = 6
    tap.equal((mask(q_offset=cache, attention_mask=padding("1111111", "1111111")), Tensor.waits), ([7, 7], 2))
    cache.flat[0] = 7  # a sequence has ended
    tap.equal((mask(q_offset=cache, attention_mask=padding("11111111", "11111110")), Tensor.waits), ([8, 7], 2))
    tap.equal([condition for condition, _ in asserted], [True, True])
    cache.flat[0] = 7
    mask(q_offset=cache, kv_length=9, attention_mask=padding("111111111", "111111101"))
    tap.equal(asserted.pop()[0], False)
    cache.flat[0] = 3  # it begins anew
    tap.equal((mask(q_offset=cache, attention_mask=padding("1111", "0111")), Tensor.waits), ("a mask", 3))
    tap.equal((mask(q_offset=cache, attention_mask=padding("11111", "01111")), Tensor.waits), ("a mask", 4))
    for rows, made in ((("11111000",) * 2, [5, 5]), (("11111111",) * 2, [5, 5]), (("11110000", "11111000"), "a mask"),
                       (("1111", "1111"), "a mask"), (("11111",), "a mask")):
        tap.equal(mask(q_offset=number(3), q_length=2, attention_mask=padding(*rows)), made)


class Rows(Tensor):
    def __getitem__(self, at):
        return Tensor((*self.shape[:2], at[2].stop, self.shape[3]))


def attend(q_length, keys, attention_mask=None, **more):
    """What our function is called with, but for the tensors."""
    query, key, asked = Tensor((2, 4, q_length, 64), dtype="float16"), Rows((2, 2, keys, 64), dtype="float16"), []

    def attention(q, k, v, out=None, **options):
        asked.append((k.shape[2], options))
        if more.get("error"):
            raise more["error"]
    with mock.patch.object(hf, "_core", types.SimpleNamespace(attention=attention)):
        out, weights = ATTENTION(types.SimpleNamespace(is_causal=True), query, key, key, attention_mask, scaling=0.5, **more.get("words", {}))
    tap.equal(weights, None)
    return asked[0] if asked else None, out if isinstance(out, str) else out.shape


def calls_hand_over_the_numbers_of_keys():
    lengths = Tensor((2, 1, 1, 1), [5, 7], "int32")
    (keys, options), shape = attend(1, 32, lengths)
    tap.equal((keys, shape, options["causal"], options["scale"]), (32, (2, 1, 4, 64), False, 0.5))
    tap.equal((options["seqused_k"].shape, options["seqused_k"].flat), ((2,), [5, 7]))
    tap.equal(attend(3, 32, lengths)[0][1]["causal"], True)
    (keys, options), _ = attend(3, 32)  # the prompt of an empty static cache
    tap.equal((keys, options), (3, {"causal": True, "scale": 0.5}))
    tap.equal(attend(3, 32, words={"dropout": 0.25})[0][1], {"causal": True, "scale": 0.5, "dropout_p": 0.25})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for more, asked in (({"error": fa_tune.NotSupported("no family")}, True), ({"words": {"output_attentions": True}}, False),
                            ({"words": {"position_bias": Tensor((1, 4, 2, 9))}}, False)):
            told, out = attend(2, 8, lengths, **more)
            tap.equal((told is not None, out), (asked, "SDPA's"))
            made = fallen_back.pop()  # the mask that they stand for
            tap.equal((made.shape, ["".join("01"[x] for x in made.flat[i:i + 8]) for i in range(0, 32, 8)]),
                      ((2, 1, 2, 8), ["11110000", "11111000", "11111100", "11111110"]))
        given = Tensor((2, 1, 1, 8), dtype="bool")
        tap.equal((attend(1, 8, given), fallen_back.pop()), ((None, "SDPA's"), given))


PAGE = 4


class Cache:
    """Two layers: one in pages, one with a window of three."""
    layer_index_to_group_indices, sliding_windows, block_size = {0: (0, 0), 1: (1, 0)}, {0: 1, 1: 3}, PAGE

    def __init__(self):
        self.key_cache = self.value_cache = [Tensor((10 * PAGE, 2, 64))]
        self.updates = []

    def update(self, key, value, layer, read_index, write_index):
        rows = [one.shape[0] for one in read_index]
        self.updates.append((layer, rows, write_index))
        size = rows[self.layer_index_to_group_indices[layer][0]] or key.shape[2]
        return (Tensor((size, 2, 64)),) * 2


def step(layer, pages, queries, keys, read_index, **more):
    """A step of sequences with so many queries and keys: what our function is called with."""
    def starts(lengths):
        return Tensor((len(lengths) + 1,), itertools.accumulate(lengths, initial=0), "int32")
    total, asked = sum(queries), []
    query, key = Tensor((1, 4, total, 64)), Tensor((1, 2, total, 64))

    def attention_varlen(q, k, v, **options):
        tap.equal((q.shape, v.shape), ((total, 4, 64), k.shape))
        asked.append((k.shape, options))
        return Tensor((total, 4, 64))
    with mock.patch.object(hf, "_core", types.SimpleNamespace(attention_varlen=attention_varlen)):
        out, weights = PAGED(types.SimpleNamespace(layer_idx=layer), query, key, key, None, **{
            "scaling": 0.5, "cache": pages, "cu_seq_lens_q": starts(queries), "max_seqlen_q": max(queries), "write_index": "w",
            "cu_seq_lens_k": {"full_attention": starts(keys), "sliding_attention": starts([min(n, 3) for n in keys])},
            "max_seqlen_k": {"full_attention": max(keys), "sliding_attention": min(max(keys), 3)},
            "read_index": read_index, "block_table": None, **more})
    tap.equal((out.shape, weights), ((1, total, 4, 64), None))
    return asked[0]


def rows_of(*pages, keys):
    return [page * PAGE + i for page in pages for i in range(PAGE)][:keys]


def continuous_batching_reads_the_pages_where_they_lie():
    cache = Cache()
    rows = rows_of(7, 2, 5, keys=9) + rows_of(3, keys=2)
    read_index = [Tensor((len(rows) + 3,), rows + [38] * 3), Tensor((5,))]  # some rows behind, as padding leaves them
    shape, options = step(0, cache, [1, 1], [9, 2], read_index, s_aux=Tensor((4,)), softcap=2.0, dropout=0.5)
    table, lengths, starts_q = (options.pop(name) for name in ("block_table", "seqused_k", "cu_seqlens_q"))
    tap.equal((shape, table.shape, table.dtype, table.flat[:4], lengths.flat, lengths.dtype, starts_q.flat),
              ((10, PAGE, 2, 64), (2, 3), "int32", [7, 2, 5, 3], [9, 2], "int32", [0, 1, 2]))
    sinks = options.pop("sinks")
    tap.equal((sinks.dtype, options), ("float32", {"softmax_scale": 0.5, "causal": False, "max_seqlen_q": 1, "max_seqlen_k": 9, "softcap": 2.0, "dropout_p": 0.5}))
    tap.equal(cache.updates.pop(), (0, [0, 0], "w"))  # which writes alone
    assert step(0, cache, [1, 1], [9, 2], read_index)[1]["block_table"] is table  # the next layer's
    state.captured = True
    again = step(0, cache, [1, 1], [9, 2], read_index)[1]["block_table"]
    state.captured = False
    assert again is not table and again.flat[:4] == [7, 2, 5, 3]  # a graph's own
    shape, options = step(1, cache, [1, 2], [9, 2], read_index)  # a layer with a window
    tap.equal((shape, options["window_size"], options["cu_seqlens_k"].flat, options["causal"], options["max_seqlen_k"]),
              ((5, 2, 64), (2, 0), [0, 3, 5], True, 3))
    nothing = [Tensor((0,)), Tensor((0,))]
    shape, options = step(0, cache, [20, 37], [20, 37], nothing)  # prompts of which nothing is cached
    tap.equal((shape, options["max_seqlen_q"], options["max_seqlen_k"], "block_table" in options), ((57, 2, 64), 40, 40, False))
    for more, kind, sentence in (({"cache": None}, fa_tune.ArgumentError, "use \"fa_tune\""),
                                 ({"block_table": 1}, fa_tune.NotSupported, "a block table is given")):
        tap.refused(kind, sentence, lambda: step(0, cache, [1], [2], nothing, **more))


tap.main()
