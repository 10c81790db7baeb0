#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""fa_tune.tune_kernel() with arrays and functions of the caller's: what they say is proved against, in the worker, whose fake
driver does the kernels' arithmetic."""
import array
import collections
import contextlib
import functools
import importlib
import inspect
import io
import json
import math
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import threading
import types
from unittest import mock

import tap
from attention_case import captured, place  # the fake driver, and the package on the path
import producer
from place import Place
from producer import Exchanged
from tap import refused
import fa_tune

try:
    import numpy
except ImportError:
    import small_numpy as numpy
    sys.modules["numpy"] = numpy

FOLDER = os.path.join(os.environ["FA_TEST_SOURCE"], "tests", "specifications")
CONV = tap.read(os.path.join(FOLDER, "conv2d.cu")).partition("*/")[2]
AXPY = tap.read(os.path.join(FOLDER, "axpy_kernels.cu"))


class Float32(tuple):
    """The dtype of a tensor that says its name, as a library's does."""
    def __str__(self):
        return "float32"


class Given(Exchanged):
    """A tensor of which the elements can be had on the host, as CuPy's."""
    def __init__(self, shape, values, **more):
        super().__init__(shape, values, dtype=Float32((producer.FLOAT, 32)), **more)

    def __getitem__(self, part):
        return Given((part.stop,), None, memory=self.memory)

    def get(self):
        return numpy.asarray(self.read(), dtype="float32")


def axpy(answer=None, args=None, source=AXPY, **more):
    words = dict(kernel="axpy", tune=dict(THREADS=[64, 128], PER_THREAD=[1, 2]), restrictions=["THREADS * PER_THREAD <= 128"],
                 block="THREADS", grid="ceil_div(n, THREADS * PER_THREAD)", answer=answer,
                 args=args or dict(y=fa_tune.inout("f32", "n"), x=fa_tune.array("f32", "n"), a=2.5, n=64))
    return fa_tune.tune_kernel(source, **{**words, **more})


def scaled(x, a):
    """x * a, as float32."""
    return x * numpy.asarray(a, dtype="float32")


def counted_up(count, step=0.25):
    return [step * i for i in range(count)]


def a_function_answers_every_case_of_the_proof():
    asked = []

    def answer(y, x, a, n):
        asked.append((n, y.shape, x.shape, float(a)))
        return y + scaled(x, a)
    told = axpy(answer)
    tap.equal((told.answer.origin, asked[0]), ("measured", (64, (64,), (64,), 2.5)))
    assert len(asked) > 3, asked
    assert all(y == x == (n,) for n, y, x, _ in asked), asked
    del asked[:]
    axpy(answer)
    tap.equal(asked, [])  # the winner was found
    longer = told.at(n=100)
    tap.equal((asked[0][0], longer.answer.origin), (100, "measured"))


def a_kernel_that_differs_from_the_function_is_never_a_winner():
    error = refused(fa_tune.Error, "none of", lambda: axpy(lambda y, x: y))
    tap.has(str(error), "the answer says")

    def beside(y, x, a):
        return y + scaled(x, a * (1 + 1e-4))
    refused(fa_tune.Error, "none of", lambda: axpy(beside))
    tap.equal(axpy(beside, atol=1e-2).answer.origin, "measured")


FACTOR = [1]


def helping(by):
    return FACTOR[0] * by


class Weighed:
    def __init__(self, by):
        self.by = [by]

    def __call__(self, y, x, a):
        return y + scaled(x, a * self.by[0])


def an_answer_has_the_fingerprint_of_all_that_decides_it():
    from fa_tune._fingerprint import fingerprint, is_sure

    def closing(value, also=1):
        return lambda x: x * value[0] * also
    kept = [1]
    same = closing(kept)
    told = [fingerprint(same)]
    kept[0] = 2
    told += [fingerprint(same), fingerprint(helping)]
    FACTOR[0] = 2
    try:
        told.append(fingerprint(helping))
    finally:
        FACTOR[0] = 1
    told += [fingerprint(closing(value)) for value in (
        [3], (3,), [3.0], [True], {0: 3}, {0: [3]}, {0: [4]}, bytearray(b"3"), b"3", array.array("f", [3]), array.array("f", [4]),
        array.array("i", [3]), collections.deque([3]), types.SimpleNamespace(a=3), types.SimpleNamespace(a=4), Weighed(3), Weighed(4),
        Weighed(3).__call__, numpy.asarray([3.0], dtype="float32"), numpy.asarray([4.0], dtype="float32"), functools.lru_cache(helping))]
    told += [fingerprint(lambda x, y: x - y), fingerprint(lambda y, x: y - x)]  # they are called by names
    told += [fingerprint(functools.partial(helping, by)) for by in ([1], [2])]
    assert all(map(is_sure, told)), told
    tap.equal(len(set(told)), len(told))
    ring, other = [1], [1]
    ring.append(ring)
    other.append(other)
    tap.equal(fingerprint(closing(ring)), fingerprint(closing(other)))
    tap.equal(fingerprint(closing({3, "a", None})), fingerprint(closing({None, "a", 3})))


def what_has_no_content_to_compare_has_another_fingerprint_each_time():
    from fa_tune._fingerprint import fingerprint, is_sure

    def closing(value):
        return lambda x: x * value

    class Hiding(Weighed):
        def __getstate__(self):
            return None
    with open(os.devnull, encoding="utf-8") as file:
        for value in (threading.Lock(), (i for i in "abc"), file, Hiding(1), tap):
            both = [fingerprint(closing(value)) for _ in range(2)]
            assert both[0] != both[1] and not any(map(is_sure, both)), both
    asked = open
    for answer in (lambda x: open("weights").read() + x, lambda x: asked("weights").read() + x, functools.partial(open, "weights"),
                   lambda x: x * random.random(), lambda x: x * random.randint(0, x), lambda x: x + subprocess.check_output(["weights"])):
        assert not is_sure(fingerprint(answer))


def a_name_of_a_known_module_hides_no_code_of_the_callers():
    from fa_tune._fingerprint import fingerprint, is_sure

    @functools.wraps(math.fsum)
    def other(values):
        return -sum(values)
    told = [fingerprint(lambda x: math.fsum(x))]  # pylint: disable=unnecessary-lambda
    with mock.patch.object(math, "fsum", other):
        told.append(fingerprint(lambda x: math.fsum(x)))  # pylint: disable=unnecessary-lambda
    assert "profile" not in sys.modules
    for by in (2, 33):
        with Place() as at, tap.modules({"profile": ...}), mock.patch.object(sys, "path", [at.folder, *sys.path]):
            tap.write(os.path.join(at.folder, "profile.py"), "def answer(x):\n    return x * %d\n" % by)
            told += [fingerprint(importlib.import_module("profile").answer)]
    assert is_sure(told[0]) and all(map(is_sure, told[2:])), told
    tap.equal(len(set(told)), len(told))


def a_winner_is_not_found_by_an_answer_with_other_values():
    for value in (numpy.asarray([1.0], dtype="float32"), [1.0], {0: 1.0}):
        def answer(y, x, a, value=value):
            return y + scaled(x, a * value[0])
        tap.equal(axpy(answer).answer.origin, "measured")
    for value in (numpy.asarray([2.0], dtype="float32"), [2.0], {0: 2.0}):
        def closing(y, x, a, value=value):
            return y + scaled(x, a * value[0])
        refused(fa_tune.Error, "none of", lambda: axpy(closing))  # pylint: disable=cell-var-from-loop
    tap.equal(axpy(Weighed(1)).answer.origin, "measured")
    refused(fa_tune.Error, "none of", lambda: axpy(Weighed(2)))

    kept = [1.0]

    def changing(y, x, a):
        return y + scaled(x, a * kept[0])
    some = axpy(changing)
    kept[0] = 2.0
    refused(fa_tune.ArgumentError, "has changed since tune_kernel() was called",
            lambda: fa_tune.tune(operation=some.operation, n=103))
    refused(fa_tune.Error, "none of", lambda: axpy(changing))
    refused(fa_tune.Error, "none of", lambda: some.at(n=102))
    asked, lock = [], threading.Lock()

    def unsure(y, x, a):
        with lock:
            asked.append(1)
        return y + scaled(x, a)
    for _ in range(2):
        del asked[:]
        tap.equal(axpy(unsure).answer.origin, "measured")
        assert asked


