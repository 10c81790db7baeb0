#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""fa_tune.caches on a GPU: eight processes start at once on one key, as eight hosts with one store.

    python tests/bench/caches_race.py [--only ours]   with PyTorch 2.11 or later, the wheel of fa-tune, and Helion where it is; up to seven minutes

Each process has folders of its own ("none", "ours") or shares PyTorch's own ("local"). Printed: how many of them tuned, how
many winners there were, and the seconds from a process's start to its first step. Exit status 1: a verdict failed."""
import argparse
import hashlib
import importlib.util
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

COUNT = 8
LIMIT_S = 75  # of a row


def inductor(ours):
    import torch
    if ours:
        import fa_tune.caches
        fa_tune.caches.use()
    from torch._inductor import codecache, select_algorithm
    from torch._inductor.runtime import triton_heuristics
    tuned, used = [], []
    run = triton_heuristics.CachingAutotuner.run

    def counted(where, name, times):
        old = getattr(where, name)
        setattr(where, name, lambda self, *a, **k: (tuned.extend([1] * times(self)), old(self, *a, **k))[1])

    counted(triton_heuristics.CachingAutotuner, "benchmark_all_configs", lambda self: len(self.launchers) > 1)
    counted(triton_heuristics.CoordescTuner, "autotune", lambda self: 1)
    counted(select_algorithm.AlgorithmSelectorCache, "benchmark", lambda self: 1)

    def noted(self, *arguments, **more):
        result = run(self, *arguments, **more)
        used.append((self.fn.__name__, str(self.launchers[0].config)))
        return result

    triton_heuristics.CachingAutotuner.run = noted
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(1024, 2048), torch.nn.GELU(), torch.nn.LayerNorm(2048))
    model = model.half().cuda().eval()
    x = torch.randn(768, 1024, dtype=torch.half, device="cuda")
    with torch.no_grad():
        compiled = torch.compile(model, mode="max-autotune-no-cudagraphs")
        compiled(x)
        used.clear()  # what was launched to be timed
        compiled(x)
    torch.cuda.synchronize()
    texts = set()
    for module in codecache.PyCodeCache.modules:
        with open(module.__file__, encoding="utf-8") as file:
            text = file.read()
        if "async_compile.wait(" in text:  # a graph, with the source of its kernels
            texts.add(re.sub(r"#.*|'[^'\s]*/[^'\s]*'", "", text))  # without comments and paths
    return len(tuned), [sorted(texts), sorted(set(used))]


