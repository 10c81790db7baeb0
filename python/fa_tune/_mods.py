# SPDX-License-Identifier: Apache-2.0
"""Functions in place of the texts score and mask: score(score, b, h, q, k) and mask(b, h, q, k), as FlexAttention has them.

A function is called once with names instead of numbers, and what it computes becomes a text. Tensors that it has captured become
buffers, and so do numbers: another tensor or number of a later call compiles nothing, and is not traced again.
"""
import functools
import math
import re
import sys
import types

from ._errors import ArgumentError, NotSupported, shown

ARGUMENTS = {"score": ("score", "b", "h", "q", "k"), "mask": ("b", "h", "q", "k")}
_SIMPLE = re.compile(r"[\s()qk0-9<>=+-]|and")  # what the fields causal and window can say
_CAP = re.compile(r"([\w.]+)\*tanh\((?:score/\1|\(score/\1\))\)")
_CAP_NAME = re.compile(r"\W*([\w.]+)")
_CONSTANT = object()  # the numbers belong to the key, too
_kept = {}  # what functions became, by their code and the kinds of what they have captured


class _NotLifted(Exception):
    """A captured number decides what the function does: it stays a constant."""


class _Expr:
    """What a function computes, as text; kind: "bool", "int" or "float"."""

    device = None  # which functions hand on

    def __init__(self, text, kind, trace):
        self.text, self.kind, self.trace = text, kind, trace

    @property
    def dtype(self):
        torch = sys.modules.get("torch")
        return torch and {"bool": torch.bool, "int": torch.int32, "float": torch.float32}[self.kind]

    @classmethod
    def __torch_function__(cls, func, _, args=(), kwargs=None):
        return _called(func, args, kwargs or {})

    def __bool__(self):
        raise _NotLifted("%s is asked for its truth, which is not known before the kernel runs: write torch.where" % self.text)

    def __index__(self):
        raise _NotLifted("%s is used as a number that is known" % self.text)

    __int__ = __float__ = __index__

    def _two(self, other, operator, kind=None, swapped=False):
        other = _wrap(other, self.trace)
        if isinstance(other, _Row):
            return other.each(lambda x: self._two(x, operator, kind, swapped))
        a, b = (other, self) if swapped else (self, other)
        if operator in ("*", "<<"):
            a, b = a._narrow(), b._narrow()
        if operator in ("&", "|") and "bool" == a.kind == b.kind:
            operator, kind = {"&": "and", "|": "or"}[operator], "bool"
            if a.text == _number(operator == "and")[0]:  # as FlexAttention's and_masks begins
                return b
        kind = kind or ("float" if "float" in (a.kind, b.kind) else "int")
        if operator in ("+", "-") and b.text == "0" and a.kind != "bool":  # as functions for chunks add where they begin
            return a
        return _Expr("(%s %s %s)" % (a.text, operator, b.text), kind, self.trace)

    def __xor__(self, other):
        return self._two(other, "!=", "bool") if "bool" == self.kind == _wrap(other, self.trace).kind else (self & ~_wrap(other, self.trace)) | (~self & other)

    __rxor__ = __xor__

    def _narrow(self):
        """In a product: of int64, numbers of 32 bits, as places and lengths are, so that the product has 64."""
        text, before = self.text if self.trace.wide and self.kind == "int" else "", None
        while text != before:
            text, before = re.sub(r"\[[^][]*\]", "", text), text
        if self.trace.wide.isdisjoint(re.findall(r"\w+", text)):
            return self
        return _Expr("min(max(%s, -2147483648), 2147483647)" % self.text, "int", self.trace)

    def _one(self, function, kind=None):
        return _Expr("%s(%s)" % (function, self.text), kind or self.kind, self.trace)

    def __invert__(self):
        return _Expr("(not %s)" % self.text, "bool", self.trace) if self.kind == "bool" else self._one("~")

    def __neg__(self):
        return _Expr("(-%s)" % self.text, "float" if self.kind == "float" else "int", self.trace)

    def __pos__(self):
        return self

    def __abs__(self):
        return self._one("abs")

    abs = __abs__

    def to(self, *args, **kwargs):
        """Of a type, a device, both, or another tensor's."""
        for x in (*args, kwargs.get("dtype"), kwargs.get("other")):
            kind = re.match("(bool)|(b?float|half|double)|u?int|long|short|byte|char", str(getattr(x, "dtype", x)).rpartition(".")[2].lower())
            if kind:
                return self.bool() if kind[1] else self.float() if kind[2] else self.int()
        return self

    def float(self):
        return self._one("float", "float")

    def int(self):
        return self._one("int", "int")

    long, type, type_as, half, double, bfloat16 = int, to, to, float, float, float

    def bool(self):
        return self if self.kind == "bool" else self._two(0, "!=", "bool")

    def __getattr__(self, name):
        if name in _FUNCTIONS and not name.startswith("_"):
            return lambda *more, **named: _applied(name, self, *more, **named)
        raise AttributeError("what score and mask are computed of has no %s" % name)

    __hash__ = None


