# SPDX-License-Identifier: Apache-2.0
"""What can go wrong, as exceptions. Each says what failed and what to pass or to do instead."""


class Error(Exception):
    """Any failure of fa_tune. `code` is the library's number for it (FA_E… in fa_types.h)."""

    code = 0


class ArgumentError(Error, ValueError):
    """An argument has a value that cannot be used."""


class ShapeError(Error, ValueError):
    """Shapes or strides do not fit one another, or no kernel takes them."""


class TensorError(Error, TypeError):
    """Something that is no tensor was passed where a tensor belongs."""


class DtypeError(Error, TypeError):
    """A tensor has an element type that is not served, or tensors' types differ."""


class DeviceError(Error, ValueError):
    """A tensor is not on a CUDA device, tensors are on several, or there is no device."""


class NotTuned(Error, LookupError):
    """No kernel is known for this problem, and the effort does not allow to tune one."""


class CaptureError(Error, RuntimeError):
    """A kernel would have to be loaded or tuned while a CUDA graph is captured: warm up first."""


class ForkedError(Error, RuntimeError):
    """The process was forked from one that had used CUDA: start it with spawn."""


class NotSupported(Error, NotImplementedError):
    """The problem is well-formed, and no kernel here computes it."""
