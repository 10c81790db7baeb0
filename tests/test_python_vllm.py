#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""fa_tune's backend for vLLM 0.26.0 on the fake driver, against stand-ins: what it registers, what it hands over for each
step, and that it comes out right; and what the backends for vLLM and SGLang share."""
import contextlib
import dataclasses
import enum
import importlib
import io
import json
import math
import os
import subprocess
import sys
import types
import warnings
from unittest import mock

import tap
from attention_case import DIM, answered, captured, close, logged, place
from engine_case import FLOAT16, FLOAT32, INT32, MOST, PAGE, Abstract, Tensor, ints, latent_case, paged, refused, registered, stand_in
from place import DEADLINE, Place
from serve import Serve
from serving_case import Ragged
import fa_tune
from fa_tune import Problem, _policy, integrations
from fa_tune.integrations import _start
from fa_tune._problem import problems_of_file


# ---- as much of vLLM as it uses -------------------------------------------------------------------
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
UNSCALED = types.SimpleNamespace(_k_scale=None, _v_scale=None)  # a layer whose cache is of its queries' type


def config_of(impl, most_batch=4, model=MODEL, drafts=None, captured=None):
    """vLLM's configuration of a model with one layer, called "layer"."""
    return types.SimpleNamespace(
        model_config=model, speculative_config=drafts,
        scheduler_config=types.SimpleNamespace(max_num_seqs=most_batch, max_num_batched_tokens=64),
        compilation_config=types.SimpleNamespace(static_forward_context={"layer": types.SimpleNamespace(impl=impl)},
                                                 cudagraph_capture_sizes=captured))
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


def allocated(backend, blocks, heads_kv, dim=DIM, dtype=FLOAT16, layers=None):
    """A cache as vLLM makes it: the backend's shape, its dimensions in memory in the backend's order. With `layers` that
    of the last one of as many, which lie in one tensor."""
    shape = backend.get_kv_cache_shape(blocks, PAGE, heads_kv, dim)
    if layers is not None:
        shape = layers, *shape
    order = backend.get_kv_cache_stride_order(layers is not None)
    cache = Tensor([shape[i] for i in order], dtype=dtype).permute(*(order.index(i) for i in range(len(shape))))
    return cache if layers is None else cache[layers - 1]


def cache_of(impl, k, v):
    """A layer's cache that holds these pages."""
    cache = allocated(BackendEnum.CUSTOM.get_class(), k.shape[0], Ragged.HEADS_KV)
    for half, pages in zip(impl._halves(cache), (k, v)):
        half.copy_(pages)
    return cache


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


def vllm_runs_a_step_of_prefill_and_decode_together():
    global layout
    integrations.register_vllm()
    assert not {"fa_tune.integrations.vllm", "fa_tune.integrations.sglang"} & set(sys.modules), "were not asked for"
    backend = BackendEnum.CUSTOM.get_class()
    tap.equal((backend.get_name(), _policy.current.effort), ("CUSTOM", "measure"))
    case = Ragged([4, 1, 2], [20, 33, 7])
    k, v, table = paged(case)
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
        impl.do_kv_cache_update(UNSCALED, query, query, cache, slots)
        (_, _, keys, values, told_slots, *_), = written
        tap.equal((keys.shape, keys.memory is cache.memory, told_slots is slots), (k.shape, True, True))
        if (layout, layers) == ("NHD", None):  # in memory (blocks, page, heads_kv, 2 * DIM)
            tap.equal(keys.strides, [PAGE * case.HEADS_KV * 2 * DIM, case.HEADS_KV * 2 * DIM, 2 * DIM, 1])
        keys.copy_(k)
        values.copy_(v)
        output = Tensor(query.shape, [7.0] * (9 * case.HEADS * DIM))
        assert impl.forward(UNSCALED, query, None, None, cache, metadata, output) is output
        told = output.numbers()
        close(told[:len(case.q)], case.expected(causal=True)[0])
        tap.equal(set(told[len(case.q):]), {7.0})
    not_causal = builder.build(0, step_of(case, table, causal=False))
    impl.forward(UNSCALED, query, None, None, cache, not_causal, output)
    close(output.numbers()[:len(case.q)], case.expected()[0])
    tap.equal(set(impl.forward(UNSCALED, query, None, None, cache, None, output).numbers()), {0.0})


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
        impl.forward(UNSCALED, Tensor((sum(queries), case.HEADS, DIM), case.q), None, None, cache_of(impl, k, v),
                     builder.build(0, step_of(case, table)), output)
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
    query = Tensor((sum(case.queries), case.HEADS, DIM), case.q)
    with fa_tune.recording() as met:
        output = impl.forward(UNSCALED, query, None, None, cache_of(impl, k, v), builder.build(0, step_of(case, table)), Tensor(query.shape))
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
    query = Tensor((3, case.HEADS, DIM), case.q)
    with new_store("captured") as folder:
        os.environ["FA_TUNE_ENGINE_SECONDS"] = "0"
        for sizes, near in ((None, fa_tune._core.near_kernel), ([1, 3, 8], None)):  # found meanwhile, or beforehand
            impl, builder, _ = vllm_starts(captured=sizes)
            cache = cache_of(impl, k, v)
            step, output = builder.build(0, step_of(case, table, max_seq_len=MOST)), Tensor(query.shape)
            loads = len(logged("load"))
            with mock.patch.object(fa_tune._core, "near_kernel", near), captured():
                impl.forward(UNSCALED, query, None, None, cache, step, output)
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
use_mla = False
stand_in("vllm.config", get_current_vllm_config=lambda: types.SimpleNamespace(model_config=types.SimpleNamespace(use_mla=use_mla)))
stand_in("vllm.model_executor.layers.attention.mla_attention", MLACommonBackend=Backend, MLACommonImpl=LatentImpl, MLACommonMetadata=None,
         MLACommonMetadataBuilder=LatentBuilder, QueryLenSupport=types.SimpleNamespace(VARLEN="varlen"),
         MLACommonDecodeMetadata=dataclasses.make_dataclass("Decode", ["block_table", "seq_lens", "dcp_tot_seq_lens"]))


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
