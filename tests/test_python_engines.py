#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""fa_tune's backends for vLLM and SGLang on the fake driver, against stand-ins of as much of torch and of the engines'
interfaces (vLLM 0.26.0, SGLang 0.5.13) as they use: what they register, what they hand over for each step, and that it
comes out right. The engines themselves are not here, so that a change of their interfaces is not seen."""
import contextlib
import dataclasses
import enum
import importlib
import io
import json
import math
import os
import struct
import subprocess
import sys
import types
import warnings
from unittest import mock

import tap
from attention_case import DIM, answered, captured, close, logged, place
from place import DEADLINE, Place
from serve import Serve
from serving_case import Ragged
import producer
from producer import Exchanged
import fa_tune
from fa_tune import Problem, _policy, integrations
from fa_tune.integrations import _start
from fa_tune._problem import problems_of_file

PAGE, MOST = 16, 48
INT32, FLOAT16, FLOAT32 = (producer.INT, 32), (producer.FLOAT, 16), (producer.FLOAT, 32)


# ---- as much of torch as they use ----------------------------------------------------------------
class Tensor(Exchanged):
    """Tensors on the fake device: views share their memory."""

    def __init__(self, shape, *args, base=0, **how):
        super().__init__(shape, *args, offset=base, **how)

    def __len__(self):
        return self.shape[0]

    def _viewed(self, shape, strides, first=0, dtype=None):
        return Tensor(shape, dtype=dtype or self.dtype, memory=self.memory, strides=strides,
                      base=self.offset + first * self.dtype[1] // 8)

    def __getitem__(self, key):
        if isinstance(key, int):
            return self._viewed(self.shape[1:], self.strides[1:], key * self.strides[0])
        if isinstance(key, tuple) and isinstance(key[0], slice):  # of whole rows the first columns
            first, last, _ = key[1].indices(self.shape[1])
            return self._viewed((self.shape[0], last - first), self.strides, first)
        if isinstance(key, tuple) and key[0] is Ellipsis:  # a part of the last dimension
            first, last, _ = key[1].indices(self.shape[-1])
            return self._viewed((*self.shape[:-1], last - first), self.strides, first * self.strides[-1])
        if isinstance(key, tuple):  # rows that a tensor names, every so many of their numbers
            rows, columns = key
            table = [self.rows()[row][columns] for row in rows.numbers()]
            return Tensor((len(table), len(table[0])), sum(table, []), dtype=self.dtype)
        first, last, _ = key.indices(len(self))
        return self._viewed((last - first, *self.shape[1:]), self.strides, first * self.strides[0])

    def view(self, *shape):
        if isinstance(shape[0], tuple):  # another type
            new, old = shape[0][1], self.dtype[1]
            return self._viewed((*self.shape[:-1], self.shape[-1] * old // new),
                                (*(step * old // new for step in self.strides[:-1]), 1), dtype=shape[0])
        tap.equal(self.strides, producer.contiguous(self.shape))
        known = math.prod(size for size in shape if size != -1)
        shape = [math.prod(self.shape) // known if size == -1 else size for size in shape]
        return self._viewed(shape, producer.contiguous(shape))

    def permute(self, *order):
        return self._viewed([self.shape[i] for i in order], [self.strides[i] for i in order])

    def transpose(self, one, other):
        order = list(range(len(self.shape)))
        order[one], order[other] = other, one
        return self.permute(*order)

    def expand(self, shape):
        missing = len(shape) - len(self.shape)
        return self._viewed(shape, [0] * missing + [self.strides[i] if size == shape[missing + i] else 0
                                                    for i, size in enumerate(self.shape)])

    def _places(self):
        """Where each element lies behind the first one, in elements."""
        places = [0]
        for size, step in zip(self.shape, self.strides):
            places = [place + i * step for place in places for i in range(size)]
        return places

    def _reach(self, places):
        """All numbers from the first element to the last one, gaps too."""
        count = max(places, default=-1) + 1
        raw = producer.c.create_string_buffer(count * self.dtype[1] // 8)
        producer.check(producer.CUDA.cuMemcpyDtoH_v2(raw, producer.c.c_uint64(self.memory.address + self.offset),
                                                     producer.c.c_size_t(len(raw))))
        return raw

    def numbers(self):
        places = self._places()
        raw = self._reach(places).raw
        flat = struct.unpack("<%d%s" % (len(raw) * 8 // self.dtype[1], producer.LETTERS[self.dtype]), raw)
        return [flat[place] for place in places]

    def rows(self):
        flat, width = self.numbers(), self.shape[1]
        return [flat[i:i + width] for i in range(0, len(flat), width)]

    def copy_(self, other):
        places = self._places()
        raw = self._reach(places)
        kind = "<%d%s" % (len(raw) * 8 // self.dtype[1], producer.LETTERS[self.dtype])
        flat = list(struct.unpack(kind, raw))
        for place, value in zip(places, other.numbers()):
            flat[place] = value
        struct.pack_into(kind, raw, 0, *flat)
        producer.check(producer.CUDA.cuMemcpyHtoD_v2(
            producer.c.c_uint64(self.memory.address + self.offset), raw, producer.c.c_size_t(len(raw))))

    def __sub__(self, number):
        return Tensor(self.shape, [value - number for value in self.numbers()], dtype=self.dtype)

    def __floordiv__(self, number):
        return Tensor(self.shape, [value // number for value in self.numbers()], dtype=self.dtype)

    def to(self, dtype):
        return Tensor(self.shape, self.numbers(), dtype=dtype)

    def index_select(self, dim, index):
        tap.equal(dim, 0)
        return Tensor((len(index), *self.shape[1:]), sum((self[row].numbers() for row in index.numbers()), []), dtype=self.dtype)

    def reshape(self, *shape):
        flat = Tensor((math.prod(self.shape),), self.numbers(), dtype=self.dtype)
        return flat.view(*shape) if shape != (-1,) else flat

    def unsqueeze(self, dim):
        at = len(self.shape) + 1 + dim
        return self._viewed((*self.shape[:at], 1, *self.shape[at:]), (*self.strides[:at], 1, *self.strides[at:]))

    def new_empty(self, shape, dtype=None):
        return Tensor(shape, dtype=dtype or self.dtype)

    def numel(self):
        return math.prod(self.shape)

    def mul_(self, other):
        self.copy_(Tensor(self.shape, [a * b for a, b in zip(self.numbers(), other.expand(self.shape).numbers())], dtype=self.dtype))

    def float(self):
        return self.to(FLOAT32)

    def detach(self):
        return self._viewed(self.shape, self.strides)

    def max(self):
        return max(self.numbers())

    def fill_(self, value):
        self.copy_(Tensor(self.shape, [value] * math.prod(self.shape), dtype=self.dtype))
        return self


def stand_in(name, **members):
    """A module of that name, and packages above it."""
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        part = ".".join(parts[:end])
        if part not in sys.modules:
            sys.modules[part] = types.ModuleType(part)
            if end > 1:
                setattr(sys.modules[".".join(parts[:end - 1])], parts[end - 1], sys.modules[part])
    vars(sys.modules[name]).update(members)


def cumsum(values, dim, dtype, out):
    tap.equal((dim, dtype), (0, INT32))
    sums, total = [], 0
    for value in values.numbers():
        total += value
        sums.append(total)
    out.copy_(Tensor(out.shape, sums, dtype=INT32))


def zeros(shape, dtype, device):
    tap.equal(device, "cuda:0")
    shape = (shape,) if isinstance(shape, int) else shape
    return Tensor(shape, [0] * math.prod(shape), dtype=dtype)


def ones(shape, dtype, device):
    tap.equal(device, "cuda:0")
    return Tensor(shape, [1.0] * math.prod(shape), dtype=dtype)


def empty_like(tensor, **_):
    return Tensor(tensor.shape, dtype=tensor.dtype)


def arange(count, dtype, device):
    tap.equal(device[0], 2)
    return Tensor((count,), list(range(count)), dtype=dtype)


stand_in("torch", Tensor=Tensor, arange=arange, OutOfMemoryError=MemoryError, uint8=(1, 8), int64=(0, 64), float16=FLOAT16, bfloat16=(producer.BFLOAT, 16), float8_e4m3fn=(10, 8), int32=INT32,
         float32=FLOAT32, ones=ones, cumsum=cumsum, zeros=zeros, empty_like=empty_like, contiguous_format="contiguous",
         is_grad_enabled=lambda: False, cat=lambda parts, dim: joined(parts, dim), cuda=types.SimpleNamespace(is_initialized=lambda: False))


def ints(values):
    return Tensor((len(values),), values, dtype=INT32)


# ---- vLLM -----------------------------------------------------------------------------------------
class Abstract:
    """Of vLLM's and SGLang's abstract classes what their heirs call."""

    def __init__(self, *args):
        self.given = args

    def process_weights_after_loading(self, _dtype):
        pass


class Backend:
    """What vLLM asks of a backend's class, as far as a backend leaves it alone, and how it comes to its reasons."""
    asked = {"has_sliding_window": "supports_sliding_window", "has_sink": "supports_sink", "use_mla": "is_mla",
             "use_sparse": "is_sparse", "use_mm_prefix": "supports_mm_prefix", "use_non_causal": "supports_non_causal",
             "use_per_head_quant_scales": "supports_per_head_quant_scales", "use_pcp": "supports_pcp",
             "use_batch_invariant": "supports_batch_invariance"}

    @classmethod
    def supports_compute_capability(cls, _capability):
        return True

    @classmethod
    def reasons_against(cls, head_size=128, dtype=FLOAT16, kv_cache_dtype="auto", block_size=64, capability=(9, 0), **use):
        """Of vLLM's validate_configuration() what it asks, by the same names."""
        capability = types.SimpleNamespace(major=capability[0], minor=capability[1])
        base, = cls.get_supported_kernel_block_sizes()
        told = {"head_size": cls.supports_head_size(head_size), "dtype": dtype in cls.supported_dtypes,
                "kv_cache_dtype": kv_cache_dtype in cls.supported_kv_cache_dtypes, "block_size": block_size % base == 0,
                "compute_capability": cls.supports_compute_capability(capability),
                **{name: getattr(cls, cls.asked[name])() for name in use}}
        combination = cls.supports_combination(head_size, dtype, kv_cache_dtype, block_size, use.get("use_mla", False),
                                               use.get("has_sink", False), False, False, capability)
        return [name for name, taken in told.items() if not taken] + ([combination] if combination else [])


