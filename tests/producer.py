# SPDX-License-Identifier: Apache-2.0
"""A little tensor library on the fake driver: device memory, and DLPack in both of its ways. `Capsuled`
speaks __dlpack__ alone, as CuPy and JAX do; `Exchanged` also has the table of C functions, as
PyTorch has. Neither needs NumPy: elements are Python floats."""
import ctypes as c
import os
import struct

CUDA = c.CDLL(os.environ["FA_TEST_FAKE_CUDA"])
FLOAT, BFLOAT, INT, COMPLEX, BOOL, FLOAT8_E4M3FN, FLOAT8_E5M2 = 2, 4, 0, 5, 6, 10, 12
HOST, DEVICE = 1, 2
LETTERS = {(1, 8): "B", (FLOAT, 16): "e", (FLOAT, 32): "f", (INT, 32): "i", (INT, 64): "q", (COMPLEX, 64): "f", (COMPLEX, 128): "d",
           (FLOAT8_E4M3FN, 8): "B", (FLOAT8_E5M2, 8): "B", (BOOL, 8): "B"}  # of the module struct; of complex ones that of a part
READ_ONLY = 1


class Dtype(c.Structure):
    _fields_ = [("code", c.c_uint8), ("bits", c.c_uint8), ("lanes", c.c_uint16)]


class Device(c.Structure):
    _fields_ = [("type", c.c_int32), ("id", c.c_int32)]


class DlTensor(c.Structure):
    _fields_ = [("data", c.c_void_p), ("device", Device), ("ndim", c.c_int32), ("dtype", Dtype),
                ("shape", c.POINTER(c.c_int64)), ("strides", c.POINTER(c.c_int64)),
                ("byte_offset", c.c_uint64)]


class Managed(c.Structure):
    pass


DELETER = c.CFUNCTYPE(None, c.POINTER(Managed))
Managed._fields_ = [("major", c.c_uint32), ("minor", c.c_uint32), ("context", c.c_void_p),
                    ("deleter", DELETER), ("flags", c.c_uint64), ("tensor", DlTensor)]

ALLOCATE = c.PYFUNCTYPE(c.c_int, c.POINTER(DlTensor), c.POINTER(c.POINTER(Managed)), c.c_void_p, c.c_void_p)
FROM_OBJECT = c.PYFUNCTYPE(c.c_int, c.py_object, c.POINTER(c.POINTER(Managed)))
TO_OBJECT = c.PYFUNCTYPE(c.c_int, c.POINTER(Managed), c.POINTER(c.c_void_p))
BORROW = c.PYFUNCTYPE(c.c_int, c.py_object, c.POINTER(DlTensor))
STREAM = c.PYFUNCTYPE(c.c_int, c.c_int32, c.c_int32, c.POINTER(c.c_void_p))


class Exchange(c.Structure):
    _fields_ = [("major", c.c_uint32), ("minor", c.c_uint32), ("previous", c.c_void_p),
                ("allocate", ALLOCATE), ("managed_from_object", FROM_OBJECT),
                ("managed_to_object", TO_OBJECT), ("borrow", BORROW), ("current_stream", STREAM)]


_capsule = c.pythonapi.PyCapsule_New
_capsule.restype = c.py_object
_capsule.argtypes = [c.c_void_p, c.c_void_p, c.c_void_p]
NAMES = {name: c.create_string_buffer(name.encode())  # a capsule keeps the address of its name
         for name in ("dltensor", "dltensor_versioned", "dlpack_exchange_api", "used_dltensor")}


def new_capsule(what, name):
    return _capsule(c.addressof(what), c.addressof(NAMES[name]), None)


def check(result):
    assert result == 0, "the fake driver answered %d" % result


def start(device=0):
    """Opens the fake driver and makes the device's primary context current on this thread."""
    context = c.c_void_p()
    check(CUDA.cuInit(0))
    check(CUDA.cuDevicePrimaryCtxRetain(c.byref(context), device))
    check(CUDA.cuCtxPushCurrent_v2(context))
    return context


class Memory:
    """Device memory, freed with its last tensor."""

    def __init__(self, size, device):
        address = c.c_uint64()
        here = c.c_int()
        check(CUDA.cuCtxGetDevice(c.byref(here)))
        assert here.value == device, "the test's context is another device's"
        check(CUDA.cuMemAlloc_v2(c.byref(address), c.c_size_t(max(size, 1))))
        self.address = address.value

    def __del__(self):
        CUDA.cuMemFree_v2(c.c_uint64(self.address))


