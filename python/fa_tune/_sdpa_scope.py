# SPDX-License-Identifier: Apache-2.0
"""fa_tune.sdpa(), which can be named without PyTorch: what it switches is imported by a call."""
from __future__ import annotations

from contextlib import AbstractContextManager

from ._errors import NotSupported


def sdpa() -> AbstractContextManager[None]:
    """F.scaled_dot_product_attention on fa_tune's kernels, within a block.

    with torch.no_grad(), fa_tune.sdpa():
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)

    Tensors as SDPA has them: q (batch, heads_q, seq_q, head_dim), k and v (batch, heads_kv, seq_k,
    head_dim), float16 or bfloat16 on CUDA. Gradients come from fa_tune's kernels, too. Calls with a mask or
    dropout, and whatever else fa_tune has no kernel for, are computed by PyTorch; the first of each kind says so in a warning.
    fa_tune.policy() says what the call of a new problem may cost. The setting is the process's,
    as PyTorch's own is. To switch it on for good:
    torch.nn.attention.activate_flash_attention_impl("fa_tune").
    """
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise NotSupported("fa_tune.sdpa() is for PyTorch, which cannot be imported: pip install torch") from error
    from . import _sdpa
    return _sdpa.scope()
