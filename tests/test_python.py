#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""fa_tune.attention on the fake driver: what a tensor library hands over comes out right, by the shortest
way, and what cannot be served is refused with a sentence that helps."""
import atexit
import json
import math
import os
import random
import signal
import subprocess
import sys
import threading
import types

import tap
from place import Place

ONE = {"BLOCK_M": [64], "BLOCK_N": [64], "STAGES": [1], "WARPS": [4], "Q_IN_REGS": [0], "MIN_BLOCKS": [2]}
SPLIT = {"BLOCK_M": [16], "BLOCK_N": [32], "STAGES": [2], "GROUPS": [4], "MIN_BLOCKS": [1], "EVICT_FIRST": [0],
         "SPREAD": [1]}
place = Place(space=ONE, script="device sm=89\ndevice sm=89 board=1\ninit_once\nlog log\n")
atexit.register(place.__exit__)
for variable in ("FA_TUNE_STORE", "FA_TUNE_TEMPLATES", "FA_TUNE_LIBCUDA", "FAKE_CUDA_SCRIPT"):
    os.environ[variable] = place.env[variable]
# The family for serving has one config too, and leaves dense problems to the other.
with open(os.path.join(os.environ["FA_TEST_TEMPLATES"], "attn_fwd_splitkv_sm80.json"), encoding="utf-8") as file:
    split = json.load(file)
split.update(tunables=SPLIT, default={name: values[0] for name, values in SPLIT.items()})
split["supports"].append({"require": "SERVING = 1", "why": "dense problems are the other family's here"})
with open(os.path.join(place.env["FA_TUNE_TEMPLATES"], "attn_fwd_splitkv_sm80.json"), "w", encoding="utf-8") as file:
    json.dump(split, file)
os.chdir(place.folder)  # where the log goes
PACKAGE = os.path.join(os.environ["FA_TEST_BUILD"], "python")
sys.path.insert(0, PACKAGE)

import producer  # noqa: E402
from producer import Capsuled, Exchanged  # noqa: E402
import fa_tune  # noqa: E402

producer.start()
DIM = 64
random.seed(7)


def attend(q, k, v, batch, heads, heads_kv, rows, keys, first_hidden=None, scale=1 / math.sqrt(DIM)):
    """(O, LSE) in double precision, as flat lists; first_hidden(row): the first key it does not see."""
    out, lse = [], []
    for b in range(batch):
        for h in range(heads):
            kv = (b * heads_kv + h * heads_kv // heads) * keys
            for i in range(rows):
                at = ((b * heads + h) * rows + i) * DIM
                seen = keys if first_hidden is None else first_hidden(i)
                score = [scale * sum(q[at + d] * k[(kv + j) * DIM + d] for d in range(DIM))
                         for j in range(seen)]
                top = max(score)
                weight = [math.exp(s - top) for s in score]
                total = sum(weight)
                lse.append(top + math.log(total))
                out += [sum(w * v[(kv + j) * DIM + d] for j, w in enumerate(weight)) / total
                        for d in range(DIM)]
    return out, lse


def numbers(count):
    return [round(random.gauss(0, 1), 2) for _ in range(count)]


class Inputs:
    """Numbers for one problem, and tensors of a kind that hold them."""

    def __init__(self, batch=1, heads=2, heads_kv=1, rows=6, keys=9, kind=Exchanged, device=0):
        self.sizes = (batch, heads, heads_kv, rows, keys)
        self.numbers = [numbers(batch * heads * rows * DIM)] + [
            numbers(batch * heads_kv * keys * DIM) for _ in range(2)]
        self.shape = (batch, heads, rows, DIM)
        shapes = (self.shape,) + ((batch, heads_kv, keys, DIM),) * 2
        self.tensors = [kind(shape, values, device=(producer.DEVICE, device))
                        for shape, values in zip(shapes, self.numbers)]

    def expected(self, **how):
        return attend(*self.numbers, *self.sizes, **how)


def close(actual, expected, most=4e-3):
    worst = max(abs(a - b) for a, b in zip(actual, expected))
    assert len(actual) == len(expected) and worst < most, "off by %g" % worst


def logged(word):
    """Lines of the fake driver's log."""
    with open(os.path.join(place.folder, "log"), encoding="utf-8") as file:
        return [line for line in file if word in line]


