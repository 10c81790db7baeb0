# SPDX-License-Identifier: Apache-2.0
"""fa_tune's kernels in SGLang: the attention backend that `--attention-backend fa_tune --page-size 64` selects.

Written against SGLang 0.5.13's interface. Prefill, extend and decode of decoder layers over pages, and of encoders
without cross attention, with windows, soft caps, sinks and caches of fp16, bf16 and fp8 (e4m3), and of models with
multi-head latent attention; no speculation, no pool of its own for sliding windows. docs/serving.md tells what was run of
this file.
"""
from dataclasses import dataclass

import torch
from sglang.srt.layers.attention.base_attn_backend import AttentionBackend
from sglang.srt.layers.radix_attention import AttentionType, RadixAttention
from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool

import fa_tune
from . import _start, begin
from .._policy import policy

try:  # since 2026 a pool is told where to write by an object
    from sglang.srt.mem_cache.memory_pool import KVWriteLoc
except ImportError:
    def KVWriteLoc(loc):  # noqa: N802
        return loc


@dataclass
class Step:
    """What every layer of a step shares. Lengths and pages are on the device."""
    lengths: torch.Tensor  # int32 (batch), of the keys
    pages: torch.Tensor    # int32 (batch, most pages)
    most_keys: int
    starts: "torch.Tensor | None" = None  # int32 (batch + 1), of the queries; None: one query each
    most_queries: int = 1
    left_out: bool = False  # of a batch without requests, whose attention nobody reads


def refuse(*kinds):
    """Raises for the first kind of attention, of pairs of its name and whether it is asked for, that is asked for."""
    for what, asked in kinds:
        if asked:
            raise NotImplementedError("fa_tune's backend does not take " + what)


