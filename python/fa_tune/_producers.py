# SPDX-License-Identifier: Apache-2.0
"""What DLPack does not say about the libraries that tensors come from: the stream that is current in
them, how they allocate, and how a tensor of theirs gets to a GPU. Called by fa_tune._core for
libraries without DLPack's exchange table, and for its sentences."""
import sys

from ._errors import NotSupported, TensorError


def _library(tensor):
    """The library's name and, where it is imported, its module."""
    name = type(tensor).__module__.partition(".")[0]
    return name, sys.modules.get(name)


def current_stream(tensor, device):
    """The handle of the stream that the tensor's library works on now, or None if it has none."""
    name, module = _library(tensor)
    if name == "torch":
        return module.cuda.current_stream(device).cuda_stream
    if name == "cupy":
        with module.cuda.Device(device):
            return module.cuda.get_current_stream().ptr
    return None


def handle_of(stream):
    """The handle of a stream that a caller passes: an int, or an object with __cuda_stream__ or one of
    PyTorch's and CuPy's own."""
    if isinstance(stream, int):
        return stream
    if hasattr(stream, "__cuda_stream__"):
        told = stream.__cuda_stream__
        return (told() if callable(told) else told)[1]
    for name in ("cuda_stream", "ptr"):
        if isinstance(getattr(stream, name, None), int):
            return getattr(stream, name)
    raise TensorError("stream is a %s: pass a CUstream as int, or an object with __cuda_stream__"
                      % type(stream).__name__)


def empty(tensor, shape, dtype, device):
    """A new contiguous tensor of the library of `tensor`; dtype as PyTorch and NumPy say it."""
    name, module = _library(tensor)
    if name == "torch" and hasattr(module, dtype):
        return module.empty(shape, dtype=getattr(module, dtype), device=tensor.device)
    if name == "cupy" and hasattr(module, dtype):  # which has neither bfloat16 nor fp8
        with module.cuda.Device(device):
            return module.empty(shape, dtype=dtype)
    raise TensorError("an output of %s cannot be allocated in the tensors' library (%s): pass out=, such "
                      "as a torch.Tensor or a cupy.ndarray" % (dtype, name))


def to_cuda(tensor, name):
    """What to pass in the place of a tensor in the host's memory."""
    library, _ = _library(tensor)
    return "pass " + {
        "torch": "%s.cuda()",
        "numpy": "a tensor on a CUDA device, such as torch.from_numpy(%s).cuda() or cupy.asarray(%s)",
        "jax": "jax.device_put(%s, jax.devices(\"cuda\")[0])",
        "jaxlib": "jax.device_put(%s, jax.devices(\"cuda\")[0])",
    }.get(library, "a tensor on a CUDA device").replace("%s", name)


def refuse_description(error, name):
    """Raises what is to be said of a tensor that its library cannot describe by DLPack."""
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    torch = sys.modules.get("torch")
    transformed = getattr(getattr(torch, "_C", None), "_are_functorch_transforms_active", None)
    if transformed is not None and transformed():
        raise NotSupported("%s is under a transform of torch.func, and fa_tune has no rule for it (vmap, jvp, grad): pass a "
                           "whole batch, and use torch.autograd.grad for gradients" % name) from error
    raise TensorError("%s cannot be taken: its library says \"%s\". Pass a dense tensor with memory of its own on a CUDA "
                      "device" % (name, reason)) from error
