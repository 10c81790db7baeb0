# SPDX-License-Identifier: Apache-2.0
"""What other packages are told of fa-tune when they come, so that `import fa_tune` imports none of them.

Each row: a module of theirs and the modules of ours that speak to it. Ours are imported, and their
register() called, once theirs has been imported, now or later. What fails there is a warning: nobody
else's import may break because of us.
"""
import importlib
import sys
import warnings

COMERS = {
    # torch.ops.fa_tune; torch.nn.attention.activate_flash_attention_impl("fa_tune")
    "torch": ("_torch_ops", "_sdpa"),
    "torch._dynamo": ("_dynamo",),  # fa_tune.attention under torch.compile
    "transformers.modeling_utils": ("_hf",),  # attn_implementation="fa_tune"
}


def _greet(name):
    for ours in COMERS[name]:
        try:
            importlib.import_module("." + ours, __package__).register()
        except Exception as error:  # whatever it is, the import that brought us here goes on
            warnings.warn("fa_tune could not register %s with %s: %s" % (ours[1:], name, error),
                          RuntimeWarning, stacklevel=2)


class _Loader:
    """Another module's loader, and a greeting when it has done its work."""

    def __init__(self, loader):
        self._loader = loader

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        _greet(module.__name__)


class _Finder:
    """Finds what the other finders find. It may be asked any number of times before an import."""

    def find_spec(self, name, path=None, target=None):
        if name not in COMERS:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader)
                return spec
        return None


def install():
    for name in COMERS:
        if name in sys.modules and not getattr(sys.modules[name].__spec__, "_initializing", False):
            _greet(name)
    sys.meta_path.insert(0, _Finder())