class _Row:
    """Numbers beside one another: a captured tensor with fewer indices than dimensions, or torch.stack() of names. What is computed of it is
    computed of each of them, and becomes one number by any, sum and the like."""

    MOST, device = 32, None

    def __init__(self, numbers, trace):
        self.numbers, self.trace = numbers, trace

    __torch_function__ = _Expr.__torch_function__
    __hash__ = None

    @property
    def text(self):
        raise NotSupported("a row of numbers is used as one: reduce it, by any() or sum(), or give it an index")

    kind = text

    def each(self, function, *others):
        rows = [self, *(x for x in others if isinstance(x, _Row))]
        if len({len(x.numbers) for x in rows}) > 1:
            raise NotSupported("rows of %s numbers are computed with one another" % " and ".join(str(len(x.numbers)) for x in rows))
        return _Row([function(x, *(other.numbers[i] if isinstance(other, _Row) else other for other in others)) for i, x in enumerate(self.numbers)], self.trace)

    def __getitem__(self, index):
        if not isinstance(index, int):
            raise NotSupported("a row that is computed has whole numbers as indices")
        return self.numbers[index]

    def __len__(self):
        return len(self.numbers)

    def __iter__(self):
        return iter(self.numbers)

    def __neg__(self):
        return self.each(lambda x: -x)

    def __invert__(self):
        return self.each(lambda x: ~x)

    def __abs__(self):
        return self.each(abs)

    def __getattr__(self, name):
        if name in _REDUCED or name in _FUNCTIONS:
            return lambda *more, **named: _applied(name, self, *more, **named)
        if name in ("to", "float", "int", "long", "bool", "type", "type_as", "half", "double", "bfloat16"):
            return lambda *more, **named: self.each(lambda x: getattr(x, name)(*more, **named))
        raise AttributeError("rows of a score or mask have no %s" % name)


def _operators():
    kinds = {"truediv": ("/", "float"), "lt": ("<", "bool"), "le": ("<=", "bool"), "gt": (">", "bool"), "ge": (">=", "bool"),
             "eq": ("==", "bool"), "ne": ("!=", "bool"), "add": ("+", None), "sub": ("-", None), "mul": ("*", None), "mod": ("%", None),
             "floordiv": ("//", None), "pow": ("**", "float"), "and": ("&", None), "or": ("|", None), "lshift": ("<<", "int"),
             "rshift": (">>", "int")}
    for name, (text, kind) in kinds.items():
        def forward(self, other, text=text, kind=kind):
            return self._two(other, text, kind)

        def backward(self, other, text=text, kind=kind):
            return self._two(other, text, kind, True)
        for begin, function in (("__", forward), ("__r", backward)):
            setattr(_Expr, "%s%s__" % (begin, name), function)
            setattr(_Row, "%s%s__" % (begin, name), lambda self, other, name="%s%s__" % (begin, name): self.each(lambda a, b: getattr(a, name)(b), other))


_operators()


def _number(x):
    if isinstance(x, bool):
        return ("(0 == 0)" if x else "(0 == 1)"), "bool"
    if isinstance(x, int):
        return ("%d" if x >= 0 else "(%d)") % x, "int"
    if math.isinf(x):
        return ("exp(10000)" if x > 0 else "(-exp(10000))"), "float"
    if math.isnan(x):
        return "(exp(10000) - exp(10000))", "float"
    text, e, power = repr(abs(x)).partition("e")
    text = (text if "." in text else text + ".0") + e + power
    return (text if x >= 0 else "(-%s)" % text), "float"


def _is_tensor(x):
    return not isinstance(x, type) and hasattr(x, "__dlpack__") and hasattr(x, "dtype") and hasattr(x, "shape")


def _wrap(x, trace):
    if isinstance(x, (_Expr, _Row)):
        return x
    if isinstance(x, (int, float)):
        return _Expr(*_number(x), trace)
    if _is_tensor(x):
        return _load(x, (), trace)
    raise NotSupported("a score or mask cannot compute with %r" % (x,))


class _Part(_Row):
    """A tensor that lacks indices."""

    def __init__(self, tensor, index, trace):  # pylint: disable=super-init-not-called
        self.tensor, self.index, self.trace = tensor, index, trace

    @property
    def numbers(self):
        many, self.trace.has_sized = self.shape[0], True
        if not isinstance(many, int) or many > self.MOST:
            raise NotSupported("a tensor of %d dimensions is used without an index, and has more than %d elements beside one another: write x[h], x[b, q, k]" % (
                len(self.tensor.shape), self.MOST))
        return [self[i] for i in range(many)]

    @property
    def shape(self):
        self.trace.has_sized = True
        return self.tensor.shape[len(self.index):]

    def size(self, axis=None):
        return self.shape if axis is None else self.shape[axis]

    def numel(self):
        return math.prod(self.shape)

    def __getitem__(self, index):
        return _load(self.tensor, self.index + (index if isinstance(index, tuple) else (index,)), self.trace)


def _made(tensor, trace):
    """What a function made without indices that are names: an element of a tensor that it has captured, or a number; else None."""
    base, at = getattr(tensor, "_base", None), []
    if any(leaf is tensor for leaf in trace.leaves):
        return None
    if any(leaf is base for leaf in trace.leaves) and base.is_contiguous():
        trace.has_sized, ahead = True, tensor.storage_offset() - base.storage_offset()
        for size in reversed(base.shape):
            at, ahead = [ahead % size, *at], ahead // size
        return _load(base, tuple(at), trace)
    known = tensor if type(tensor).__name__ == "Tensor" else getattr(tensor, "constant", None)  # a compiler's
    return None if known is None or not known.is_cpu or known.requires_grad else _wrap(known.item(), trace)