def scaled_by(by, n=64, **more):
    return axpy(lambda y, x, a: y + scaled(x, a), args=dict(y=fa_tune.inout("f32", "n"), x=fa_tune.array("f32", "n"), a=by, n=n), **more)


def an_answer_may_tune_and_forget():
    def in_a_thread(call):
        raised = []

        def run():
            try:
                call()
            except fa_tune.Error as error:
                raised.append(error)
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        if raised:
            raise raised[0]

    def forget():
        tap.equal(len(fa_tune.forget(operation="inner")), 1)
    inner = functools.partial(scaled_by, 3.0, 65, name="inner")
    for place_, call in enumerate((inner, functools.partial(in_a_thread, inner), forget, functools.partial(in_a_thread, forget))):
        done = []

        def answer(y, x, a):
            if not done:
                done.append(None)
                done.append(call())  # pylint: disable=cell-var-from-loop
            return y + scaled(x, a)
        tap.equal(axpy(answer, name="outer%d" % place_).answer.origin, "measured")
        tap.equal(len(done), 2)
        fa_tune.tune(operation="inner", n=65)

    def itself(y, x, a):
        axpy(itself)
        return y + scaled(x, a)
    refused(fa_tune.Error, "the answer of axpy tunes a kernel whose answer tunes", lambda: axpy(itself))

    def told(call):
        return lambda event: call() if event["stage"] == "tune" else None
    never = functools.partial(scaled_by, 3.0, 65, name="never")
    for name, call in (("waits", never), ("forgets", functools.partial(fa_tune.forget, everything=True))):
        refused(fa_tune.Error, "progress called the library for something that waits for its own call",
                lambda: scaled_by(4.0, name=name, progress=told(call)))  # pylint: disable=cell-var-from-loop
    tap.equal(scaled_by(4.0, name="looks", progress=told(inner)).answer.origin, "measured")


def configs_that_err_crash_or_spoil_inputs_leave_the_given_data_as_it_is():
    x, y = Given((64,), counted_up(64)), Given((64,), counted_up(64, 3.0))
    script = os.path.join(place.folder, "script")
    had = tap.read(script)
    tap.write(script, "".join("fault %s; %s\n" % one for one in [
               ("THREADS=32", "nan"), ("THREADS=64", "crash"), ("THREADS=96", "spoil"), ("THREADS=128", "illegal_address")]), "a")
    try:
        told = axpy(lambda y, x, a: y + scaled(x, a), dict(y=y, x=x, a=2.5, n=64), name="faulty",
                    tune=dict(THREADS=[32, 64, 96, 128, 160], PER_THREAD=[1]), restrictions=[])
    finally:
        tap.write(script, had)
    tap.equal((told.answer.tunables["THREADS"], told.answer["funnel"]["failed"]), (160, 4))


def nobody_changes_what_kernels_are_proved_against():
    seen = []

    def look(_):
        for fd in os.listdir("/proc/self/fd"):
            path = "/proc/self/fd/" + fd
            if os.path.islink(path) and "fa-tune-cases" in os.readlink(path):
                try:
                    with open(path, "r+b", buffering=0) as file:
                        file.write(b"x")
                except PermissionError:
                    seen.append(fd)
    told = axpy(lambda y, x, a: scaled(x, a) + y, progress=look)  # which no other test has: it is not found
    tap.equal(told.answer.origin, "measured")
    assert seen


def what_a_function_raises_ends_the_tune():
    def answer(y):
        raise KeyError("no such file")
    error = refused(KeyError, "no such file", lambda: axpy(answer))
    tap.equal(error.__traceback__ is not None, True)
    tap.equal(axpy(lambda y, x, a: y + scaled(x, a)).answer.origin, "measured")


def an_answer_that_cannot_be_compared_is_refused_with_a_sentence():
    def nan(y, x, a):
        return (y + scaled(x, a)) * numpy.asarray(math.nan, dtype="float32")
    rows = [
        (fa_tune.ArgumentError, "element 0 of y is NaN in the answer", nan),
        (fa_tune.ShapeError, "answer gives the shape (1,) for y, which is (64,)", lambda y: [1.0]),
        (fa_tune.ArgumentError, "answer returned None: it returns y", lambda y: None),
        (fa_tune.ArgumentError, "answer gives nothing for y", lambda y: {"z": y}),
        (fa_tune.ArgumentError, "answer takes z, and what it may be given by name is y, x, a, n", lambda z: z),
        (fa_tune.ArgumentError, "answer: <built-in function max> does not say what it takes", max)]
    for kind, part, answer in rows:
        refused(kind, part, lambda: axpy(answer))  # pylint: disable=cell-var-from-loop
    refused(fa_tune.DtypeError, "answer gives float64 for out, which is int64", lambda: gather(lambda table, index: [0.5] * 8))


def gather(answer, name=None, effort="measure", progress=None, **args):
    return fa_tune.tune_kernel(
        os.path.join(FOLDER, "gather.cu"), kernel="gather", args=args or dict(
            out=fa_tune.out("i64", "n"), table=fa_tune.array("i64", "n"), index=fa_tune.array("i32", "n", range=(0, "n")), n=8),
        tune=dict(THREADS=[32, 64], UNROLLED=[False, True]), block="THREADS", grid="ceil_div(n, THREADS)", answer=answer, name=name, effort=effort,
        progress=progress)


def integers_are_answered_exactly():
    tap.equal(gather(lambda table, index, n: [table[index[i]] for i in range(n)]).answer.origin, "measured")
    refused(fa_tune.Error, "none of", lambda: gather(lambda table, index, n: [table[index[i]] + 1 for i in range(n)]))


def arrays_say_type_shape_and_numbers():
    x, y = Given((64,), counted_up(64)), Given((64,), counted_up(64, 3.0))
    right = numpy.asarray([3.0 * i + 2.5 * 0.25 * i for i in range(64)], dtype="float32")
    told = axpy(right, dict(y=y, x=x, a=2.5, n=64))
    tap.equal((told.answer.origin, told.problem.n), ("measured", 64))
    told(y, x, 2.0)  # what tuned it was not changed
    tap.equal(list(y.read()), [3.5 * i for i in range(64)])
    # The numbers reach the worker: by others the same answer is wrong.
    refused(fa_tune.Error, "none of", lambda: axpy(right, dict(y=y, x=x, a=2.5, n=64)))
    refused(fa_tune.ArgumentError, "NaN in what is given",
            lambda: axpy(None, dict(y=Given((64,), [math.nan] * 64), x=x, a=2.5, n=64)))
    refused(fa_tune.ArgumentError, "x is described alone", lambda: axpy(right, dict(
        y=fa_tune.inout(y), x=fa_tune.array("f32", "n"), a=2.5, n=64)))


def arrays_with_named_sizes_are_proved_on_ragged_ones_too():
    x, y, sizes = Given((64,), counted_up(64)), Given((64,), counted_up(64, 3.0)), []

    def answer(y, x, a, n):
        if not sizes:
            tap.equal((x[1], y[1]), (0.25, 3.0))
        sizes.append(n)
        return y + scaled(x, a)
    args = dict(y=fa_tune.inout(y, "n"), x=fa_tune.array(x, "n"), a=2.5, n=64)
    told = axpy(answer, args)
    tap.equal((sizes[0], told.answer.origin), (64, "measured"))
    assert len(set(sizes)) > 1, sizes
    tap.equal(told.at(n=65).answer.origin, "measured")
    tap.equal(told.problem.n, 64)
    refused(fa_tune.ShapeError, "y has the shape (64,), and what is said of it makes (63,)",
            lambda: axpy(answer, {**args, "n": 63}))
    refused(fa_tune.ArgumentError, "for other sizes pass a function", lambda: axpy(
        numpy.asarray([0.25 * i * 14.5 for i in range(64)], dtype="float32"), args).at(n=66))


