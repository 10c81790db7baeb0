# SPDX-License-Identifier: Apache-2.0
"""Mistakes that a type checker finds: each line that is wrong ends with what mypy says of it. Never run."""
import fa_tune


class Tensor:
    def __dlpack__(self) -> object:
        return None


q = Tensor()

# names
fa_tune.atention(q, q, q)  # error: attr-defined "atention"
fa_tune.importlib  # error: attr-defined "importlib"
fa_tune.attention(q, q, q, casual=True)  # error: call-overload "casual"
fa_tune.attention_varlen(q, q, q, max_seqlen_q=1, cu_seqlens_q=q, window=(1, 0))  # error: call-overload "window"
fa_tune.Problem(seqlen=512)  # error: call-overload
fa_tune.tune(seq=512, efort="measure")  # error: call-overload
fa_tune.sweep(seqs=[512])  # error: call-arg "seqs"
fa_tune.winners(sq=512)  # error: call-overload
fa_tune.Problem(seq=512).seqlen  # error: attr-defined "seqlen"
fa_tune.tune(seq=512).mediam_us  # error: attr-defined "mediam_us"
fa_tune.tune(seq=512).told  # error: attr-defined "told"
fa_tune.policy(efort="cached")  # error: call-arg "efort"
fa_tune.kernel(seq=512).anser  # error: attr-defined "anser"
fa_tune.sweep(seq=[512])[0].anser  # error: attr-defined "anser"
fa_tune.report("report.html").problms  # error: attr-defined "problms"
fa_tune.doctor()["gpu"].levl  # error: attr-defined "levl"

# words
fa_tune.policy(effort="fast")  # error: arg-type "fast"
fa_tune.policy(on_miss="ignore")  # error: arg-type "ignore"
fa_tune.warm_up([], effort="hard")  # error: arg-type "hard"
fa_tune.sweep(seq=[512], effort="fast")  # error: arg-type "fast"
fa_tune.sweep(seq=[512], effort="cached")  # error: arg-type "cached"
fa_tune.sweep(seq=[512], dtype=["fp32"])  # error: list-item
fa_tune.sweep(seq=[512], causal=["left"])  # error: list-item
fa_tune.tune(seq=512, dtype="int8")  # error: call-overload
fa_tune.Problem(seq=512, lengths_k="padded")  # error: call-overload
fa_tune.Problem(seq=512, kv_dtype="int8")  # error: call-overload
fa_tune.tune(seq=512, effort="fast")  # error: call-overload
fa_tune.Problem(seq=512, dtype="fp32")  # error: call-overload
fa_tune.Problem(seq=512, causal="yes")  # error: call-overload
fa_tune.Problem(seq=512, layout="bsdh")  # error: call-overload
fa_tune.attention(q, q, q, causal="left")  # error: call-overload
if fa_tune.tune(seq=512).origin == "guessed":  # error: comparison-overlap
    pass

# types
fa_tune.attention([1.0], [1.0], [1.0])  # error: call-overload
fa_tune.attention(q, q, q, sinks=3)  # error: call-overload
fa_tune.attention_decode(q, q, q, alibi_slopes=q)  # error: call-overload
fa_tune.Problem(seq="512")  # error: call-overload
fa_tune.Problem(512)  # error: call-overload
fa_tune.kernel(seq=512.0)  # error: call-overload
fa_tune.warm_up([512])  # error: list-item
fa_tune.tune(seq=512, progress="bar")  # error: call-overload
fa_tune.tune(seq=512).median_us + 1  # error: operator
fa_tune.sweep(seq=[512], trials="100")  # error: arg-type
fa_tune.forget(older_than=30, dry_run=True)  # error: call-overload
fa_tune.tune_kernel("add.cu", effort="fast")  # error: arg-type "fast"