def refused(kind, part, *args, **kwargs):
    try:
        fa_tune.attention(*args, **kwargs)
    except kind as error:
        tap.has(str(error), part)
        return error
    raise AssertionError("was not refused")


def importing_the_package_loads_nothing():
    code = ("import sys, fa_tune\n"
            "bad = [m for m in ('torch', 'numpy', 'fa_tune._core') if m in sys.modules]\n"
            "sys.exit(repr(bad) if bad else 0)")
    subprocess.run([sys.executable, "-c", code], env=dict(os.environ, PYTHONPATH=PACKAGE), check=True)


def both_ways_of_dlpack_give_the_right_output_and_log_sum_exp():
    for kind in (Exchanged, Capsuled):
        case = Inputs(kind=kind)
        out, lse = kind(case.shape), kind(case.shape[:3], dtype=(producer.FLOAT, 32))
        told = fa_tune.attention(*case.tensors, out=(out, lse), return_lse=True)
        assert told[0] is out and told[1] is lse
        expected = case.expected()
        close(out.read(), expected[0])
        close(lse.read(), expected[1])


def outputs_come_from_the_tensors_own_library():
    case = Inputs()
    out, lse = fa_tune.attention(*case.tensors, return_lse=True)
    tap.equal((type(out), out.shape, out.dtype), (Exchanged, case.shape, (producer.FLOAT, 16)))
    tap.equal((type(lse), lse.shape, lse.dtype), (Exchanged, case.shape[:3], (producer.FLOAT, 32)))
    close(out.read(), case.expected()[0])
    del case.tensors[:]
    error = refused(fa_tune.TensorError, "pass out=", *Inputs(kind=Capsuled).tensors)
    assert isinstance(error, TypeError)


def pytorchs_tensors_get_outputs_of_pytorchs_own_allocator():
    torch, made = types.ModuleType("torch"), []

    class Tensor(Exchanged):
        pass

    def empty_like(tensor, memory_format):
        tap.equal(memory_format, "contiguous")
        made.append(Tensor(tensor.shape))
        return made[-1]
    torch.Tensor, torch.empty_like, torch.contiguous_format = Tensor, empty_like, "contiguous"
    case = Inputs()
    had = sys.modules.get("torch")
    sys.modules["torch"] = torch
    try:
        out = fa_tune.attention(*[Tensor(t.shape, memory=t.memory) for t in case.tensors])
    finally:
        del sys.modules["torch"]
        if had is not None:
            sys.modules["torch"] = had
    assert made == [out]
    close(out.read(), case.expected()[0])


def every_mask_and_scale_is_passed_on():
    case = Inputs(rows=5, keys=9)
    masks = {True: lambda i: i + 5, "bottom-right": lambda i: i + 5, "top-left": lambda i: i + 1,
             False: None, None: None, "none": None}
    for causal, hidden in masks.items():
        out = fa_tune.attention(*case.tensors, causal=causal, scale=0.25)
        close(out.read(), case.expected(first_hidden=hidden, scale=0.25)[0])


def bshd_tensors_and_odd_strides_are_taken_as_they_lie():
    case = Inputs(batch=2, heads=2, heads_kv=2, rows=4, keys=4)
    batch, heads, _, rows, _ = case.sizes
    bhsd = fa_tune.attention(*case.tensors).read()
    # The same memory, called [batch, seq, heads, dim] with its strides.
    turned = [Exchanged((batch, rows, heads, DIM), strides=(heads * rows * DIM, DIM, rows * DIM, 1),
                        memory=t.memory) for t in case.tensors]
    out = Exchanged((batch, rows, heads, DIM), strides=(heads * rows * DIM, DIM, rows * DIM, 1))
    fa_tune.attention(*turned, layout="bshd", out=out)
    tap.equal(out.read(), bhsd)


