# SPDX-License-Identifier: Apache-2.0
"""fa_tune's kernels in vLLM: the attention backend that `--attention-backend CUSTOM` selects.

Decoder layers with paged keys and values: windows, soft caps, sinks, caches of fp16, bf16 and fp8. vLLM asks the class
what it takes and refuses the rest at its start: ALiBi, encoders, batch invariance, context parallelism. Cascades
are refused by name. Models with latent attention are vllm_mla.py's. docs/serving.md tells what was run of this file.
"""
from dataclasses import dataclass

import torch
from vllm import _custom_ops
from vllm.v1.attention.backend import (AttentionBackend, AttentionCGSupport, AttentionImpl, AttentionMetadataBuilder,
                                       AttentionType, MultipleOf)
from vllm.v1.attention.backends.utils import get_kv_cache_layout, split_decodes_and_prefills

import fa_tune
from . import _start, begin

# Where the dimensions of a cache lie in memory, with those of all layers in one tensor or without: pages outermost.
STRIDE_ORDERS = {("NHD", False): (0, 2, 1, 3), ("NHD", True): (1, 0, 3, 2, 4),
                 ("HND", False): (0, 1, 2, 3), ("HND", True): (1, 2, 0, 3, 4)}
# On Hopper prompts of an fp8 cache are computed on copies of their pages in the model's type, which wgmma multiplies as they are:
COPIED_QUERIES = 512     # of a sequence at least, on average: fewer do not pay for the copy
COPIED_BYTES = 512 << 20  # of a layer's copies and what they are made of, at most: they go when the layer is done


def __getattr__(name):
    """`Backend`, which vLLM asks for when it makes a model's layers: by whether they have latent attention."""
    if name != "Backend":
        raise AttributeError(name)
    from vllm.config import get_current_vllm_config
    if not get_current_vllm_config().model_config.use_mla:
        return FaTuneBackend
    from .vllm_mla import FaTuneMLABackend
    return FaTuneMLABackend


