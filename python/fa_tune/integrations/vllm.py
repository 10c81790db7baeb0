# SPDX-License-Identifier: Apache-2.0
"""fa_tune's kernels in vLLM: the attention backend that `--attention-backend CUSTOM` selects.

Written against vLLM 0.26's interface (vllm.v1.attention.backend, AttentionBackendEnum.CUSTOM). Decoder layers with
paged keys and values: windows, soft caps, sinks and fp8 caches, and no cascades, ALiBi or context parallelism.
docs/serving.md tells what was run of this file.
"""
from dataclasses import dataclass

import torch
from vllm import _custom_ops
from vllm.v1.attention.backend import (AttentionBackend, AttentionCGSupport, AttentionImpl, AttentionMetadataBuilder,
                                       AttentionType, MultipleOf)

import fa_tune
from . import begin


class FaTuneBackend(AttentionBackend):
    supported_dtypes = [torch.float16, torch.bfloat16]
    supported_kv_cache_dtypes = ["auto", "float16", "bfloat16", "fp8", "fp8_e4m3"]
    forward_includes_kv_cache_update = False
    accept_output_buffer = True

    @staticmethod
    def get_name():
        return "CUSTOM"

    @staticmethod
    def get_impl_cls():
        return FaTuneImpl

    @staticmethod
    def get_builder_cls():
        return FaTuneMetadataBuilder

    @staticmethod
    def get_supported_kernel_block_sizes():
        return [MultipleOf(16)]

    @staticmethod
    def get_kv_cache_shape(num_blocks, block_size, num_kv_heads, head_size, cache_dtype_str="auto"):
        return 2, num_blocks, block_size, num_kv_heads, head_size

    @classmethod
    def supports_head_size(cls, head_size):
        return head_size % 8 == 0 and head_size <= 512

    @classmethod
    def supports_sink(cls):
        return True


@dataclass
class FaTuneMetadata:
    """What every layer of a step shares. Lengths and tables are on the device and stay there."""
    num_actual_tokens: int
    max_query_len: int
    max_seq_len: int
    query_start_loc: torch.Tensor
    seq_lens: torch.Tensor
    block_table: torch.Tensor
    slot_mapping: torch.Tensor
    causal: bool


class FaTuneMetadataBuilder(AttentionMetadataBuilder):
    # Geometry depends on shapes and longest lengths, so a graph holds for other lengths and tables. It does not hold for
    # longer queries, and vLLM may capture mixed batches with max_query_len 1: hence not ALWAYS.
    _cudagraph_support = AttentionCGSupport.UNIFORM_BATCH

    def __init__(self, kv_cache_spec, layer_names, vllm_config, device):
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)

    def build(self, common_prefix_len, common_attn_metadata, fast_build=False):
        m = common_attn_metadata
        return FaTuneMetadata(m.num_actual_tokens, m.max_query_len, m.max_seq_len, m.query_start_loc, m.seq_lens,
                              m.block_table_tensor, m.slot_mapping, m.causal)


class FaTuneImpl(AttentionImpl):
    def __init__(self, num_heads, head_size, scale, num_kv_heads=None, alibi_slopes=None, sliding_window=None,
                 kv_cache_dtype="auto", logits_soft_cap=None, attn_type=AttentionType.DECODER,
                 kv_sharing_target_layer_name=None, sinks=None, **more):
        if alibi_slopes is not None or attn_type != AttentionType.DECODER:
            raise NotImplementedError("fa_tune's backend is for decoder layers without ALiBi")
        begin("vllm")
        self.num_heads, self.head_size, self.scale = num_heads, head_size, float(scale)
        self.num_kv_heads = num_kv_heads or num_heads
        self.window = None if sliding_window is None else (sliding_window - 1, 0)
        self.kv_cache_dtype, self.softcap = kv_cache_dtype, logits_soft_cap or 0.0
        self.shares_cache = kv_sharing_target_layer_name is not None
        self.sinks = self.loaded_sinks = sinks  # the parameter, before its weights are loaded

    def process_weights_after_loading(self, act_dtype):
        if self.loaded_sinks is None:
            return
        if self.sinks is self.loaded_sinks:
            self.sinks = self.loaded_sinks.float()
        else:  # loaded again: captured graphs keep the copy's address
            self.sinks.copy_(self.loaded_sinks)

    def do_kv_cache_update(self, layer, key, value, kv_cache, slot_mapping):
        if not self.shares_cache and key is not None:
            _custom_ops.reshape_and_cache_flash(key, value, kv_cache[0], kv_cache[1], slot_mapping,
                                                self.kv_cache_dtype, layer._k_scale, layer._v_scale)

    def forward(self, layer, query, key, value, kv_cache, attn_metadata, output, output_scale=None,
                output_block_scale=None):
        if output_scale is not None or output_block_scale is not None:
            raise NotImplementedError("fa_tune does not quantize its output")
        if attn_metadata is None:  # vLLM's profiling run
            return output.fill_(0)
        m, keys, values, scales = attn_metadata, kv_cache[0], kv_cache[1], {}
        if self.kv_cache_dtype.startswith("fp8"):
            keys, values = (cache.view(torch.float8_e4m3fn) for cache in (keys, values))
            scales = {"k_descale": layer._k_scale, "v_descale": layer._v_scale}
        fa_tune.attention_varlen(
            query[:m.num_actual_tokens], keys, values, out=output[:m.num_actual_tokens],
            cu_seqlens_q=m.query_start_loc, max_seqlen_q=m.max_query_len, seqused_k=m.seq_lens,
            max_seqlen_k=m.max_seq_len, block_table=m.block_table, softmax_scale=self.scale, causal=m.causal,
            window_size=self.window, softcap=self.softcap, s_aux=self.sinks, **scales)
        return output