def _load(tensor, index, trace):
    dims = len(tensor.shape)
    if not dims and not index and (made := _made(tensor, trace)) is not None:
        return made
    if len(index) < dims:
        return _Part(tensor, index, trace)
    if len(index) > dims:
        raise ArgumentError("a tensor of %d dimensions has %d indices" % (dims, len(index)))
    name, word = trace.name_of(tensor), str(tensor.dtype)
    if "int64" in word:
        trace.wide.add(name)
    text = name + "".join("[%s]" % trace.index(_wrap(i, trace).text, size) for i, size in zip(index, tensor.shape))
    if "bool" in word:
        return _Expr("(%s != 0)" % text, "bool", trace)
    return _Expr(text, "int" if "int" in word else "float", trace)


def _where(condition, a, b):
    trace = next(x.trace for x in (condition, a, b) if isinstance(x, _Expr))
    condition, a, b = (_wrap(x, trace) for x in (condition, a, b))
    kind = "float" if "float" in (a.kind, b.kind) else a.kind if a.kind == b.kind else "int"
    return _Expr("(%s if %s else %s)" % (a.text, condition.text, b.text), kind, trace)


def _of_two(name):
    def call(a, b):
        trace = a.trace if isinstance(a, _Expr) else b.trace
        a, b = _wrap(a, trace), _wrap(b, trace)
        return _Expr("%s(%s, %s)" % (name, a.text, b.text), "float" if "float" in (a.kind, b.kind) else "int", trace)
    return call


_min, _max = _of_two("min"), _of_two("max")


def _div(a, b, rounding_mode=None):
    whole = isinstance(a, _Expr) and a.kind != "float" and getattr(b, "kind", type(b).__name__) in ("int", "bool")
    if rounding_mode == "floor":
        return _FUNCTIONS["floor_divide"](a, b) if whole else _div(a, b)._one("floor", "float")
    if rounding_mode == "trunc":
        return _where(a * b < 0, -_div(-a, b, "floor"), _div(a, b, "floor")) if whole else _trunc(_div(a, b))
    if rounding_mode is not None:
        raise NotSupported("a score or mask cannot be computed by torch's div with rounding_mode=%r" % (rounding_mode,))
    return _FUNCTIONS["true_divide"](a, b)


def _rounded(function):
    """Whole numbers are as they are."""
    return lambda x: function(x) if x.kind == "float" else x


_floor = _rounded(lambda x: x._one("floor", "float"))
_ceil = _rounded(lambda x: -_floor(-x))
_trunc = _rounded(lambda x: _where(x < 0, _ceil(x), _floor(x)))
_round = _rounded(lambda x: _floor(x + 0.5) - ((x - _floor(x) == 0.5) & (_floor(x) % 2 == 0)).int())  # half to even


def _of_one(name):
    return lambda x: x._one(name, "float")


_exp, _log, _tanh, _sqrt = map(_of_one, ("exp", "log", "tanh", "sqrt"))


def _sigmoid(x):
    return 1 / (1 + _exp(-x))


def _scaled(operator):
    """torch.add and torch.sub: of alpha times the other."""
    return lambda a, b, alpha=1: _FUNCTIONS[operator](a, b if alpha == 1 else b * alpha)


def _erf(x):
    """Within 1.5e-7 (Abramowitz and Stegun, 7.1.26)."""
    t, made = 1 / (1 + 0.3275911 * abs(x)), 1.061405429
    for factor in (-1.453152027, 1.421413741, -0.284496736, 0.254829592, 0.0):
        made = made * t + factor
    return _sign(x) * (1 - made * _exp(-(x * x)))


