# SPDX-License-Identifier: Apache-2.0
"""fa_tune: the fastest attention kernel for your problem on your GPU.

    import fa_tune, torch
    out = fa_tune.attention(q, k, v)        # tensors on a CUDA device

Every name is imported when it is first used: `import fa_tune` loads neither PyTorch nor NumPy, and
opens neither the CUDA driver nor the store.
"""
from importlib import import_module as _import

from . import _hooks

# name -> the module that has it
_NAMES = {
    "attention": "_core",
    "attention_varlen": "_core",
    "attention_decode": "_core",
    "Kernel": "_core",
    "close": "_core",
    "Problem": "_problem",
    "fields": "_problem",
    "policy": "_policy",
    "recording": "_recording",
    "warm_up": "_warm_up",
    "sdpa": "_sdpa_scope",
    "tune_kernel": "_kernels",
    "TunedKernel": "_kernels",
    "array": "_kernels",
    "out": "_kernels",
    "inout": "_kernels",
    "partial": "_kernels",
    "scratch": "_kernels",
    "scalar": "_kernels",
    "struct": "_kernels",
    "fixed": "_kernels",
    "tune": "_functions",
    "best_kernel": "_functions",
    "kernel": "_functions",
    "sweep": "_functions",
    "report": "_functions",
    "winners": "_functions",
    "forget": "_functions",
    "doctor": "_functions",
    "Answer": "_objects",
    "Winners": "_objects",
    "Forgotten": "_objects",
    "Sweep": "_objects",
    "SweepItem": "_objects",
    "Report": "_objects",
    "Doctor": "_objects",
    "Check": "_objects",
    "Error": "_errors",
    "ArgumentError": "_errors",
    "ShapeError": "_errors",
    "TensorError": "_errors",
    "DtypeError": "_errors",
    "DeviceError": "_errors",
    "NotTuned": "_errors",
    "CaptureError": "_errors",
    "ForkedError": "_errors",
    "NotSupported": "_errors",
}

__all__ = sorted(_NAMES)


def __getattr__(name):
    if name == "__version__":
        value = _import("._core", __name__).version()
    elif name in _NAMES:
        value = getattr(_import("." + _NAMES[name], __name__), name)
    else:
        near = (": import fa_tune.%s first" % name if name in ("caches", "flex", "kernel_tuner") else
                _import("._errors", __name__).did_you_mean(name, () if name.startswith("_") else __all__))
        raise AttributeError("module %r has no attribute %r%s" % (__name__, name, near))
    globals()[name] = value
    return value


def __dir__():
    return sorted({*_NAMES, "__version__", *(name for name in globals() if name.startswith("__"))})


_hooks.install()