def tensors_that_are_not_aligned_find_a_kernel_that_takes_them():
    case = Inputs()
    q = Exchanged(case.shape, memory=producer.Memory(2 * math.prod(case.shape) + 64, 0), offset=2)
    address = q.memory.address
    q.memory.address += 2
    q.write(case.numbers[0])
    q.memory.address = address
    out = fa_tune.attention(q, *case.tensors[1:])
    close(out.read(), case.expected()[0])


def capsules_are_asked_for_with_the_stream_of_the_call():
    case = Inputs(kind=Capsuled)
    out = Capsuled(case.shape)
    fa_tune.attention(*case.tensors, out=out)
    tap.equal(case.tensors[0].asked, [(1, (1, 2))])  # the default stream, as DLPack numbers it
    stream = producer.c.c_void_p()
    producer.check(producer.CUDA.cuStreamCreate(producer.c.byref(stream), 0))
    fa_tune.attention(*case.tensors, out=out, stream=stream.value)
    tap.equal([asked[-1][0] for asked in (case.tensors[2].asked, out.asked)], [stream.value] * 2)
    for tensor in case.tensors:
        tensor.old = True  # a producer of before DLPack 1.0 knows no versions
    out.old = True
    fa_tune.attention(*case.tensors, out=out)
    close(out.read(), case.expected()[0])


def a_hit_makes_no_lookup_and_a_thread_without_a_context_is_served():
    case = Inputs()
    out = fa_tune.attention(*case.tensors)
    loads = len(logged("load"))
    errors = []

    def other():
        try:
            fa_tune.attention(*case.tensors, out=out)
        except BaseException as error:  # whatever it is, the test tells it
            errors.append(error)
    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    tap.equal((errors, len(logged("load"))), ([], loads))
    close(out.read(), case.expected()[0])


def another_device_than_the_current_one_is_entered_and_left():
    producer.start(1)
    case = Inputs(device=1)
    out = Exchanged(case.shape, device=(producer.DEVICE, 1))
    producer.check(producer.CUDA.cuCtxPopCurrent_v2(None))
    fa_tune.attention(*case.tensors, out=out)
    here = producer.c.c_int()
    producer.check(producer.CUDA.cuCtxGetDevice(producer.c.byref(here)))
    tap.equal(here.value, 0)
    close(out.read(), case.expected()[0])


def nothing_is_loaded_while_a_graph_is_captured_and_what_is_loaded_launches():
    known, new = Inputs(), Inputs(rows=3)
    out = fa_tune.attention(*known.tensors)
    out.write([0.0] * math.prod(known.shape))
    loads = len(logged("load"))
    producer.CUDA.fake_cuda_capture(None, 1)
    try:
        error = refused(fa_tune.CaptureError, "before the capture", *new.tensors)
        assert isinstance(error, RuntimeError)
        fa_tune.attention(*known.tensors, out=out)
    finally:
        producer.CUDA.fake_cuda_capture(None, 0)
    tap.equal(len(logged("load")), loads)
    close(out.read(), known.expected()[0])


