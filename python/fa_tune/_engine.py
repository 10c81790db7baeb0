# SPDX-License-Identifier: Apache-2.0
"""_core's functions on the objects of this package."""
import operator
import sys

from . import _core
from ._errors import ArgumentError
from ._problem import shown


def current_device():
    """PyTorch's current device where PyTorch has started CUDA, else 0."""
    torch = sys.modules.get("torch")
    return torch.cuda.current_device() if torch is not None and torch.cuda.is_initialized() else 0


def ordinal(device):
    if device is None:
        return current_device()
    try:
        number = operator.index(device)
    except TypeError:
        number = -1
    if not 0 <= number < 1 << 31:
        raise ArgumentError("device is a CUDA ordinal from 0 on, or None for the current device, not %s" % shown(device))
    return number


def reporter(given):
    if given is None or isinstance(given, bool) or callable(given):
        return None if given is True else given
    raise ArgumentError("progress is a function, None for a line on a terminal, or False, not %s" % shown(given))


def kernel(problem, device, effort, progress):
    """The loaded kernel (_core.Kernel) of a problem, tuned where the effort allows."""
    from . import _policy
    return _core.best_kernel(problem.as_dict(), effort=effort or _policy.current.effort,
                             device=ordinal(device), progress=reporter(progress))


def tune(problem, gpu, device, effort, again, exact, progress, **search):
    """The answer's dict. search: strategy, evaluations and seconds, as the library takes them."""
    if gpu is not None and not isinstance(gpu, str):
        raise ArgumentError("gpu is the name of a GPU's type, such as \"L4\", or None, not %s" % shown(gpu))
    return _core.tune(problem.as_dict(), gpu=gpu, effort=effort, again=again, exact=exact,
                      device=ordinal(device), progress=reporter(progress), **search)