def triton(ours):
    import torch
    import triton as t
    import triton.language as tl
    from fa_tune.caches import bench
    measured = []

    def clock(call, quantiles):
        measured.append(1)
        return bench(call, quantiles)

    clock.__qualname__ = "bench"
    configs = [t.Config({"BLOCK": block}, num_warps=warps, num_stages=stages)
               for block in (256, 512, 1024, 2048) for warps in (2, 4, 8) for stages in (1, 2)]

    @t.autotune(configs, key=["n"], do_bench=clock, cache_results=True)
    @t.jit
    def scale(x, y, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(y + at, tl.exp(tl.load(x + at, mask=at < n)), mask=at < n)

    n = 1 << 24
    x = torch.randn(n, device="cuda")
    scale[lambda meta: (t.cdiv(n, meta["BLOCK"]),)](x, torch.empty_like(x), n)
    torch.cuda.synchronize()
    return len(measured), str(scale.best_config)


def helion(ours):
    if ours:
        import fa_tune.caches
        fa_tune.caches.use()
    global torch, hl  # Helion takes no closures
    import torch
    import helion as h
    import helion.language as hl
    from helion._utils import counters

    @h.kernel(autotune_effort="quick", autotune_budget_seconds=20)
    def gelu_rows(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        for row, column in hl.tile(x.size()):
            out[row, column] = torch.nn.functional.gelu(x[row, column] + bias[column])
        return out

    torch.manual_seed(0)
    x, bias = torch.randn(4096, 2048, device="cuda"), torch.randn(2048, device="cuda")
    result = gelu_rows(x, bias)
    torch.cuda.synchronize()
    torch.testing.assert_close(result, torch.nn.functional.gelu(x + bias))
    return counters["autotune"]["cache_miss"], str(gelu_rows.bind((x, bias))._config)


def overhead(ours):
    """Seconds by which a warm kernel's lookup takes longer than with Triton's own manager, and what a hit of the store takes."""
    from fa_tune.caches import TritonCache
    from triton.runtime.cache import FileCacheManager

    def took(manager, key):
        times = []
        for _ in range(200):
            begun = time.perf_counter()
            assert manager(key).get_group("k.json") is not None
            times.append(time.perf_counter() - begun)
        return statistics.median(times)

    cache = TritonCache("OVERHEAD")
    about = json.dumps({"name": "k", "target": {"backend": "cuda", "arch": 90}})
    group = {name: cache.put(os.urandom(40000), name) for name in ("k.ttir", "k.ttgir", "k.llir", "k.ptx", "k.cubin")}
    group["k.json"] = cache.put(about, "k.json", binary=False)
    cache.put_group("k.json", group)
    local = took(TritonCache, "OVERHEAD") - took(FileCacheManager, "OVERHEAD")
    times = []
    for number in range(20):
        os.environ["TRITON_CACHE_DIR"] += "x"  # another host
        begun = time.perf_counter()
        assert TritonCache("OVERHEAD").get_group("k.json") is not None
        times.append(time.perf_counter() - begun)
    return local, statistics.median(times)


JOBS = {"triton": triton, "inductor": inductor, "helion": helion, "overhead": overhead}


def race(job, ours, folder, shared, count=COUNT, **more):
    """(work, winner, seconds) of each; ours: over the store in the folder."""
    begun, processes = time.monotonic(), []
    for number in range(count):
        own = os.path.join(folder, "shared") if shared else tempfile.mkdtemp(dir=folder)
        env = {**os.environ, "FA_TUNE_STORE": os.path.join(folder, "store.db"), "XDG_CONFIG_HOME": folder, "FA_TUNE_SERVER": "",
               "TORCHINDUCTOR_CACHE_DIR": os.path.join(own, "inductor"), "TRITON_CACHE_DIR": os.path.join(own, "triton"),
               "HELION_CACHE_DIR": os.path.join(own, "helion"), "TORCHINDUCTOR_COMPILE_THREADS": "2", "PYTHONFAULTHANDLER": "1", **more}
        if job != "inductor" and ours:
            env["TRITON_CACHE_MANAGER"] = "fa_tune.caches:TritonCache"
        processes.append(subprocess.Popen([sys.executable, os.path.abspath(__file__), "--child", job, *(["--ours"] if ours else [])],
                                          env={**env, "RACE_BEGUN": str(time.monotonic())}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    results = []
    for process in processes:
        try:
            out, err = process.communicate(timeout=max(1, LIMIT_S - (time.monotonic() - begun)))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)  # it prints where it stands
            out, err = process.communicate()
        sentences = [line for line in err.splitlines() if "fa_tune" in line]
        if process.returncode != 0 or sentences:
            print("# %s: exit status %s\n# %s" % (job, process.returncode, "\n# ".join((sentences or err.splitlines())[-30:])))
        if process.returncode == 0:
            results.append(json.loads(out.splitlines()[-1]))
    return results


def row(job, name, results):
    seconds = sorted(result["seconds"] for result in results) or [0]
    said = {"tuned": sum(result["work"] > 0 for result in results), "winners": len({result["winner"] for result in results}),
            "ended": len(results), "median": statistics.median(seconds), "last": seconds[-1]}
    print("%-9s %-22s %5d of %d %8d %10.1f %8.1f" % (job, name, said["tuned"], len(results), said["winners"], said["median"], said["last"]),
          flush=True)
    return said


def main(ours_alone):
    print("%-9s %-22s %10s %8s %10s %8s" % ("", "caches", "tuned", "winners", "median s", "last s"), flush=True)
    verdicts = []
    with tempfile.TemporaryDirectory() as top:
        for job in ("triton", "inductor", *(["helion"] if importlib.util.find_spec("helion") else [])):
            folder = {name: os.path.join(top, job + name) for name in ("none", "local", "ours")}
            for path in folder.values():
                os.mkdir(path, 0o700)
            if not ours_alone:
                none = row(job, "none", race(job, False, folder["none"], False))
                row(job, "own folder, empty", race(job, False, folder["local"], True))
                local = row(job, "own folder, warm", race(job, False, folder["local"], True))
            cold = row(job, "fa-tune, empty store", race(job, True, folder["ours"], False))
            warm = row(job, "fa-tune, warm store", race(job, True, folder["ours"], False))
            verdicts += [
                (job + ": one process tuned with an empty store", cold["tuned"] == 1 and cold["ended"] == COUNT),
                (job + ": none tuned with a warm store", warm["tuned"] == 0 and warm["ended"] == COUNT),
                (job + ": all eight have one winner", cold["winners"] == 1 and warm["winners"] == 1),
            ]
            if not ours_alone:
                verdicts += [
                    (job + ": a warm store is faster than no cache", warm["median"] < none["median"]),
                    (job + ": a warm store is within 2 s of a warm folder", warm["median"] < local["median"] + 2),
                ]
        (other,) = race("triton", True, os.path.join(top, "tritonours"), False, 1, FA_TUNE_CACHES_GPU="H100 SXM") or [{"work": 0}]
        verdicts.append(("triton: a process that is an H100 tunes anew", other["work"] == 24))
        (took,) = race("overhead", True, os.path.join(top, "tritonours"), False, 1) or [{"work": 1, "winner": 1}]
        print("a warm kernel of 200 kB: %.3f ms beside Triton's own manager; from the store into an empty folder %.1f ms" %
              (took["work"] * 1e3, took["winner"] * 1e3))
        verdicts.append(("a hit costs at most 1 ms beside the local folder", took["work"] <= 1e-3))
    for sentence, holds in verdicts:
        print("%s: %s" % ("holds" if holds else "FAILS", sentence))
    return 0 if all(holds for _, holds in verdicts) else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--child", choices=tuple(JOBS), help=argparse.SUPPRESS)
    parser.add_argument("--ours", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--only", choices=("ours",), help="the rows over fa-tune's store alone")
    asked = parser.parse_args()
    if asked.child is None:
        sys.exit(main(asked.only == "ours"))
    work, winner = JOBS[asked.child](asked.ours)
    print(json.dumps({"work": work, "seconds": time.monotonic() - float(os.environ.get("RACE_BEGUN", "0")),
                      "winner": winner if asked.child == "overhead" else hashlib.sha256(json.dumps(winner).encode()).hexdigest()}))
