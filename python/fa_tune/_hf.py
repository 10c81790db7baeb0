# SPDX-License-Identifier: Apache-2.0
"""Hugging Face transformers: model = AutoModel….from_pretrained(…, attn_implementation="fa_tune").

Masks are made as for "sdpa", which leaves them out where the causal rule says all. In the place of a mask that says no
more than the causal rule over the first keys of a cache there are the numbers of these keys, int32 (batch, 1, 1, 1):
transformers takes whatever has four dimensions for a mask that is made, and passes it on. Any other mask, and a bias of
positions, are read by the kernels: of a mask whose rows see neighbouring keys (a window, padding, documents, the prefix of
an image), the first layer of a step makes the first and last key of each row. Whatever we do not cover goes to
transformers' own sdpa_attention_forward.

"paged|fa_tune" is the form of the name for continuous batching (written against transformers 5.17).
"""
import torch
from transformers.integrations.sdpa_attention import sdpa_attention_forward

try:
    from transformers import masking_utils
except ImportError:  # before transformers 4.53 masks followed the model
    masking_utils = None

from . import _core, _errors, _sdpa_fallback
from ._policy import is_not_covered, warn_once
from ._problem import ceiling

NAME = "fa_tune"


# ---- masks ---------------------------------------------------------------------------------------
def _is_window(mask_function):
    """Whether it is what masking_utils.sliding_window_causal_mask_function() returns."""
    held = [cell.cell_contents for cell in getattr(mask_function, "__closure__", None) or ()]
    parts = held[0] if len(held) == 1 and isinstance(held[0], tuple) else ()
    return (len(parts) == 2 and parts[1] is masking_utils.causal_mask_function and
            getattr(parts[0], "__qualname__", "").startswith("sliding_window_overlay."))


def _lengths(batch_size, kv_length, mask_function, q_length=None, q_offset=0, kv_offset=0, attention_mask=None,
             local_size=None, device=None, **_):
    """int32 (batch, 1, 1, 1): how many of the first keys each sequence has, of which its last query sees all; None where
    the mask says more than that. The host does not wait for the GPU, but for a mask of padding that it has not seen yet:
    one that has grown by a token since the step before, as generate() has it, is checked on the GPU."""
    if q_length is None:  # before transformers 5
        return None
    tracing = masking_utils.is_tracing(attention_mask)
    if mask_function is not masking_utils.causal_mask_function and (
            tracing or local_size is None or kv_length > local_size or not _is_window(mask_function)):
        return None  # a window that hides no key is none
    keys = q_offset - kv_offset + q_length
    if isinstance(keys, int) and keys > kv_length:
        if q_length > 1:
            return None
        keys = kv_length
    if attention_mask is None:
        if isinstance(keys, int):
            return torch.full((batch_size, 1, 1, 1), keys, dtype=torch.int32, device=device)
        return keys.to(torch.int32).reshape(1, 1, 1, 1).repeat(batch_size, 1, 1, 1)
    if tracing or attention_mask.dim() != 2 or attention_mask.shape[0] != batch_size:
        return None
    seen = attention_mask[:, kv_offset:kv_offset + kv_length].bool()
    counts, holes = seen.sum(-1), (seen[:, 1:] & ~seen[:, :-1]).any()  # keys behind ones that are hidden
    if q_length > 1:
        holes = holes | (counts < keys).any()
    shape = tuple(attention_mask.shape)
    if q_length == 1 and getattr(q_offset, "_fa_tune_mask", None) == (shape[0], shape[1] - 1):
        torch._assert_async(~holes, "fa_tune: padding between the keys of a static cache came with a single token, where "
                            "nobody waits to see it: use attn_implementation=\"sdpa\"")
    elif holes:
        shape = counts = None
    if isinstance(q_offset, torch.Tensor):  # a static cache's own number
        q_offset._fa_tune_mask = shape
    return None if counts is None else counts.clamp(max=keys).to(torch.int32).view(batch_size, 1, 1, 1)


def make_mask(*args, **more):
    """transformers' sdpa_mask, or the numbers of keys where these say the same."""
    mask = None
    if args or more.get("allow_is_causal_skip", True):  # without it a mask is certain
        mask = masking_utils.sdpa_mask(*args, **more)
        if args or mask is None:
            return mask
    lengths = _lengths(**more)
    if lengths is not None:
        return lengths
    return masking_utils.sdpa_mask(**more) if mask is None else mask


def _are_lengths(mask):
    return mask is not None and mask.dtype == torch.int32 and mask.dim() == 4 and mask.shape[1:] == (1, 1, 1)


def _mask_of(lengths, q_length, kv_length):
    """The mask that they stand for."""
    last = lengths - q_length + torch.arange(q_length, device=lengths.device).view(-1, 1)
    return torch.arange(kv_length, device=lengths.device) <= last


