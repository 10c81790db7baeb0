# SPDX-License-Identifier: Apache-2.0
"""Where the seconds of a cold tune go: fa_tune on an empty store, each of its events with the time since the call.

    FA_TUNE_LIBRARY=build/libfa_tune.so python3 tests/bench/tune_timeline.py [--gpu H200] [--effort predict] [SEQ HEAD_DIM CAUSAL]
"""
import argparse
import ctypes as c
import os
import statistics
import tempfile
import time

import fatune

STAGES = ("wait", "tune", "final", "done")


class Progress(c.Structure):
    _fields_ = [("kind", c.c_int), ("stage", c.c_int)]
    _fields_ += [(n, c.c_int32) for n in ("space", "in_budget", "compiled", "clean", "proved", "measured", "failed",
                                          "resumed", "compile_workers")]
    _fields_ += [("elapsed_s", c.c_double), ("left_s", c.c_double), ("trial", c.POINTER(fatune.Trial))]


CALLBACK = c.CFUNCTYPE(c.c_int, c.c_void_p, c.POINTER(Progress))


class Request(c.Structure):
    _fields_ = [("size", c.c_size_t), ("problem", fatune.Problem), ("gpu", c.c_char_p), ("ordinal", c.c_int32),
                ("effort", c.c_int), ("again", c.c_bool), ("progress", CALLBACK), ("context", c.c_void_p),
                ("exact", c.c_bool), ("first_contact", c.c_bool)]


def run(options, library):
    lines, trials, begin = [], [], time.perf_counter()

    def say(what):
        lines.append((time.perf_counter() - begin, what))

    def progress(_, pointer):
        event = pointer.contents
        if event.trial:
            trials.append((time.perf_counter() - begin, event.trial.contents.compile_ms / 1e3))
        elif event.stage < len(STAGES) and (not lines or STAGES[event.stage] not in lines[-1][1]):
            say(f"stage {STAGES[event.stage]}")
        return 0
    tuner, answer, diag = c.c_void_p(), fatune.Answer(size=c.sizeof(fatune.Answer)), fatune.Diag()
    callback = CALLBACK(progress)
    request = Request(size=c.sizeof(Request), gpu=options.gpu.encode() if options.gpu else None, progress=callback,
                      effort=fatune.EFFORTS[options.effort],
                      problem=fatune.problem("fp16", options.causal, options.head_dim, 16384 // options.seq,
                                             2048 // options.head_dim, seq=options.seq))
    assert library.fa_open(None, c.byref(tuner), c.byref(diag)) == 0, diag.text
    say("opened")
    rc = library.fa_tune(tuner, c.byref(request), c.byref(answer), c.byref(diag))
    assert rc == 0, diag.text
    say("returned")
    if trials:
        compile_s = [one for _, one in trials]
        lines += [(trials[0][0], "first trial ended"), (trials[-1][0], f"last of {len(trials)} trials ended; compiles "
                  f"took {min(compile_s):.2f} to {max(compile_s):.2f} s, {statistics.median(compile_s):.2f} s in the median")]
        lines += [(trials[len(trials) * n // 10][0], f"{n * 10} % of the trials") for n in range(2, 10, 2)]
    library.fa_close(c.byref(tuner))
    say("closed")
    return sorted(lines)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("seq", nargs="?", type=int, default=512)
    parser.add_argument("head_dim", nargs="?", type=int, default=64)
    parser.add_argument("causal", nargs="?", default="none")
    parser.add_argument("--gpu")
    parser.add_argument("--effort", default="measure")
    options = parser.parse_args()
    library = c.CDLL(os.environ["FA_TUNE_LIBRARY"])
    with tempfile.TemporaryDirectory() as place:
        os.environ["FA_TUNE_STORE"] = os.path.join(place, "store.db")
        os.environ["FA_TUNE_SYSTEM"] = ""
        for at, what in run(options, library):
            print(f"{at:7.3f} s  {what}")


if __name__ == "__main__":
    main()