def contiguous(shape):
    strides, step = [], 1
    for size in reversed(shape):
        strides.insert(0, step)
        step *= size
    return strides


class Capsuled:
    """A tensor of float16 (or another type), on the fake device or said to be elsewhere."""

    def __init__(self, shape, values=None, dtype=(FLOAT, 16), device=(DEVICE, 0), strides=None,
                 memory=None, flags=0, old=False, offset=0):
        self.shape, self.dtype, self.device = tuple(shape), dtype, device
        self.strides = list(strides) if strides is not None else contiguous(shape)
        self.flags, self.old, self.offset = flags, old, offset
        self.asked = []  # what __dlpack__ was asked for
        size = dtype[1] // 8
        for length in shape:
            size *= length
        self.memory = memory if memory is not None else (
            Memory(size, device[1]) if device[0] == DEVICE else None)
        if values is not None:
            self.write(values)

    def write(self, values):
        raw = struct.pack("<%d%s" % (len(values), LETTERS[self.dtype]), *values)
        check(CUDA.cuMemcpyHtoD_v2(c.c_uint64(self.memory.address), raw, c.c_size_t(len(raw))))

    def read(self):
        count = 1
        for length in self.shape:
            count *= length
        count *= 2 if self.dtype[0] == COMPLEX else 1
        raw = c.create_string_buffer(count * struct.calcsize(LETTERS[self.dtype]))
        check(CUDA.cuMemcpyDtoH_v2(raw, c.c_uint64(self.memory.address), c.c_size_t(len(raw))))
        return struct.unpack("<%d%s" % (count, LETTERS[self.dtype]), raw.raw)

    def describe(self, to):
        """Fills in a DlTensor; the arrays it points to live as long as this object."""
        self.arrays = ((c.c_int64 * len(self.shape))(*self.shape),
                       (c.c_int64 * len(self.shape))(*self.strides))
        to.data = self.memory.address if self.memory is not None else 64
        to.device = Device(*self.device)
        to.ndim = len(self.shape)
        to.dtype = Dtype(*self.dtype, 1)
        to.shape, to.strides = (c.cast(array, c.POINTER(c.c_int64)) for array in self.arrays)
        to.byte_offset = self.offset

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, stream=None, **more):
        self.asked.append((stream, more.get("max_version")))
        if self.old:
            if more:
                raise TypeError("__dlpack__() got an unexpected keyword argument")
            self.bare = (DlTensor * 2)()
            self.describe(self.bare[0])
            return new_capsule(self.bare, "dltensor")
        self.managed = Managed(1, 0, None, DELETER(), self.flags)
        self.describe(self.managed.tensor)
        return new_capsule(self.managed, "dltensor_versioned")


class Exchanged(Capsuled):
    """The same with the exchange table of C functions, which the calls must take."""

    stream = 0  # that is current in this library
    made = []   # tensors allocated for somebody, by the address of their description

    def __dlpack__(self, *_, **__):
        raise AssertionError("the exchange table was there to be taken")


def _made(managed):
    """The tensor of a description, which is no longer ours."""
    tensor = next(t for t in Exchanged.made if c.addressof(t.managed) == c.addressof(managed.contents))
    Exchanged.made.remove(tensor)
    return tensor


@DELETER
def FREE(managed):
    _made(managed)


def _allocate(prototype, ret, _error, _set_error):
    p = prototype.contents
    tensor = Exchanged([p.shape[i] for i in range(p.ndim)], dtype=(p.dtype.code, p.dtype.bits),
                       device=(p.device.type, p.device.id))
    tensor.managed = Managed(1, 2, None, FREE, 0)
    tensor.describe(tensor.managed.tensor)
    Exchanged.made.append(tensor)
    ret[0] = c.pointer(tensor.managed)
    return 0


def _to_object(managed, ret):
    tensor = _made(managed)
    c.pythonapi.Py_IncRef(c.py_object(tensor))
    ret[0] = id(tensor)
    return 0


def _borrow(tensor, ret):
    tensor.describe(ret.contents)
    return 0


def _stream(_type, _device, ret):
    ret[0] = Exchanged.stream
    return 0


def _from_object(_tensor, _ret):
    raise AssertionError("borrowing is enough")


TABLE = Exchange(1, 2, None, ALLOCATE(_allocate), FROM_OBJECT(_from_object), TO_OBJECT(_to_object),
                 BORROW(_borrow), STREAM(_stream))
Exchanged.__dlpack_c_exchange_api__ = new_capsule(TABLE, "dlpack_exchange_api")
