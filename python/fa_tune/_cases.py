# SPDX-License-Identifier: Apache-2.0
"""Data for the proofs of a kernel of one's own: tensors that are given, and answers of the caller's program.

A tune asks for them case by case, in the caller's process, while it compiles (_core.give_cases); the worker that
runs the kernels reads them from a file. Nothing here copies an array that no tune asks for.
"""
from __future__ import annotations

import functools
import hashlib
import inspect
import math
import random
import re
import struct
from collections.abc import Collection, Mapping
from typing import Any

from . import _core
from ._errors import ArgumentError, DtypeError, Error, ShapeError, TensorError, shown
from ._fingerprint import fingerprint, is_sure, on_host

GIVEN, ANSWERED = 1, 2  # as python/_core/cases.c
INTEGERS = {"int8": "b", "int16": "h", "int32": "i", "int64": "q", "uint8": "B", "uint16": "H", "uint32": "I", "uint64": "Q"}
_data: dict[str, tuple[Data, str]] = {}  # of each operation, and what was said of it


def type_of(given):
    """A type's short name: of "f32", "fp32", torch.float32, numpy.float32."""
    text = given if isinstance(given, str) else getattr(given, "__name__", str(given))
    found = re.fullmatch(r"(?:torch\.)?(bfloat|bf|uint|int|float|fp|complex|f|i|u|c)(8_?e4m3(?:fn)?|8_?e5m2|8|16|32|64|128)", text)
    plain = {"torch.half": "f16", "half": "f16", "torch.bool": "bool", "bool": "bool", "bool_": "bool"}.get(text)
    if plain is not None:
        return plain
    if found is None or text == "float8_e4m3":  # which is another type, with infinities
        raise ArgumentError("an argument's type is one such as \"f32\", \"bf16\", \"i64\", \"f8e4m3\", \"c64\", or a dtype, not %s"
                            % shown(given))
    letters, bits = found.groups()
    bits = bits.replace("_", "").replace("fn", "")
    return {"bfloat": "bf", "uint": "u", "int": "i", "float": "f", "fp": "f", "complex": "c"}.get(letters, letters) + bits


def is_tensor(given):
    """Whether it is an array of somebody's, and neither a number nor a dtype."""
    return not isinstance(given, type) and hasattr(given, "shape") and hasattr(given, "dtype")


def _numpy():
    try:
        import numpy
    except ImportError:
        raise ArgumentError("answer: a function is given arrays of NumPy, which is not installed here") from None
    return numpy


def _numpy_type(dtype):
    """NumPy's name of the library's type; it has neither bfloat16 nor fp8, which go as float32."""
    return "float32" if dtype == "bf16" or dtype.startswith("fp8") else dtype.replace("fp", "float")


@functools.lru_cache(None)
def _fp8_values(dtype):
    """Of its 256 codes: e5m2 is the upper half of float16; e4m3 is 256 times what float16 makes of its bits, but for NaN."""
    e5m2 = dtype == "fp8_e5m2"
    bits = [code << 8 if e5m2 else (code & 0x80) << 8 | (code & 0x7f) << 7 for code in range(256)]
    values = [value if e5m2 else 256 * value for value in struct.unpack("<256e", struct.pack("<256H", *bits))]
    return values if e5m2 else [math.nan if code & 0x7f == 0x7f else values[code] for code in range(256)]


def _fp8_codes(numpy, array, dtype):
    """float32 as fp8, to nearest even; what is too large becomes the largest, as in CUDA's own conversion. NaN stays NaN."""
    values = _fp8_values(dtype)[:0x7c if dtype == "fp8_e5m2" else 0x7f]
    middles = numpy.asarray([(a + b) / 2 for a, b in zip(values, values[1:])], dtype="float32")
    below, above = (numpy.searchsorted(middles, abs(array), side=side) for side in ("left", "right"))
    codes = below + (below & 1) * (above - below) + (array < 0) * 0x80
    return numpy.where(array != array, 0x7f, codes).astype("uint8")


