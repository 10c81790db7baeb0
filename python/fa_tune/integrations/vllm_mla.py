# SPDX-License-Identifier: Apache-2.0
"""fa_tune's kernels in vLLM for models with multi-head latent attention, which `--attention-backend CUSTOM` selects, too.

Decode steps, of drafts too, over caches of fp16, bf16, fp8 (head sizes to 512) and, from Hopper on (beyond it to 32 query heads), fp8_ds_mla. Prompts are computed by vLLM's own prefill backend.
"""
from dataclasses import dataclass

import torch
from vllm.model_executor.layers.attention.mla_attention import (MLACommonBackend, MLACommonDecodeMetadata, MLACommonImpl, MLACommonMetadata,
                                                                MLACommonMetadataBuilder, QueryLenSupport)
from vllm.v1.attention.backend import AttentionCGSupport, AttentionType

import fa_tune
from . import _start, begin
from .vllm import Shared, ready

ROW_BYTES = 656  # of fp8_ds_mla


class FaTuneMLABackend(Shared, MLACommonBackend):
    supported_kv_cache_dtypes = ["auto", "float16", "bfloat16", "fp8", "fp8_e4m3", "fp8_ds_mla"]

    @staticmethod
    def get_impl_cls():
        return FaTuneMLAImpl

    @staticmethod
    def get_builder_cls():
        return FaTuneMLAMetadataBuilder

    @staticmethod
    def get_kv_cache_shape(num_blocks, block_size, num_kv_heads, head_size, cache_dtype_str="auto"):
        return num_blocks, block_size, ROW_BYTES if cache_dtype_str == "fp8_ds_mla" else head_size

    @staticmethod
    def get_kv_cache_stride_order(include_num_layers_dimension=False):
        return (1, 0, 2, 3) if include_num_layers_dimension else (0, 1, 2)

    @classmethod
    def supports_combination(cls, head_size, dtype, kv_cache_dtype, *others):  # the last is the GPU's compute capability
        if kv_cache_dtype == "fp8_ds_mla" and (dtype != torch.bfloat16 or head_size != 576 or others[-1].major < 9):
            return "a cache of fp8_ds_mla needs bfloat16, a head size of 576 and Hopper or newer"
        if kv_cache_dtype in ("fp8", "fp8_e4m3") and head_size > 512:
            return f"a cache of {kv_cache_dtype} needs a head size of 512 or less: fp8_ds_mla is for 576"
        return super().supports_combination(head_size, dtype, kv_cache_dtype)


@dataclass
class FaTuneMLADecodeMetadata(MLACommonDecodeMetadata):
    """What a call takes; lengths and tables are on the device."""
    query_start_loc: torch.Tensor
    max_query_len: int
    max_seq_len: int


class FaTuneMLAMetadataBuilder(MLACommonMetadataBuilder):
    _cudagraph_support = AttentionCGSupport.UNIFORM_BATCH
    query_len_support = QueryLenSupport.VARLEN

    def __init__(self, kv_cache_spec, layer_names, vllm_config, device):
        super().__init__(kv_cache_spec, layer_names, vllm_config, device, MLACommonMetadata)
        if self.dcp_world_size > 1:
            raise NotImplementedError("fa_tune's backend has no decode context parallelism")
        for name in layer_names:
            impl = vllm_config.compilation_config.static_forward_context[name].impl
            ready(vllm_config, impl.problem(vllm_config.model_config.dtype, kv_cache_spec.block_size), [None], self.reorder_batch_threshold)

    def _build_decode(self, block_table_tensor, seq_lens_device, max_seq_len, query_start_loc_cpu, query_start_loc_device, num_decode_tokens,
                      dcp_tot_seq_lens_device):
        starts = query_start_loc_cpu.tolist()
        longest = max(end - start for start, end in zip(starts, starts[1:]))
        return FaTuneMLADecodeMetadata(block_table_tensor, seq_lens_device, dcp_tot_seq_lens_device, query_start_loc_device,
                                       max(longest, 1), _start.ceiling(max_seq_len))


class FaTuneMLAImpl(MLACommonImpl):
    can_return_lse_for_decode = True

    def __init__(self, num_heads, head_size, scale, num_kv_heads, alibi_slopes, sliding_window, kv_cache_dtype, logits_soft_cap, attn_type,
                 kv_sharing_target_layer_name, **of_mla):
        super().__init__(num_heads, head_size, scale, num_kv_heads, alibi_slopes, sliding_window, kv_cache_dtype, logits_soft_cap,
                         attn_type, kv_sharing_target_layer_name, **of_mla)
        if alibi_slopes or sliding_window or logits_soft_cap or attn_type != AttentionType.DECODER or of_mla.get("indexer") is not None:
            raise NotImplementedError("fa_tune's backend has latent attention of decoders without ALiBi, windows, soft caps and sparse attention")
        begin("vllm")
        self.supports_quant_query_input = False  # queries keep their type beside a cache of fp8

    def problem(self, dtype, page):
        """The fields of the problem of this layer's calls, without batch and lengths."""
        kind = self.kv_cache_dtype
        return {"dtype": {torch.float16: "fp16", torch.bfloat16: "bf16"}[dtype], "head_dim": self.kv_lora_rank + self.qk_rope_head_dim,
                "head_dim_v": self.kv_lora_rank, "v_in_k": self.kv_lora_rank + self.qk_rope_head_dim > 512, "heads_q": self.num_heads,
                "heads_kv": 1, "layout": "bshd", "causal": "bottom-right", "varlen": True, "lengths_k": "seqused", "page": page,
                "kv_dtype": kind if kind == "fp8_ds_mla" else "fp8" if kind.startswith("fp8") else "same"}

    def forward_mqa(self, q, kv_c_and_k_pe_cache, attn_metadata, layer):
        part, cache, scales = attn_metadata.decode, kv_c_and_k_pe_cache.unsqueeze(-2), {}
        if isinstance(q, tuple):
            q = torch.cat(q, dim=-1)
        if self.kv_cache_dtype == "fp8_ds_mla":
            cache = cache.view(torch.uint8)
        elif self.kv_cache_dtype.startswith("fp8"):
            each = part.seq_lens.shape[0], 1
            cache, scales = cache.view(torch.float8_e4m3fn), dict.fromkeys(("k_descale", "v_descale"), layer._k_scale.expand(each))
        out = q.new_empty((*q.shape[:2], self.kv_lora_rank))
        lse = q.new_empty((q.shape[1], q.shape[0]), dtype=torch.float32) if self.need_to_return_lse_for_decode else None
        fa_tune.attention_decode(
            q, cache, v_dim=self.kv_lora_rank, cu_seqlens_q=part.query_start_loc, max_seqlen_q=part.max_query_len, cache_seqlens=part.seq_lens,
            max_seqlen_k=part.max_seq_len, block_table=part.block_table, softmax_scale=self.scale, causal=True,
            return_softmax_lse=lse is not None, out=out if lse is None else (out, lse), **scales)
        return out, None if lse is None else lse.transpose(0, 1)
