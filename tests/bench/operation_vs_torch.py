#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kernels of gemm or rms_norm in shapes of language models: fa_tune's beside PyTorch's.

gemm: beside cuBLAS, through torch.nn.functional.linear. rms_norm: beside torch.nn.functional.rms_norm, and torch.compile of it.
Each row: medians of 45, launch by launch in turn, with the L2 cache flushed, and after the timing the whole of the outputs, which were NaN
before, against PyTorch's. Needs the installed wheel and PyTorch on a GPU.

    python3 tests/bench/operation_vs_torch.py gemm|rms_norm [--dtype fp16] [--out FILE]"""
import argparse
import time

from training_vs_torch import F, fa_tune, finish, in_turn, torch  # with a store of their own

EPSILON = 1e-5


def random(*shape, dtype):
    return torch.randn(*shape, device="cuda", dtype=dtype)


def nothing(*shape, dtype):
    return torch.full(shape, float("nan"), device="cuda", dtype=dtype)


class Gemm:
    # Tokens; then the columns of the output and of the input of Llama-3-8B's layers: q, k and v, o, gate and up, down.
    problems = [{"m": m, "n": n, "k": k} for m in (16, 512, 4096) for n, k in ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336))]
    peers = ["cublas"]
    unit = "TFLOP/s"

    def __init__(self, kernel, dtype, m, n, k):
        a, b, self.c = random(m, k, dtype=dtype), random(n, k, dtype=dtype), nothing(m, n, dtype=dtype)
        self.ways = {"fa_tune": lambda: kernel(a, b, self.c), "cublas": lambda: F.linear(a, b)}
        self.work = 2e-6 * m * n * k  # a microsecond of it: TFLOP/s

    def check(self):
        right = self.ways["cublas"]()
        error, largest = float((self.c.float() - right.float()).abs().max()), float(right.abs().max())
        assert error <= 2 ** -7 * largest, "C differs by %g of %g" % (error, largest)


class RmsNorm:
    # Tokens and the width of Llama-3's and DeepSeek-V3's layers, in front of which most models add the residual; and heads, each by itself.
    problems = [{"rows": rows, "columns": columns, "residual": residual} for rows, columns, residual in (
        (1, 16384, False), (16, 4096, True), (256, 4096, False), (256, 8192, True), (4096, 4096, True), (4096, 7168, False),
        (16384, 8192, False), (131072, 128, False))]
    peers = ["torch", "torch.compile"]
    unit = "GB/s"

    def __init__(self, kernel, dtype, rows, columns, residual):
        x, w = random(rows, columns, dtype=dtype), random(columns, dtype=dtype)
        r, sum_to = (random(rows, columns, dtype=dtype), nothing(rows, columns, dtype=dtype)) if residual else (None, None)
        self.y, self.sum = nothing(rows, columns, dtype=dtype), sum_to

        def norm(x, w):
            return F.rms_norm(x, (columns,), w, EPSILON)

        def add_and_norm(x, w, r):
            s = x + r
            return F.rms_norm(s, (columns,), w, EPSILON), s
        torch.compiler.reset()
        way = add_and_norm if residual else norm
        compiled = torch.compile(way, dynamic=False)
        given = (x, w, r) if residual else (x, w)
        self.ways = {"fa_tune": lambda: kernel(x, w, r, self.y, self.sum, EPSILON), "torch": lambda: way(*given),
                     "torch.compile": lambda: compiled(*given)}
        self.exact = [part.double() for part in given]
        self.work = 1e-3 * (4 + 4 * residual) * rows * columns  # a microsecond of it: GB/s

    def check(self):
        x, w, *r = self.exact
        if r:
            s = (x + r[0]).to(self.sum.dtype)
            assert torch.equal(self.sum, s), "the sum differs"
            x = s.double()
        right = w * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPSILON)
        half = 2 ** -8 if self.y.dtype == torch.bfloat16 else 2 ** -11
        assert ((self.y.double() - right).abs() <= 1.01 * half * right.abs() + 1e-6).all(), "y differs"


OPERATIONS = {"gemm": Gemm, "rms_norm": RmsNorm}


def measure(operation, problem, dtype, cache):
    begin = time.monotonic()
    kernel = fa_tune.kernel(operation=operation, dtype="bf16" if dtype == torch.bfloat16 else "fp16", **problem)
    cold = time.monotonic() - begin
    case = OPERATIONS[operation](kernel, dtype, **problem)
    times = in_turn(case.ways, cache)
    case.check()
    return {**problem, "dtype": str(dtype).rpartition(".")[2], "cold_s": round(cold, 1), "family": kernel.answer.family,
            "tunables": kernel.answer.tunables, "rate": case.work,
            **{name: round(us, 2) for name, us in times.items()}}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("operation", choices=OPERATIONS)
    parser.add_argument("--dtype", choices=["bf16", "fp16"], default="bf16")
    parser.add_argument("--out", help="also write the rows as JSON lines")
    options = parser.parse_args()
    of, rows = OPERATIONS[options.operation], []
    cache = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    print("%s, %s" % (torch.cuda.get_device_name(), options.dtype))
    print("| %s | fa_tune us | %s | %s | %s | config | cold s |" % (
        ", ".join(of.problems[0]), " | ".join(of.peers), " | ".join(peer + " / fa_tune" for peer in of.peers), of.unit))
    for problem in of.problems:
        row = measure(options.operation, problem, torch.bfloat16 if options.dtype == "bf16" else torch.float16, cache)
        row["rate"] = round(row["rate"] / row["fa_tune"], 1)
        rows.append(row)
        print("| %s | %.1f | %s | %s | %.0f | %s %s | %.1f |" % (
            ", ".join(str(value) for value in problem.values()), row["fa_tune"], " | ".join("%.1f" % row[peer] for peer in of.peers),
            " | ".join("%.3f" % (row[peer] / row["fa_tune"]) for peer in of.peers), row["rate"], row["family"],
            " ".join("%s=%s" % item for item in row["tunables"].items()), row["cold_s"]), flush=True)
    finish(rows, of.peers, options.out)


if __name__ == "__main__":
    main()
