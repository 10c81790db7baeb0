# SPDX-License-Identifier: Apache-2.0
"""FlashAttention-3's flash_attn_func for dense fp16 and bf16 tensors [batch, seq, heads, dim], over libfa3.so beside this file (build.sh)."""
import ctypes
import os

import torch

_library = ctypes.CDLL(os.path.join(os.path.dirname(os.path.abspath(__file__)), "libfa3.so"))
_counter = torch.zeros(1, device="cuda", dtype=torch.int32)


def flash_attn_func(q, k, v, softmax_scale=None, causal=False):
    batch, seq, heads, dim = q.shape
    if q.dtype not in (torch.float16, torch.bfloat16) or k.shape[2] != heads:
        raise NotImplementedError("this build has fp16, bf16 and equal heads alone")
    o = torch.empty_like(q)
    lse = torch.empty(batch, heads, seq, device="cuda", dtype=torch.float32)
    strides = [x for t in (q, k, v, o) for x in t.stride()[:3]]
    pointers = [ctypes.c_void_p(t.data_ptr()) for t in (q, k, v, o, lse, _counter)]
    status = _library.fa3_forward(
        *pointers, (ctypes.c_longlong * 12)(*strides), batch, heads, seq, k.shape[1], dim, int(q.dtype == torch.bfloat16),
        ctypes.c_float(softmax_scale or dim ** -0.5), int(causal), torch.cuda.get_device_properties(0).multi_processor_count,
        ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
    if status != 0:
        raise RuntimeError(f"FlashAttention-3: status {status}")
    return o
