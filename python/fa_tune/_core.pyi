# SPDX-License-Identifier: Apache-2.0
"""Types of the extension, for editors and type checkers."""
from collections.abc import Sequence
from typing import Any

from ._objects import Answer
from ._problem import Problem

def attention(q: Any, k: Any, v: Any, *, causal: bool | str = False, scale: float | None = None,
              layout: str = "bhsd", out: Any = None, return_lse: bool = False, stream: Any = None,
              window: tuple[int, int] | None = None, softcap: float | None = None, **more: Any) -> Any: ...
def attention_varlen(q: Any, k: Any, v: Any, *, max_seqlen_q: int, cu_seqlens_q: Any, max_seqlen_k: int | None = None,
                     cu_seqlens_k: Any = None, seqused_k: Any = None, softmax_scale: float | None = None,
                     causal: bool | str = False, window_size: Sequence[int] | None = None, softcap: float = 0.0,
                     block_table: Any = None, return_softmax_lse: bool = False, out: Any = None, s_aux: Any = None,
                     k_descale: Any = None, v_descale: Any = None, stream: Any = None,
                     batch_invariant: bool = False, **more: Any) -> Any: ...
def attention_decode(q: Any, k_cache: Any, v_cache: Any, *, cache_seqlens: Any = None, block_table: Any = None,
                     softmax_scale: float | None = None, causal: bool | str = False,
                     window_size: Sequence[int] | None = None, softcap: float = 0.0, max_seqlen_k: int | None = None,
                     cu_seqlens_q: Any = None, max_seqlen_q: int | None = None, return_softmax_lse: bool = False,
                     out: Any = None, s_aux: Any = None, k_descale: Any = None, v_descale: Any = None,
                     stream: Any = None, batch_invariant: bool = False, **more: Any) -> Any: ...
def close() -> None: ...

# For the package's own modules.
fields: list[str]

def problem(fields: dict[str, Any]) -> dict[str, Any]: ...
def fields_of(operation: str) -> list[str]: ...
def best_kernel(problem: dict[str, Any], effort: str = "measure", device: int = 0, progress: Any = None) -> Kernel: ...
def tune(problem: dict[str, Any], gpu: str | None = None, device: int = 0, effort: str = "measure",
         again: bool = False, exact: bool = False, progress: Any = None) -> dict[str, Any]: ...
def set_policy(effort: str, on_miss: Any = None) -> None: ...
def set_recorder(function: Any) -> None: ...
def write_file(path: str | bytes, content: bytes) -> None: ...

class Kernel:
    answer: Answer
    problem: Problem
    device: int
    def __call__(self, q: Any, k: Any, v: Any, *, scale: float | None = None, out: Any = None,
                 return_lse: bool = False, stream: Any = None) -> Any: ...