def _spans(mask, dtype, layer):
    """What a boolean mask comes to: (first, end), int32 (batch, heads, rows), the keys that each row sees; or, where a row sees keys
    that are no neighbours, what is added to scores, which a kernel reads faster than bytes. The host waits for the GPU, once for a mask;
    for one of inference mode, which does not say that it was changed, in the first layer of each step (layer: -1 has no number)."""
    made, key = getattr(mask, "_fa_tune_spans", None), (0 if mask.is_inference() else mask._version, dtype)
    if made is None or made[0] != key or mask.is_inference() and layer <= made[2]:
        begins = (mask[..., 1:] & ~mask[..., :-1]).sum(-1, dtype=torch.int32) + mask[..., 0]
        if bool((begins <= 1).all()):
            first = mask.view(torch.uint8).argmax(-1).to(torch.int32)
            spans = first, first + mask.sum(-1, dtype=torch.int32)
        else:
            spans = torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, -6e4)
        made = key, spans
    mask._fa_tune_spans = *made[:2], layer
    return made[1]


def _texts(query, key, mask, bias, layer):
    """The score and mask of a call, and what they read. An index of a dimension of one is that of its one element."""
    row = "q" if query.shape[2] == key.shape[2] else "q - (len_k - len_q)"
    texts, held = {}, {}
    spans = mask if mask is None or mask.dtype != torch.bool else _spans(mask, query.dtype, layer)
    if isinstance(spans, tuple):
        texts["mask"] = "first[b][h][%s] <= k and k < end[b][h][%s]" % (row, row)
        held["first"], held["end"] = spans
        spans = None
    scores = {name: x for name, x in (("bias", bias), ("added", spans)) if x is not None}
    if scores:
        texts["score"] = " + ".join(["score", *("%s[b][h][%s][k]" % (name, row) for name in scores)])
    return {**texts, "buffers": {**held, **scores}}


# ---- attention -----------------------------------------------------------------------------------
def _fits(x, query, key):
    """Whether a mask or bias is as wide as the scores, or one that serves all batches or heads."""
    return x.dim() == 4 and x.shape[2:] == (query.shape[2], key.shape[2]) and all(
        have in (1, wanted) for have, wanted in zip(x.shape[:2], query.shape[:2]))


def _is_ours(x):
    return x.is_cuda


def _reason_against(tensors, attention_mask, more):
    if not _is_ours(tensors[0]):
        return "the tensors are not on CUDA"
    if more.get("output_attentions"):
        return "attention weights are asked for"
    for x, name in ((attention_mask, "a mask"), (more.get("position_bias"), "a bias of positions")):
        if x is None:
            continue
        if len(tensors) < 3 or tensors[0].shape[2] == 1:
            return "%s is given for a single query, or for pages" % name
        if torch.compiler.is_compiling() or torch.cuda.is_current_stream_capturing():
            return "%s is given to a compiler, or while a graph is captured" % name
        if not _fits(x, *tensors[:2]):
            return "%s has other sizes than the scores" % name
    return None


def _extras(more, dropout):
    extras = {} if more.get("softcap") is None else {"softcap": more["softcap"]}
    if dropout:
        extras["dropout_p"] = dropout
    if more.get("s_aux") is not None:
        extras["sinks"] = more["s_aux"].float()
    return extras


def attention_forward(module, query, key, value, attention_mask, dropout=0.0, scaling=None,
                      is_causal=None, **more):
    """q (batch, heads_q, seq_q, head_dim), k and v (batch, heads_kv, seq_k, head_dim); returns the
    output as (batch, seq_q, heads_q, head_dim), and None for the weights."""
    lengths = attention_mask if _are_lengths(attention_mask) else None
    kind = reason = _reason_against((query, key, value), attention_mask if lengths is None else None, more)
    if reason is None:
        causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
        causal = bool(causal or lengths is not None) and query.shape[2] > 1
        k, v, extras = key, value, _extras(more, dropout)
        if attention_mask is not None and lengths is None:
            causal = False  # the mask says it
        if (attention_mask is not None and lengths is None) or more.get("position_bias") is not None:
            extras.update(_texts(query, key, None if lengths is not None else attention_mask, more.get("position_bias"),
                                 getattr(module, "layer_idx", -1)))
        if lengths is not None:
            extras["seqused_k"] = lengths.view(-1)
        elif causal and k.shape[2] > query.shape[2]:  # an empty static cache is longer than the prompt
            k, v = k[:, :, :query.shape[2]], v[:, :, :query.shape[2]]
        trains = torch.is_grad_enabled() and any(x.requires_grad for x in (query, k, v, more.get("position_bias"), *extras.values())
                                                 if isinstance(x, torch.Tensor))
        try:
            if trains:  # in the order of the output that is saved, of which no copy is to be saved beside it
                return _core.attention(*(x.transpose(1, 2) for x in (query, k, v)), causal=causal, scale=scaling,
                                       layout="bshd", **extras), None
            out = query.new_empty((query.shape[0], query.shape[2], query.shape[1], v.shape[3]))
            _core.attention(query, k, v, causal=causal, scale=scaling, out=out.transpose(1, 2), **extras)
            return out, None
        except _errors.Error as error:
            if not is_not_covered(error):
                raise
            kind, reason = type(error), str(error)
    if more.get("s_aux") is not None:
        raise _errors.NotSupported("attention sinks, which SDPA does not know, and %s" % reason)
    warn_once(("transformers", kind), "transformers' sdpa_attention_forward computes a call, and others "
              "of its kind: %s" % reason)
    if lengths is not None:
        attention_mask = _mask_of(lengths, query.shape[2], key.shape[2])
    with _sdpa_fallback.pytorch_own():
        return sdpa_attention_forward(module, query, key, value, attention_mask, dropout=dropout,
                                      scaling=scaling, is_causal=is_causal, **more)