class FaTuneAttnBackend(AttentionBackend):
    def __init__(self, runner):
        super().__init__()
        if runner.page_size % 16:
            raise ValueError("fa_tune's backend needs pages of a multiple of 16 tokens: pass --page-size 64")
        refuse(("a second pool for sliding windows: pass --disable-hybrid-swa-memory",
                isinstance(runner.token_to_kv_pool, SWAKVPool)),
               ("this cache: pass --kv-cache-dtype auto or fp8_e4m3",
                runner.kv_cache_dtype not in (torch.float8_e4m3fn, runner.model_config.dtype)))
        begin("sglang")
        self.page, self.most = runner.page_size, runner.model_config.context_len
        self.most_queries, self.most_batch = runner.server_args.chunked_prefill_size, runner.server_args.cuda_graph_max_bs
        self.dtype = {torch.float16: "fp16", torch.bfloat16: "bf16"}[runner.model_config.dtype]
        self.fp8 = runner.kv_cache_dtype == torch.float8_e4m3fn
        # Of a model with latent attention: a layer of so many columns attends to the cache, whose first columns are values, another
        # one to the keys and values of a prompt that it is given.
        model = runner.model_config
        self.latent = model.kv_lora_rank + model.qk_rope_head_dim if runner.use_mla_backend else None
        refuse(("latent attention of more than 512 columns over fp8: pass --kv-cache-dtype auto", self.fp8 and (self.latent or 0) > 512))
        self.slots = runner.req_to_token_pool.req_to_token  # (requests, tokens): where each token lies
        self.token_to_kv_pool = runner.token_to_kv_pool
        self.device = runner.device
        self.one = torch.ones((1,), dtype=torch.float32, device=self.device)  # the scale of layers without one
        self.step, self.unrecorded = None, False
        self.known_layers = set()
        for parent in runner.model.modules():  # SGLang has loaded the weights and captured no graph
            for layer in parent.children():
                if isinstance(layer, RadixAttention):
                    self._prepare(layer, getattr(parent, "sinks", None))

    def _prepare(self, layer, sinks):
        """Refuses what a layer asks for and is not taken, and readies kernels for it."""
        self._check(layer)
        most = self.most_queries if self.most_queries > 0 else self.most
        most = {"most_batch": min(self.slots.shape[0], self.most_batch), "most_queries": most, "most_keys": self.most}
        self.known_layers.add((layer.layer_id, layer.head_dim, sinks is not None))
        causal, window = layer.attn_type != AttentionType.ENCODER_ONLY, layer.sliding_window_size
        windowed = window is not None and window >= 0
        kind = {"dtype": self.dtype, "head_dim": layer.head_dim, "heads_q": layer.tp_q_head_num,
                "heads_kv": layer.tp_k_head_num, "causal": "bottom-right" if causal else "none", "layout": "bshd",
                "lengths_k": "seqused", "page": self.page, "softcap": layer.logit_cap > 0, "sinks": sinks is not None,
                "window": windowed, "window_left": window if windowed else 0, "kv_dtype": "fp8" if self.fp8 else "same"}
        if layer.v_head_dim != layer.head_dim:
            kind["head_dim_v"] = layer.v_head_dim
        if self._is_given_keys(layer):
            kind.update(varlen=True, lengths_k="cu_seqlens", page=0, kv_dtype="same")
            return _start.prepare("sglang", None, kind, **most)
        if self.latent is not None:
            kind["v_in_k"] = layer.head_dim > 512
        _start.prepare("sglang", kind, {**kind, "varlen": True}, **most)

    def _is_given_keys(self, layer):
        return self.latent not in (None, layer.head_dim)

    def _check(self, layer):
        window, encoder = layer.sliding_window_size, layer.attn_type == AttentionType.ENCODER_ONLY
        refuse(("cross attention", layer.is_cross_attention),
               ("local attention by chunks", layer.use_irope),
               ("soft caps by " + layer.logit_capping_method, layer.logit_cap and layer.logit_capping_method != "tanh"),
               ("scores scaled by length", layer.xai_temperature_len > 0),
               ("windows in encoders", encoder and window is not None and window >= 0))

    def _pages_of(self, requests, most_keys):
        return self.slots[requests, :most_keys:self.page] // self.page

    def init_forward_metadata(self, forward_batch):
        if forward_batch.forward_mode.is_idle():  # whose layers SGLang does not compute
            return
        refuse(("speculative decoding", forward_batch.spec_info is not None))
        # For each piecewise graph SGLang runs a batch of one prompt that is no request's. It is no problem that was met. Attention
        # lies between a graph's pieces and is not captured, so it is left out where that prompt is longer than the table of slots.
        no_request, most_keys = forward_batch.rids is None, int(forward_batch.seq_lens_cpu.max())
        if no_request != self.unrecorded:
            policy(record="" if no_request else _start.record_of("sglang"))
            self.unrecorded = no_request
        if most_keys > self.slots.shape[1]:
            refuse(("sequences longer than the table of slots", not no_request))
            self.step = Step(None, None, 0, left_out=True)
            return
        self.step = Step(forward_batch.seq_lens.to(torch.int32),
                         self._pages_of(forward_batch.req_pool_indices, most_keys).to(torch.int32),
                         _start.ceiling(most_keys))
        if not forward_batch.forward_mode.is_decode():
            counts = forward_batch.extend_seq_lens
            starts = torch.zeros(len(counts) + 1, dtype=torch.int32, device=self.device)
            torch.cumsum(counts, 0, dtype=torch.int32, out=starts[1:])
            self.step.starts, self.step.most_queries = starts, _start.ceiling(int(max(forward_batch.extend_seq_lens_cpu)))

    # ---- CUDA graphs of decode: the buffers stay, their content changes before each replay
    def init_cuda_graph_state(self, max_bs, max_num_tokens):
        self.lengths = torch.zeros(max_bs, dtype=torch.int32, device=self.device)
        self.pages = torch.zeros((max_bs, -(-self.most // self.page)), dtype=torch.int32, device=self.device)

    def init_forward_metadata_out_graph(self, forward_batch, in_capture=False):
        refuse(("graphs of anything but decode", not forward_batch.forward_mode.is_decode_or_idle()),
               ("speculative decoding", forward_batch.spec_info is not None))
        batch = forward_batch.batch_size
        self.lengths[:batch].copy_(forward_batch.seq_lens[:batch])
        self.pages[:batch].copy_(self._pages_of(forward_batch.req_pool_indices[:batch], self.most))
        self.step = Step(self.lengths[:batch], self.pages[:batch], _start.ceiling(self.most))

    def init_forward_metadata_in_graph(self, forward_batch):
        """Nothing: kernels read lengths and pages when they run."""

    def get_cuda_graph_seq_len_fill_value(self):
        return 1

    def _attend(self, q, k, v, layer, forward_batch, save_kv_cache=True, sinks=None, **more):
        if (layer.layer_id, layer.head_dim, sinks is not None) not in self.known_layers:  # one that its model does not hold as others do
            self._prepare(layer, sinks)
        refuse(("bidirectional attention between image tokens", layer.attn_type == AttentionType.DECODER_BIDIRECTIONAL
                and any(x is not None for x in forward_batch.mm_inputs or [])),
               *((name, value is not None) for name, value in more.items()))
        if save_kv_cache and k is not None:
            scales = (layer.k_scale, layer.v_scale) if self.latent is None else ()
            self.token_to_kv_pool.set_kv_buffer(layer, KVWriteLoc(forward_batch.out_cache_loc), k, v, *scales)
        if self.step.left_out:
            return torch.zeros((q.shape[0], layer.tp_q_head_num * layer.v_head_dim), dtype=q.dtype, device=self.device)
        window, step = layer.sliding_window_size, self.step
        q = q.view(-1, layer.tp_q_head_num, layer.head_dim)
        how = dict(softmax_scale=layer.scaling, causal=layer.attn_type != AttentionType.ENCODER_ONLY, softcap=layer.logit_cap,
                   s_aux=None if sinks is None else sinks.float(),
                   window_size=(window, 0) if window is not None and window >= 0 else None)
        if step.starts is not None:
            how.update(cu_seqlens_q=step.starts, max_seqlen_q=step.most_queries)
            out = getattr(forward_batch, "_attn_output", None)  # between the pieces of a graph: where the next one reads
            if out is not None:
                how["out"] = out.view(-1, layer.tp_q_head_num, layer.v_head_dim)
        if self._is_given_keys(layer):
            refuse(("a prefix of a prompt whose keys are given", any(forward_batch.extend_prefix_lens_cpu or [])))
            o = fa_tune.attention_varlen(q, k.view(-1, layer.tp_k_head_num, layer.head_dim), v, cu_seqlens_k=step.starts,
                                         max_seqlen_k=step.most_queries, **how)
            return o.view(-1, layer.tp_q_head_num * layer.v_head_dim)
        how.update(block_table=step.pages, max_seqlen_k=step.most_keys)
        if self.fp8:
            each = step.lengths.shape[0], layer.tp_k_head_num
            for name, scale in (("k_descale", layer.k_scale), ("v_descale", layer.v_scale)):
                how[name] = (self.one if scale is None or self.latent is not None else scale).expand(each)
        keys, values = self.token_to_kv_pool.get_kv_buffer(layer.layer_id)
        keys = keys.view(-1, self.page, layer.tp_k_head_num, layer.head_dim)
        if self.latent is not None:
            o = how.pop("out", None)
            o = q.new_empty((*q.shape[:2], layer.v_head_dim)) if o is None else o
            query, to = (q, o) if step.starts is not None else (q.unsqueeze(-3), o.unsqueeze(-3))
            fa_tune.attention_decode(query, keys, v_dim=layer.v_head_dim, cache_seqlens=step.lengths, out=to, **how)
        else:
            values = values.view(-1, self.page, layer.tp_v_head_num, layer.v_head_dim)
            if step.starts is None:
                o = fa_tune.attention_decode(q.unsqueeze(-3), keys, values, cache_seqlens=step.lengths, **how)
            else:
                o = fa_tune.attention_varlen(q, keys, values, seqused_k=step.lengths, **how)
        return o.view(-1, layer.tp_q_head_num * layer.v_head_dim)

    forward_decode = forward_extend = _attend