def ready(config, kind, prompts, queries):
    """Readies kernels of a kind of layer: of decoding with so many queries, of each kind of prompts, and of the batches that vLLM captures."""
    model, scheduler = config.model_config, config.scheduler_config
    for prompt in prompts:
        _start.prepare("vllm", kind, prompt, most_batch=scheduler.max_num_seqs, most_keys=model.max_model_len,
                       most_queries=scheduler.max_num_batched_tokens, queries=queries)
    sizes = config.compilation_config.cudagraph_capture_sizes or ()  # of graphs, in tokens
    batches = sorted({size // queries for size in sizes if 1 <= size // queries <= scheduler.max_num_seqs})
    # vLLM captures decoding of the longest cache, and may have run shorter ones alone before
    _start.find(kind, batches, queries, model.max_model_len)


class Shared:
    """What vLLM asks of both backends."""
    supported_dtypes = [torch.float16, torch.bfloat16]

    @staticmethod
    def get_name():
        return "CUSTOM"

    @staticmethod
    def get_supported_kernel_block_sizes():
        return [MultipleOf(16)]

    @classmethod
    def supports_compute_capability(cls, capability):
        return capability.major >= 8

    @classmethod
    def supports_combination(cls, head_size, dtype, kv_cache_dtype, *_, **__):
        if {"float16": torch.float16, "bfloat16": torch.bfloat16}.get(kv_cache_dtype, dtype) != dtype:
            return f"a cache of {kv_cache_dtype} needs queries of its type, not {dtype}"
        return None


class FaTuneBackend(Shared, AttentionBackend):
    supported_kv_cache_dtypes = ["auto", "float16", "bfloat16", "fp8", "fp8_e4m3"]
    forward_includes_kv_cache_update = False

    @staticmethod
    def get_impl_cls():
        return FaTuneImpl

    @staticmethod
    def get_builder_cls():
        return FaTuneMetadataBuilder

    @staticmethod
    def get_kv_cache_shape(num_blocks, block_size, num_kv_heads, head_size, cache_dtype_str="auto"):
        return num_blocks, num_kv_heads, block_size, 2 * head_size  # a key and its value behind one another

    @staticmethod
    def get_kv_cache_stride_order(include_num_layers_dimension=False):
        return STRIDE_ORDERS[get_kv_cache_layout(), include_num_layers_dimension]

    @classmethod
    def supports_head_size(cls, head_size):
        return head_size % 8 == 0 and head_size <= 512

    @classmethod
    def supports_sliding_window(cls):
        return True

    @classmethod
    def supports_sink(cls):
        return True

    @classmethod
    def supports_non_causal(cls):
        return True

    @classmethod
    def supports_per_head_quant_scales(cls):
        return True


@dataclass
class Part:
    """The sequences of a step that one call takes. Lengths and tables are on the device and stay there."""
    tokens: slice
    max_query_len: int
    max_seq_len: int
    query_start_loc: torch.Tensor
    seq_lens: torch.Tensor
    block_table: torch.Tensor
    copied: tuple | None = None  # the pages that are copied, and the table of the copies


@dataclass
class FaTuneMetadata:
    """What every layer of a step shares."""
    causal: bool
    parts: list


class FaTuneMetadataBuilder(AttentionMetadataBuilder):
    # Geometry depends on shapes and longest lengths, so a graph holds for other lengths and tables. It does not hold
    # for longer queries, and vLLM may capture mixed batches with max_query_len 1: hence not ALWAYS.
    _cudagraph_support = AttentionCGSupport.UNIFORM_BATCH

    def __init__(self, kv_cache_spec, layer_names, vllm_config, device):
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        if getattr(vllm_config.model_config, "rswa_window", None) is not None:
            raise NotImplementedError("fa_tune's backend has no window with a prefix that all see (rswa_window)")
        speculative = vllm_config.speculative_config
        drafts = getattr(speculative, "num_speculative_tokens", 0)
        self.reorder_batch_threshold = 1 + drafts  # vLLM puts sequences of up to so many queries in front
        # DFlash's drafts see one another, in layers that are not told apart from the model's here
        masks = [True] + [False] * str(getattr(speculative, "method", "")).startswith(("dflash", "dspark"))
        self.page, self.page_bytes = kv_cache_spec.block_size, 0  # bytes that a page's copy takes; 0: none are made
        # vLLM makes builders when weights are loaded and the cache is not there yet: tuning has memory
        for name in layer_names:
            impl = vllm_config.compilation_config.static_forward_context[name].impl
            for causal in masks:
                kind = impl.problem(vllm_config.model_config.dtype, self.page, causal)
                prompts = [kind]
                if kind["kv_dtype"] == "fp8" and not impl.sees_few_keys and torch.cuda.get_device_capability(device) == (9, 0):
                    prompts.append(dict(kind, kv_dtype="same"))
                    of_layer = self.page * kind["heads_kv"] * kind["head_dim"] * 6  # of fp8 and of the model's type
                    self.page_bytes = max(self.page_bytes, of_layer)
                ready(vllm_config, kind, prompts, 1 + drafts)

    def build(self, common_prefix_len, common_attn_metadata, fast_build=False):
        m = common_attn_metadata
        if common_prefix_len > 0:
            raise NotImplementedError("fa_tune's backend has no cascade attention: leave it off (disable_cascade_attn)")
        if not isinstance(m.causal, bool):
            raise NotImplementedError("fa_tune's backend has one mask for all sequences of a step, causal or none")
        # Decoding has kernels of its own, which read the keys of a group of heads once.
        front, behind, tokens, _ = split_decodes_and_prefills(m, self.reorder_batch_threshold)
        parts = [(slice(0, m.num_actual_tokens), m.max_query_len, m.query_start_loc, slice(None))]
        if front and behind:
            parts = [(slice(0, tokens), self.reorder_batch_threshold, m.query_start_loc[:front + 1], slice(0, front)),
                     (slice(tokens, m.num_actual_tokens), m.max_query_len, m.query_start_loc[front:] - tokens,
                      slice(front, None))]
        return FaTuneMetadata(m.causal, [self._part(m, *part) for part in parts])

    def _part(self, m, rows, longest, starts, sequences):
        table = m.block_table_tensor[sequences]
        return Part(rows, _start.ceiling(longest), _start.ceiling(m.max_seq_len), starts, m.seq_lens[sequences], table,
                    self._copied(table, rows.stop - rows.start, m.max_seq_len))

    def _copied(self, table, tokens, longest):
        """Of a part with this table: Part.copied."""
        sequences, pages = table.shape[0], min(-(-longest // self.page), table.shape[1])
        copies = sequences * pages
        if not 0 < copies * self.page_bytes <= COPIED_BYTES or tokens < COPIED_QUERIES * sequences:
            return None
        return table[:, :pages].reshape(-1), torch.arange(copies, dtype=torch.int32, device=table.device).view(sequences, pages)


class FaTuneImpl(AttentionImpl):
    def __init__(self, num_heads, head_size, scale, num_kv_heads=None, alibi_slopes=None, sliding_window=None,
                 kv_cache_dtype="auto", logits_soft_cap=None, attn_type=AttentionType.DECODER,
                 kv_sharing_target_layer_name=None, sinks=None):
        if alibi_slopes is not None or attn_type != AttentionType.DECODER:
            raise NotImplementedError("fa_tune's backend is for decoder layers without ALiBi")
        begin("vllm")
        self.num_heads, self.head_size, self.scale = num_heads, head_size, float(scale)
        self.num_kv_heads = num_kv_heads or num_heads
        self.window = None if sliding_window is None else sliding_window - 1
        self.sees_few_keys = self.window is not None and self.window < COPIED_QUERIES
        self.kv_cache_dtype, self.softcap = kv_cache_dtype, logits_soft_cap or 0.0
        self.shares_cache = kv_sharing_target_layer_name is not None
        self.sinks = self.loaded_sinks = sinks  # the parameter, before its weights are loaded

    def problem(self, dtype, page, causal=True):
        """The fields of the problem of this layer's calls, without batch and lengths."""
        return {"dtype": {torch.float16: "fp16", torch.bfloat16: "bf16"}[dtype], "head_dim": self.head_size,
                "heads_q": self.num_heads, "heads_kv": self.num_kv_heads, "layout": "bshd",
                "causal": "bottom-right" if causal else "none", "varlen": True, "lengths_k": "seqused", "page": page, "softcap": self.softcap > 0,
                "sinks": self.loaded_sinks is not None, "window": self.window is not None,
                "window_left": self.window or 0, "window_right": 0 if causal else self.window or 0, "kv_dtype": "fp8" if self.kv_cache_dtype.startswith("fp8") else "same"}

    def process_weights_after_loading(self, act_dtype):
        if self.loaded_sinks is None:
            return
        loaded = self.loaded_sinks.detach()  # vLLM loads outside no_grad(), and a parameter has gradients
        if self.sinks is self.loaded_sinks:
            self.sinks = loaded.float()
        else:  # loaded again: captured graphs keep the copy's address
            self.sinks.copy_(loaded)

    def _halves(self, kv_cache):
        """Keys and values of a cache, (blocks, page, heads_kv, head_size) each, where they lie."""
        kv_cache = kv_cache.transpose(1, 2)
        return kv_cache[..., :self.head_size], kv_cache[..., self.head_size:]

    def _copies(self, layer, kv_cache, pages, dtype):
        """Keys and values of these pages of an fp8 cache, behind one another, in `dtype`; None where there is no memory."""
        try:
            words = kv_cache.view(torch.int64).index_select(0, pages)  # eight numbers at once
            halves = self._halves(words.view(torch.float8_e4m3fn).to(dtype))
        except torch.OutOfMemoryError:
            return None
        for half, name in zip(halves, ("_k_scale", "_v_scale")):
            scale = getattr(layer, name)  # of the tensor, or of each head
            if scale.numel() > 1 or getattr(layer, name + "_float", None) != 1.0:
                half.mul_(scale.reshape(-1, 1))
        return halves

    def do_kv_cache_update(self, layer, key, value, kv_cache, slot_mapping):
        if not self.shares_cache and key is not None:
            _custom_ops.reshape_and_cache_flash(key, value, *self._halves(kv_cache), slot_mapping, self.kv_cache_dtype,
                                                layer._k_scale, layer._v_scale)

    def forward(self, layer, query, key, value, kv_cache, attn_metadata, output, output_scale=None,
                output_block_scale=None):
        if output_scale is not None or output_block_scale is not None:
            raise NotImplementedError("fa_tune does not quantize its output")
        if attn_metadata is None:  # vLLM's profiling run
            return output.fill_(0)
        fp8 = self.kv_cache_dtype.startswith("fp8")
        if fp8:
            kv_cache = kv_cache.view(torch.float8_e4m3fn)
        m, own = attn_metadata, self._halves(kv_cache)
        window = None if self.window is None else (self.window, 0 if m.causal else self.window)
        for part in m.parts:
            scales, table, copies = {}, part.block_table, None
            if part.copied is not None and not self.sees_few_keys:  # other layers of the group may see more
                copies = self._copies(layer, kv_cache, part.copied[0], query.dtype)
            keys, values = copies or own
            if copies:
                table = part.copied[1]
            elif fp8:
                each = part.seq_lens.shape[0], self.num_kv_heads  # from one scale or one of each head
                scales = {"k_descale": layer._k_scale.expand(each), "v_descale": layer._v_scale.expand(each)}
            fa_tune.attention_varlen(
                query[part.tokens], keys, values, out=output[part.tokens], cu_seqlens_q=part.query_start_loc,
                max_seqlen_q=part.max_query_len, seqused_k=part.seq_lens, max_seqlen_k=part.max_seq_len,
                block_table=table, softmax_scale=self.scale, causal=m.causal, window_size=window,
                softcap=self.softcap, s_aux=self.sinks, **scales)
        return output
