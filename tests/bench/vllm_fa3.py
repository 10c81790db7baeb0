# SPDX-License-Identifier: Apache-2.0
"""FlashAttention-3 as vLLM ships it, called as vLLM calls it, where FA_PEERS names the folder of its package.

The package is vllm_flash_attn of vLLM's wheel 0.26.0: flash_attn_interface.py, whose imports of vLLM are taken out and
whose default is version 3, and _vllm_fa3_C.
"""
import math
import os
import sys

sys.path.extend(filter(None, [os.environ.get("FA_PEERS")]))
try:
    from vllm_flash_attn.flash_attn_interface import flash_attn_varlen_func, get_scheduler_metadata
except ImportError:
    flash_attn_varlen_func = None
NAME = "fa3"


def calls(q, k, v, o, cu_seqlens_q, longest_q, longest_k, causal, cu_seqlens_k=None, seqused_k=None, block_table=None,
          window=None, softcap=0.0, sinks=None, **more):
    """Calls without arguments that write o, by a name: none where there is no package. q and o are [tokens, heads, dim]; k and v
    [tokens, heads, dim] with cu_seqlens_k, [pages, page, heads, dim] with block_table and [batch, keys, heads, dim] with seqused_k
    alone. With lengths on the device the schedule is made here, as vLLM makes it once a step and not in each layer, in the two ways
    that vLLM has: for steps that are not captured (the kernel's heuristic cuts the keys) and captured ones (in up to 32 parts)."""
    if flash_attn_varlen_func is None:
        return {}
    window = (window - 1, 0) if window else (-1, -1)

    def call(num_splits):
        schedule = None
        if seqused_k is not None:
            schedule = get_scheduler_metadata(
                len(cu_seqlens_q) - 1, longest_q, longest_k, q.shape[1], k.shape[-2], q.shape[2], seqused_k, q.dtype,
                cu_seqlens_q=cu_seqlens_q, page_size=k.shape[1] if block_table is not None else None, causal=causal,
                window_size=window, has_softcap=softcap > 0, num_splits=num_splits)
        return lambda: flash_attn_varlen_func(
            q, k, v, longest_q, cu_seqlens_q, longest_k, cu_seqlens_k=cu_seqlens_k, seqused_k=seqused_k, block_table=block_table,
            causal=causal, window_size=window, softcap=softcap, out=o, scheduler_metadata=schedule, num_splits=num_splits,
            s_aux=sinks, fa_version=3, **more)
    return {"fa3": call(0)} if seqused_k is None else {"fa3": call(0), "fa3 captured": call(32)}


def faster(us):
    """Takes the times of (NAME, way, form) out; returns for each form the faster way's."""
    best = {}
    for of in [of for of in us if of[0] == NAME]:
        best[of[2]] = min(us.pop(of), best.get(of[2], math.inf))
    return best