for method in Backend.asked.values():
    setattr(Backend, method, classmethod(lambda cls: False))
Backend.supports_combination = classmethod(lambda cls, *_: None)


class Builder(Abstract):
    @classmethod
    def get_cudagraph_support(cls, _config, _spec):
        return cls._cudagraph_support


CGSupport = enum.Enum("AttentionCGSupport", "NEVER UNIFORM_SINGLE_TOKEN_DECODE UNIFORM_BATCH ALWAYS")
MODEL = types.SimpleNamespace(rswa_window=None, dtype=FLOAT16, max_model_len=MOST)
SPEC = types.SimpleNamespace(block_size=PAGE)


def config_of(impl, most_batch=4, model=MODEL, drafts=None, captured=None):
    """vLLM's configuration of a model with one layer, called "layer"."""
    return types.SimpleNamespace(
        model_config=model, speculative_config=drafts,
        scheduler_config=types.SimpleNamespace(max_num_seqs=most_batch, max_num_batched_tokens=64),
        compilation_config=types.SimpleNamespace(static_forward_context={"layer": types.SimpleNamespace(impl=impl)},
                                                 cudagraph_capture_sizes=captured))


registered = {}
written = []
layout = "NHD"
stand_in("vllm", _custom_ops=types.SimpleNamespace(reshape_and_cache_flash=lambda *args: written.append(args)))
stand_in("vllm.v1.attention.backend", AttentionBackend=Backend, AttentionImpl=Abstract,
         AttentionMetadataBuilder=Builder, MultipleOf=int, AttentionCGSupport=CGSupport,
         AttentionType=types.SimpleNamespace(DECODER="decoder", ENCODER="encoder"))


def split_decodes_and_prefills(common, threshold):
    """As vLLM's: (sequences of up to `threshold` queries in front of the first longer one, others, tokens of both)."""
    starts, count = common.query_start_loc_cpu, common.num_reqs
    front = next((i for i in range(count) if starts[i + 1] - starts[i] > threshold), count)
    return front, count - front, starts[front], common.num_actual_tokens - starts[front]


stand_in("vllm.v1.attention.backends.utils", get_kv_cache_layout=lambda: layout,
         split_decodes_and_prefills=split_decodes_and_prefills)


class BackendEnum(enum.Enum):
    """Keeps the path of a class, which is imported when it is asked for."""
    CUSTOM = None

    def is_overridden(self):
        return self.name in registered

    def get_class(self):
        module, _, name = registered[self.name].rpartition(".")
        return getattr(importlib.import_module(module), name)


stand_in("vllm.v1.attention.backends.registry", AttentionBackendEnum=BackendEnum,
         register_backend=lambda backend, path: registered.__setitem__(backend.name, path))


def paged(case):
    """(k, v, table) as Tensor, a page for nobody first."""
    k, v, table = case.pages(PAGE, MOST)
    return [Tensor(t.shape, memory=t.memory, dtype=t.dtype) for t in (k, v, table)]


def allocated(backend, blocks, heads_kv, dim=DIM, dtype=FLOAT16, layers=None):
    """A cache as vLLM makes it: the backend's shape, its dimensions in memory in the backend's order. With `layers` that
    of the last one of as many, which lie in one tensor."""
    shape = backend.get_kv_cache_shape(blocks, PAGE, heads_kv, dim)
    if layers is not None:
        shape = layers, *shape
    order = backend.get_kv_cache_stride_order(layers is not None)
    cache = Tensor([shape[i] for i in order], dtype=dtype).permute(*(order.index(i) for i in range(len(shape))))
    return cache if layers is None else cache[layers - 1]


def prepared(builder, common):
    """A step's metadata from vLLM's newer runner with graphs of whole steps: a backend that says ALWAYS replays what was
    captured with one query a sequence, and any other one prepares each mixed step anew."""
    if builder.get_cudagraph_support(None, None) is CGSupport.ALWAYS:
        common.max_query_len = 1
    return builder.build(0, common)


def step_of(case, table, **more):
    """vLLM's metadata of a step."""
    return types.SimpleNamespace(**dict(dict(
        num_reqs=len(case.queries), num_actual_tokens=sum(case.queries), max_query_len=max(case.queries),
        max_seq_len=max(case.keys), query_start_loc_cpu=case.starts[0], query_start_loc=ints(case.starts[0]), seq_lens=ints(case.keys), block_table_tensor=table, causal=True), **more))


def refused(kind, call, *args, **how):
    return str(tap.refused(kind, "", lambda: call(*args, **how)))


