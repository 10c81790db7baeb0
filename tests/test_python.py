#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""fa_tune.attention on the fake driver: what a tensor library hands over comes out right, by the shortest
way, and what cannot be served is refused with a sentence that helps."""
import faulthandler
import math
import os
import signal
import subprocess
import sys
import threading
import types
from unittest import mock

import tap
from attention_case import PACKAGE, Inputs, answered, captured, close, logged, refused
import producer
from producer import Capsuled, Exchanged
import fa_tune

DIM = 64


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
        requires_grad = False

    def empty_like(tensor, memory_format="as it is"):
        made.append(Tensor(tensor.shape))
        made[-1].memory_format = memory_format
        return made[-1]
    grads = []  # how often PyTorch was asked
    torch.is_grad_enabled = lambda: bool(grads.append(1) or Tensor.requires_grad)
    torch.Tensor, torch.empty_like, torch.contiguous_format = Tensor, empty_like, "contiguous"
    case = Inputs()
    with tap.modules({"torch": torch, "fa_tune._torch_ops": ...}):
        q, k, v = (Tensor(t.shape, memory=t.memory) for t in case.tensors)
        out = fa_tune.attention(q, k, v)
        tap.equal((grads, out.memory_format), ([1], "as it is"))
        dim, rows = q.shape[3], q.shape[2]
        turned = [Tensor(t.shape, strides=(0, dim, t.shape[1] * dim, 1)) for t in (q, k, v)]
        tap.equal(fa_tune.attention(*turned).memory_format, "contiguous")
        Tensor.requires_grad = True
        refused(fa_tune.NotSupported, "k requires a gradient", *case.tensors[:1], k, v)
        told = types.ModuleType("fa_tune._torch_ops")  # the operators that PyTorch differentiates take the call
        told.recorded = lambda **words: sorted(words)
        sys.modules[told.__name__] = told
        tap.equal(fa_tune.attention(q, k, v, causal=True), ["causal", "k", "q", "v"])
        refused(fa_tune.NotSupported, "a call with out= has no backward pass", *case.tensors, out=q)
        refused(fa_tune.NotSupported, "batch_invariant has no backward pass", q, k, v, batch_invariant=True)
        wide, cast = [Tensor(t.shape, dtype=(producer.FLOAT, 32)) for t in (q, k, v)], []
        told.autocast = lambda words: cast.append(sorted(words))
        refused(fa_tune.DtypeError, "pass float16 or bfloat16", *wide, causal=True)  # autocast is off
        tap.equal(cast, [["causal", "k", "q", "v"]])
        told.autocast = lambda words: words["q"]
        assert fa_tune.attention(*wide) is wide[0]
    assert made[0] is out and rows == 6
    close(out.read(), case.expected()[0])


def pytorchs_shortest_way_to_a_new_tensor_is_taken_where_it_is_right():
    torch, asked = types.ModuleType("torch"), []

    class Tensor(Exchanged):
        requires_grad = False

    class Marked(Tensor):
        pass

    def empty_like(tensor, **_):
        asked.append("empty_like")
        return type(tensor)(tensor.shape)

    def empty(shape, dtype, **_):
        asked.append("empty")
        return Tensor(shape, dtype=dtype)

    def empty_strided(size, stride, dtype):
        asked.append((size, stride, dtype))
        if how == "fails":
            raise TypeError("other arguments, in another version")
        made = Tensor(size, strides=stride, dtype=dtype)
        made.device = (producer.DEVICE, 1 if how == "elsewhere" else 0)
        return made
    torch.Tensor, torch.empty_like, torch.empty, torch.contiguous_format = Tensor, empty_like, empty, "contiguous"
    torch.float16, torch.float32 = (producer.FLOAT, 16), (producer.FLOAT, 32)
    torch._C = types.SimpleNamespace(_dynamo=types.SimpleNamespace(
        guards=types.SimpleNamespace(_empty_strided_cuda=empty_strided)))
    torch.is_grad_enabled = lambda: False
    case = Inputs(batch=2, rows=5)
    shape, half = case.shape, torch.float16
    quick = (shape, (2 * 5 * DIM, 5 * DIM, DIM, 1), half)
    with tap.modules({"torch": torch, "fa_tune._torch_ops": ...}):
        for kind, how, wanted in ((Tensor, "", [quick]), (Tensor, "", [quick]), (Marked, "", ["empty_like"]),
                                  (Tensor, "fails", [quick, "empty_like"]),
                                  (Tensor, "elsewhere", [quick, "empty_like"])):
            del asked[:]
            out = fa_tune.attention(*(kind(t.shape, memory=t.memory) for t in case.tensors))
            tap.equal((asked, type(out), out.device), (wanted, kind, (producer.DEVICE, 0)))
            close(out.read(), case.expected()[0])
        del asked[:]
        how = ""
        q, k, v = (Tensor(t.shape, memory=t.memory) for t in case.tensors)
        out, lse = fa_tune.attention(q, k, v, return_lse=True)
        tap.equal(asked, [quick, (shape[:3], (10, 5, 1), torch.float32)])
        close(lse.read(), case.expected()[1])


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
    fa_tune.attention(*Inputs().tensors)
    loads = len(logged("load"))
    for _ in range(2):  # the kernel that is loaded on device 0 will not do
        fa_tune.attention(*case.tensors, out=out)
    tap.equal(len(logged("load")), loads + 1)
    here = producer.c.c_int()
    producer.check(producer.CUDA.cuCtxGetDevice(producer.c.byref(here)))
    tap.equal(here.value, 0)
    close(out.read(), case.expected()[0])


def nothing_is_loaded_while_a_graph_is_captured_and_what_is_loaded_launches():
    known, new = Inputs(), Inputs(rows=3)
    out = fa_tune.attention(*known.tensors)
    out.write([0.0] * math.prod(known.shape))
    loads = len(logged("load"))
    with captured():
        error = refused(fa_tune.CaptureError, "before the capture", *new.tensors)
        assert isinstance(error, RuntimeError)
        fa_tune.attention(*known.tensors, out=out)
    tap.equal(len(logged("load")), loads)
    close(out.read(), known.expected()[0])


def wrong_tensors_are_refused_with_what_to_pass_instead():
    case = Inputs()
    q, k, v = case.tensors
    shape = (1, 1, 9, DIM)
    rows = [
        (fa_tune.TensorError, "q is of type list: pass a tensor on a CUDA device", ([1.0], k, v), {}),
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
        *((fa_tune.ArgumentError, "scale must be positive", (q, k, v), {"scale": scale}) for scale in (0.0, -0.5, math.nan, math.inf)),
        (TypeError, "no argument 'seq_q'", (q, k, v), {"seq_q": 6}),
        (TypeError, "needs v", (q, k), {}), (TypeError, "needs k and v", (q,), {}), (TypeError, "needs q, k and v", (), {}),
        (TypeError, "needs q and v", (), {"k": k}),
        (TypeError, "q twice", (q, k, v), {"q": q}),
    ]
    for kind, part, tensors, keywords in rows:
        refused(kind, part, *tensors, **keywords)


def what_a_library_cannot_describe_is_refused_with_its_reason():
    case = Inputs()
    q, k, v = case.tensors

    class Sparse(Capsuled):
        def __dlpack__(self, **_):
            raise BufferError("there are no strides\nframe 0: somewhere")
    error = refused(fa_tune.TensorError, 'k cannot be taken: its library says "there are no strides". Pass a dense',
                    q, Sparse(k.shape), v)
    tap.equal(str(error.__cause__).splitlines()[0], "there are no strides")

    class Interrupted(Capsuled):
        def __dlpack__(self, **_):
            raise KeyboardInterrupt
    refused(KeyboardInterrupt, "", q, Interrupted(k.shape), v)
    nowhere = Exchanged(v.shape)
    nowhere.memory = types.SimpleNamespace(address=None)
    refused(fa_tune.TensorError, "v has no memory", q, k, nowhere)


def lying(kind, honest, **lies):
    """The tensor again, of which DLPack is told something else: fields of a DlTensor; shape and strides as lists."""
    class Lying(kind):
        def describe(self, to):
            super().describe(to)
            for name, value in lies.items():
                if isinstance(value, list):
                    value = (producer.c.c_int64 * len(value))(*value)
                    self.arrays += (value,)
                    value = producer.c.cast(value, producer.c.POINTER(producer.c.c_int64))
                setattr(to, name, value)
    return Lying(honest.shape, memory=honest.memory, dtype=honest.dtype)


def no_lie_of_a_producer_is_followed():
    case, largest = Inputs(), 2 ** 63 - 1
    out, null = Exchanged(case.shape), producer.c.POINTER(producer.c.c_int64)()
    lies = [dict(ndim=-1), dict(ndim=2 ** 31 - 1), dict(ndim=5), dict(shape=null), dict(data=None),
            dict(byte_offset=2 ** 64 - 2), dict(byte_offset=1), dict(dtype=producer.Dtype(producer.FLOAT, 16, 2)),
            dict(device=producer.Device(2, 1)), dict(device=producer.Device(2, -1)), dict(device=producer.Device(99, 0)),
            dict(shape=[1, -2, 6, DIM]), dict(shape=[1, 2, 2 ** 31, DIM]), dict(shape=[largest] * 4),
            dict(shape=[2 ** 31 - 1] * 4), dict(shape=[2 ** 31 - 1] * 4, strides=null), dict(shape=[1, 2, -2 ** 63, 0]),
            dict(shape=[2 ** 31 - 1] * 4, strides=[0, 0, 0, 1]), dict(shape=[2, 2, 6, DIM], strides=[2 ** 49, 384, 64, 1]),
            dict(shape=[3] * 4, strides=[largest] * 4), dict(shape=[3] * 4, strides=[-2 ** 63] * 4)]
    for lie in lies:
        for kind in (Exchanged, Capsuled):
            for at in range(4):
                honest = case.tensors + [out]
                tensors = honest[:at] + [lying(kind, honest[at], **lie)] + honest[at + 1:]
                try:
                    fa_tune.attention(*tensors[:3], out=tensors[3])
                except fa_tune.Error:
                    continue
                raise AssertionError("%s was believed of tensor %d, a %s" % (lie, at, kind.__name__))
    for device in (-1, 7, 2 ** 31 - 1):
        refused(fa_tune.Error, "device", *(lying(Exchanged, t, device=producer.Device(2, device)) for t in case.tensors))
    fa_tune.attention(*case.tensors, out=out)  # nothing of that has reached the device
    close(out.read(), case.expected()[0])


def what_is_no_dlpack_is_refused_by_name():
    case = Inputs(kind=Capsuled)
    q, k, v = case.tensors
    out = Capsuled(case.shape)
    for told in ([2, 0], (2,), (2, 0, 0), ("2", 0), None, (2 ** 40, 0)):
        class Placed(Capsuled):
            def __dlpack_device__(self):
                return told
        for tensors in ((Placed(q.shape, memory=q.memory), k, v), (q, k, Placed(v.shape, memory=v.memory))):
            refused(fa_tune.TensorError, ".__dlpack_device__() gives no tuple of two ints", *tensors, out=out)
    for told in (-1, 1, 7, 2 ** 31 - 1):  # the capsule says 0
        class Elsewhere(Capsuled):
            def __dlpack_device__(self):
                return producer.DEVICE, told
        refused(fa_tune.DeviceError, "q on 0", Elsewhere(q.shape, memory=q.memory), k, v, out=out)
    for told in (None, 5, producer.new_capsule(producer.TABLE, "dlpack_exchange_api"),
                 producer.new_capsule(producer.TABLE, "used_dltensor")):
        class Other(Capsuled):
            def __dlpack__(self, **_):
                return told
        refused(fa_tune.TensorError, "v.__dlpack__() gives no capsule", q, k, Other(v.shape, memory=v.memory), out=out)

    class Broken(Capsuled):
        def __dlpack_device__(self):
            raise ValueError("no idea")
    refused(fa_tune.TensorError, 'q cannot be taken: its library says "no idea"', Broken(q.shape), k, v, out=out)
    refused(fa_tune.TensorError, "stream is no handle", *case.tensors, out=out, stream=-1)


def a_table_of_functions_that_fails_without_a_word_is_told_so():
    case = Inputs()
    q, k, v = case.tensors
    table = producer.TABLE

    def like(**functions):
        """A class with another table."""
        parts = {name: getattr(table, name) for name in ("allocate", "managed_from_object", "managed_to_object", "borrow",
                                                         "current_stream")}
        parts.update(functions)
        made = producer.Exchange(1, 2, None, *parts.values())
        return type("Odd", (Exchanged,), {"table": made,
                                          "__dlpack_c_exchange_api__": producer.new_capsule(made, "dlpack_exchange_api")})
    failing = [dict(borrow=producer.BORROW(lambda *_: -1)),
               dict(borrow=producer.BORROW(), managed_from_object=producer.FROM_OBJECT(lambda *_: 0)),
               dict(borrow=producer.BORROW(), managed_from_object=producer.FROM_OBJECT(lambda *_: -1)),
               dict(current_stream=producer.STREAM(lambda *_: -1))]
    for functions in failing:
        refused(fa_tune.TensorError, "q cannot be taken: its library failed and says nothing",
                like(**functions)(q.shape, memory=q.memory), k, v)

    def smaller(prototype, *rest):
        prototype.contents.shape[2] -= 1
        return table.allocate(prototype, *rest)
    for functions in (dict(allocate=producer.ALLOCATE(smaller)),
                      dict(managed_to_object=producer.TO_OBJECT(lambda *_: -1))):
        odd = like(**functions)(q.shape, memory=q.memory)
        refused(fa_tune.TensorError, "made no contiguous tensor of shape (1, 2, 6, 64)", odd, k, v)
    bare = like(current_stream=producer.STREAM())  # as if there were no table
    refused(fa_tune.TensorError, "the exchange table was there", bare(q.shape, memory=q.memory), k, v)


def a_kernel_is_bound_to_its_problem():
    case, other = Inputs(), Inputs(rows=7)
    problem = {"batch": 1, "heads_q": 2, "heads_kv": 1, "seq_q": 6, "seq_k": 9, "head_dim": DIM}
    kernel = fa_tune._core.best_kernel(problem)
    close(kernel(*case.tensors).read(), case.expected()[0])
    tap.equal((kernel.problem["seq_k"], kernel.device, kernel.answer["origin"]), (9, 0, "measured"))
    tap.has(repr(kernel), "attn_fwd_sm80 BLOCK_M=64")
    tap.refused(fa_tune.ShapeError, '"seq_q":7', lambda: kernel(*other.tensors))


def a_miss_is_the_policys_to_answer():
    case = Inputs(rows=8)
    asked = []

    def on_miss(problem, device, arguments, captured):
        asked.append((problem["seq_q"], device, sorted(arguments), captured))
        return None if captured else "instead"
    with answered(on_miss):
        tap.equal(fa_tune.attention(*case.tensors, causal=True), "instead")
        with captured():
            refused(fa_tune.CaptureError, "before the capture", *case.tensors)
        tap.equal(asked, [(8, 0, ["causal", "k", "q", "v"], False), (8, 0, ["k", "q", "v"], True)])
        fa_tune._core.set_policy("cached")
        refused(fa_tune.NotTuned, "", *Inputs(rows=40).tensors)
        fa_tune._core.set_policy("measure", lambda problem, *_: fa_tune._core.best_kernel(problem))
        close(fa_tune.attention(*case.tensors).read(), case.expected()[0])


def progress_is_told_and_what_it_raises_ends_the_tune():
    problem, events = {"seq_q": 64, "batch": 3}, []

    def stop(event):
        events.append(event)
        raise KeyboardInterrupt
    tap.refused(KeyboardInterrupt, "", lambda: fa_tune._core.best_kernel(problem, progress=stop))
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


def after_close_kernels_are_gone_and_calls_start_anew():
    case = Inputs()
    kernel = fa_tune._core.best_kernel({"batch": 1, "heads_q": 2, "heads_kv": 1, "seq_q": 6, "seq_k": 9})

    tap.refused(fa_tune.Error, "wait for it first", lambda: fa_tune._core.tune(
        {"seq_q": 70, "head_dim": 64}, progress=lambda _: fa_tune.close()))
    fa_tune.close()
    tap.refused(fa_tune.Error, "ask for the kernel again", lambda: kernel(*case.tensors))
    close(fa_tune.attention(*case.tensors).read(), case.expected()[0])


def a_first_call_does_not_wait_for_a_tune_that_waits_for_the_interpreter():
    case, told, done = Inputs(), threading.Event(), []

    def tune():
        done.append(fa_tune._core.tune({"seq_q": 200, "head_dim": 64}, gpu="L40S", progress=lambda _: told.set()))
    fa_tune.close()  # the driver is closed too, and a call opens it
    thread = threading.Thread(target=tune)
    faulthandler.dump_traceback_later(200, exit=True)
    thread.start()
    told.wait()
    close(fa_tune.attention(*case.tensors).read(), case.expected()[0])
    thread.join()
    faulthandler.cancel_dump_traceback_later()
    tap.equal(len(done), 1)


def what_a_call_runs_cannot_close_what_it_uses():
    case, said = Inputs(), []

    class Closing(Capsuled):
        def __dlpack__(self, **how):
            try:
                fa_tune.close()
            except fa_tune.Error as error:
                said.append(str(error))
            return super().__dlpack__(**how)
    out = Closing(case.shape)
    bound = fa_tune._core.best_kernel({"batch": 1, "heads_q": 2, "heads_kv": 1, "seq_q": 6, "seq_k": 9})
    for call in (fa_tune.attention, bound):
        call(*case.tensors, out=out)
        close(out.read(), case.expected()[0])
    tap.equal(said, ["close() while a call or a tune is under way: wait for it first"] * 2)


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


def a_kernel_of_another_operation_is_called_with_its_tensors():
    """x and w are 2 everywhere: y = w * x / (mean of |x| + epsilon) is 2 without an epsilon, 1 with 2."""
    fa_tune.close()
    with mock.patch.dict(os.environ, FA_TUNE_TEMPLATES=os.path.join(os.environ["FA_TEST_SOURCE"], "tests", "operations")):
        kernel = fa_tune.kernel(operation="l1_norm", rows=4, columns=64)
        tap.equal(kernel.problem["rows"], 4)
        for made in (Exchanged, Capsuled):
            x, w, y = made((4, 64), [2.0] * 256), made((64,), [2.0] * 64), made((4, 64), [5.0] * 256)
            tap.equal(kernel(x, w, y, 0.0), None)
            tap.equal(set(y.read()), {2.0})
            tap.equal(kernel(x=x, epsilon=2, w=w, y=y, stream=0), None)
            tap.equal(set(y.read()), {1.0})
        out = kernel(Exchanged((4, 64), [2.0] * 256), Exchanged((64,), [2.0] * 64), epsilon=0)
        tap.equal((out.shape, set(out.read())), ((4, 64), {2.0}))
        x, w, y = Exchanged((4, 64), [2.0] * 256), Exchanged((64,), [2.0] * 64), Exchanged((4, 64), [5.0] * 256)
        for kind, part, call in [
                (TypeError, "the kernel needs w", lambda: kernel(x, None, y, 0.0)),
                (TypeError, "no argument 'z'", lambda: kernel(x, w, y, z=1)),
                (TypeError, "takes 4 arguments", lambda: kernel(x, w, y, 0.0, 1)),
                (TypeError, "got w twice", lambda: kernel(x, w, y, 0.0, w=w)),
                (fa_tune.ArgumentError, "epsilon must be a number", lambda: kernel(x, w, y, "0")),
                (fa_tune.Error, "epsilon must be a finite number", lambda: kernel(x, w, y, math.nan)),
                (fa_tune.ShapeError, "x has the shape (3, 64) and needs (4, 64)",
                 lambda: kernel(Exchanged((3, 64), [2.0] * 192), w, y, 0.0)),
                (fa_tune.ShapeError, "x is not contiguous", lambda: kernel(Exchanged((4, 64), strides=(65, 1)), w, y, 0.0)),
                (fa_tune.DtypeError, "w is float32 and needs float16",
                 lambda: kernel(x, Exchanged((64,), [2.0] * 64, dtype=(producer.FLOAT, 32)), y, 0.0)),
                (fa_tune.ArgumentError, "y is read-only",
                 lambda: kernel(Capsuled((4, 64), [2.0] * 256), w, Capsuled((4, 64), flags=producer.READ_ONLY), 0.0))]:
            tap.refused(kind, part, call)
        tap.equal(set(y.read()), {5.0})
    fa_tune.close()


tap.main()