def _array(numpy, view, dtype, shape):
    """A new array of the elements that the view has."""
    if dtype.startswith("fp8"):
        codes = numpy.frombuffer(bytearray(view), dtype="uint8").reshape(shape)
        return numpy.take(numpy.asarray(_fp8_values(dtype), dtype="float32"), codes)
    if dtype == "bf16":
        wide = numpy.frombuffer(bytearray(view), dtype="uint16").astype("uint32") << 16
        return wide.view("float32").reshape(shape)
    return numpy.frombuffer(bytearray(view), dtype=_numpy_type(dtype)).reshape(shape)


def _rounded(numpy, array):
    """float32 as bfloat16's bits, to nearest even; NaN stays NaN."""
    bits = numpy.ascontiguousarray(array).view("uint32")
    rounded = (bits + (((bits >> 16) & 1) + 0x7fff).astype("uint32")) >> 16
    return numpy.where(array != array, 0x7fc0, rounded).astype("uint16")


def _is_of(value, dtype):
    try:
        return type_of(value.dtype) == type_of(dtype)
    except (AttributeError, ArgumentError):
        return False


def _elements(name, dtype, shape, value):
    """What an answer says of an output, as its bytes."""
    if not _is_of(value, dtype):
        numpy = _numpy()
        value = numpy.asarray(value)
        wanted = _numpy_type(dtype)
        if not numpy.can_cast(value.dtype, wanted, "same_kind"):
            raise DtypeError("answer gives %s for %s, which is %s" % (value.dtype, name, wanted))
        value = numpy.asarray(value, dtype=wanted)
        if dtype == "bf16":
            value = _rounded(numpy, value)
        elif dtype.startswith("fp8"):
            value = _fp8_codes(numpy, value, dtype)
    if tuple(value.shape) != shape:
        raise ShapeError("answer gives the shape %s for %s, which is %s" % (tuple(value.shape), name, shape))
    return on_host(value, "answer's " + name)


class AnswerChanged(ArgumentError):
    """A function returns something else than when its kernel was described."""