def what_is_given_stands_in_every_case_of_its_sizes():
    table, index = [100 * i for i in range(8)], [3, 1, 7, 0, 5, 2, 6, 4]
    arrays = dict(table=numpy.asarray(table, dtype="int64"), index=numpy.asarray(index, dtype="int32"))

    def answer(table, index, n):
        seen.append((list(table.flat), list(index.flat)))
        return [table[index[i]] for i in range(n)]
    for name, out in (("named", fa_tune.out("i64", "n")), ("taken", fa_tune.out(arrays["table"]))):  # n is theirs: a side of theirs
        seen = []
        told = gather(answer, name, out=out, **{key: fa_tune.array(given) for key, given in arrays.items()}, n=8)
        tap.equal((told.answer.origin, set(map(repr, seen))), ("measured", {repr((table, index))}))
        assert len(seen) > 1
    seen = []
    mixed = dict(out=fa_tune.out("i64", "n"), table=fa_tune.array("i64", "n"), index=fa_tune.array(arrays["index"]), n={"default": 8, "max": 8})
    tap.equal(gather(lambda table, index, n: seen.append((n, max(index.flat[:n]))) or [table[index[i]] for i in range(n)], "mixed",
                     **mixed).answer.origin, "measured")
    assert all(most < n for n, most in seen if n < 8), seen  # which sizes are drawn is left to the tune's seed
    refused(fa_tune.ArgumentError, "fa_tune.fixed() keeps a size as it is", lambda: gather(
        lambda table, index, n: [table[index[i]] for i in range(n)], "longer", **{**mixed, "n": {"default": 8}}))
    right = numpy.asarray([table[i] for i in index], dtype="int64")
    tap.equal(gather(right, out=fa_tune.out("i64", "n"), **{key: fa_tune.array(given) for key, given in arrays.items()},
                     n=8).answer.origin, "measured")
    wide = fa_tune.array(numpy.asarray(table, dtype="float32"))  # of eight, whatever n is
    seen = []
    axpy(lambda y, x, a, n: seen.append((n, list(x.flat))) or y + scaled(x, a),
         dict(y=fa_tune.inout("f32", "n"), x=wide, a=2.5, n=fa_tune.fixed(8)), name="wide")
    assert len(seen) > 1 and all(one == (8, [float(i) for i in table]) for one in seen), seen


def a_winner_of_other_contents_is_raced_again():
    def given(*index):
        return dict(out=fa_tune.out("i64", 8), table=fa_tune.array(numpy.asarray(list(range(8)), dtype="int64")),
                    index=fa_tune.array(numpy.asarray(index, dtype="int32")), n=8)

    def answer(table, index, n):
        return [table[index[i]] for i in range(n)]

    def tuned(index, **more):
        events = []
        told = gather(answer, "contents", **given(*index), progress=events.append, **more).answer
        return told, {event["stage"] for event in events}, max((event["compiled"] - event["resumed"] for event in events), default=0)
    one, other = (0, 1, 2, 3, 4, 5, 6, 7), (7, 6, 5, 4, 3, 2, 1, 0)
    first, stages, compiled = tuned(one)
    assert compiled > 0 and "final" in stages, (compiled, stages)
    tap.equal((first.origin, first.why), ("measured", "measured on this GPU"))
    tap.equal((tuned(one)[0].unix_time, tuned(one)[1]), (first.unix_time, set()))
    for effort in "cached", "predict":
        told, stages, _ = tuned(other, effort=effort)
        tap.equal((told.why, stages), ("measured on this GPU, with other contents than those that are given", set()))
    for index in other, one:
        told, stages, compiled = tuned(index)
        tap.equal((told.origin, told.why, "final" in stages, compiled), ("measured", "measured on this GPU", True, 0))
        tap.equal(tuned(index)[1], set())
    fa_tune.close()  # as in another process
    tap.equal(tuned(one)[1], set())
    # What no config was right for says nothing about other inputs.
    refused(fa_tune.Error, "none of", lambda: gather(lambda table, index: [table[i] + (index[0] == 7) for i in index.flat], "some", **given(*other)))
    tap.equal(gather(lambda table, index: [table[i] + (index[0] == 7) for i in index.flat], "some", **given(*one)).answer.origin, "measured")
    tap.equal("final" in tuned(other)[1], True)


def cases_of_other_sizes_are_drawn_from_what_is_given():
    table, index = numpy.asarray([1000 + i for i in range(64)], dtype="int64"), [(i * 37 + 5) % 64 for i in range(64)]
    for order in "mixed", "ascending":
        given = numpy.asarray(sorted(index) if order == "ascending" else index, dtype="int32")
        seen = []

        def answer(table, index, n):
            seen.append((n, list(table.flat), list(index.flat)))  # pylint: disable=cell-var-from-loop
            return [table[index[i]] for i in range(n)]
        tap.equal(gather(answer, order, out=fa_tune.out("i64", "n"), table=fa_tune.array(table, "n"), index=fa_tune.array(given, "n"),
                         n=64).answer.origin, "measured")
        assert {n for n, _, _ in seen} > {64}
        for n, numbers, places in seen:
            assert min(numbers) >= 1000 and max(numbers) < 1064 and min(places) >= 0 and max(places) < n, (n, numbers, places)
            if n <= 64:  # as different as they were, and in their order
                tap.equal((len(set(places)), order == "ascending" and places != sorted(places)), (n, False))
    from fa_tune import _cases
    floats = [struct.pack("<f", value) for value in (1.5, 2.5, 3.5, 4.5)]
    told = struct.unpack("<9f", _cases._drawn(floats, True, "fp32", 9, [], 1))
    assert set(told) <= {1.5, 2.5, 3.5, 4.5} and len(set(told)) > 1
    ends = [struct.pack("<q", value) for value in (0, 2, 2, 6, 9)]  # as rows of nine elements begin and end: the last may be all of them
    for seed in range(9):
        told = struct.unpack("<3q", _cases._drawn(ends, True, "int64", 3, [(4, 2), (5, 3), (9, 6)], seed))
        assert list(told) == sorted(told) and told[-1] <= 6, told
    pool = [struct.pack("<i", value) for value in range(0, 3 << 20, 1000)]  # a part of very many
    tap.equal(list(struct.unpack("<37i", _cases._drawn(pool, False, "int32", 37, [(3 << 20, 37)], 1))), list(range(37)))
    for values, stands in (([1 << 30, 5, 7], True), ([3, 5, 7], True), ([3, 60, 7], False)):  # places of nothing, of all cases, of some
        data = _cases.Data({"codes": numpy.asarray(values, dtype="int32")}, None, [], [], {})
        tap.equal(data._holds("codes", "int32", [(64, 17)]), stands)

    def choosy(table, index, n):
        if n != 64:
            raise IndexError("no such row")
        return [table[index[i]] for i in range(n)]
    args = dict(out=fa_tune.out("i64", "n"), table=fa_tune.array(table, "n"), index=fa_tune.array(given, "n"), n=64)
    error = refused(fa_tune.ArgumentError, "the inputs of cases of other sizes were drawn (table, index, from the values that were given)",
                    lambda: gather(choosy, **args))
    tap.has(str(error), "IndexError: no such row")
    error = refused(fa_tune.Error, "were drawn (table, index", lambda: gather(
        lambda table, index, n: [table[index[i]] + (n != 64) for i in range(n)], **args))
    tap.has(str(error), "none of")
    told = str(refused(fa_tune.Error, "case 0", lambda: gather(lambda table, index, n: [7] * n, **args)))
    assert "drawn" not in told, told


