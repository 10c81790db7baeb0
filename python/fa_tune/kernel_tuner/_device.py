# SPDX-License-Identifier: Apache-2.0
"""Copies of arrays on the GPU, by the library that the caller has for it."""
from __future__ import annotations

from typing import Any

from .._errors import NotSupported


def dense(array: Any) -> Any:
    """The same elements in row-major order."""
    if not getattr(getattr(array, "flags", None), "c_contiguous", True):
        return array.copy()
    return array.contiguous() if hasattr(array, "contiguous") else array


def shaped(array: Any, shape: Any) -> Any:
    return array if tuple(array.shape) == tuple(shape) else array.reshape(tuple(shape))


def is_there(array: Any) -> bool:
    return hasattr(array, "__cuda_array_interface__") or getattr(array, "is_cuda", False)


def there(array: Any, copied: bool) -> Any:
    """On the GPU: the caller's own, where it is there and not copied."""
    if is_there(array):
        return array if not copied else array.clone() if hasattr(array, "clone") else array.copy()
    if hasattr(array, "is_cuda"):
        return array.cuda()
    try:
        import cupy
        return cupy.array(array)
    except ImportError:
        pass
    try:
        import torch
        return torch.tensor(array, device="cuda")
    except ImportError:
        raise NotSupported("to run one config of a kernel on arrays of the host, CuPy or PyTorch must be installed") from None


def back(array: Any, given: Any) -> Any:
    """On the host again; a tensor of PyTorch's as one."""
    if hasattr(array, "get"):
        return array.get()
    return array.cpu() if hasattr(given, "is_cuda") else array.cpu().numpy()


def all_close(answer: Any, outputs: Any, atol: float) -> bool:
    """As the default of Kernel Tuner's verify."""
    import numpy
    on_host = [value.get() if hasattr(value, "get") else value.cpu() if hasattr(value, "is_cuda") else value for value in (*answer, *outputs)]
    return all(wanted is None or numpy.allclose(numpy.asarray(wanted).ravel(), numpy.asarray(given).ravel(), atol=atol)
               for wanted, given in zip(on_host, on_host[len(answer):]))