class Data:
    """What one call of tune_kernel() gives.

    tensors   inputs, by name; they count for the sizes that they have
    answer    a function, what it would return for the tensors, or None: the specification says what is right
    """

    def __init__(self, tensors: Mapping[str, Any], answer: Any, inputs: list[str], names: list[str],
                 sizes: Mapping[str, int], ranged: Collection[str] = ()):
        """inputs: all tensors that the kernel reads; names: what a function may ask for; sizes: of the tensors; ranged: those
        of which the specification says what is drawn."""
        self.tensors, self.answer, self.sizes, self.takes = dict(tensors), answer, dict(sizes), []
        self.said, self.ranged = "", ranged
        self.extents: list[int] = []  # of the problem itself: its sizes, and its tensors' sides and elements
        self.pools: dict[str, tuple[list[bytes], bool]] = {}  # of tensors that some case of this tune draws: elements, and whether these are all
        self.drawn: list[str] = []  # tensors that some case of the last tune drew in place of what was given
        self.is_function = callable(answer)
        self.is_array = answer is not None and not self.is_function
        drawn = [name for name in inputs if name not in tensors]
        if self.is_function:
            self.takes = _parameters(answer, names)
        elif self.is_array and drawn:
            raise ArgumentError("answer is an array, which belongs to inputs that are given, and %s is described alone: pass "
                                "its array, or a function as the answer" % drawn[0])

    def words(self) -> str:
        """What tells it from another in the specification."""
        arrays = self.answer if isinstance(self.answer, Mapping) else dict(enumerate(
            self.answer if isinstance(self.answer, (tuple, list)) else [self.answer]))
        self.said = fingerprint(self.answer) if self.is_function else "array:" + fingerprint(
            [{name: on_host(array, str(name)) for name, array in some.items()} for some in (self.tensors, arrays)])
        return self.said

    def contents(self) -> int:
        """A hash of the inputs, by which a winner is told from one that was timed with others; 0: there are none, or their
        hash is in the specification."""
        if not self.tensors or self.is_array:
            return 0
        hashed = hashlib.sha256()
        for name, tensor in self.tensors.items():
            hashed.update(b"%s:" % name.encode())
            hashed.update(on_host(tensor, name))
        return int(hashed.hexdigest()[:8], 16) >> 1 or 1

    def provide(self, problem, index, arguments):
        """The marks of a case's arguments, whose memory is filled in."""
        marks = [0] * len(arguments)
        own = self._fits(problem, arguments)
        if index == 0 and self.is_array and (not own or self.answer is None):
            raise ArgumentError("the answer was an array, which is right for its own inputs alone: for other sizes pass a "
                                "function or a kernel as the answer")
        extents = [*(problem[name] for name in self.sizes if name in problem), *(
            side for _, _, shape, _, _ in arguments if shape is not None for side in (*shape, math.prod(shape)))]
        if index == 0:
            self.extents, self.drawn = extents, []
        changed = list(zip(self.extents, extents))
        own = own and extents == self.extents
        drawn = []
        for i, (name, dtype, shape, view, _) in enumerate(arguments):
            if name not in self.tensors or view is None:
                continue
            if own or (tuple(self.tensors[name].shape) == shape and self._holds(name, dtype, changed)):
                _fill(view, on_host(self.tensors[name], name), name)
            else:
                drawn.append(name)
                if name in self.ranged or not len(view):
                    continue
                view[:] = _drawn(*self._pool(name), dtype, math.prod(shape), changed, index)
            marks[i] |= GIVEN
        self.drawn += [name for name in drawn if name not in self.drawn]
        outputs = [(i, *one) for i, one in enumerate(arguments) if one[4] is not None]
        try:
            asked = self.is_function or (self.is_array and own)
            answers = self._answers(problem, arguments, [one[1] for one in outputs]) if asked else {}
            for i, name, dtype, shape, _, room in outputs:
                if name in answers:
                    _fill(room, _elements(name, dtype, shape, answers[name]), name)
                    marks[i] |= ANSWERED
        except Exception as error:
            if own or not self.tensors:
                raise
            kind = type(error) if isinstance(error, Error) else ArgumentError
            raise kind("answer, for %s: %s: %s; %s" % (
                ", ".join("%s=%s" % (name, problem[name]) for name in self.sizes if name in problem),
                type(error).__name__, error, self.what_was_drawn(drawn))) from error
        return marks

    def _pool(self, name):
        """The elements of what is given, or of very many a part, and whether that is all of them."""
        if name not in self.pools:
            given = on_host(self.tensors[name], name)
            width = len(given) // max(1, math.prod(self.tensors[name].shape))
            step = 1 + len(given) // width // (1 << 20)
            self.pools[name] = [given[at:at + width] for at in range(0, len(given), width * step)], step == 1
        return self.pools[name]

    def _holds(self, name, dtype, changed):
        """Whether what is given may stand in a case where other extents are others."""
        if dtype not in INTEGERS or not len(self._pool(name)[0]):
            return True
        top = max(_integers(self._pool(name)[0], dtype))
        return _limit(top, changed) >= top

    def what_was_drawn(self, drawn=None) -> str:
        """Why a kernel or a function may have failed that is right for what was given: in a case where these were drawn, or in any."""
        drawn = self.drawn if drawn is None else drawn
        if not drawn:
            return "a case of other sizes has the arrays that were given: fa_tune.fixed() keeps a size as it is"
        return ("the inputs of cases of other sizes were drawn (%s, from the values that were given): give %s range=, or leave "
                "its shape out, and its sizes are fixed" % (", ".join(drawn), drawn[0]))

    def _fits(self, problem, arguments):
        """Whether the tensors are of the case's sizes."""
        wrong = [(name, tuple(self.tensors[name].shape), shape) for name, _, shape, _, _ in arguments
                 if name in self.tensors and tuple(self.tensors[name].shape) != shape]
        if wrong and all(problem.get(name) == value for name, value in self.sizes.items()):
            raise ShapeError("%s has the shape %s, and what is said of it makes %s" % wrong[0])
        return not wrong

    def _answers(self, problem, arguments, outputs):
        """Values by the names of outputs."""
        told = self.answer
        if self.is_function:
            numpy = _numpy()
            known = dict(problem)
            for name, dtype, shape, value, _ in arguments:
                if value is not None:
                    known[name] = value if shape is None else _array(numpy, value, dtype, shape)
            told = self.answer(**{name: known[name] for name in self.takes})
        if told is None:
            raise ArgumentError("answer returned None: it returns %s" % ", ".join(outputs))
        if not isinstance(told, Mapping):
            many = isinstance(told, (tuple, list)) and len(outputs) > 1
            told = dict(zip(outputs, told)) if many and len(told) == len(outputs) else {outputs[0]: told}
        missing = [name for name in outputs if name not in told]
        if missing:
            raise ArgumentError("answer gives nothing for %s: it gives %s, in this order or by name"
                                % (missing[0], ", ".join(outputs)))
        return told


