# SPDX-License-Identifier: Apache-2.0
"""The words and fields that arguments take, for type checkers, and for the checks of this package by get_args().

Fields of attention stand here a second time: a test compares them with the library's own table.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, SupportsIndex, TypeAlias, TypedDict, Union, get_args

Effort = Literal["cached", "predict", "measure", "patient"]
EFFORTS = get_args(Effort)
SweepEffort = Literal["predict", "measure", "patient"]
OnMiss = Literal["raise", "sdpa", "nearest"]
Mask = Literal["none", "bottom-right", "top-left"]
Layout = Literal["bhsd", "bshd"]
LengthsK = Literal["fixed", "cu_seqlens", "seqused"]
KvDtype = Literal["same", "fp8", "fp8_ds_mla"]


class ElementType(Protocol):
    """A dtype of PyTorch or NumPy."""

    @property
    def itemsize(self) -> Any: ...


class Tensor(Protocol):
    """A tensor of any library that speaks DLPack."""

    def __dlpack__(self, *args: Any, **more: Any) -> Any: ...


Dtype: TypeAlias = Union[Literal["fp16", "bf16", "float16", "bfloat16", "half"], ElementType, "type[Any]"]
Causal: TypeAlias = Union[bool, Mask]


class ProblemFields(TypedDict, total=False):
    """Fields of a problem of attention, as fa_tune.Problem explains them."""

    dtype: Dtype
    causal: Causal
    layout: Layout
    head_dim: SupportsIndex
    head_dim_v: SupportsIndex
    v_in_k: bool
    batch: SupportsIndex
    heads: SupportsIndex
    heads_q: SupportsIndex
    heads_kv: SupportsIndex
    seq: SupportsIndex
    seq_q: SupportsIndex
    seq_k: SupportsIndex
    lse: bool
    unaligned: bool
    varlen: bool
    lengths_k: LengthsK
    page: SupportsIndex
    window: bool
    window_left: SupportsIndex
    window_right: SupportsIndex
    softcap: bool
    sinks: bool
    kv_dtype: KvDtype
    q_dtype: KvDtype
    batch_invariant: bool
    mean_q: SupportsIndex
    mean_k: SupportsIndex
    score: str
    mask: str
    buffers: str


_Numbers: TypeAlias = Union[SupportsIndex, Sequence[SupportsIndex]]
_Flags: TypeAlias = Union[bool, Sequence[bool]]


class GridFields(TypedDict, total=False):
    """The same, each a value or a sequence of values."""

    dtype: Dtype | Sequence[Dtype]
    causal: Causal | Sequence[Causal]
    layout: Layout | Sequence[Layout]
    head_dim: _Numbers
    head_dim_v: _Numbers
    v_in_k: _Flags
    batch: _Numbers
    heads: _Numbers
    heads_q: _Numbers
    heads_kv: _Numbers
    seq: _Numbers
    seq_q: _Numbers
    seq_k: _Numbers
    lse: _Flags
    unaligned: _Flags
    varlen: _Flags
    lengths_k: LengthsK | Sequence[LengthsK]
    page: _Numbers
    window: _Flags
    window_left: _Numbers
    window_right: _Numbers
    softcap: _Flags
    sinks: _Flags
    kv_dtype: KvDtype | Sequence[KvDtype]
    q_dtype: KvDtype | Sequence[KvDtype]
    batch_invariant: _Flags
    mean_q: _Numbers
    mean_k: _Numbers
    score: str | Sequence[str]
    mask: str | Sequence[str]
    buffers: str | Sequence[str]


class _Options(TypedDict, total=False):
    causal: Causal | None
    softcap: float | None
    sinks: Tensor | None
    block_table: Tensor | None
    max_seqlen_k: SupportsIndex | None
    stream: Any
    batch_invariant: bool
    mean_q: SupportsIndex
    mean_k: SupportsIndex
    score: str | Callable[..., Any] | None
    mask: str | Callable[..., Any] | None
    buffers: Mapping[str, Any] | None


class AttentionOptions(_Options, total=False):
    """What attention() takes by keyword, but out and return_lse."""

    scale: float | None
    layout: Layout | None
    window: tuple[int, int] | None
    cu_seqlens_q: Tensor | None
    cu_seqlens_k: Tensor | None
    max_seqlen_q: SupportsIndex | None
    seqused_k: Tensor | None
    q_scale: Tensor | None
    k_scale: Tensor | None
    v_scale: Tensor | None
    dropout_p: float
    dropout_seed: Any


class _ServingOptions(_Options, total=False):
    softmax_scale: float | None
    window_size: Sequence[int] | None
    s_aux: Tensor | None
    q_descale: Tensor | None
    k_descale: Tensor | None
    v_descale: Tensor | None
    # of flash-attn: these change nothing
    num_splits: Any
    scheduler_metadata: Any
    # and these must be off
    alibi_slopes: None


class VarlenOptions(_ServingOptions, total=False):
    """What attention_varlen() takes by keyword, but out and return_softmax_lse."""

    cu_seqlens_k: Tensor | None
    seqused_k: Tensor | None
    fa_version: Any
    deterministic: Any
    dropout_p: float
    dropout_seed: Any
    q_v: None
    return_attn_probs: bool
    cp_world_size: int
    cp_rank: int
    cp_tot_seqused_k: None


class DecodeOptions(_ServingOptions, total=False):
    """What attention_decode() takes by keyword, but out and return_softmax_lse."""

    v_dim: SupportsIndex | None
    cache_seqlens: Tensor | None
    page_table: Tensor | None
    cu_seqlens_q: Tensor | None
    max_seqlen_q: SupportsIndex | None
    pack_gqa: Any
    sm_margin: Any
    rotary_interleaved: Any
    k: None
    v: None
    qv: None
    rotary_cos: None
    rotary_sin: None
    cache_batch_idx: None
    cache_leftpad: None
    cu_seqlens_k_new: None


Progress: TypeAlias = Union["Callable[[dict[str, Any]], Any]", bool, None]