def _gelu(x, approximate="none"):
    if approximate == "none":
        return 0.5 * x * (1 + _erf(x * math.sqrt(0.5)))
    return 0.5 * x * (1 + _tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


def _softplus(x, beta=1, threshold=20):
    return _where(x * beta > threshold, x, _log(1 + _exp(x * beta)) / beta)


def _elu(x, alpha=1.0, inplace=False, scale=1.0, input_scale=1.0):  # pylint: disable=unused-argument
    return _where(x > 0, scale * x if scale != 1 else x, alpha * scale * (_exp(x * input_scale if input_scale != 1 else x) - 1))


def _nan_to_num(x, nan=0.0, posinf=None, neginf=None):
    most = 3.4028234663852886e38
    finite = _where(x == math.inf, most if posinf is None else posinf, _where(x == -math.inf, -most if neginf is None else neginf, x))
    return _where(x != x, nan, finite)


def _clamp(x, min=None, max=None):  # pylint: disable=redefined-builtin
    x = x if min is None else _max(x, min)
    return x if max is None else _min(x, max)


def _dunder(name):
    return lambda a, b: getattr(_wrap(a, b.trace) if not isinstance(a, _Expr) else a, name)(b)


def _sign(x):
    return (x > 0).int() - (x < 0).int()


_FUNCTIONS = {
    "where": _where, "minimum": _min, "maximum": _max, "min": _min, "max": _max, "clamp": _clamp, "clip": _clamp,
    "clamp_min": _max, "clamp_max": _min, "abs": abs, "absolute": abs, "masked_fill": lambda x, mask, value: _where(mask, value, x),
    "div": _div, "divide": _div, "neg": lambda x: -x, "negative": lambda x: -x, "positive": lambda x: x, "clone": lambda x: x, "squeeze": lambda x: x,
    "floor": _floor, "ceil": _ceil, "trunc": _trunc, "fix": _trunc, "round": _round, "frac": lambda x: x - _trunc(x),
    "fmod": lambda a, b: a - _div(a, b, "trunc") * b, "sign": _sign, "sgn": _sign, "tanh": _tanh, "sqrt": _sqrt,
    "exp": _exp, "log": _log, "exp2": lambda x: _exp(x * math.log(2)), "expm1": lambda x: _exp(x) - 1, "log2": lambda x: _log(x) * (1 / math.log(2)),
    "log10": lambda x: _log(x) * (1 / math.log(10)), "log1p": lambda x: _log(1 + x), "sinh": lambda x: 0.5 * (_exp(x) - _exp(-x)),
    "cosh": lambda x: 0.5 * (_exp(x) + _exp(-x)), "logaddexp": lambda a, b: _max(a, b) + _log(1 + _exp(-abs(a - b))),
    "square": lambda x: x * x, "rsqrt": lambda x: 1 / _sqrt(x), "hypot": lambda a, b: _sqrt(a * a + b * b),
    "reciprocal": lambda x: 1 / x, "lerp": lambda a, b, weight: a + weight * (b - a), "addcmul": lambda a, b, c, value=1: a + value * b * c,
    "relu": lambda x, inplace=False: _max(x, 0), "relu6": lambda x, inplace=False: _clamp(x, 0, 6), "gelu": _gelu,
    "hardtanh": lambda x, min_val=-1.0, max_val=1.0, inplace=False: _clamp(x, min_val, max_val), "sigmoid": _sigmoid,
    "silu": lambda x, inplace=False: x * _sigmoid(x), "logsigmoid": lambda x: _min(x, 0) - _log(1 + _exp(-abs(x))),
    "softplus": _softplus, "mish": lambda x, inplace=False: x * _tanh(_softplus(x)), "softsign": lambda x: x / (1 + abs(x)),
    "celu": lambda x, alpha=1.0, inplace=False: _elu(x, alpha, input_scale=1 / alpha), "selu": lambda x, inplace=False: _elu(x, 1.6732632423543772, scale=1.0507009873554805),
    "threshold": lambda x, threshold, value, inplace=False: _where(x > threshold, x, value), "hardshrink": lambda x, lambd=0.5: _where(abs(x) > lambd, x, 0.0),
    "softshrink": lambda x, lambd=0.5: _sign(x) * _max(abs(x) - lambd, 0.0), "tanhshrink": lambda x: x - _tanh(x),
    "special_expit": _sigmoid, "erf": _erf, "special_erf": _erf, "nan_to_num": _nan_to_num,
    "hardsigmoid": lambda x, inplace=False: _clamp(x / 6 + 0.5, 0, 1), "hardswish": lambda x, inplace=False: x * _clamp(x / 6 + 0.5, 0, 1),
    "leaky_relu": lambda x, negative_slope=0.01, inplace=False: _where(x > 0, x, x * negative_slope),
    "elu": _elu,
    "isnan": lambda x: x != x, "isinf": lambda x: abs(x) == math.inf, "isfinite": lambda x: abs(x) < math.inf,
    "embedding": lambda index, weight, *_, **__: _load(weight, (index,), index.trace),
    "add": _scaled("plus"), "sub": _scaled("minus"), "subtract": _scaled("minus"),
    "logical_and": lambda a, b: _FUNCTIONS["bitwise_and"](a.bool(), b.bool()), "logical_xor": lambda a, b: a.bool() ^ b.bool(),
    "logical_or": lambda a, b: _FUNCTIONS["bitwise_or"](a.bool(), b.bool()), "logical_not": lambda x: ~x.bool(),
    "bitwise_not": lambda x: ~x, "invert": lambda x: ~x, "new_tensor": lambda x, value, **__: _wrap(value, x.trace),
    "zeros_like": lambda x, **__: _wrap({"bool": False, "int": 0}.get(x.kind, 0.0), x.trace),
    "ones_like": lambda x, **__: _wrap({"bool": True, "int": 1}.get(x.kind, 1.0), x.trace),
    "full_like": lambda x, value, **__: _wrap(float(value) if x.kind == "float" else value, x.trace),
    "new_ones": lambda x, *_, dtype=None, **__: _wrap("bool" in str(dtype) or 1, x.trace),
    "new_zeros": lambda x, *_, dtype=None, **__: _wrap(0 if "bool" not in str(dtype) else False, x.trace),
    **{name: _dunder("__%s__" % name) for name in ("and", "or", "xor", "lshift", "rshift", "floordiv")},
    **{name: _dunder("__%s__" % operator) for name, operator in {
        "plus": "add", "minus": "sub", "mul": "mul", "multiply": "mul", "true_divide": "truediv", "floor_divide": "floordiv", "remainder": "mod", "pow": "pow", "eq": "eq", "ne": "ne", "lt": "lt",
        "le": "le", "gt": "gt", "ge": "ge", "greater": "gt", "greater_equal": "ge", "less": "lt", "less_equal": "le",
        "not_equal": "ne", "bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor", "bitwise_left_shift": "lshift", "bitwise_right_shift": "rshift"}.items()},
}


def _numbers(x):
    """All numbers of a row, whose numbers may be rows; one is a row of itself."""
    return [number for one in x for number in _numbers(one)] if isinstance(x, _Row) else [x]


def _folded(function, begin=lambda x: x):
    def call(x, dim=None, keepdim=False, dtype=None):
        if keepdim or dim not in (None, 0, -1) or isinstance(x, _Row) and dim is not None and any(isinstance(one, _Row) for one in x):
            raise NotSupported("a score or mask reduces a row to one number, without keepdim")
        made = functools.reduce(function, map(begin, _numbers(x)))
        return made if dtype is None else made.to(dtype)
    return call


def _whole(x):
    return x.int() if x.kind == "bool" else x


_sum = _folded(lambda a, b: a + b, _whole)


def _norm(x, p=2, dim=None, keepdim=False, dtype=None, out=None):  # pylint: disable=unused-argument
    if p not in (2, "fro"):
        raise NotSupported("a score or mask cannot be computed by torch's norm but with p=2")
    return _sqrt(_sum(x * x, dim, keepdim, dtype))


def _places(bounds, x, right):
    """How many of some numbers that grow are less than x; right: or as large."""
    return _sum(_wrap(bounds, x.trace).each(lambda bound: bound <= x if right else bound < x))


_REDUCED = {
    "any": _folded(lambda a, b: a | b, lambda x: x.bool()), "all": _folded(lambda a, b: a & b, lambda x: x.bool()), "sum": _sum,
    "prod": _folded(lambda a, b: a * b, _whole), "amax": _folded(_max), "amin": _folded(_min), "mean": lambda x, *dim: _sum(x, *dim) / len(_numbers(x)),
    "dot": lambda a, b: _sum(a * b), "norm": _norm, "stack": lambda x, dim=0: _Row(list(x), next(one.trace for one in x if isinstance(one, (_Expr, _Row)))),
    "isin": lambda x, of: _REDUCED["any"](_wrap(of, x.trace).each(lambda one: one == x)), "bucketize": lambda x, bounds, right=False, **_: _places(bounds, x, right),
    "searchsorted": lambda bounds, x, right=False, side=None, **_: _places(bounds, x, right or side == "right"),
}


def _applied(name, *args, **kwargs):
    if name in ("max", "min") and len(args) == 1 and not kwargs:
        name = "a" + name
    try:
        if name in _REDUCED:
            return _REDUCED[name](*args, **kwargs)
        row = next((x for x in args if isinstance(x, _Row)), None)
        if row is not None:
            trace, at = row.trace, next(i for i, x in enumerate(args) if x is row)
            others = [_wrap(x, trace) if _is_tensor(x) else x for x in args]
            return row.each(lambda x, *rest: _FUNCTIONS[name](*rest[:at], x, *rest[at:], **kwargs), *others[:at], *others[at + 1:])
        return _FUNCTIONS[name](*args, **kwargs)
    except TypeError as error:
        raise NotSupported("a score or mask cannot be computed by torch's %s as it is called: %s" % (name, error)) from None


def _called(func, args, kwargs):
    name = {"log_sigmoid": "logsigmoid"}.get(name := getattr(func, "__name__", "").strip("_"), name)
    if name == "getitem":
        tensor, index = args
        index = index if isinstance(index, tuple) else (index,)
        trace = next(i.trace for i in index if isinstance(i, (_Expr, _Row)))
        return _load(tensor, index, trace)
    if name[:1] == "r" and name[1:] in _FUNCTIONS and name not in _FUNCTIONS:  # Tensor.__rsub__
        name, args = name[1:], args[::-1]
    if name in ("to", "float", "int", "long", "bool", "type", "type_as") and isinstance(args[0], (_Expr, _Row)):
        return getattr(args[0], name)(*args[1:], **kwargs)
    if name not in _FUNCTIONS and name not in _REDUCED:
        raise NotSupported("a score or mask cannot be computed by torch's %s; there are %s" % (name, ", ".join(sorted({*_FUNCTIONS, *_REDUCED}))))
    return _applied(name, *args, **kwargs)


def _modes():
    """Makes torch ask for what it does to tensors, of which indices may be names. Without PyTorch nothing."""
    if "torch" not in sys.modules:
        return None
    from torch.overrides import TorchFunctionMode

    class Mode(TorchFunctionMode):
        has_read = has_sized = False  # a tensor's value, or its sizes, which may be others in the next call

        def __torch_function__(self, func, _, args=(), kwargs=None):
            name = getattr(func, "__name__", "").strip("_")
            self.has_read |= name in ("item", "tolist", "numpy", "float", "int", "bool", "index", "contains")
            self.has_sized |= name in ("get", "size", "len", "numel", "nelement", "stride") and args[0].dim() > 0
            flat = [x for a in args for x in (a if isinstance(a, (tuple, list)) else (a,))]
            if any(isinstance(x, (_Expr, _Row)) for x in flat + list((kwargs or {}).values())):
                return _called(func, args, kwargs or {})
            return func(*args, **(kwargs or {}))
    return Mode()


# ---- what functions have captured ---------------------------------------------------------------
_NO_STATE = ("torch", "numpy", "math", "builtins")  # packages whose functions and numbers never change, unless they have captured some


def _names(code):
    """The names of globals and attributes in a code and in the functions within it, each once."""
    names = dict.fromkeys(code.co_names)
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            names.update(_names(inner))
    return names


def _parts(function):
    """Code, cells, globals by name, defaults, and those of keywords."""
    code, found = function.__code__, function.__globals__
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    names = [name for name in _names(code) if name in found]
    return code, cells, names, list(function.__defaults__ or ()), function.__kwdefaults__ or {}


def _has_no_state(x):
    name = x.__name__ if isinstance(x, types.ModuleType) else getattr(x, "__module__", None)
    return isinstance(name, str) and name.partition(".")[0] in _NO_STATE and not getattr(x, "__closure__", None)


def _is_liftable(x):
    return isinstance(x, float) or -1 << 31 <= x < 1 << 31  # what a buffer's number can be


def _walk_attributes(x, kinds, depth, names, seen):
    """What code with these names may read of a module or class: numbers are constants, and what has tensors is traced anew."""
    seen = seen if None in seen else {**seen, None: 0}  # what is found here has no leaves, as it may have elsewhere
    for name in names:
        holder = next((c for c in getattr(x, "__mro__", (x,)) if name in vars(c)), None)
        held = []
        if holder is not None:
            try:
                _walk(vars(holder)[name], held, kinds, depth + 1, names, seen)
            except NotSupported:
                kinds.append(object())
        kinds += [object() if _is_tensor(value) else value for value in held]


def _walk(x, leaves, kinds, depth=0, names=(), seen=None):
    """Appends to `leaves` the numbers and tensors that a function has, always in one order, and to `kinds` what tracing depends on.

    names: those in the code that x was found in; seen: functions, modules and classes that are not walked again."""
    seen = {} if seen is None else seen
    if depth > 16:
        raise NotSupported("functions of a score or mask are nested more than 16 deep")
    if isinstance(x, bool) or x is None or isinstance(x, str):
        kinds.append(x)
    elif isinstance(x, (int, float)):
        leaves.append(x)
        kinds.append(type(x) if _is_liftable(x) else x)
    elif _is_tensor(x):
        leaves.append(x)  # which may be there twice, under one name
        kinds.append((x.dtype, len(x.shape), next(i for i, leaf in enumerate(leaves) if leaf is x)))
    elif id(x) in seen:
        kinds.append(seen[id(x)])
    elif isinstance(x, types.FunctionType) and not _has_no_state(x):
        seen[id(x)] = len(seen)
        code, cells, found, defaults, keywords = _parts(x)
        kinds += [code, *keywords]
        for value in cells + [x.__globals__[name] for name in found] + defaults + list(keywords.values()):
            _walk(value, leaves, kinds, depth + 1, _names(code), seen)
    elif isinstance(x, (tuple, list)):
        kinds.append(len(x))
        for value in x:
            _walk(value, leaves, kinds, depth + 1, names, seen)
    elif isinstance(x, (types.ModuleType, type, types.FunctionType, types.BuiltinFunctionType)):
        seen[id(x)] = len(seen)
        kinds.append(x)
        if isinstance(x, (types.ModuleType, type)) and not _has_no_state(x):
            _walk_attributes(x, kinds, depth, names, seen)
    elif type(x).__module__ == "torch" and type(x).__name__ == "dtype":
        kinds.append(x)
    else:
        kinds.append(object())  # what may change unseen: it is traced anew


class _Trace:
    """One function being traced. lifted: captured numbers are buffers too."""

    def __init__(self, leaves, prefix, lifted):
        self.leaves, self.prefix, self.lifted = leaves, prefix, lifted
        self.used = {}     # by name: which leaf, or a tensor that is none
        self.made = {}     # by the id of a function what stands for it
        self.wide = set()  # names of tensors of int64
        self.next, self.has_read, self.has_sized = 0, False, False

    @staticmethod
    def index(text, _):
        return text

    def name_of(self, tensor):
        for i, leaf in enumerate(self.leaves):
            if leaf is tensor:
                name = "%s%d" % (self.prefix, i)
                self.used[name] = i
                return name
        for name, other in self.used.items():
            if other is tensor:
                return name
        name = "%so%d" % (self.prefix, len(self.used))
        self.used[name] = tensor
        return name

    def rebuilt(self, x):
        """The same with names in place of numbers, in the order of _walk()."""
        if isinstance(x, bool) or x is None or isinstance(x, str):
            return x
        if isinstance(x, (int, float)):
            i, self.next = self.next, self.next + 1
            return _Lifted("%s%d" % (self.prefix, i), "int" if isinstance(x, int) else "float", self, i) if self.lifted and _is_liftable(x) else x
        if _is_tensor(x):
            self.next += 1
            return x
        if isinstance(x, types.FunctionType) and not _has_no_state(x):
            if id(x) in self.made:
                return self.made[id(x)]
            code, cells, names, defaults, keywords = _parts(x)
            own, space = [types.CellType() for _ in cells], dict(x.__globals__)
            made = self.made[id(x)] = types.FunctionType(code, space, x.__name__, None, tuple(own) or None)
            for cell, value in zip(own, cells):
                cell.cell_contents = self.rebuilt(value)
            space.update((name, self.rebuilt(x.__globals__[name])) for name in names)
            made.__defaults__ = tuple(self.rebuilt(value) for value in defaults) or None
            made.__kwdefaults__ = {name: self.rebuilt(value) for name, value in keywords.items()} or None
            return made
        if isinstance(x, (tuple, list)):
            return type(x)(map(self.rebuilt, x)) if type(x) in (tuple, list) else x
        return x


class _Lifted(_Expr):
    """A captured number, which is a buffer once its text is used."""

    def __init__(self, name, kind, trace, leaf):
        _Expr.__init__(self, None, kind, trace)
        self.name, self.leaf = name, leaf

    @property
    def text(self):
        self.trace.used[self.name] = self.leaf
        return self.name

    @text.setter
    def text(self, _):
        pass

    __class__ = property(lambda self: int if self.kind == "int" else float)  # for isinstance


def _run(function, what, leaves, lifted):
    trace = _Trace(leaves, "xy"[what == "mask"], lifted)
    kinds = {"score": "float"}
    made = trace.rebuilt(function) if isinstance(function, types.FunctionType) else function
    arguments = [_Expr(name, kinds.get(name, "int"), trace) for name in ARGUMENTS[what]]
    mode = _modes()
    if mode is None:
        result = _wrap(made(*arguments), trace)
    else:
        with mode:
            result = _wrap(made(*arguments), trace)
        trace.has_read, trace.has_sized = mode.has_read, trace.has_sized or mode.has_sized
    if what == "mask":
        result = result.bool()
    return result.text, trace


def _trace(function, what, leaves):
    """The text, and for each name in it the captured leaf that it is, or a tensor that is none; whether numbers, and sizes of tensors,
    are constants in it; None: values of tensors are, so that it is not kept."""
    text, trace = _run(function, what, leaves, False)
    if trace.has_read:
        return text, trace.used, None
    if what == "mask" and not _SIMPLE.sub("", text):
        return text, {}, True  # causal or a window, whose kernels are there
    numbers = [leaf for leaf in leaves if isinstance(leaf, (int, float))]
    if not numbers:
        return text, trace.used, trace.has_sized
    try:
        lifted, its = _run(function, what, leaves, True)
    except Exception:  # pylint: disable=broad-exception-caught  # of what numbers alone can do: with them it went well
        return text, trace.used, True
    return (text, trace.used, True) if len(its.used) > 8 else (lifted, its.used, its.has_sized)


# Functions whose captured values are tensors, numbers and what never changes, by what they are and the number of their code, which is kept
# beside it: such a function is not walked again.
_flat = {}
_MISSING = object()


def _values(function, names):
    found = function.__globals__
    return [cell.cell_contents for cell in function.__closure__ or ()] + [found.get(name, _MISSING) for name in names]


def _flat_kind(x):
    """What must be the same of a captured value, by its type; None: it takes a walk."""
    if _is_tensor(x):
        return x.dtype, len(x.shape)
    if type(x) in (int, float):
        return () if _is_liftable(x) else None
    same = x is _MISSING or x is None or isinstance(x, (bool, str)) or _has_no_state(x) and isinstance(x, (
        types.ModuleType, type, types.FunctionType, types.BuiltinFunctionType))
    return (x,) if same else None


def _keep_flat(function, what, found, leaves):
    """A walk has ended in `found`, which holds for any numbers."""
    if not isinstance(function, types.FunctionType) or function.__defaults__ or function.__kwdefaults__:
        return
    names = tuple(_names(function.__code__))
    values = _values(function, names)
    kinds = [_flat_kind(x) for x in values]
    own = [x for x, kind in zip(values, kinds) if kind is not None and len(kind) != 1]
    if None in kinds or len({id(x) for x in own if _is_tensor(x)}) < sum(map(_is_tensor, own)) or list(map(id, own)) != list(map(id, leaves)):
        return
    if len(_flat) > 1000:
        _flat.clear()
    _flat[what, id(function.__code__)] = function.__code__, names, [(type(x), kind) for x, kind in zip(values, kinds)], found


def _look_flat(function, what):
    """(text, used), leaves of a function whose like was walked before; else None."""
    kept = _flat.get((what, id(function.__code__))) if type(function) is types.FunctionType else None   # a method has its function's code
    if kept is None or kept[0] is not function.__code__ or function.__defaults__ or function.__kwdefaults__:
        return None
    try:
        leaves, tensors = [], 0
        for x, (kind, same) in zip(_values(function, kept[1]), kept[2]):
            if type(x) is not kind:
                return None
            if len(same) == 1:
                if x is not same[0] and (kind is not str or x != same[0]):
                    return None
                continue
            if same:
                if x.dtype is not same[0] or len(x.shape) != same[1] or (tensors and any(x is leaf for leaf in leaves)):
                    return None
                tensors += 1
            elif kind is int and not _is_liftable(x):
                return None
            leaves.append(x)
        return kept[3], leaves
    except ValueError:  # an empty cell
        return None


def _constants(leaves):
    return tuple(leaf if isinstance(leaf, (int, float)) else tuple(leaf.shape) for leaf in leaves)


def _traced(function, what, buffers):
    if function is None or isinstance(function, str):
        return function
    flat = _look_flat(function, what)
    if flat is not None:
        (text, used), leaves = flat
        return _bind(text, used, leaves, buffers)
    leaves, kinds = [], [what]
    _walk(function, leaves, kinds)
    key = tuple(kinds)
    found = _kept.get(key)
    if found is _CONSTANT:
        key += _constants(leaves)
        found = _kept.get(key)
    if found is None:
        try:
            text, used, constant = _trace(function, what, leaves)
        except _NotLifted as error:
            raise NotSupported("%s cannot be traced: %s" % (what, error)) from None
        found = text, used
        if len(_kept) > 1000:
            _kept.clear()
        if constant is not None and all(isinstance(leaf, int) for leaf in used.values()) and not any(type(kind) is object for kind in kinds):
            if constant:
                _kept[tuple(kinds)] = _CONSTANT
                key = tuple(kinds) + _constants(leaves)
            _kept[key] = found
            if not constant or not leaves:
                _keep_flat(function, what, found, leaves)
    return _bind(*found, leaves, buffers)


def _bind(text, used, leaves, buffers):
    """The text, whose captured tensors and numbers join the buffers."""
    for name, leaf in used.items():
        if name in buffers:
            raise ArgumentError("a buffer is named %s, as a function's captured ones are: give it another name" % name)
        x = leaves[leaf] if isinstance(leaf, int) else leaf
        number = x.item() if type(x).__name__ == "Tensor" and not x.shape and x.is_cpu and not x.requires_grad else x
        buffers[name] = number if isinstance(number, (int, float)) and _is_liftable(number) else x
    return text


def _softcap(score, buffers):
    """Of a text that the field softcap says: the cap; else None."""
    text = score.replace(" ", "")
    found = _CAP.fullmatch(text[1:-1] if text[:1] == "(" and text[-3:] == ")))" else text)
    value = found and buffers.get(found[1], found[1])
    try:
        cap = float(value) if isinstance(value, (str, int, float)) else 0.0
    except ValueError:
        return None
    return cap if 0 < cap < 1e38 else None


def _seed(seed, device):
    """Of dropout, on the device: drawn anew in each replay of a captured graph unless it is given."""
    import torch
    if isinstance(seed, torch.Tensor):
        if seed.dtype != torch.int64 or tuple(seed.shape) not in ((1,), (2,)):
            raise ArgumentError("dropout_seed is int64 of one dimension and one or two elements, not %s of shape %s" % (seed.dtype, tuple(seed.shape)))
        return seed
    if seed is None or isinstance(seed, torch.Generator):
        return torch.randint(-2**63, 2**63 - 1, (2,), dtype=torch.int64, device=device, generator=seed)
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise ArgumentError("dropout_seed is None, an int, a torch.Generator or a tensor of int64, not %s" % shown(seed))
    return torch.full((1,), (seed + 2**63) % 2**64 - 2**63, dtype=torch.int64, device=device)


def dropped(buffers, p, seed, q):
    """The buffers, with those that ask for dropout."""
    if isinstance(p, bool) or not isinstance(p, (int, float)) or not 0 <= p < 1:
        raise ArgumentError("dropout_p is a number from 0 up to less than 1, not %s" % shown(p))
    if p == 0:
        return buffers
    if buffers is not None and not isinstance(buffers, dict):
        raise ArgumentError("buffers is a dict of tensors and numbers, {\"slope\": slope}")
    if not {"dropout", "dropout_seed"}.isdisjoint(buffers or ()):
        raise ArgumentError("buffers has dropout or dropout_seed, and dropout_p is given: pass one of both")
    torch = sys.modules.get("torch")
    is_torchs = torch is not None and isinstance(q, torch.Tensor)
    if not is_torchs and (seed is None or isinstance(seed, int)):
        raise ArgumentError("dropout_seed is an array of int64 on the device where q is no tensor of PyTorch's")
    return {**(buffers or {}), "dropout": float(p), "dropout_seed": _seed(seed, q.device) if is_torchs else seed}


def traced(score, mask, buffers, softcap=None):
    """The texts of both, the buffers that they read (those given, and those that functions have captured), and the softcap."""
    held = dict(buffers or {})
    score, mask = _traced(score, "score", held), _traced(mask, "mask", held)
    if score is not None and softcap is None and "tanh" in score and (cap := _softcap(score, held)) is not None:
        name = _CAP_NAME.match(score)[1]
        if mask is None or not re.search(r"\b%s\b" % re.escape(name), mask):
            held.pop(name, None)
        score, softcap = None, cap
    return score, mask, held or None, softcap