def an_array_that_nothing_is_said_of_is_what_the_source_makes_of_it():
    x, y = Given((64,), counted_up(64)), Given((64,), counted_up(64))
    told = axpy(None, dict(y=y, x=x, a=2.5, n=64))
    tap.equal([one[3] for one in told.arguments], ["inout", "in", "in"])
    number = axpy(None, dict(y=y, x=x, a=numpy.asarray(2.5, dtype="float32"), n=numpy.asarray(64, dtype="int32")))
    tap.equal((number.answer.origin, number.problem.n), ("measured", 64))
    of_64 = AXPY.replace("float a, int n)", "float a)").replace("axpy(", "axpy_64(").replace("i >= n", "i >= 64")
    sized = fa_tune.tune_kernel(of_64, kernel="axpy_64", args=dict(y=y, x=x, a=2.5), tune=dict(THREADS=[64], PER_THREAD=[1]),
                                block="THREADS", grid=1)
    tap.equal((sized.answer.origin, sized.problem.elements), ("measured", 64))
    refused(fa_tune.ArgumentError, "no_such.cu: there is no such file", lambda: fa_tune.tune_kernel("no_such.cu"))
    refused(fa_tune.ArgumentError, "pass fa_tune.array(y), fa_tune.out(y) or fa_tune.inout(y)",
            lambda: fa_tune.tune_kernel("__global__ void k(Pointer y, int n) {}", args=dict(y=y, n=64), block=1, grid=1))
    tap.equal(gather(None, out=fa_tune.out("i64", "n"), table=fa_tune.array("i64", "n"),
                     index=fa_tune.array(numpy.asarray([7, 6, 5, 4, 3, 2, 1, 0], dtype="int32"), "n", range=(0, "n")),
                     n=8).answer.origin, "measured")


def noted():
    """What this process has asked the fake driver for that concerns variables of modules."""
    asked = [line.partition("pid=%d " % os.getpid())[2].strip() for line in tap.read("log").splitlines()]
    return [line.partition(" family")[0] for line in asked if line.startswith(("copy ", "wait", "launch blur "))]


def each_call_fills_constant_memory_and_no_stream_disturbs_another():
    source = tap.read(os.path.join(FOLDER, "blur.cu")).partition("*/")[2]
    blur = fa_tune.tune_kernel(source, kernel="blur", answer="blur_naive", tune=dict(THREADS=[64, 128]), block="THREADS",
                               args=dict(out=fa_tune.out("f32", "n"), x=fa_tune.array("f32", "n+4"),
                                         w=fa_tune.array("f32", 5, symbol="weights"), n=8), grid="ceil_div(n, THREADS)")
    tap.equal((blur.answer.origin, [(one[0], one[3]) for one in blur.arguments]),
              ("measured", [("out", "out"), ("x", "in"), ("w", "in")]))
    x, out, ones, twos = (Given((count,), [value] * count) for count, value in ((12, 1), (8, 0), (5, 1), (5, 2)))
    stream = producer.c.c_void_p()
    producer.check(producer.CUDA.cuStreamCreate(producer.c.byref(stream), 0))
    before, seen = len(noted()), []
    for weights, on in ((ones, None), (twos, stream.value), (ones, stream.value)):
        blur(out, x, weights, stream=on)
        seen.append(out.read()[0])
    tap.equal(seen, [5, 10, 5])
    tap.equal(noted()[before:], ["copy 20", "launch blur", *["wait", "copy 20", "launch blur"] * 2])
    with captured(stream):  # a graph waits for nothing outside, and nothing outside for what it records
        blur(out, x, twos, stream=stream.value)
    tap.equal((out.read()[0], noted()[before + 8:]), (10, ["copy 20", "launch blur"]))
    refused(fa_tune.Error, "w", lambda: blur(out, x, Given((6,), [1] * 6)))


def partial_results_are_passed_in_and_added_up():
    source = tap.read(os.path.join(FOLDER, "sums.cu")).partition("*/")[2]
    sums = fa_tune.tune_kernel(source, tune=dict(THREADS=[64], BLOCKS=[1, 16]), block="THREADS", grid="BLOCKS", rtol=1e-3,
                               args=dict(out=fa_tune.partial("f32", 16), x=fa_tune.array("f32", "n"), n={"default": 100}))
    out = Given((16,), [0] * 16)
    tap.equal(sums.arguments[0][3], "inout")
    sums(out, Given((100,), counted_up(100)))
    tap.equal(sum(out.read()), sum(counted_up(100)))


def numbers_may_have_any_type_of_integers():
    source = AXPY.replace("int n)", "unsigned n)").replace("int i =", "unsigned i =")
    args = dict(y=fa_tune.inout("f32", "n"), x=fa_tune.array("f32", "n"), a=2.5, count=fa_tune.scalar("u32", 64))
    some = axpy(source=source, args=args, sizes=dict(n=fa_tune.fixed(64)), grid="ceil_div(64, THREADS * PER_THREAD)", name="counted",
                tune=dict(THREADS=[64], PER_THREAD=[1]))
    y, x = Given((64,), [0.0] * 64), Given((64,), [1.0] * 64)
    some(y, x, 2.0, 3)
    tap.equal(list(y.read()), [2.0] * 3 + [0.0] * 61)
    for wrong in (-1, 1 << 32, 1.5, "3"):
        refused(fa_tune.ArgumentError, "count must be an int of 32 bits, 0 or more", lambda: some(y, x, 2.0, wrong))  # pylint: disable=cell-var-from-loop
    for type_, value, sentence in (("i8", 300, "its value 300 does not fit in int8"), ("u64", -1, "does not fit in uint64"),
                                   ("i32", 2.5, "its value 2.5 does not fit in int32"), ("f16", 1e5, "does not fit in fp16"),
                                   ("f8e4m3", 1, "fp32, fp64 or of integers, or of fp16 or bf16")):
        refused(fa_tune.Error, sentence, lambda: axpy(  # pylint: disable=cell-var-from-loop
            source=source, args={**args, "count": fa_tune.scalar(type_, value)}, sizes=dict(n=64)))  # pylint: disable=cell-var-from-loop


def numbers_may_be_halves():
    for type_, taken, given, kept in (("f16", "__half", 0.1, 0.0999755859375), ("f16", "__half", -65504, -65504),
                                      ("bf16", "__nv_bfloat16", 2.5, 2.5), ("bf16", "__nv_bfloat16", -1e30, -1.0002969904867166e30)):
        seen = set()

        def answer(y, x, a, h):
            seen.add(h)  # pylint: disable=cell-var-from-loop
            return y + scaled(x, a)
        some = axpy(source="#include <cuda_%s.h>\n" % type_.replace("f16", "fp16").replace("bfp", "bf") + AXPY.replace("int n)", "int n, %s h)" % taken),
                    args=dict(y=fa_tune.inout("f32", "n"), x=fa_tune.array("f32", "n"), a=2.5, n=64, h=fa_tune.scalar(type_, given)),
                    answer=answer, name="halves", tune=dict(THREADS=[64], PER_THREAD=[1]))
        tap.equal(len(seen), 1)
        assert abs(seen.pop() / kept - 1) < 0.01
        for number in (given, 6e-8, 0):
            some(Given((64,), [0.0] * 64), Given((64,), [1.0] * 64), 2.0, number)
        for wrong in ("x", float("nan"), float("inf")):
            refused(fa_tune.ArgumentError, "h must be a", lambda: some(Given((64,), [0.0] * 64), Given((64,), [1.0] * 64), 2.0, wrong))  # pylint: disable=cell-var-from-loop