def vllm_runs_a_step_of_prefill_and_decode_together():
    global layout
    integrations.register_vllm()
    assert not {"fa_tune.integrations.vllm", "fa_tune.integrations.sglang"} & set(sys.modules), "were not asked for"
    backend = BackendEnum.CUSTOM.get_class()
    tap.equal((backend.get_name(), _policy.current.effort), ("CUSTOM", "measure"))
    case = Ragged([4, 1, 2], [20, 33, 7])
    k, v, table = paged(case)
    layer = types.SimpleNamespace(_k_scale=None, _v_scale=None)
    impl = backend.get_impl_cls()(case.HEADS, DIM, DIM ** -0.5, case.HEADS_KV)
    tap.equal((_policy.current.effort, _policy.current.on_miss), ("predict", "nearest"))
    builder = backend.get_builder_cls()(SPEC, ["layer"], config_of(impl), "cuda:0")
    metadata = prepared(builder, step_of(case, table))
    tap.equal([part.max_query_len for part in metadata.parts], [4])  # real kernels' grids follow it, the fake driver's do not
    padded = [0.0] * case.HEADS * DIM * 2  # two rows that vLLM adds for its graphs
    query = Tensor((9, case.HEADS, DIM), case.q + padded)
    slots = ints([0] * 7)
    for layout, layers in (("NHD", None), ("NHD", 2), ("HND", None), ("HND", 2)):
        cache = allocated(backend, k.shape[0], case.HEADS_KV, layers=layers)
        written.clear()
        impl.do_kv_cache_update(layer, query, query, cache, slots)
        (_, _, keys, values, told_slots, *_), = written
        tap.equal((keys.shape, keys.memory is cache.memory, told_slots is slots), (k.shape, True, True))
        if (layout, layers) == ("NHD", None):  # in memory (blocks, page, heads_kv, 2 * DIM)
            tap.equal(keys.strides, [PAGE * case.HEADS_KV * 2 * DIM, case.HEADS_KV * 2 * DIM, 2 * DIM, 1])
        keys.copy_(k)
        values.copy_(v)
        output = Tensor(query.shape, [7.0] * (9 * case.HEADS * DIM))
        assert impl.forward(layer, query, None, None, cache, metadata, output) is output
        told = output.numbers()
        close(told[:len(case.q)], case.expected(causal=True)[0])
        tap.equal(set(told[len(case.q):]), {7.0})
    not_causal = builder.build(0, step_of(case, table, causal=False))
    impl.forward(layer, query, None, None, cache, not_causal, output)
    close(output.numbers()[:len(case.q)], case.expected()[0])
    tap.equal(set(impl.forward(layer, query, None, None, cache, None, output).numbers()), {0.0})


def sequences_that_decode_in_front_are_a_call_of_their_own():
    backend = BackendEnum.CUSTOM.get_class()
    for drafts, queries, longest in ((None, [1, 1, 4, 2], [1, 4]), (types.SimpleNamespace(num_speculative_tokens=1), [2, 1, 5], [2, 5]),
                                     (None, [1, 1], [1]), (None, [3, 1], [3])):
        case = Ragged(queries, [20, 33, 7, 9][:len(queries)])
        impl = backend.get_impl_cls()(case.HEADS, DIM, DIM ** -0.5, case.HEADS_KV)
        builder = backend.get_builder_cls()(SPEC, ["layer"], config_of(impl, drafts=drafts), "cuda:0")
        k, v, table = paged(case)
        tap.equal([part.max_query_len for part in builder.build(0, step_of(case, table)).parts], longest)
        output = Tensor((sum(queries) + 1, case.HEADS, DIM), [7.0] * ((sum(queries) + 1) * case.HEADS * DIM))
        cache = allocated(backend, k.shape[0], case.HEADS_KV)
        for half, tensor in zip(impl._halves(cache), (k, v)):
            half.copy_(tensor)
        impl.forward(types.SimpleNamespace(_k_scale=None, _v_scale=None), Tensor((sum(queries), case.HEADS, DIM), case.q), None,
                     None, cache, builder.build(0, step_of(case, table)), output)
        close(output.numbers()[:len(case.q)], case.expected(causal=True)[0])
        tap.equal(set(output.numbers()[len(case.q):]), {7.0})


def vllm_starts(**config):
    """vLLM's start with a model of one layer, on the store that the environment names, as of a process that begins: (the
    layer, its metadata builder, what was said on stderr)."""
    backend = BackendEnum.CUSTOM.get_class()
    fa_tune.close()
    _policy._recorded.clear()
    _start._prepared.clear()
    _start._spent = _start._on_met = 0.0
    impl = backend.get_impl_cls()(Ragged.HEADS, DIM, DIM ** -0.5, Ragged.HEADS_KV)
    _start.begin_to_serve("vllm")
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        builder = backend.get_builder_cls()(SPEC, ["layer"], config_of(impl, **config), "cuda:0")
    return impl, builder, said.getvalue().splitlines()


def kernel_of_step(impl, builder, case):
    """Runs a step, checks what it gives, and returns the answer of the kernel that gave it."""
    k, v, table = paged(case)
    cache = allocated(BackendEnum.CUSTOM.get_class(), k.shape[0], case.HEADS_KV)
    keys, values = impl._halves(cache)
    keys.copy_(k)
    values.copy_(v)
    query = Tensor((sum(case.queries), case.HEADS, DIM), case.q)
    with fa_tune.recording() as met:
        output = impl.forward(types.SimpleNamespace(_k_scale=None, _v_scale=None), query, None, None, cache,
                              builder.build(0, step_of(case, table)), Tensor(query.shape))
    close(output.numbers(), case.expected(causal=True)[0])
    problem, = met
    return fa_tune._core.near_kernel(problem.as_dict(), 0).answer


@contextlib.contextmanager
def new_store(name):
    folder = os.path.join(place.folder, name)
    os.mkdir(folder, 0o700)
    with mock.patch.dict(os.environ, FA_TUNE_STORE=os.path.join(folder, "store.db")):
        try:
            yield folder
        finally:
            fa_tune.close()


