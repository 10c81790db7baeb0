# SPDX-License-Identifier: Apache-2.0
"""_core's functions on the objects of this package."""
import sys

from . import _core


def current_device():
    """PyTorch's current device where PyTorch has started CUDA, else 0."""
    torch = sys.modules.get("torch")
    return torch.cuda.current_device() if torch is not None and torch.cuda.is_initialized() else 0


def kernel(problem, device, effort, progress):
    """The loaded kernel (_core.Kernel) of a problem, tuned where the effort allows."""
    from . import _policy
    return _core.best_kernel(problem.as_dict(), effort=effort or _policy.current.effort,
                             device=current_device() if device is None else device, progress=progress)


def tune(problem, gpu, device, effort, again, exact, progress):
    """The answer's dict."""
    return _core.tune(problem.as_dict(), gpu=gpu, effort=effort, again=again, exact=exact,
                      device=current_device() if device is None else device, progress=progress)