def several_launches_are_one_kernel():
    body = "(float *y, const float *x, float a, int n)\n{ int i = blockIdx.x * THREADS + threadIdx.x; if (i < n) y[i] += a * x[i]; }\n"
    launches = [dict(kernel="axpy_first", block="THREADS", grid="ceil_div(n, THREADS)"),
                dict(kernel="axpy_then", block=("THREADS",), grid=["ceil_div(n, THREADS)", 1])]
    twice = fa_tune.tune_kernel(
        "__global__ void axpy_first" + body + "__global__ void axpy_then" + body, launches=launches, tune=dict(THREADS=[64, 128]),
        args=dict(y=fa_tune.inout("f32", "n"), x=fa_tune.array("f32", "n"), a=2.5, n=64), answer=lambda y, x, a: y + scaled(x, 2 * a))
    y = Given((64,), counted_up(64))
    twice(y, Given((64,), counted_up(64)), 1.0)
    tap.equal((twice.answer.origin, list(y.read())), ("measured", [3 * value for value in counted_up(64)]))
    source = tap.read(os.path.join(FOLDER, "..", "..", "examples", "split_sum.cu")).partition("*/")[2]
    summed = fa_tune.tune_kernel(
        source, name="split",
        args=dict(x=fa_tune.array("f32", "n"), first=fa_tune.scratch("f32", 3), parts=fa_tune.scratch("f32", "BLOCKS"), y=fa_tune.out("f32", 1), n=100),
        launches=[dict(kernel="sum_parts", arguments=["x", "parts", "n"], block="THREADS", grid="BLOCKS"),
                  dict(kernel="sum_total", arguments=["y", "parts"], block="THREADS", grid=1),
                  dict(kernel="sum_total", arguments=["first", "parts"], block="THREADS", grid=1)],
        tune=dict(BLOCKS=[16], THREADS=[128]), answer=dict(kernel="sum_naive", arguments=["y", "x", "n"], block=1, grid=1))
    tap.equal([one[0] for one in summed.arguments], ["x", "y"])
    y = Given((1,), [0.0])
    summed(Given((100,), counted_up(100)), y)
    tap.equal(y.read()[0], sum(counted_up(100)))
    for large, small in ((60000, 1000), (1000, 60000), (40000, 1000)):  # one function: a launch that needs less leaves it what the other needs
        shared = [dict(kernel="axpy_first", block="THREADS", grid="ceil_div(n, THREADS)", shared_memory=size) for size in (large, small)]
        tap.equal(axpy(source="extern __shared__ float s[];\n__global__ void axpy_first" + body.replace("x[i];", "x[i] + 0.0f * s[0];"), kernel=None, block=None,
                       grid=None, launches=shared, tune=dict(THREADS=[64]), restrictions=None, name="shared%d" % large).answer.origin, "measured")


def a_result_is_read_back_from_a_variable():
    source = tap.read(os.path.join(FOLDER, "..", "..", "examples", "device_result.cu")).partition("*/")[2]
    summed = fa_tune.tune_kernel(
        source, kernel="sum_device", tune=dict(THREADS=[64]), block="THREADS", grid=1, answer=dict(kernel="sum_device_naive", block=1, grid=1),
        args=dict(total=fa_tune.out("f32", 1, symbol="total"), x=fa_tune.array("f32", "n"), n=64))
    total = Given((1,), [0.0])
    for times in (1, 2):
        summed(total, Given((64,), [times * value for value in counted_up(64)]))
        tap.equal(total.read()[0], times * sum(counted_up(64)))


class Record:
    """A scalar of NumPy's with names."""
    shape = ()

    def __init__(self, aligned=True, **fields):
        self.fields, self.dtype = fields, types.SimpleNamespace(names=tuple(fields), isalignedstruct=aligned)

    def __getitem__(self, name):
        return self.fields[name]


def structs_are_passed_field_by_field():
    source = tap.read(os.path.join(FOLDER, "..", "..", "examples", "struct.cu")).partition("*/")[2]
    packed = fa_tune.tune_kernel(
        source, kernel="packed", tune=dict(THREADS=[64]), block="THREADS", grid="ceil_div(n, THREADS)", answer=lambda x, scale: x * scale,
        args=dict(p=fa_tune.struct(y=fa_tune.out("f32", "n"), x=fa_tune.array("f32", "n"), n=64, scale=fa_tune.scalar("f64", 0.5))))
    tap.equal([one[0] for one in packed.arguments], ["y", "x", "scale"])
    y, x = Given((64,), [0.0] * 64), Given((64,), counted_up(64))
    packed(y, x, 2.0)
    tap.equal(list(y.read()), [2 * value for value in counted_up(64)])
    words = dict(kernel="k", tune=dict(THREADS=[64]), block="THREADS", grid=1, gpu="A100")
    source = "struct p { float a; int n; };\n__global__ void k(float *y, p q) { int i = THREADS - 64 + threadIdx.x; if (i < q.n) y[i] = q.a; }\n"
    class Double(float):
        dtype = "float64"

    class Boolean:
        shape, dtype = (), "bool"

        def item(self):
            return True

    for taken, given in (("float", 0.5), ("double", Double(0.5)), ("bool", Boolean())):
        told = fa_tune.tune_kernel(source.replace("float a", taken + " a"), args=dict(y=fa_tune.out("f32", "n"), q=Record(a=given, n=64)), **words)
        tap.equal(told.answer.origin, "unranked")
    some = fa_tune.tune_kernel(source, args=dict(y=fa_tune.out("f32", 64), q=struct.pack("<fi", 0.5, -64)), **words)
    tap.equal(some.answer.origin, "unranked")
    refused(fa_tune.ArgumentError, "q has 6 bytes: a struct of bytes has 4 to 48, in steps of 4",
            lambda: fa_tune.tune_kernel(source, args=dict(y=fa_tune.out("f32", 64), q=b"123456"), **words))
    refused(fa_tune.ArgumentError, "args: q is a record with an array in it: give each of its numbers a field",
            lambda: fa_tune.tune_kernel(source, args=dict(y=fa_tune.out("f32", 64), q=Record(a=numpy.asarray([1, 2], dtype="float32"))), **words))
    refused(fa_tune.ArgumentError, "args: q is a record whose fields do not lie as in C: make its dtype with align=True",
            lambda: fa_tune.tune_kernel(source, args=dict(y=fa_tune.out("f32", "n"), q=Record(False, a=0.5, n=64)), **words))


def a_size_may_have_more_than_31_bits():
    large = fa_tune.tune_kernel(os.path.join(FOLDER, "..", "..", "examples", "large.cu"), n=5_000_000_000)
    tap.equal((large.problem.n, large.problem.as_dict()["n"]), (5_000_000_000, 5_000_000_000))
    left = Exchanged((5,), [0] * 5, dtype=(producer.INT, 64))
    large(left)
    tap.equal(left.read()[0], 5_000_000_000)
    large.at(n=1 << 32)(Exchanged((4,), None, dtype=(producer.INT, 64), memory=left.memory))
    tap.equal(left.read()[0], 1 << 32)


def a_space_that_gains_a_value_compiles_its_new_configs_alone():
    def compiled(threads):
        rows = axpy(name="wider", tune=dict(THREADS=threads, PER_THREAD=[1, 2]), restrictions=None).configs
        return {row["config"]["tunables"]["THREADS"] for row in rows if row["compile_ms"] is not None}, {row["status"] for row in rows}
    tap.equal(compiled([64, 96]), ({64, 96}, {"measured"}))
    tap.equal(compiled([64, 96, 160]), ({160}, {"measured"}))


