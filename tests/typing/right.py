# SPDX-License-Identifier: Apache-2.0
"""Uses of fa_tune in which a type checker finds no fault (tests/test_python_types.py). Never run."""
from __future__ import annotations

import datetime
from typing import Any

from typing_extensions import assert_type

import fa_tune


class Tensor:
    """As PyTorch's, CuPy's and JAX's are: it speaks DLPack."""

    def __dlpack__(self, *, stream: int | None = None) -> Any:
        return None


class Dtype:
    """As torch.dtype and numpy.dtype are."""

    @property
    def itemsize(self) -> int:
        return 2


class Half:
    """As numpy.float16 is: a type."""


def calls(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, with_lse: bool) -> None:
    assert_type(fa_tune.attention(q, k, v), Tensor)
    assert_type(fa_tune.attention(q, k, v, causal="top-left", scale=0.5, layout="bshd", window=(511, 0), out=q), Tensor)
    o, lse = fa_tune.attention(q, k, v, causal=True, return_lse=True)
    assert_type(lse, Tensor)
    fa_tune.attention(q, k, v, return_lse=with_lse, out=None)
    fa_tune.attention_varlen(q, k, v, max_seqlen_q=512, cu_seqlens_q=lengths, seqused_k=lengths, softcap=50.0, num_splits=0)
    o, lse = fa_tune.attention_decode(q, k, v, cache_seqlens=lengths, window_size=[-1, 0], return_softmax_lse=True)
    bound = fa_tune.kernel(seq=512, heads=8, heads_kv=2)
    bound(q, k, v, out=o)
    assert_type(bound.answer, fa_tune.Answer)


def problems(torch_dtype: Dtype) -> list[fa_tune.Problem]:
    one = fa_tune.Problem(seq=512, dtype="bf16", causal=True, heads=8, batch=4)
    assert_type(one.seq_q, int)
    assert_type(one.dtype, str)
    other = fa_tune.Problem(operation="rms_norm", rows=4096, columns=1024)
    assert other["rows"] == 4096 and hash(one) != hash(other)
    return [one, other, fa_tune.Problem.of({"seq": 64}), fa_tune.Problem(seq_q=1, seq_k=4096, dtype=torch_dtype),
            fa_tune.Problem(seq=64, dtype=Half, causal="bottom-right", layout="bshd", lse=True)]


def answers(one: fa_tune.Problem) -> str:
    answer = fa_tune.tune(one, gpu="L4", effort="predict", progress=lambda event: print(event["stage"]))
    answer = fa_tune.tune(seq=512, dtype="fp16", again=True, progress=False)
    answer = fa_tune.tune(operation="rms_norm", rows=4096, gpu="L4")
    assert_type(answer.median_us, "float | None")
    assert_type(answer.tunables, "dict[str, int | float | str]")
    assert_type(answer.shortlist_only, bool)
    if answer.origin == "measured":
        print(answer.gpu, answer.kernel, answer.as_dict()["funnel"])
    found = fa_tune.winners(gpu="H200", head_dim=128)
    assert_type(found[0], fa_tune.Answer)
    gone = fa_tune.forget(older_than=datetime.timedelta(days=30), causal=False, dry_run=True)
    assert_type(gone.bytes, int)
    assert_type(fa_tune.report("report.html", gpu="L4", head_dim=64).problems, "list[dict[str, Any]]")
    return repr(found) + str(found.to_pandas())


def sweeps() -> bool:
    swept = fa_tune.sweep(seq=[512, 1024], head_dim=(64, 128), causal=[False, "top-left"], dtype="bf16", gpu=["L4", "H100"],
                          effort="predict", seconds=1800)
    swept = fa_tune.sweep((fa_tune.Problem(seq=2**power) for power in range(6, 12)), progress=print)
    assert_type(swept[0].answer, "fa_tune.Answer | None")
    with fa_tune.recording() as met, fa_tune.policy(effort="cached", on_miss="sdpa"):
        pass
    assert_type(met.warm_up(effort="measure"), "list[fa_tune.Answer]")
    fa_tune.warm_up([{"seq": 512}, swept[0], *swept.answers()], effort="patient", progress=True)
    return bool(fa_tune.doctor()) and fa_tune.doctor()["gpu"].level == "ok"


def own_kernels() -> fa_tune.TunedKernel:
    add = fa_tune.tune_kernel("add.cu", args=dict(c=fa_tune.out("f32", "n"), a=fa_tune.array("f32", "n"), n=1 << 20),
                              tune=dict(THREADS=[64, 128]), block="THREADS", grid="ceil_div(n, THREADS)", effort="measure")
    return add.at(n=4096)


def errors() -> None:
    try:
        fa_tune.close()
    except fa_tune.NotTuned as error:
        assert_type(error.code, int)