def serving_tunes_nothing_and_the_next_start_tunes_what_was_met():
    steps = [Ragged([1] * 3, [20, 33, 7]), Ragged([4, 1], [20, 33]), Ragged([40], [40]), Ragged([1], [9])]
    with new_store("met") as folder:
        os.environ["FA_TUNE_ENGINE_SECONDS"] = "0"  # what a kind of layer needs is tuned whatever the budget
        impl, builder, said = vllm_starts()
        for line, begins in zip(said, ("fa_tune: vllm starts, kernel 1 of 4, ", "fa_tune: vllm starts, kernel 2 of 4, ",
                                       "fa_tune: vllm starts with 2 of 4 kernels tuned")):
            tap.equal(line[:len(begins)], begins)
        with mock.patch.object(fa_tune._core, "best_kernel", None):  # nothing is looked for, proved or tuned any more
            kernels = [kernel_of_step(impl, builder, step) for step in steps]
        tap.equal((len(fa_tune.winners()), {one.origin for one in kernels}), (2, {"nearest"}))
        tap.equal(tap.read(os.path.join(folder, "met-by-vllm.jsonl")).count("\n"), len(steps))
        os.environ["FA_TUNE_ENGINE_SECONDS"] = "1000"
        impl, builder, said = vllm_starts()
        tap.equal(len(said), 2 + len(steps))  # the two that were left, and what was met
        tap.equal({kernel_of_step(impl, builder, step).origin for step in steps}, {"measured"})
        path = os.path.join(folder, "met-by-vllm.jsonl")
        tap.equal((os.path.getsize(path), os.stat(path).st_mode & 0o777), (0, 0o600))  # what is tuned has left it
        tap.equal(vllm_starts()[2], [])  # all is there
        met = [Problem(**impl.problem(FLOAT16, PAGE, True), batch=batch, seq_q=1, seq_k=16) for batch in (5, 6, 7)]
        foreign = Problem(seq=64, head_dim=64)  # another model's
        tap.write(path, "".join((one.as_json() + "\n" for one in (*met, foreign))), "a")
        tune, tried, _start.RECORDED_S = _start._engine.tune, [], 0  # tuned within a time of its own, however long the budget
        try:
            tap.equal(vllm_starts()[2], ["fa_tune: vllm leaves 3 problems that earlier runs met to later starts: 0 s for them are over"])
            _start.RECORDED_S = 1000

            def refuses(problem, *more):
                tried.append(problem["batch"])
                if problem["batch"] in (5, 6):
                    raise {5: fa_tune.NotSupported("no family"), 6: fa_tune.DeviceError("no memory")}[problem["batch"]]
                return tune(problem, *more)
            _start._engine.tune = refuses
            for times in (1, 2):  # what no family computes is not tried again, what memory failed is
                del tried[:]
                vllm_starts()
                tap.equal((5 in tried, 6 in tried, 7 in tried), (times == 1, True, times == 1))
                tap.equal([json.loads(line).get("problem", {}).get("batch") for line in open(path, encoding="utf-8")],
                          [5, None, None])
                tap.write(path, met[0].as_json() + "\n", "a")  # it was met again
        finally:
            _start._engine.tune, _start.RECORDED_S = tune, 10
        tap.equal(problems_of_file(path), [*met[:2], foreign, met[0]])  # a plan for fa-tune sweep
        vllm_starts()
        tap.equal(problems_of_file(path), [met[0], foreign])
        tap.write(path, '{"operation": "attn_fwd", "ba', "a")  # as a killed run leaves it
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            vllm_starts()
        tap.has(str(caught[-1].message), "what an earlier run met is not tuned")
        tap.equal(problems_of_file(path), [met[0], foreign])  # it costs no other line, and leaves the file
        os.environ["FA_TUNE_ENGINE_SECONDS"] = "soon"
        tap.has(refused(ValueError, vllm_starts), "FA_TUNE_ENGINE_SECONDS")


def every_step_is_answered_from_memory():
    """Two kernels of a start without a budget answer each shape that a step may have, drafts without a mask too."""
    drafts = types.SimpleNamespace(method="dflash", num_speculative_tokens=3)
    with new_store("shapes"):
        os.environ["FA_TUNE_ENGINE_SECONDS"] = "0"
        for config, masks in ((drafts, (True, False)), (None, (True,))):
            impl, _, _ = vllm_starts(drafts=config)
            lengths = {(_start.ceiling(queries), _start.ceiling(max(keys, queries)))
                       for queries in range(1, 65) for keys in (queries, 16, 40, MOST, 8 * MOST)}
            for causal in masks:
                for batch in (1, 2, 3, 4, 7):
                    for seq_q, seq_k in sorted(lengths):
                        problem = Problem(**impl.problem(FLOAT16, PAGE, causal), batch=batch, seq_q=seq_q, seq_k=seq_k)
                        fa_tune._core.near_kernel(problem.as_dict(), 0)  # raises where none is right


def graphs_capture_shapes_that_were_not_met():
    """vLLM's older runner captures decoding of its longest cache and has only run short ones before."""
    case = Ragged([1] * 3, [20, 33, 7])
    k, v, table = paged(case)
    cache = allocated(BackendEnum.CUSTOM.get_class(), k.shape[0], case.HEADS_KV)
    query = Tensor((3, case.HEADS, DIM), case.q)
    with new_store("captured") as folder:
        os.environ["FA_TUNE_ENGINE_SECONDS"] = "0"
        for sizes, near in ((None, fa_tune._core.near_kernel), ([1, 3, 8], None)):  # found meanwhile, or beforehand
            impl, builder, _ = vllm_starts(captured=sizes)
            for half, tensor in zip(impl._halves(cache), (k, v)):
                half.copy_(tensor)
            step, output = builder.build(0, step_of(case, table, max_seq_len=MOST)), Tensor(query.shape)
            loads = len(logged("load"))
            with mock.patch.object(fa_tune._core, "near_kernel", near), captured():
                impl.forward(types.SimpleNamespace(_k_scale=None, _v_scale=None), query, None, None, cache, step, output)
            close(output.numbers(), case.expected(causal=True)[0])
            tap.equal(len(logged("load")), loads)
        met = tap.read(os.path.join(folder, "met-by-vllm.jsonl")).splitlines()
        tap.equal(sorted(json.loads(line)["batch"] for line in met), [1, 3])  # the next start tunes them


def an_engines_start_begins_with_what_it_cannot_do_without():
    kind = {"dtype": "bf16", "head_dim": 128, "heads_q": 32, "heads_kv": 8, "varlen": True, "lengths_k": "seqused",
            "page": 64, "kv_dtype": "same"}
    needed, others = _start.problems_of(kind, kind, most_batch=256, most_queries=8192, most_keys=131072)
    tap.equal([(one.batch, one.seq_q, one.seq_k) for one in needed], [(256, 1, 2048), (1, 8192, 8192)])
    tap.equal([(one.batch, one.seq_q, one.seq_k) for one in others[:4]],
              [(1, 1, 131072), (4, 2048, 2048), (128, 1, 4096), (16, 512, 512)])
    for one in needed + others:  # in pages of a bucket, and small beside weights
        assert one.batch * one.seq_k * 2 * 8 * 128 * 2 <= _start.MOST_BYTES, one
    for length in range(1, 5000):
        rounded = _start.ceiling(length)
        assert length <= rounded <= max(length * 9 / 8, length) and _start.ceiling(rounded) == rounded, length


RANKS = 4 if os.environ.get("FA_TEST_SLOW") == "1" else 2


def start_ranks(stores, **environment):
    """Starts as many processes at once, each on its store: the lines that they said of what they tuned, and by what each
    step was served."""
    ranks = [subprocess.Popen([sys.executable, __file__, store], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              encoding="utf-8", env=dict(os.environ, **environment)) for store in stores]
    told = [rank.communicate(timeout=DEADLINE) for rank in ranks]
    tap.equal([rank.returncode for rank in ranks], [0] * len(stores))
    return ([line.partition(" for ")[2] for _, err in told for line in err.splitlines() if "starts, kernel" in line],
            [json.loads(out) for out, _ in told])


def several_processes_tune_each_kernel_once_and_serve_the_same():
    with new_store("ranks"):
        tuned, kernels = start_ranks([os.environ["FA_TUNE_STORE"]] * RANKS)
        tap.equal((len(tuned), len(set(tuned))), (4, 4))  # by all of them together
        tap.equal(kernels, [kernels[0]] * RANKS)


def several_processes_of_a_service_serve_the_same_and_tune_nothing_themselves():
    with new_store("service"), contextlib.ExitStack() as stack:
        here = stack.enter_context(Place(space=None))
        here.env.update({name: os.environ[name] for name in os.environ if name.startswith(("FA_TUNE_", "FAKE_CUDA"))})
        daemon = stack.enter_context(Serve(here))
        stores = [os.path.join(place.folder, "service", "rank%d.db" % rank) for rank in range(RANKS)]
        _, kernels = start_ranks(stores, FA_TUNE_SERVER="unix:" + daemon.socket)
        tap.equal(kernels, [kernels[0]] * RANKS)
        tap.equal(len(fa_tune.winners()), 4)  # of the service's store
        for store in stores:
            os.environ["FA_TUNE_STORE"] = store
            fa_tune.close()
            tap.equal(len(fa_tune.winners()), 0)


