# SPDX-License-Identifier: Apache-2.0
"""fa_tune's kernels inside serving engines: where the package's entry points lead.

An engine calls its function of these in each of its processes. It only learns a name: the backend behind it, which
imports the engine and PyTorch, is imported when the engine is told to use it.
"""
import functools
import importlib.metadata
import warnings

# engine -> the versions inside which its backend was tried, and how others are told of it
TRIED = {
    "vllm": (("0.26.0",), "was tried inside vLLM 0.26.0 alone"),
    "sglang": (("0.5.13",), "was tried inside SGLang 0.5.13 alone"),
}


def register_vllm():
    """vLLM's entry point: --attention-backend CUSTOM, unless another plugin has taken that name."""
    from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend
    if not AttentionBackendEnum.CUSTOM.is_overridden():
        register_backend(AttentionBackendEnum.CUSTOM, __name__ + ".vllm.Backend")


def register_sglang():
    """SGLang's entry point: --attention-backend fa_tune."""
    from sglang.srt.layers.attention.attention_registry import register_attention_backend
    from sglang.srt.server_args import add_attention_backend_choices
    add_attention_backend_choices(["fa_tune"])

    @register_attention_backend("fa_tune")
    def create(runner):
        from .sglang import FaTuneAttnBackend
        return FaTuneAttnBackend(runner)


@functools.cache
def begin(engine):
    """Called by a backend that an engine makes: warns of versions that were not tried, and sets what a call may cost."""
    from ._start import begin_to_serve
    versions, told = TRIED[engine]
    try:
        here = importlib.metadata.version(engine)
    except importlib.metadata.PackageNotFoundError:
        here = "of an unknown version"
    if here.partition("+")[0] not in versions:
        warnings.warn("fa_tune's attention backend %s; here is %s %s: compare its answers with another backend's"
                      % (told, engine, here), RuntimeWarning, stacklevel=3)
    begin_to_serve(engine)
