# SPDX-License-Identifier: Apache-2.0
"""As much of NumPy as fa_tune and its tests ask of it, for a machine without: packed arrays, elementwise operations with
arrays of the same size or numbers, in Python's arithmetic."""
import bisect
import math
import struct

LETTERS = {"float16": "e", "float32": "f", "float64": "d", "int8": "b", "int16": "h", "int32": "i", "int64": "q",
           "uint8": "B", "uint16": "H", "uint32": "I", "uint64": "Q", "bool": "?", "complex64": "f", "complex128": "d"}


def _packed(flat, dtype):
    if dtype[0] in "iu":
        flat = [int(x) for x in flat]
    if dtype[0] == "c":
        flat = [part for x in flat for part in (complex(x).real, complex(x).imag)]
    return struct.pack("<%d%s" % (len(flat), LETTERS[dtype]), *flat)


class ndarray:
    __hash__ = None

    def __init__(self, raw, dtype, shape=None):
        self.raw, self.dtype = bytes(raw), dtype
        self.flat = struct.unpack("<%d%s" % (len(self.raw) // struct.calcsize(LETTERS[dtype]), LETTERS[dtype]), self.raw)
        if dtype[0] == "c":
            self.flat = tuple(complex(*pair) for pair in zip(self.flat[::2], self.flat[1::2]))
        self.shape = (len(self.flat),) if shape is None else tuple(shape)

    def reshape(self, shape):
        assert math.prod(shape) == len(self.flat)
        return ndarray(self.raw, self.dtype, shape)

    def astype(self, dtype):
        return ndarray(_packed(self.flat, dtype), dtype, self.shape)

    def view(self, dtype):
        return ndarray(self.raw, dtype, self.shape)

    def tobytes(self):
        return self.raw

    def __getitem__(self, at):
        index = 0
        for place, size in zip(at if isinstance(at, tuple) else (at,), self.shape):
            index = index * size + place
        return self.flat[index]

    def ravel(self):
        return self.reshape((len(self.flat),))

    def item(self):
        return self.flat[0]

    def __index__(self):
        return self.flat[0].__index__()

    def _with(self, other, compute, dtype=None):
        others = other.flat if isinstance(other, ndarray) and other.shape else [
            other.flat[0] if isinstance(other, ndarray) else other] * len(self.flat)
        dtype = dtype or self.dtype
        return ndarray(_packed([compute(a, b) for a, b in zip(self.flat, others)], dtype), dtype, self.shape)

    def __add__(self, other): return self._with(other, lambda a, b: a + b)
    def __mul__(self, other): return self._with(other, lambda a, b: a * b)
    __rmul__ = __mul__
    def __and__(self, other): return self._with(other, lambda a, b: a & b)
    def __lshift__(self, other): return self._with(other, lambda a, b: a << b & 0xffffffff)
    def __rshift__(self, other): return self._with(other, lambda a, b: a >> b)
    def __sub__(self, other): return self._with(other, lambda a, b: a - b)
    def __neg__(self): return self * -1
    def __abs__(self): return ndarray(_packed([abs(x) for x in self.flat], self.dtype), self.dtype, self.shape)
    def __lt__(self, other): return self._with(other, lambda a, b: a < b, "int64")
    def __ne__(self, other): return self._with(other, lambda a, b: a != b, "bool")


def frombuffer(buffer, dtype):
    return ndarray(buffer, dtype)


def asarray(given, dtype=None):
    if isinstance(given, ndarray):
        return given if dtype in (None, given.dtype) else given.astype(dtype)
    shape, flat = (), given
    while isinstance(flat, (list, tuple)) and flat and isinstance(flat[0], (list, tuple)):
        shape += (len(flat) // math.prod(shape),)
        flat = [x for row in flat for x in row]
    if isinstance(flat, (list, tuple)):
        shape += (len(flat) // math.prod(shape),)
    else:
        flat = [flat]
    dtype = dtype or ("int64" if all(isinstance(x, int) for x in flat) else "float64")
    return ndarray(_packed(flat, dtype), dtype, shape)


def ascontiguousarray(array):
    return array


def can_cast(dtype, to, casting):
    """Of casting="same_kind"."""
    assert casting == "same_kind"
    order = "bool uint int float complex".split()
    return order.index(dtype.rstrip("0123456789")) <= order.index(to.rstrip("0123456789"))


def allclose(a, b, atol):
    return all(abs(x - y) <= atol + 1e-5 * abs(y) for x, y in zip(a.flat, b.flat))


def where(condition, value, array):
    return ndarray(_packed([value if c else a for c, a in zip(condition.flat, array.flat)], array.dtype), array.dtype,
                   array.shape)


def take(array, indices):
    return ndarray(_packed([array.flat[i] for i in indices.flat], array.dtype), array.dtype, indices.shape)


def searchsorted(ordered, array, side):
    find = bisect.bisect_left if side == "left" else bisect.bisect_right
    return ndarray(_packed([find(ordered.flat, x) for x in array.flat], "int64"), "int64", array.shape)