def _integers(pool, dtype):
    return memoryview(b"".join(pool)).cast(INTEGERS[dtype]).tolist()


def _limit(top, extents):
    """What integers up to `top` may be where extents are others: as much of these as they were, or one less than all."""
    return min((now if was == top else now - 1 for was, now in extents if was >= top), default=top)


def _drawn(pool, whole, dtype, count, extents, seed):
    """Elements for a case of another size, each from among those that were given. Integers may be places in something: they stay
    below the case's extents that are to the problem's own as those were; ascending ones ascend, and different ones differ."""
    choose = random.Random(seed)
    if dtype not in INTEGERS:
        return b"".join(choose.choices(pool, k=count))
    values = _integers(pool, dtype)
    limit = _limit(max(values), extents)
    fit = range(min(values), limit + 1) if not whole else [value for value in values if value <= limit]
    fit = fit or values
    differ = count <= len(fit) and len(set(values)) == len(values)
    chosen = choose.sample(fit, count) if differ else choose.choices(fit, k=count)
    return struct.pack("<%d%s" % (count, INTEGERS[dtype]), *(sorted(chosen) if values == sorted(values) else chosen))


def _fill(view, elements, name):
    if len(view) != len(elements):
        raise TensorError("%s has %d bytes and needs %d" % (name, len(elements), len(view)))
    view[:] = elements


def _parameters(function, names):
    """The names that a function is called with."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        raise ArgumentError("answer: %s does not say what it takes: wrap it, as in lambda %s: …"
                            % (shown(function), ", ".join(names))) from None
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        return names
    takes = [one.name for one in parameters if one.name in names and one.kind is not one.POSITIONAL_ONLY]
    unknown = [one.name for one in parameters if one.name not in takes and one.default is one.empty]
    if unknown:
        raise ArgumentError("answer takes %s, and what it may be given by name is %s" % (unknown[0], ", ".join(names)))
    return takes


def give(operation: str, data: Data) -> None:
    """From now on tunes of the operation ask `data`."""
    _data[operation] = data, data.said
    _core.give_cases(operation, data.contents())


def take_back(operation: str, data: Data) -> None:
    """Lets go of arrays, which one tune has seen. A function stays, for tunes of other sizes."""
    if data.tensors:
        _core.give_cases(operation, 0)
    data.tensors, data.pools = {}, {}
    if not data.is_function:
        data.answer = None


def provide(operation, problem, index, arguments):
    """Called by a tune."""
    data, said = _data[operation]
    if index == 0 and data.is_function and is_sure(said) and fingerprint(data.answer) != said:
        raise AnswerChanged("answer, or a value that it uses, has changed since tune_kernel() was called: call it again")
    return data.provide(problem, index, arguments)