def wrong_tensors_are_refused_with_what_to_pass_instead():
    case = Inputs()
    q, k, v = case.tensors
    shape = (1, 1, 9, DIM)
    rows = [
        (fa_tune.TensorError, "q is a list: pass a tensor on a CUDA device", ([1.0], k, v), {}),
        (fa_tune.DeviceError, "q is in the memory of the host", (Capsuled(case.shape, device=(1, 0)), k, v), {}),
        (fa_tune.DeviceError, "k on 1: pass tensors of one device",
         (q, Capsuled(shape, device=(2, 1), memory=k.memory), v), {}),
        (fa_tune.DtypeError, "q is float16 and v is float32", (q, k, Exchanged(shape, dtype=(2, 32))), {}),
        (fa_tune.DtypeError, "pass float16 or bfloat16",
         tuple(Exchanged(s, dtype=(2, 32)) for s in (case.shape, shape, shape)), {}),
        (fa_tune.ShapeError, "pass a tensor of four dimensions", (q, k, Exchanged((9, DIM))), {}),
        (fa_tune.ShapeError, "q has 5 dimensions", (Exchanged((1, 1, 1, 6, DIM)), k, v), {}),
        (fa_tune.ShapeError, "v has the shape (1, 1, 8, 64) and needs (1, 1, 9, 64)",
         (q, k, Exchanged((1, 1, 8, DIM))), {}),
        (fa_tune.ShapeError, "must be a multiple", (Exchanged((1, 3, 6, DIM)),) +
         tuple(Exchanged((1, 2, 9, DIM)) for _ in range(2)), {}),
        (fa_tune.ShapeError, "needs 1: pass q.contiguous()",
         (Exchanged(case.shape, strides=(768, 384, 1, 6)), k, v), {}),
        (fa_tune.ShapeError, "repeats one row", (Exchanged(case.shape, strides=(0, 0, 0, 1)), k, v), {}),
        (fa_tune.ArgumentError, "head_dim", tuple(Exchanged((1, 1, 9, 12)) for _ in range(3)), {}),
        (fa_tune.ShapeError, "out has the shape", (q, k, v), {"out": Exchanged((1, 2, 6, 72))}),
        (fa_tune.DtypeError, "out is bfloat16 and needs float16", (q, k, v),
         {"out": Exchanged(case.shape, dtype=(producer.BFLOAT, 16))}),
        (fa_tune.ArgumentError, "out is read-only", tuple(Capsuled(t.shape, memory=t.memory) for t in case.tensors),
         {"out": Capsuled(case.shape, flags=producer.READ_ONLY)}),
        (fa_tune.ArgumentError, "(out, lse) with return_lse=True", (q, k, v), {"out": (q, q)}),
        (fa_tune.ArgumentError, '"bottom-right" or "top-left"', (q, k, v), {"causal": "left"}),
        (fa_tune.ArgumentError, '"bhsd" or "bshd"', (q, k, v), {"layout": "sbhd"}),
        (fa_tune.ArgumentError, "scale must be positive", (q, k, v), {"scale": 0.0}),
        (TypeError, "no keyword 'seq_q'", (q, k, v), {"seq_q": 6}),
        (TypeError, "needs v", (q, k), {}),
        (TypeError, "q twice", (q, k, v), {"q": q}),
    ]
    for kind, part, tensors, keywords in rows:
        refused(kind, part, *tensors, **keywords)


def a_kernel_is_bound_to_its_problem():
    case, other = Inputs(), Inputs(rows=7)
    problem = {"batch": 1, "heads_q": 2, "heads_kv": 1, "seq_q": 6, "seq_k": 9, "head_dim": DIM}
    kernel = fa_tune._core.best_kernel(problem)
    close(kernel(*case.tensors).read(), case.expected()[0])
    tap.equal((kernel.problem["seq_k"], kernel.device, kernel.answer["origin"]), (9, 0, "measured"))
    tap.has(repr(kernel), "attn_fwd_sm80 BLOCK_M=64")
    try:
        kernel(*other.tensors)
    except fa_tune.ShapeError as error:
        tap.has(str(error), '"seq_q":7')
    else:
        raise AssertionError("another problem was computed")


