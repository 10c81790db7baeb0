# SPDX-License-Identifier: Apache-2.0
"""fa-tune's store behind the caches of other tuners (docs/caches.md).

    TRITON_CACHE_MANAGER=fa_tune.caches:TritonCache                    Triton's kernels and winners
    fa_tune.caches.use()                                               these, PyTorch Inductor's and Helion's
    HELION_REMOTE_CACHE_BACKEND=fa_tune.caches.HelionCache             Helion's winners
    python -m fa_tune.caches mirror DIR                                any folder
"""
from importlib import import_module as _import

# name -> the module that has it
_NAMES = {"TritonCache": "_triton", "bench": "_bench", "HelionCache": "_use", "use": "_use"}

__all__ = sorted(_NAMES)


def __getattr__(name):
    if name not in _NAMES:
        raise AttributeError("module %r has no attribute %r" % (__name__, name))
    module = _import("." + _NAMES[name], __name__)
    value = globals()[name] = module.helion_cache() if name == "HelionCache" else getattr(module, name)
    return value