def the_data_of_a_proof_takes_half_of_the_hosts_memory_at_most():
    left = int(re.search(r"MemAvailable: *(\d+) kB", tap.read("/proc/meminfo"))[1]) << 10
    rows = left // (2 * 6 * 4 * 4096) * 5 // 4  # y in and out, x, and each in the file: six times
    wide = dict(y=fa_tune.inout("f32", "n", 4096), x=fa_tune.array("f32", "n", 4096), a=2.5, n=rows)
    refused(MemoryError, "half of what is left there: tune a smaller problem", lambda: axpy(answer=lambda y, x, a: y, args=wide, name="wide"))


def what_is_wrong_with_a_call_is_said():
    tap.equal(axpy(tune=dict(THREADS=range(64, 129, 64), PER_THREAD=(1, 2))).answer.origin, "measured")
    tap.write("beside.h", "\n")
    tap.equal(axpy(source='#include "beside.h"\n' + AXPY, include=["."]).answer.origin, "measured")
    for sentence, words in (("no_such.cu: No such file", dict(source="no_such.cu")), ("source is empty", dict(source="")),
                            ("args is a dict", dict(args=["y"])), ("axpy: \"restrictions\" must be an array", dict(restrictions="THREADS < 65")),
                            ("\"options\" must be an array", dict(options="-w")), ("\"include\"", dict(include="x")),
                            ("tune THREADS must be an array", dict(tune=dict(THREADS=64, PER_THREAD=[1]))),
                            *(("restrictions are texts, as in \"BLOCK <= 256\", not ", dict(restrictions=given)) for given in (max, [max], ["a", max])),
                            *((name + ": an expression, as in \"ceil_div(n, BLOCK)\", not ", {name: given}) for name, given in (
                                ("grid", max), ("grid", numpy.asarray([1, 2], dtype="int32")), ("block", object()), ("work", {"bytes": max}))),
                            ("defines are expressions by their names", dict(defines={"N": max})), ("\"block\" is missing", dict(block=None)),
                            ("seconds is -1: give a number above 0", dict(seconds=-1, name="never")), ("evaluations is -1", dict(evaluations=-1, name="never"))):
        refused(fa_tune.Error, sentence, lambda: axpy(**words))  # pylint: disable=cell-var-from-loop


def every_key_of_a_specification_is_a_keyword():
    keys = set(json.loads(tap.read(os.path.join(os.environ["FA_TEST_SOURCE"], "docs", "specification.schema.json")))["properties"])
    tap.equal({"args" if key == "arguments" else key for key in keys} - set(inspect.signature(fa_tune.tune_kernel).parameters), set())


def a_keyword_takes_the_place_of_what_the_head_says():
    asked, path = [], "axpy.cu"
    head = json.loads(tap.read(os.path.join(FOLDER, "axpy.json")))
    del head["source"]
    head["tune"] = dict(THREADS=[64, 128], PER_THREAD=[1])
    headed = "// SPDX\n/* fa-tune\n" + json.dumps(head, indent=1) + "*/\n" + AXPY
    tap.write(path, headed)

    def right(y, x, a):
        asked.append(y.shape[0])
        return y + scaled(x, a)
    for source, name in ((path, "axpy"), (headed, "headed")):
        refused(fa_tune.Error, "none of", lambda: fa_tune.tune_kernel(source, n=64, answer=lambda y: y * 0 + 77))  # pylint: disable=cell-var-from-loop
        told = fa_tune.tune_kernel(source, n=64, answer=right, tune=dict(THREADS=[64], PER_THREAD=[1]), name=name)
        tap.equal((told.answer.origin, told.operation.partition("@")[0], asked[0], told.answer["funnel"]["space"]),
                  ("measured", name, 64, 1))
        del asked[:]
    shutil.copy(os.path.join(FOLDER, "axpy_kernels.cu"), "axpy_kernels.cu")
    tap.write("beside.json", "\n" + json.dumps({**head, "source": "axpy_kernels.cu"}))
    tap.equal(fa_tune.tune_kernel("beside.json", n=64, answer=right).answer.origin, "measured")
    tap.equal(len(set(asked)) > 1, True)
    for sentence, words in (("there is no kernel axpi in it", dict(kernel="axpi")), ("no config holds to \"0 > 1\"", dict(restrictions=["0 > 1"])),
                            ("y is described alone", dict(answer=[[1.0]])), ("axpy.cu: \"rtol\"", dict(rtol=-1)),
                            ("\"arguments\" is a list of objects", dict(answer=right, sizes={"n": {}}))):
        refused(fa_tune.ArgumentError, sentence, lambda: fa_tune.tune_kernel(path, n=64, **words))  # pylint: disable=cell-var-from-loop
    refused(fa_tune.ArgumentError, "there is no argument 'blok': did you mean 'block'?", lambda: fa_tune.tune_kernel(path, blok=64))
    refused(fa_tune.ArgumentError, "axpy_kernels.cu: there is no specification: pass args=",
            lambda: fa_tune.tune_kernel(os.path.join(FOLDER, "axpy_kernels.cu"), tune=dict(THREADS=[64])))
    for begin in ("/" * 64 + "\n", "// " + "// of its own " * 64 + "\n", "/* fa-tune has none here */\n"):  # found soon, whatever a comment holds
        refused(fa_tune.ArgumentError, "there is no specification",
                lambda: fa_tune.tune_kernel(begin + "__global__ void f() {}", tune=dict(THREADS=[64])))  # pylint: disable=cell-var-from-loop


def a_gpu_that_is_not_here_gets_cubins_and_no_winner_among_equals():
    told = axpy(gpu="A100")
    tap.equal((told.answer.origin, told.answer.gpu), ("unranked", "A100-SXM4-40GB"))
    rows = told.configs
    tap.equal([(row["status"], row["rank"]) for row in rows], [("compiled", None)] * 3 + [("constraint", None)])
    assert all(row["registers"] > 0 and row["spill_bytes"] == 0 and row["blocks_per_sm"] > 0 for row in rows[:3]), rows
    assert told.answer.tunables in [row["config"]["tunables"] for row in rows[:3]]
    refused(fa_tune.NotSupported, "leave gpu= out to tune it for the device here", lambda: told(None, None))
    refused(fa_tune.NotSupported, "leave gpu= out", lambda: told.arguments)
    try:
        told(None, None)
    except fa_tune.NotSupported as error:
        tap.equal(type(error).__name__, "NotLoaded")  # as a traceback shows it
    tap.equal((hasattr(told, "arguments"), [name for name, _ in inspect.getmembers(told) if name in ("arguments", "configs")]),
              (False, ["configs"]))
    modelled = axpy(gpu="A100", work={"operations": "n*THREADS*PER_THREAD*PER_THREAD"}, args=dict(
        y=fa_tune.inout("f32", "n"), x=fa_tune.array("f32", "n"), a=2.5, n=100_000_000))
    tap.equal((modelled.answer.origin, modelled.configs[0]["rank"]), ("predicted", 1))
    tap.equal(modelled.at(n=200_000_000).answer.origin, "predicted")
    here = axpy()
    tap.equal([row["rank"] for row in here.configs], [1, 2, 3, None])
    tap.equal(here.configs[0]["median_us"], here.answer.median_us)
    refused(fa_tune.ArgumentError, "gpu is the name of a GPU's type", lambda: axpy(gpu=5))
    refused(fa_tune.ArgumentError, "B9000", lambda: axpy(gpu="B9000"))