def be_a_rank(store):
    """Of several_processes…: starts on the store and tells which kernel serves each step."""
    os.environ["FA_TUNE_STORE"], os.environ["FA_TUNE_ENGINE_SECONDS"] = store, "1000"
    integrations.register_vllm()
    impl, builder, said = vllm_starts()
    print("\n".join(said), file=sys.stderr)
    steps = [Ragged([1] * 3, [20, 33, 7]), Ragged([4, 1, 1, 1], [20, 33, 5, 5]), Ragged([40], [40])]
    print(json.dumps([kernel_of_step(impl, builder, step).cubin_key for step in steps]))


def vllms_windows_sinks_and_scales_are_handed_over():
    plugin = importlib.import_module("fa_tune.integrations.vllm")
    seen = []
    sinks = Tensor((4,), [0.0] * 4)
    impl = plugin.FaTuneImpl(4, DIM, 0.125, 2, sliding_window=16, logits_soft_cap=30.0, sinks=sinks)
    for loaded in ([1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]):  # and loaded again, beneath graphs that were captured
        sinks.write(loaded)
        impl.process_weights_after_loading(FLOAT16)
        tap.equal((impl.sinks.dtype, impl.sinks.numbers()), (FLOAT32, loaded))
        held = impl.sinks.memory
    impl.process_weights_after_loading(FLOAT16)
    assert impl.sinks.memory is held, "a graph's sinks have moved"

    def handed_over(impl, cache, causal=True, layer=None):
        seen.clear()
        q = Tensor((2, 4, DIM))
        metadata = plugin.FaTuneMetadata(causal, [plugin.Part(
            slice(0, 2), 1, 40, ints([0, 1, 2]), ints([9, 9]), Tensor((2, 3), [0] * 6, dtype=INT32))])
        with answered(lambda *args: seen.append(args) or "instead"):
            impl.forward(layer, q, None, None, cache, metadata, Tensor(q.shape))
        (problem, _, words, _), = seen
        announced = Problem(**impl.problem(FLOAT16, PAGE, causal), batch=2, seq_q=1, seq_k=40)
        # what a start readies is what a call asks for
        tap.equal(_start.kind_of(announced), _start.kind_of(Problem(**problem)))
        return problem, words

    cache = allocated(plugin.FaTuneBackend, 5, 2)
    names = "window_left", "window_right", "softcap", "sinks", "varlen", "seq_k", "page", "unaligned"
    for causal, right in ((True, 0), (False, 15)):
        problem, _ = handed_over(impl, cache, causal)
        tap.equal([problem.get(name, 0) for name in names], [15, right, True, True, True, 40, PAGE, False])
    impl = plugin.FaTuneImpl(4, DIM, 0.125, 2, kv_cache_dtype="fp8")
    for shape, values in (((), [0.5] * 4), ((2,), [0.5, 2.0] * 2)):  # as many sequences as heads: they are not mixed up
        scale = Tensor(shape, values[:math.prod(shape)], dtype=FLOAT32)
        problem, words = handed_over(impl, allocated(plugin.FaTuneBackend, 5, 2, dtype=(1, 8)),
                                     layer=types.SimpleNamespace(_k_scale=scale, _v_scale=scale))
        tap.equal((problem["kv_dtype"], words["k_scale"].shape, words["v_scale"].numbers()), ("fp8", (2, 2), values))


def no_memory(*_):
    raise sys.modules["torch"].OutOfMemoryError