# ---- continuous batching -------------------------------------------------------------------------
def _pages(index, starts, most, page):
    """(block table, lengths) of sequences whose keys lie in pages, each from its first row on: `index` has every key's row
    in the cache, sequence behind sequence. Made by the first layer of a step; a captured graph makes its own."""
    key = None if torch.compiler.is_compiling() else (torch.cuda.is_current_stream_capturing(), most)
    made = getattr(index, "_fa_tune_pages", None) if key else None
    if made is None or made[0] != key:
        first = starts[:-1, None] + torch.arange(0, most, page, device=starts.device)
        table = (index[first.clamp(max=index.shape[0] - 1)] // page).to(torch.int32)
        made = key, table, starts.diff().to(torch.int32)
        if key:
            index._fa_tune_pages = made
    return made[1:]


def paged_attention_forward(module, query, key, value, attention_mask=None, dropout=0.0, scaling=None, cache=None,
                            cu_seq_lens_q=None, cu_seq_lens_k=None, max_seqlen_q=None, max_seqlen_k=None,
                            read_index=None, write_index=None, block_table=None, **more):
    """q (1, heads_q, total_q, head_dim), k and v (1, heads_kv, total_q, head_dim): the new tokens of all sequences, behind
    one another. Returns (1, total_q, heads_q, head_dim), and None for the weights. Keys and values are written to the
    cache, and read where they lie, but in layers with a window."""
    if cache is None:
        raise _errors.ArgumentError("\"paged|fa_tune\" is for continuous batching, which passes its cache: use \"fa_tune\"")
    reason = _reason_against((query,), attention_mask, more)
    if reason is not None or block_table is not None:
        raise _errors.NotSupported("continuous batching with \"paged|fa_tune\": %s" % (reason or "a block table is given"))
    group, layer = cache.layer_index_to_group_indices[module.layer_idx]
    window, extras = cache.sliding_windows[module.layer_idx], _extras(more, dropout)  # of 1: none
    if isinstance(cu_seq_lens_k, dict):
        kind = "full_attention" if window == 1 else "sliding_attention"
        cu_seq_lens_k, max_seqlen_k = cu_seq_lens_k[kind], max_seqlen_k[kind]
    most = ceiling(max_seqlen_k)
    if window == 1 and read_index[group].shape[0] > 0:
        cache.update(key, value, module.layer_idx, [one[:0] for one in read_index], write_index)  # writes alone
        k, v = (x[layer].view(-1, cache.block_size, *x[layer].shape[1:]) for x in (cache.key_cache, cache.value_cache))
        extras["block_table"], extras["seqused_k"] = _pages(read_index[group], cu_seq_lens_k, most, cache.block_size)
    else:
        k, v = cache.update(key, value, module.layer_idx, read_index, write_index)
        extras["cu_seqlens_k"] = cu_seq_lens_k
    if window > 1:
        extras["window_size"] = (window - 1, 0)
    out = _core.attention_varlen(query[0].transpose(0, 1), k, v, cu_seqlens_q=cu_seq_lens_q, softmax_scale=scaling,
                                 max_seqlen_q=ceiling(max_seqlen_q), max_seqlen_k=most, causal=max_seqlen_q > 1, **extras)
    return out[None], None


def register():
    """Makes attn_implementation="fa_tune" known to transformers."""
    from transformers import AttentionInterface
    AttentionInterface.register(NAME, attention_forward)
    AttentionInterface.register("paged|" + NAME, paged_attention_forward)
    if masking_utils is not None:
        from transformers import AttentionMaskInterface
        AttentionMaskInterface.register(NAME, make_mask)
