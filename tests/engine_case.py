# SPDX-License-Identifier: Apache-2.0
"""Cases of serving engines' backends: stand-ins of as much of torch as fa_tune's backends use, on the fake driver, and steps
of paged and latent attention. The engines themselves are not here, so that a change of their interfaces is not seen."""
import math
import struct
import sys
import types

import tap
from attention_case import DIM
from serving_case import Ragged
import producer
from producer import Exchanged

PAGE, MOST = 16, 48
INT32, FLOAT16, FLOAT32 = (producer.INT, 32), (producer.FLOAT, 16), (producer.FLOAT, 32)
registered = {}  # with the engine, by name


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
        """All numbers from the first element to the last one, gaps too, and how they are packed."""
        kind = "<%d%s" % (max(places, default=-1) + 1, producer.LETTERS[self.dtype])
        raw = producer.c.create_string_buffer(struct.calcsize(kind))
        producer.check(producer.CUDA.cuMemcpyDtoH_v2(raw, producer.c.c_uint64(self.memory.address + self.offset),
                                                     producer.c.c_size_t(len(raw))))
        return list(struct.unpack(kind, raw)), kind

    def numbers(self):
        places = self._places()
        flat, _ = self._reach(places)
        return [flat[place] for place in places]

    def rows(self):
        flat, width = self.numbers(), self.shape[1]
        return [flat[i:i + width] for i in range(0, len(flat), width)]

    def copy_(self, other):
        places = self._places()
        flat, kind = self._reach(places)
        for place, value in zip(places, other.numbers()):
            flat[place] = value
        raw = struct.pack(kind, *flat)
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


def joined(parts, dim):
    """torch.cat() of the last dimension."""
    tap.equal(dim, -1)
    rows = zip(*(zip(*[iter(part.numbers())] * part.shape[-1]) for part in parts))
    return Tensor((*parts[0].shape[:-1], sum(part.shape[-1] for part in parts)), [x for row in rows for one in row for x in one])


stand_in("torch", Tensor=Tensor, arange=arange, OutOfMemoryError=MemoryError, uint8=(1, 8), int64=(0, 64), float16=FLOAT16, bfloat16=(producer.BFLOAT, 16), float8_e4m3fn=(10, 8), int32=INT32,
         float32=FLOAT32, ones=ones, cumsum=cumsum, zeros=zeros, empty_like=empty_like, contiguous_format="contiguous",
         is_grad_enabled=lambda: False, cat=lambda parts, dim: joined(parts, dim), cuda=types.SimpleNamespace(is_initialized=lambda: False))


def ints(values):
    return Tensor((len(values),), values, dtype=INT32)


class Abstract:
    """Of vLLM's and SGLang's abstract classes what their heirs call."""

    def __init__(self, *args):
        self.given = args

    def process_weights_after_loading(self, _dtype):
        pass


def paged(case):
    """(k, v, table) as Tensor, a page for nobody first."""
    k, v, table = case.pages(PAGE, MOST)
    return [Tensor(t.shape, memory=t.memory, dtype=t.dtype) for t in (k, v, table)]


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


def refused(kind, call, *args, **how):
    return str(tap.refused(kind, "", lambda: call(*args, **how)))