def vllms_long_prompts_of_fp8_caches_are_copied_on_hopper():
    plugin = importlib.import_module("fa_tune.integrations.vllm")
    torch, tuned, seen = sys.modules["torch"], set(), []
    engine = types.SimpleNamespace(kernel=lambda *_: None, tune=lambda problem, *_: tuned.add(
        (problem.get("kv_dtype", "same"), problem["seq_q"] > 1)))
    with mock.patch.multiple(_start, _engine=engine, Answer=lambda _: types.SimpleNamespace(from_store=True),
                             load_stored=lambda *_: None, recorded=lambda *_: []):
        for capability, kind, queries, copied in (
                ((9, 0), "fp8", [600], [7, 5, 2]), ((9, 0), "fp8", [600, 424], [7, 5, 2, 3, 0, 1]), ((8, 0), "fp8", [600], None),
                ((9, 0), "fp8", [600, 423], None), ((10, 0), "fp8", [600], None)):
            torch.cuda.get_device_capability = lambda device, it=capability: it
            impl = plugin.FaTuneImpl(4, DIM, 0.125, 2, kv_cache_dtype=kind)
            tuned.clear()
            _start._prepared.clear()
            builder = plugin.FaTuneMetadataBuilder(SPEC, ["layer"], config_of(impl), "cuda:0")
            own = impl.problem(FLOAT16, PAGE)["kv_dtype"]
            tap.equal(tuned, {(own, False), (own, True)} | ({("same", True)} if capability == (9, 0) else set()))
            table = Tensor((2, 4), [7, 5, 2, 9, 3, 0, 1, 9], dtype=INT32)[:len(queries)]
            step = step_of(Ragged([1], [9]), table, num_actual_tokens=sum(queries), max_query_len=600, max_seq_len=3 * PAGE,
                           query_start_loc=ints([0, 600, 1024][:len(queries) + 1]), seq_lens=ints([600] * len(queries)))
            part, = builder.build(0, step).parts
            tap.equal(part.copied and [one.numbers() for one in part.copied], copied and [copied, list(range(len(copied)))])
            tap.equal(part.block_table.numbers(), table.numbers())
        for window, bytes_ in ((100, 0), (4096, PAGE * 2 * DIM * 6)):  # of a window of 100 most pages are not seen
            torch.cuda.get_device_capability = lambda device: (9, 0)
            narrow = plugin.FaTuneImpl(4, DIM, 0.125, 2, sliding_window=window, kv_cache_dtype="fp8")
            tap.equal(plugin.FaTuneMetadataBuilder(SPEC, ["layer"], config_of(narrow), "cuda:0").page_bytes, bytes_)
        cache = Tensor((8, 2, PAGE, 2 * DIM), [i % 11 for i in range(8 * 2 * PAGE * 2 * DIM)], dtype=torch.uint8)
        scales = Tensor((), [2.0], dtype=FLOAT32), Tensor((2,), [1.0, 3.0], dtype=FLOAT32)   # of the tensor, of each head
        layer = types.SimpleNamespace(_k_scale=scales[0], _v_scale=scales[1], _k_scale_float=2.0, _v_scale_float=1.0)
        halves = impl._copies(layer, cache, ints([5, 1]), FLOAT16)
        for half, origin, factors in zip(halves, impl._halves(cache), ([2.0, 2.0], [1.0, 3.0])):
            tap.equal(half.shape, (2, PAGE, 2, DIM))
            expected = [x * factors[i // DIM % 2] for page in (5, 1) for i, x in enumerate(origin[page].numbers())]
            tap.equal(half.numbers(), expected)
        part = plugin.Part(slice(0, 2), 1, 32, ints([0, 1, 2]), ints([9, 9]), Tensor((2, 2), [5, 1, 1, 5], dtype=INT32),
                           (ints([5, 1, 1, 5]), Tensor((2, 2), [0, 1, 2, 3], dtype=INT32)))
        narrow = plugin.FaTuneImpl(4, DIM, 0.125, 2, sliding_window=100, kv_cache_dtype="fp8")   # in a group with another that is not
        for of, memory, kind, table in ((impl, True, "same", [0, 1, 2, 3]), (impl, False, "fp8", [5, 1, 1, 5]), (narrow, True, "fp8", [5, 1, 1, 5])):
            seen.clear()
            with answered(lambda *args: seen.append(args) or "instead"), \
                    mock.patch.object(Tensor, "index_select", Tensor.index_select if memory else no_memory):
                of.forward(layer, Tensor((2, 4, DIM)), None, None, cache, plugin.FaTuneMetadata(True, [part]), Tensor((2, 4, DIM)))
            (problem, _, words, _), = seen
            tap.equal((problem.get("kv_dtype", "same"), words["block_table"].numbers()), (kind, table))
    _start._prepared.clear()


def vllm_is_told_what_the_backend_takes_and_what_it_does_not():
    plugin = importlib.import_module("fa_tune.integrations.vllm")
    against = plugin.FaTuneBackend.reasons_against
    for taken in (*({"head_size": size} for size in (64, 72, 80, 96, 128, 192, 256, 512)), {"has_sliding_window": True},
                  {"has_sink": True}, {"use_per_head_quant_scales": True}, {"use_non_causal": True}, {"capability": (8, 0)},
                  {"kv_cache_dtype": "fp8"}, {"kv_cache_dtype": "float16"}, {"block_size": 16}, {"capability": (12, 0)}):
        tap.equal(against(**taken), [])
    for name, value in (("head_size", 520), ("head_size", 100), ("capability", (7, 5)), ("kv_cache_dtype", "fp8_e5m2"),
                        ("block_size", 24), ("use_mla", True), ("use_sparse", True), ("use_mm_prefix", True),
                        ("use_batch_invariant", True), ("use_pcp", True)):
        tap.equal(against(**{name: value}), [name.replace("capability", "compute_capability")])
    tap.has(against(kv_cache_dtype="bfloat16")[0], "bfloat16")
    for how in ({"alibi_slopes": [1.0]}, {"attn_type": "encoder"}):
        refused(NotImplementedError, plugin.FaTuneImpl, 4, DIM, 0.125, 2, **how)
    tap.has(refused(TypeError, plugin.FaTuneImpl, 4, DIM, 0.125, 2, kv_lora_rank=512), "kv_lora_rank")
    builder = plugin.FaTuneMetadataBuilder(SPEC, [], config_of(None), "cuda:0")
    step = step_of(Ragged([1], [9]), None)
    tap.has(refused(NotImplementedError, builder.build, 16, step), "cascade")
    step.causal = ints([1])
    refused(NotImplementedError, builder.build, 0, step)
    config = config_of(None, model=types.SimpleNamespace(rswa_window=128))
    tap.has(refused(NotImplementedError, plugin.FaTuneMetadataBuilder, SPEC, [], config, "cuda:0"), "rswa_window")


class LatentImpl(Abstract):
    def __init__(self, num_heads, _size, scale, _kv, _alibi, _window, kv_cache_dtype, *_, kv_lora_rank, qk_rope_head_dim, indexer=None):
        self.num_heads, self.scale, self.kv_cache_dtype, self.kv_lora_rank = num_heads, scale, kv_cache_dtype, kv_lora_rank
        self.qk_rope_head_dim, self.need_to_return_lse_for_decode = qk_rope_head_dim, False


class LatentBuilder(Builder):
    dcp_world_size, reorder_batch_threshold = 1, 1


def joined(parts, dim):
    """torch.cat() of the last dimension."""
    tap.equal(dim, -1)
    rows = zip(*(zip(*[iter(part.numbers())] * part.shape[-1]) for part in parts))
    return Tensor((*parts[0].shape[:-1], sum(part.shape[-1] for part in parts)), [x for row in rows for one in row for x in one])


use_mla = False
stand_in("vllm.config", get_current_vllm_config=lambda: types.SimpleNamespace(model_config=types.SimpleNamespace(use_mla=use_mla)))
stand_in("vllm.model_executor.layers.attention.mla_attention", MLACommonBackend=Backend, MLACommonImpl=LatentImpl, MLACommonMetadata=None,
         MLACommonMetadataBuilder=LatentBuilder, QueryLenSupport=types.SimpleNamespace(VARLEN="varlen"),
         MLACommonDecodeMetadata=dataclasses.make_dataclass("Decode", ["block_table", "seq_lens", "dcp_tot_seq_lens"]))


def latent_case():
    """Keys of 64 numbers whose first 32 are values: (one query each, the cache in pages, the table, output, LSE)."""
    case = Ragged([1, 1], [20, 9])
    k, _, table = paged(case)  # of all heads, of which the first is the one
    cache = Tensor((k.shape[0], PAGE, DIM), sum((k[page][row][0].numbers() for page in range(k.shape[0]) for row in range(PAGE)), []))
    own, wanted, sums = table.rows(), [], []
    for at in range(2 * case.HEADS):
        keys = [cache[own[at // case.HEADS][j // PAGE]][j % PAGE].numbers() for j in range(case.keys[at // case.HEADS])]
        weights = [math.exp(sum(x * y for x, y in zip(case.q[at * DIM:], key)) * DIM ** -0.5) for key in keys]
        sums.append(math.log(sum(weights)))
        wanted += [sum(w * key[d] for w, key in zip(weights, keys)) / sum(weights) for d in range(DIM // 2)]
    return case, cache, table, wanted, sums


def vllm_decodes_models_with_latent_attention():
    """The LSE, too."""
    global use_mla
    use_mla = True
    backend, _start._prepared = BackendEnum.CUSTOM.get_class(), set()
    case, cache, table, wanted, sums = latent_case()
    tap.equal([backend.get_kv_cache_shape(8, PAGE, 1, 576, kind)[2] for kind in ("auto", "fp8_ds_mla")], [576, 656])
    for kind, part in (("fp8_ds_mla", "Hopper"), ("fp8", "512 or less")):
        tap.has(backend.supports_combination(576, FLOAT16, kind, types.SimpleNamespace(major=9)), part)
    given = dict(kv_lora_rank=DIM // 2, qk_rope_head_dim=DIM // 2)
    impl = backend.get_impl_cls()(case.HEADS, DIM, DIM ** -0.5, 1, None, None, "auto", None, "decoder", None, **given)
    builder = backend.get_builder_cls()(SPEC, ["layer"], config_of(impl), "cuda:0")
    query = Tensor((2, case.HEADS, DIM), case.q)
    step = types.SimpleNamespace(decode=builder._build_decode(table, ints(case.keys), 20, types.SimpleNamespace(tolist=lambda: [0, 1, 2]),
                                                              ints([0, 1, 2]), 2, None))
    impl.need_to_return_lse_for_decode = True
    out, lse = impl.forward_mqa((query[..., :DIM // 2], query[..., DIM // 2:]), cache, step, None)
    close(out.numbers() + lse.numbers(), wanted + sums)
    with mock.patch.object(LatentBuilder, "dcp_world_size", 2):
        tap.has(refused(NotImplementedError, backend.get_builder_cls(), SPEC, [], config_of(impl), "cuda:0"), "context parallelism")
    refused(NotImplementedError, backend.get_impl_cls(), 2, DIM, 0.5, 1, [1.0], None, "auto", None, "decoder", None, **given)
    use_mla = False


# ---- SGLang ---------------------------------------------------------------------------------------
choices = []
stand_in("sglang.srt.layers.attention.attention_registry",
         register_attention_backend=lambda name: lambda of: registered.setdefault(name, of))
stand_in("sglang.srt.layers.attention.base_attn_backend", AttentionBackend=Abstract)
stand_in("sglang.srt.mem_cache.swa_memory_pool", SWAKVPool=type("SWAKVPool", (), {}))
Attends = enum.Enum("AttentionType", "DECODER DECODER_BIDIRECTIONAL ENCODER_ONLY")
Radix = type("RadixAttention", (types.SimpleNamespace,), {})
stand_in("sglang.srt.layers.radix_attention", AttentionType=Attends, RadixAttention=Radix)
stand_in("sglang.srt.server_args", add_attention_backend_choices=choices.extend)


def model_of(*layers, **members):
    """A model of modules that hold a layer each, and these members."""
    holders = [types.SimpleNamespace(children=lambda layer=layer: [types.SimpleNamespace(), layer], **members) for layer in layers]
    return types.SimpleNamespace(modules=lambda: holders)


class Pool:
    """SGLang's pool of keys and values, a slot for each token."""

    def __init__(self, k, v):
        self.buffers, self.written = [t.view(-1, Ragged.HEADS_KV, DIM) for t in (k, v)], []

    def set_kv_buffer(self, *args):
        self.written.append(args)

    def get_kv_buffer(self, layer_id):
        tap.equal(layer_id, 3)
        return self.buffers


def runner_of(table, pool, layers, cache=FLOAT16, chunk=64, **latent):
    """SGLang's, of a model of these layers whose requests, from 1 on, have the pages of the table."""
    slots = [0] * MOST + [page * PAGE + at for page in table.numbers() for at in range(PAGE)]
    return types.SimpleNamespace(
        page_size=PAGE, use_mla_backend=bool(latent), kv_cache_dtype=cache, device="cuda:0", model=model_of(*layers), token_to_kv_pool=pool,
        server_args=types.SimpleNamespace(chunked_prefill_size=chunk, cuda_graph_max_bs=2),
        model_config=types.SimpleNamespace(context_len=MOST, dtype=FLOAT16, **latent),
        req_to_token_pool=types.SimpleNamespace(req_to_token=Tensor((len(table) + 1, MOST), slots, dtype=INT32)))


def batch_of(case, **more):
    """A step of the requests from 1 on."""
    decodes = set(case.queries) == {1}
    return types.SimpleNamespace(**{**dict(
        batch_size=len(case.keys), req_pool_indices=ints(range(1, len(case.keys) + 1)), seq_lens=ints(case.keys), seq_lens_cpu=ints(case.keys),
        extend_seq_lens=ints(case.queries), extend_seq_lens_cpu=case.queries, extend_prefix_lens_cpu=None, out_cache_loc="where", rids=["a", "b", "c"],
        spec_info=None, forward_mode=types.SimpleNamespace(is_decode=lambda: decodes, is_decode_or_idle=lambda: decodes, is_idle=lambda: False)), **more})


def sglang_extends_and_decodes_also_by_a_graphs_buffers():
    integrations.register_sglang()
    tap.equal(choices, ["fa_tune"])
    layer = Radix(
        layer_id=3, tp_q_head_num=Ragged.HEADS, tp_k_head_num=Ragged.HEADS_KV, tp_v_head_num=Ragged.HEADS_KV,
        head_dim=DIM, v_head_dim=DIM, scaling=DIM ** -0.5, logit_cap=0.0, sliding_window_size=-1,
        is_cross_attention=False, attn_type=Attends.DECODER, k_scale=None, v_scale=None,
        logit_capping_method="tanh", use_irope=False, xai_temperature_len=-1)
    for queries in ([4, 1, 2], [1, 1, 1]):
        case = Ragged(queries, [20, 33, 7])
        k, v, table = paged(case)
        runner = runner_of(table, Pool(k, v), [layer])
        _start._prepared.clear()
        backend = registered["fa_tune"](runner)
        prepared = set(_start._prepared)
        assert prepared, "kernels are not there before the first step"
        decodes = queries == [1, 1, 1]
        batch = batch_of(case)
        forward = backend.forward_decode if decodes else backend.forward_extend
        q = Tensor((sum(queries), Ragged.HEADS * DIM), case.q)
        backend.init_forward_metadata(batch)
        with fa_tune.recording() as met:
            told = forward(q, k, v, layer, batch)
        assert {_start.kind_of(problem) for problem in met} <= prepared == _start._prepared, met
        tap.equal((told.shape, runner.token_to_kv_pool.written), (q.shape, [(layer, "where", k, v, None, None)]))
        close(told.numbers(), case.expected(causal=True)[0])
        if not decodes:
            between_the_pieces_of_a_graph(backend, batch, q, k, v, layer, told)
        layer.attn_type = Attends.ENCODER_ONLY
        close(forward(q, k, v, layer, batch).numbers(), case.expected()[0])
        layer.attn_type = Attends.DECODER
        backend.init_cuda_graph_state(8, 8)
        if decodes:
            backend.init_forward_metadata_out_graph(batch, in_capture=True)
            held = backend.step.lengths.memory, backend.step.pages.memory
            close(forward(q, k, v, layer, batch, save_kv_cache=False).numbers(), case.expected()[0])
            backend.init_forward_metadata_out_graph(batch)
            assert held == (backend.step.lengths.memory, backend.step.pages.memory), "a graph's buffers have moved"
    idle = types.SimpleNamespace(is_idle=lambda: True, is_decode_or_idle=lambda: True)
    backend.init_forward_metadata(types.SimpleNamespace(forward_mode=idle))
    batch.forward_mode = idle  # of a rank whose graph runs because others have sequences
    backend.init_forward_metadata_out_graph(batch)
    windows = sys.modules["sglang.srt.mem_cache.swa_memory_pool"].SWAKVPool()
    taken = dict(page_size=PAGE, token_to_kv_pool=None, use_mla_backend=False, kv_cache_dtype=FLOAT16,
                 model_config=types.SimpleNamespace(dtype=FLOAT16))
    for wrong, word in (({"token_to_kv_pool": windows}, "--disable-hybrid-swa-memory"), ({"kv_cache_dtype": (11, 8)}, "fp8_e4m3")):
        tap.has(refused(NotImplementedError, registered["fa_tune"], types.SimpleNamespace(**dict(taken, **wrong))), word)
    refused(ValueError, registered["fa_tune"], types.SimpleNamespace(page_size=1))
    batch.spec_info = "drafts"
    for prepare in (backend.init_forward_metadata, backend.init_forward_metadata_out_graph):
        batch.forward_mode = types.SimpleNamespace(is_idle=lambda: False, is_decode_or_idle=lambda: True)
        tap.has(refused(NotImplementedError, prepare, batch), "speculative")
    batch.mm_inputs = [None, "an image"]
    for number, wrong in enumerate((
            {"is_cross_attention": True}, {"attn_type": Attends.DECODER_BIDIRECTIONAL}, {"use_irope": True},
            {"logit_cap": 30.0, "logit_capping_method": "sigmoid"}, {"xai_temperature_len": 1024},
            {"attn_type": Attends.ENCODER_ONLY, "sliding_window_size": 64})):
        other = Radix(**dict(vars(layer), **wrong, layer_id=10 + number))
        refused(NotImplementedError, forward, q, k, v, other, batch)
        if "attn_type" not in wrong or "sliding_window_size" in wrong:  # the others are refused for what a request brings
            refused(NotImplementedError, registered["fa_tune"], types.SimpleNamespace(**dict(vars(runner), model=model_of(other))))
    tap.has(refused(NotImplementedError, forward, q, k, v, layer, batch, q_rope=q), "q_rope")


def sglang_attends_in_models_with_latent_attention():
    """Single queries and prompts behind a prefix to the cache, prompts without one to keys and values that are given."""
    case, cache, table, wanted, _ = latent_case()
    written, seen, _start._prepared = [], [], set()
    pool = types.SimpleNamespace(set_kv_buffer=lambda *args: written.append(args), get_kv_buffer=lambda _: (cache.view(-1, 1, DIM), None))
    layer = Radix(layer_id=3, tp_q_head_num=case.HEADS, tp_k_head_num=1, head_dim=DIM, v_head_dim=DIM // 2, scaling=DIM ** -0.5, logit_cap=0.0,
                  sliding_window_size=-1, is_cross_attention=False, attn_type=Attends.DECODER,
                  logit_capping_method="tanh", use_irope=False, xai_temperature_len=-1)
    given = Radix(**dict(vars(layer), tp_k_head_num=case.HEADS, head_dim=48, v_head_dim=32, logit_cap=30.0))
    backend = registered["fa_tune"](runner_of(table, pool, [layer, given], kv_lora_rank=DIM // 2, qk_rope_head_dim=DIM // 2))
    q, k = Tensor((2, case.HEADS * DIM), case.q), Tensor((2, 1, DIM))
    for decodes in (True, False):
        batch = batch_of(case, forward_mode=types.SimpleNamespace(is_decode=lambda now=decodes: now, is_idle=lambda: False))
        backend.init_forward_metadata(batch)
        with fa_tune.recording() as met:
            close(backend.forward_decode(q, k, k, layer, batch).numbers(), wanted)
        assert {_start.kind_of(problem) for problem in met} <= _start._prepared, met
    tap.equal(written, [(layer, "where", k, k)] * 2)
    tap.has(refused(NotImplementedError, registered["fa_tune"], runner_of(table, pool, [], (10, 8), kv_lora_rank=512, qk_rope_head_dim=64)), "over fp8")
    tokens = [Tensor((2, case.HEADS, size)) for size in (48, 48, 32)]
    with answered(lambda *args: seen.append(args) or Tensor((2, case.HEADS, 32))):
        tap.equal(backend.forward_extend(*tokens, given, batch, save_kv_cache=False).shape, (2, case.HEADS * 32))
    assert _start.kind_of(Problem(**seen[0][0])) in _start._prepared, seen
    batch.extend_prefix_lens_cpu = [0, 3]
    tap.has(refused(NotImplementedError, backend.forward_extend, *tokens, given, batch, save_kv_cache=False), "prefix")


def between_the_pieces_of_a_graph(backend, batch, q, k, v, layer, expected):
    """SGLang's piecewise graphs: attention writes where the next piece reads. The prompt that each graph is captured with is not
    recorded, and nothing is computed for it where it is longer than the table of slots."""
    batch._attn_output = Tensor(q.shape)
    told = backend.forward_extend(q, k, v, layer, batch)
    assert told.memory is batch._attn_output.memory, "the next piece reads another tensor"
    tap.equal(told.numbers(), expected.numbers())
    del batch._attn_output
    longer = dict(vars(batch), batch_size=1, req_pool_indices=ints([0]), seq_lens=ints([4 * MOST]), seq_lens_cpu=ints([4 * MOST]),
                  extend_seq_lens=ints([4 * MOST]), extend_seq_lens_cpu=[4 * MOST])
    tap.has(refused(NotImplementedError, backend.init_forward_metadata, types.SimpleNamespace(**longer)), "table of slots")
    for captured, numbers in (longer, [0] * q.numel()), (vars(batch), expected.numbers()):
        captured = types.SimpleNamespace(**dict(captured, rids=None))
        written = len(backend.token_to_kv_pool.written)
        backend.init_forward_metadata(captured)
        told = backend.forward_extend(q, k, v, layer, captured)
        tap.equal((told.numbers(), fa_tune._policy.current.record, len(backend.token_to_kv_pool.written)), (numbers, "", written + 1))
    backend.init_forward_metadata(batch)
    tap.equal(fa_tune._policy.current.record, _start.record_of("sglang"))


def sglangs_layers_are_handed_over_as_they_are():
    """fp8 caches with their scales; windows of SGLang's, which count the keys in front, soft caps and sinks."""
    fp8 = (10, 8)
    sinks = Tensor((Ragged.HEADS,), [1.0, 2.0, 3.0, 4.0], dtype=FLOAT32)
    for kind_of_cache, window, cap, own in ((fp8, -1, 0.0, None), (FLOAT16, 15, 30.0, sinks), (fp8, 0, 0.0, sinks)):
        handed_over_by_sglang(kind_of_cache, window, cap, own)


def handed_over_by_sglang(cache, window, cap, sinks):
    fp8, shape = cache != FLOAT16, (2 * PAGE, Ragged.HEADS_KV, DIM)
    pool = types.SimpleNamespace(get_kv_buffer=lambda _: (Tensor(shape, dtype=cache), Tensor(shape, dtype=cache)))
    backend = registered["fa_tune"](runner_of(Tensor((1, 3), [1, 2, 3], dtype=INT32), pool, [], cache, -1))
    layer = types.SimpleNamespace(
        layer_id=3, tp_q_head_num=Ragged.HEADS, tp_k_head_num=Ragged.HEADS_KV, tp_v_head_num=Ragged.HEADS_KV, head_dim=DIM,
        v_head_dim=DIM, scaling=1.0, logit_cap=cap, sliding_window_size=window, attn_type=Attends.DECODER, k_scale=None,
        v_scale=Tensor((1,), [0.5], dtype=FLOAT32))
    announced = []
    backend._check, seen = lambda _: None, []
    with mock.patch.object(_start, "prepare", lambda _, *kinds, **most: announced.extend(kinds) or tap.equal(most["most_queries"], MOST)), \
            answered(lambda *args: seen.append(args) or Tensor((2, Ragged.HEADS, DIM))):
        for starts, rows in ((None, 2), (ints([0, 3, 4]), 4)):
            backend.step = sys.modules["fa_tune.integrations.sglang"].Step(
                ints([9, 9]), Tensor((2, 1), [0, 1], dtype=INT32), PAGE, starts, 3)
            backend._attend(Tensor((rows, Ragged.HEADS * DIM)), None, None, layer, types.SimpleNamespace(mm_inputs=None), sinks=sinks)
    tap.equal((len(announced), len(seen)), (2, 2))  # one layer
    for (problem, _, words, _), kind in zip(seen, announced):
        if fp8:
            tap.equal((words["k_scale"].numbers(), words["v_scale"].numbers()), ([1.0] * 4, [0.5] * 4))
        asked = Problem(**problem)
        tap.equal((asked.kv_dtype, asked.window, asked.window_left, asked.window_right, asked.softcap, asked.sinks),
                  ("fp8" if fp8 else "same", window >= 0, max(window, 0), 0, cap > 0, sinks is not None))
        tap.equal((words.get("softcap", 0.0), words.get("sinks") and words["sinks"].numbers()), (cap, sinks and sinks.numbers()))
        tap.equal(_start.kind_of(asked), _start.kind_of(Problem(**kind, batch=2, seq_q=asked.seq_q, seq_k=asked.seq_k)))


# ---- both -----------------------------------------------------------------------------------------
def importing_the_entry_points_imports_no_engine():
    told = subprocess.run([sys.executable, "-c", "import fa_tune.integrations, sys\n"
                           "print([m for m in ('torch', 'vllm', 'sglang') if m in sys.modules])"],
                          env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)), check=True, stdout=subprocess.PIPE,
                          encoding="utf-8").stdout
    tap.equal(told, "[]\n")


def versions_that_were_not_tried_get_a_warning():
    def warned(engine, version):
        integrations.begin.cache_clear()
        with mock.patch("importlib.metadata.version", {engine: version}.__getitem__), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            integrations.begin(engine)
            integrations.begin(engine)
        return [str(warning.message) for warning in caught]
    tap.equal(warned("vllm", "0.26.0+cu129") + warned("sglang", "0.5.13"), [])
    for engine, other in (("vllm", "0.29.0"), ("sglang", "0.5.14")):
        told, = warned(engine, other)
        tap.has(told, "%s %s" % (engine, other))


if len(sys.argv) > 1:
    be_a_rank(sys.argv[1])
    sys.exit()

tap.main()
