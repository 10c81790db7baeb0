# SPDX-License-Identifier: Apache-2.0
"""Tuning for a GPU that is not here: seconds to the first rows, to the whole space, and for the
second run, which finds the winner. Needs NVRTC and no GPU; run it on an idle machine.

    python3 tests/bench/absent_gpu.py build/fa-tune L4
"""
import os
import subprocess
import sys
import tempfile
import time


def run(program, gpu, store):
    """(seconds to the first config's line, or None; seconds in all)."""
    begin, first = time.perf_counter(), None
    command = [program, "--gpu", gpu, "--seq", "512", "--store", store]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                          text=True) as process:
        for line in process.stderr:
            if first is None and "BLOCK_M=" in line:
                first = time.perf_counter() - begin
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed")
    return first, time.perf_counter() - begin


def main():
    program, gpu = sys.argv[1], sys.argv[2]
    with tempfile.TemporaryDirectory(dir=os.path.expanduser("~")) as folder:
        store = os.path.join(folder, "store.db")
        first, whole = run(program, gpu, store)
        _, again = run(program, gpu, store)
    print(f"--gpu {gpu} --seq 512, {os.cpu_count()} cores: first rows {first:.2f} s, whole space "
          f"{whole:.1f} s, second run {again:.3f} s")


if __name__ == "__main__":
    main()