def a_torch():
    """As much of PyTorch as an operator is registered with, and what was registered."""
    torch, made = types.ModuleType("torch"), types.SimpleNamespace(schemas={}, runs={}, fakes={})

    class Tensor(Given):
        requires_grad = False

        def new_empty(self, shape, dtype):
            return (type(self), tuple(shape), dtype)

    class Library:
        def __init__(self, namespace, kind):
            self.namespace = namespace
            tap.equal(kind, "FRAGMENT")

        def define(self, schema, tags):
            name, bracket, rest = schema.partition("(")
            made.schemas[self.namespace + "::" + name] = bracket + rest
            tap.equal(tags, ["fixed"])
            setattr(torch.ops, self.namespace, types.SimpleNamespace(**{name: types.SimpleNamespace(default=name)}))

        def impl(self, name, function, key):
            made.runs[self.namespace + "::" + name, key] = function

    def check(holds, say):
        if not holds:
            raise RuntimeError(say())
    torch.Tensor, torch._check, torch.ops = Tensor, check, types.SimpleNamespace()
    torch.Tag = types.SimpleNamespace(needs_fixed_stride_order="fixed")
    torch.float16, torch.bfloat16, torch.float32 = "float16", "bfloat16", Float32((producer.FLOAT, 32))
    base = type("Base", (), {"apply": classmethod(lambda cls, *args: None)})
    torch.autograd = types.SimpleNamespace(Function=type("Function", (base,), {}))
    torch._C = types.SimpleNamespace(_are_functorch_transforms_active=lambda: False)
    torch.cuda = types.SimpleNamespace(is_initialized=lambda: False)
    torch.is_grad_enabled = lambda: True
    torch.library = types.SimpleNamespace(
        Library=Library, register_fake=lambda name, fake, lib: made.fakes.update({name: fake}))
    return torch, made


def conv(**more):
    return fa_tune.tune_kernel(
        CONV, kernel="convolution", args=dict(
            out=fa_tune.out("f32", "h", "w"), inp=fa_tune.array("f32", "h + fh - 1", "w + fw - 1"),
            filter=fa_tune.array("f32", "fh", "fw"), w=4, h=3), sizes=dict(fw=fa_tune.fixed(17), fh=fa_tune.fixed(17)),
        tune=dict(BLOCK_X=[16, 32], BLOCK_Y=[4], TILE_X=[1], TILE_Y=[1]), defines=dict(FILTER_W="fw", FILTER_H="fh"),
        block=("BLOCK_X", "BLOCK_Y"), grid=("ceil_div(w, BLOCK_X*TILE_X)", "ceil_div(h, BLOCK_Y*TILE_Y)"),
        answer=dict(kernel="convolution_naive", block=[32, 8], grid=["ceil_div(w, 32)", "ceil_div(h, 8)"]), **more)


def it_is_an_operator_of_pytorch():
    torch, made = a_torch()
    with tap.modules({"torch": torch, "fa_tune._torch_ops": ...}):
        tuned = conv(torch_op="my::conv")
        tap.equal(made.schemas, {"my::conv": "(Tensor inp, Tensor filter) -> Tensor"})
        inp, weights = torch.Tensor((19, 20), [1.0] * 380), torch.Tensor((17, 17), [1.0] * 289)
        out = made.runs["my::conv", "CompositeExplicitAutograd"](inp, weights)
        tap.equal((out.shape, set(out.read())), ((3, 4), {289.0}))
        tap.equal(made.fakes["my::conv"](inp, weights), (torch.Tensor, (3, 4), torch.float32))
        refused(RuntimeError, "filter is float32 of shape (17,), and the kernel was tuned for fp32 of shape (17, 17)",
                lambda: made.fakes["my::conv"](inp, torch.Tensor((17,), [1.0] * 17)))
        torch.Tensor.requires_grad = True
        refused(fa_tune.NotSupported, "my::conv has no backward pass",
                lambda: made.runs["my::conv", "Autograd"](inp, weights))
        torch.Tensor.requires_grad = False
        conv(torch_op="my::conv", flops="2 * w * h")  # another kernel of the same arguments takes its place
        tap.equal(len(made.schemas), 1)
        axpy(torch_op="my::axpy")
        tap.equal(made.schemas["my::axpy"], "(Tensor(a0!) y, Tensor x, float a) -> ()")
        y, x = torch.Tensor((64,), [1.0] * 64), torch.Tensor((64,), [2.0] * 64)
        tap.equal(made.runs["my::axpy", "CompositeExplicitAutograd"](y, x, 3.0), None)
        tap.equal((set(y.read()), made.fakes["my::axpy"](y, x, 3.0)), ({7.0}, None))
        refused(fa_tune.ArgumentError, "my::conv is there already and takes (Tensor inp", lambda: axpy(torch_op="my::conv"))
        refused(fa_tune.ArgumentError, "torch_op is \"namespace::name\"", lambda: axpy(torch_op="conv"))
        assert tuned.answer.origin == "measured"
    with tap.modules({"torch": None, "fa_tune._torch_ops": ...}):
        refused(fa_tune.ArgumentError, "PyTorch is not installed here, so there is no torch.ops.my.conv",
                lambda: conv(torch_op="my::conv"))


def pytorch_itself_compiles_a_graph_with_the_operator():
    try:
        import torch
    except ImportError:
        raise tap.Skip("there is no PyTorch here") from None
    from fa_tune import _kernel_ops

    class OnTheCpu:
        """The kernel's arguments, and what it computes, where PyTorch has no device."""
        def __init__(self, tuned, compute):
            self.arguments, self.compute = tuned.arguments, compute

        def __call__(self, **words):
            return self.compute(**words)
    _kernel_ops.define("fa_test::scaled", OnTheCpu(conv(), lambda inp, filter: inp[:3, :4] * filter.sum()))

    def add(y, x, a):
        y.add_(x, alpha=a)
    _kernel_ops.define("fa_test::axpy", OnTheCpu(axpy(), add))
    inp, weights, y, x = torch.randn(19, 20), torch.randn(17, 17), torch.zeros(64), torch.randn(64)
    torch.library.opcheck(torch.ops.fa_test.scaled.default, (inp, weights))
    torch.library.opcheck(torch.ops.fa_test.axpy.default, (y, x, 2.0))

    @torch.compile(fullgraph=True, backend="aot_eager")
    def both(inp, weights, y, x):
        torch.ops.fa_test.axpy(y, x + 1, 2.0)
        return torch.ops.fa_test.scaled(inp, weights) * 2
    y.zero_()
    torch.testing.assert_close(both(inp, weights, y, x), inp[:3, :4] * weights.sum() * 2)
    torch.testing.assert_close(y, 2 * (x + 1))


def a_saved_winner_is_found_where_its_bundle_is():
    tuned = conv(name="saved")
    with mock.patch.dict(os.environ, HOME=place.folder):
        tap.has(str(refused(fa_tune.Error, "there is no key", lambda: tuned.save("conv2d.bundle"))), "makes one")
        place.run("keygen")
        tuned.save("conv2d.bundle")
        fa_tune.close()
        with Place(space=None) as other:
            os.environ["FA_TUNE_STORE"] = other.store
            found = conv(name="saved", bundle="conv2d.bundle")
            tap.equal((found.answer.origin, found.answer.from_store), ("imported", True))
            tap.equal(len(fa_tune.winners()), 1)
            tap.has(repr(found), "for Problem(operation='saved', fw=17, fh=17, w=4, h=3)")
            refused(fa_tune.Error, "axpy_kernels.cu", lambda: conv(name="saved", bundle=os.path.join(FOLDER, "axpy_kernels.cu")))
            fa_tune.close()
    fa_tune.close()


def bfloat16_goes_to_a_function_as_float32_and_comes_back_to_nearest_even():
    from fa_tune import _cases
    bits = [0x3f80, 0x4049, 0xc2f7, 0x0001, 0x7f7f, 0xff80]
    raw = struct.pack("<6H", *bits)
    wide = _cases._array(numpy, memoryview(bytearray(raw)), "bf16", (2, 3))
    tap.equal((str(wide.dtype), wide.shape, float(wide[0, 1])), ("float32", (2, 3), 3.140625))
    tap.equal(_cases._elements("y", "bf16", (2, 3), wide), raw)
    ties = [1 + 2.0 ** -8, 1 + 3 * 2.0 ** -8, 1 + 2.0 ** -8 + 2.0 ** -20, math.nan]
    tap.equal(struct.unpack("<4H", _cases._elements("y", "bf16", (4,), ties)), (0x3f80, 0x3f82, 0x3f81, 0x7fc0))