def a_miss_is_the_policys_to_answer():
    case = Inputs(rows=8)
    asked = []

    def on_miss(problem, device, arguments):
        asked.append((problem["seq_q"], device, sorted(arguments)))
        return "instead"
    fa_tune._core.set_policy("cached", on_miss)
    try:
        tap.equal(fa_tune.attention(*case.tensors, causal=True), "instead")
        tap.equal(asked, [(8, 0, ["causal", "k", "q", "v"])])
        fa_tune._core.set_policy("cached")
        refused(fa_tune.NotTuned, "", *Inputs(rows=40).tensors)
        fa_tune._core.set_policy("measure", lambda problem, *_: fa_tune._core.best_kernel(problem))
        close(fa_tune.attention(*case.tensors).read(), case.expected()[0])
    finally:
        fa_tune._core.set_policy("measure")


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
    """The problem that is asked for tells what was understood."""
    def asked(*tensors, **keywords):
        seen = []
        fa_tune._core.set_policy("cached", lambda problem, *_: seen.append(problem) or "instead")
        try:
            tap.equal(fa_tune.attention(*tensors, **keywords), "instead")
        finally:
            fa_tune._core.set_policy("measure")
        usual = fa_tune._core.problem({"seq_q": 1})
        return {name: value for name, value in seen[0].items()
                if value != usual.get(name) and name not in ("head_dim", "dtype")}

    def ints(*shape):
        return Exchanged(shape, dtype=(producer.INT, 32))

    def floats(*shape):
        return Exchanged(shape, dtype=(producer.FLOAT, 32))
    q, cache = Exchanged((3, 4, 1, DIM)), [Exchanged((3, 2, 40, DIM)) for _ in range(2)]
    decode = {"batch": 3, "heads_q": 4, "heads_kv": 2, "seq_q": 1, "seq_k": 40}
    decode = {name: value for name, value in decode.items() if name != "seq_q"}
    tap.equal(asked(q, *cache, window=(16, 0), softcap=30.0, sinks=floats(4), batch_invariant=True),
              dict(decode, window=True, window_left=16, softcap=True, sinks=True, batch_invariant=True))
    tap.equal(asked(q, *cache, window=(-1, -1), softcap=0.0), decode)
    tap.equal(asked(q, *cache, seqused_k=ints(3)), dict(decode, lengths_k="seqused"))
    pool = [Exchanged((9, 2, 16, DIM)) for _ in range(2)]
    tap.equal(asked(q, *pool, block_table=ints(3, 5), seqused_k=ints(3)),
              dict(decode, seq_k=80, page=16, lengths_k="seqused"))
    fp8 = [Exchanged((9, 2, 16, DIM), dtype=(10, 8)) for _ in range(2)]
    tap.equal(asked(q, *fp8, block_table=ints(3, 5), seqused_k=ints(3), max_seqlen_k=70, k_scale=floats(),
                    v_scale=floats(3, 2)),
              dict(decode, seq_k=70, page=16, lengths_k="seqused", kv_dtype="fp8"))
    rows, keys = Exchanged((50, 4, DIM)), [Exchanged((70, 2, DIM)) for _ in range(2)]
    ragged = {"cu_seqlens_q": ints(4), "cu_seqlens_k": ints(4), "max_seqlen_q": 30, "max_seqlen_k": 40}
    tap.equal(asked(rows, *keys, causal=True, out=Exchanged((50, 4, DIM)), **ragged),
              dict(decode, seq_q=30, causal="bottom-right", layout="bshd", varlen=True, lengths_k="cu_seqlens"))
    dense = [Exchanged((3, 40, 2, DIM)) for _ in range(2)]  # rows of queries only
    tap.equal(asked(rows, *dense, cu_seqlens_q=ints(4), max_seqlen_q=30),
              dict(decode, seq_q=30, layout="bshd", varlen=True))
    for kind, part, tensors, keywords in [
            (fa_tune.ShapeError, "seqused_k has 2 entries and needs 3", (q, *cache), {"seqused_k": ints(2)}),
            (fa_tune.DtypeError, "sinks is int32 and needs float32", (q, *cache), {"sinks": ints(4)}),
            (fa_tune.ArgumentError, "need max_seqlen_q", (rows, *dense), {"cu_seqlens_q": ints(4)}),
            (fa_tune.ShapeError, "k has 3 sequences and there are 4", (rows, *dense),
             {"cu_seqlens_q": ints(5), "max_seqlen_q": 30}),
            (fa_tune.ArgumentError, "both k_scale and v_scale", (q, *fp8), {"k_scale": floats()}),
            (fa_tune.ShapeError, "[total, heads, head_dim]", (q, *cache), ragged),
            (fa_tune.ArgumentError, "window must be a pair", (q, *cache), {"window": 16})]:
        refused(kind, part, *tensors, **keywords)


def a_recorder_sees_every_call():
    case, seen = Inputs(), []
    fa_tune._core.set_recorder(lambda problem, device: seen.append((problem["seq_k"], device)))
    fa_tune.attention(*case.tensors)
    fa_tune._core.set_recorder(None)
    fa_tune.attention(*case.tensors)
    tap.equal(seen, [(9, 0)])