def fp8_goes_to_a_function_as_float32_and_comes_back_to_nearest_even():
    from fa_tune import _cases
    for dtype, largest, codes in (("fp8_e4m3", 448, {1: 0x38, -1.5: 0xbc, 448: 0x7e, 1 / 512: 1, 0: 0}),
                                  ("fp8_e5m2", 57344, {1: 0x3c, -1.5: 0xbe, 57344: 0x7b, 2.0 ** -16: 1, 0: 0})):
        every = bytes(code for code in range(256) if not math.isnan(_cases._fp8_values(dtype)[code]) and code != 0x80)
        finite = bytes(code for code in every if not math.isinf(_cases._fp8_values(dtype)[code]))
        wide = _cases._array(numpy, memoryview(bytearray(finite)), dtype, (len(finite),))
        tap.equal((str(wide.dtype), _cases._elements("y", dtype, (len(finite),), wide)), ("float32", finite))
        tap.equal(list(_cases._elements("y", dtype, (len(codes),), list(codes))), list(codes.values()))
        tap.equal(list(_cases._elements("y", dtype, (3,), [2.0 * largest, -math.inf, math.nan])),
                  [codes[largest], codes[largest] | 0x80, 0x7f])
    # ties go to the even one: between 1 and 1.125, 1.125 and 1.25; between 1 and 1.25
    tap.equal(list(_cases._elements("y", "fp8_e4m3", (3,), [1.0625, 1.1875, 1.0626])), [0x38, 0x3a, 0x39])
    tap.equal(list(_cases._elements("y", "fp8_e5m2", (2,), [1.125, 1.375])), [0x3c, 0x3e])


def types_have_the_names_of_every_library():
    from fa_tune import _cases
    ml_dtypes = types.SimpleNamespace(float8_e4m3fn=type("float8_e4m3fn", (), {}))  # as they are named there
    for names, brief in ((("f8e4m3", "fp8_e4m3", "torch.float8_e4m3fn", ml_dtypes.float8_e4m3fn), "f8e4m3"),
                         (("f8e5m2", "fp8_e5m2", "torch.float8_e5m2"), "f8e5m2"), (("c64", "complex64", "torch.complex64"), "c64"),
                         (("c128", "complex128"), "c128"), (("bool", "torch.bool", bool), "bool"), (("f16", "torch.half", "torch.float16"), "f16"),
                         (("bf16", "torch.bfloat16"), "bf16")):
        tap.equal([_cases.type_of(name) for name in names], [brief] * len(names))
    for name in ("float8_e4m3", "float8_e4m3fnuz", "fp4", "string"):  # the first has infinities
        refused(fa_tune.ArgumentError, "an argument's type is one such as", lambda: _cases.type_of(name))  # pylint: disable=cell-var-from-loop


def fp8_and_complex_tensors_are_passed_by_dlpacks_codes():
    source = tap.read(os.path.join(FOLDER, "mixed.cu")).partition("*/")[2]

    def answer(x, u, z, where):
        return [-x, -u, numpy.asarray([complex(-one.imag, one.real) if at else 0 for one, at in zip(z.flat, where.flat)],
                                      dtype="complex64")]
    described = {name: fa_tune.array(type_, "n") for name, type_ in (("x", "f8e4m3"), ("u", "f8e5m2"), ("z", "c128"), ("where", bool))}
    written = {name: fa_tune.out(type_, "n") for name, type_ in (("y", "f8e4m3"), ("v", "f8e5m2"), ("w", "c64"))}
    mixed = fa_tune.tune_kernel(source, kernel="mixed", args={**written, **described, "n": 6}, tune=dict(THREADS=[32, 64]),
                                block="THREADS", grid="ceil_div(n, THREADS)", answer=answer)
    tap.equal((mixed.answer.origin, [one[1] for one in mixed.arguments]), (
        "measured", ["fp8_e4m3", "fp8_e5m2", "complex64", "fp8_e4m3", "fp8_e5m2", "complex128", "bool"]))
    e4m3, e5m2, c128 = (producer.FLOAT8_E4M3FN, 8), (producer.FLOAT8_E5M2, 8), (producer.COMPLEX, 128)
    x, u = Exchanged((6,), range(6), dtype=e4m3), Exchanged((6,), range(6), dtype=e5m2)
    z, where = Exchanged((6,), [float(i) for i in range(12)], dtype=c128), Exchanged((6,), [1, 1, 0, 0, 1, 1], dtype=(producer.BOOL, 8))
    y, v, w = mixed(x=x, u=u, z=z, where=where)
    tap.equal([(one.dtype, one.shape) for one in (y, v, w)],
              [(e4m3, (6,)), (e5m2, (6,)), ((producer.COMPLEX, 64), (6,))])
    tap.equal((list(y.read()), list(v.read())), ([0x80 | i for i in range(6)],) * 2)
    tap.equal(list(w.read())[:6], [-1.0, 0.0, -3.0, 2.0, 0.0, 0.0])
    refused(fa_tune.DtypeError, "u is float8_e4m3fn and needs float8_e5m2", lambda: mixed(x=x, u=x, z=z, where=where))
    refused(fa_tune.DtypeError, "z is complex64 and needs complex128", lambda: mixed(x=x, u=u, z=w, where=where))
    refused(fa_tune.DtypeError, "where is float8_e4m3fn and needs bool", lambda: mixed(x=x, u=u, z=z, where=x))
    from fa_tune import _kernel_ops
    torch = types.SimpleNamespace(**{name: name for name in ("float8_e4m3fn", "float8_e5m2", "complex64", "bool", "int32")})
    tap.equal([_kernel_ops._dtype(torch, name) for name in ("fp8_e4m3", "fp8_e5m2", "complex64", "bool", "int32")],
              ["float8_e4m3fn", "float8_e5m2", "complex64", "bool", "int32"])


def an_output_of_any_type_is_made_by_pytorch():
    torch, told = a_torch()[0], []
    torch.Tensor = type("Tensor", (Exchanged,), {"requires_grad": False, "__module__": "torch"})
    torch.empty = lambda shape, dtype, device: told.append(dtype) or torch.Tensor(shape, dtype=dtype)
    torch.int64, torch.empty_like, torch.contiguous_format = (producer.INT, 64), None, "contiguous"
    with tap.modules({"torch": torch, "fa_tune._torch_ops": ...}):
        gathered = gather(None)
        table, index = (torch.Tensor((8,), range(8), dtype=(producer.INT, bits)) for bits in (64, 32))
        tap.equal((list(gathered(table=table, index=index).read()), told), (list(range(8)), [torch.int64]))


def the_guides_python_is_run_word_for_word():
    page = tap.read(os.path.join(os.environ["FA_TEST_SOURCE"], "docs", "your-own-kernel.md"))
    cuda = re.search(r"(?s)```cuda\n(.*?)```", page)[1]
    for name, text in ("axpy.cu", cuda), ("axpy_kernels.cu", cuda.partition("*/")[2]):
        tap.write(name, text)
    blocks = re.findall(r"(?s)```python\n(.*?)```", page)
    y, x = Given((50_000,), [1.0] * 50_000), Given((50_000,), [2.0] * 50_000)
    names = {"y": y, "x": x, "a": numpy.asarray(2.5, dtype="float32"), "n": numpy.asarray(50_000, dtype="int32")}
    with tap.modules({"torch": a_torch()[0], "fa_tune._torch_ops": ...}), contextlib.redirect_stdout(io.StringIO()):
        for block in blocks:
            exec(block, names)  # pylint: disable=exec-used
    tap.equal((y.read()[0], y.read()[4096]), (3.0, 2.0))
    tap.equal((names["axpy"].answer.origin, len(names["results"])), ("measured", 11))


tap.main()