def progress_is_told_and_what_it_raises_ends_the_tune():
    problem, events = {"seq_q": 64, "batch": 3}, []

    def stop(event):
        events.append(event)
        raise KeyboardInterrupt
    try:
        fa_tune._core.best_kernel(problem, progress=stop)
    except KeyboardInterrupt:
        pass
    else:
        raise AssertionError("the tune went on")
    tap.equal((len(events), events[0]["in_budget"]), (1, 1))
    fa_tune._core.best_kernel(problem, progress=events.append)
    tap.equal(events[-1]["stage"], "done")


def ctrl_c_ends_a_tune_that_nobody_watches():
    threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    try:
        for seq in range(64, 2 ** 16, 64):  # until it comes
            fa_tune._core.tune({"head_dim": 128, "seq_q": seq}, progress=False, exact=True)
    except KeyboardInterrupt:
        return
    raise AssertionError("the tunes went on")


def a_gpu_that_is_not_here_gets_a_prediction():
    answer = fa_tune._core.tune({"seq_q": 128, "batch": 1, "heads_q": 1}, gpu="L4", progress=False)
    tap.equal((answer["config"]["family"], answer["problem"]["seq_q"]), ("attn_fwd_sm80", 128))


def after_close_kernels_are_gone_and_calls_start_anew():
    case = Inputs()
    kernel = fa_tune._core.best_kernel({"batch": 1, "heads_q": 2, "heads_kv": 1, "seq_q": 6, "seq_k": 9})

    def closing(_event):
        fa_tune.close()
    try:
        fa_tune._core.tune({"seq_q": 70, "head_dim": 64}, progress=closing)
    except fa_tune.Error as error:
        tap.has(str(error), "wait for it first")
    else:
        raise AssertionError("the tuner was closed under a tune")
    fa_tune.close()
    try:
        kernel(*case.tensors)
    except fa_tune.Error as error:
        tap.has(str(error), "ask for the kernel again")
    else:
        raise AssertionError("a kernel was launched that is gone")
    close(fa_tune.attention(*case.tensors).read(), case.expected()[0])


def a_forked_child_is_told_to_be_spawned():
    case = Inputs()
    fa_tune.attention(*case.tensors)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            fa_tune.attention(*case.tensors)
            said = "nothing"
        except fa_tune.ForkedError as error:
            said = str(error)
        except BaseException as error:
            said = repr(error)
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        tap.has(file.read(), 'set_start_method("spawn")')
    os.waitpid(child, 0)


tap.main([
    importing_the_package_loads_nothing,
    both_ways_of_dlpack_give_the_right_output_and_log_sum_exp,
    outputs_come_from_the_tensors_own_library,
    pytorchs_tensors_get_outputs_of_pytorchs_own_allocator,
    every_mask_and_scale_is_passed_on,
    bshd_tensors_and_odd_strides_are_taken_as_they_lie,
    tensors_that_are_not_aligned_find_a_kernel_that_takes_them,
    capsules_are_asked_for_with_the_stream_of_the_call,
    a_hit_makes_no_lookup_and_a_thread_without_a_context_is_served,
    another_device_than_the_current_one_is_entered_and_left,
    nothing_is_loaded_while_a_graph_is_captured_and_what_is_loaded_launches,
    wrong_tensors_are_refused_with_what_to_pass_instead,
    a_kernel_is_bound_to_its_problem,
    a_miss_is_the_policys_to_answer,
    a_paged_cache_with_lengths_is_attended_to,
    what_serving_passes_makes_the_problem_it_says,
    a_recorder_sees_every_call,
    progress_is_told_and_what_it_raises_ends_the_tune,
    ctrl_c_ends_a_tune_that_nobody_watches,
    a_gpu_that_is_not_here_gets_a_prediction,
    after_close_kernels_are_gone_and_calls_start_anew,
    a_forked_child_is_told_to_be_spawned,
])
