#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the Python package has above the extension, on the fake driver: problems, policy, warm-ups,
recordings, and the objects that answers are. With PyTorch only where it can be imported."""
import atexit
import datetime
import importlib.util
import json
import logging
import os
import pathlib
import pickle
import re
import signal
import subprocess
import sys
import threading
import types
import warnings
from unittest import mock

import tap
from place import ONE, SOURCE, Place
from tap import refused

place = Place(space=ONE, script="device sm=89\ninit_once\nlog log\n")
atexit.register(place.__exit__)
for variable in ("FA_TUNE_STORE", "FA_TUNE_TEMPLATES", "FA_TUNE_LIBCUDA", "FAKE_CUDA_SCRIPT", "HOME"):
    os.environ[variable] = place.env[variable]
os.chdir(place.folder)  # where the log goes
sys.path.insert(0, os.path.join(os.environ["FA_TEST_BUILD"], "python"))

import producer  # noqa: E402
from producer import Exchanged  # noqa: E402
import fa_tune  # noqa: E402
from fa_tune import Problem  # noqa: E402

producer.start()


def tensors(seq=8, seq_k=None, batch=1, heads=2, heads_kv=1):
    return (Exchanged((batch, heads, seq, 64)),) + tuple(
        Exchanged((batch, heads_kv, seq_k or seq, 64)) for _ in range(2))


def problem(seq=8, **more):
    return Problem(**{"seq": seq, "batch": 1, "heads": 2, "heads_kv": 1, **more})


def loads():
    return sum("load" in line for line in tap.read(os.path.join(place.folder, "log")).splitlines())


# ---- problems ------------------------------------------------------------------------------------
def a_problem_says_what_is_left_out_and_takes_the_names_people_use():
    one = Problem(seq=512, dtype="torch.bfloat16", causal=True, heads=8)
    tap.equal((one.seq_q, one.seq_k, one.heads_q, one.heads_kv, one.batch, one.dtype, one.causal),
              (512, 512, 8, 8, 4, "bf16", "bottom-right"))
    tap.equal((Problem(seq=64, seq_k=96).seq_q, Problem(seq=64, seq_k=96).seq_k), (64, 96))
    tap.equal(Problem(seq=64, dtype="float16", causal=False), Problem(seq=64))
    assert Problem(seq=64) != Problem(seq=65) and len({Problem(seq=64), Problem(seq=64)}) == 1
    refused(fa_tune.ArgumentError, "no field 'band'. It has dtype", lambda: Problem(seq=64, band=3))
    assert "heads_kv" in fa_tune.fields()
    refused(fa_tune.Error, "head_dim", lambda: Problem(seq=64, head_dim=12))
    tap.equal((one.seq, one.heads, one["seq"], one["window"], one["heads_q"]), (512, 8, 512, False, 8))
    refused(AttributeError, "no field 'seq': did you mean", lambda: Problem(seq=64, seq_k=96).seq)
    refused(KeyError, "no field 'band'", lambda: one["band"])
    refused(AttributeError, "no field 'seqlen': did you mean 'seq'? It has ", lambda: one.seqlen)
    refused(AttributeError, ", seq, heads", lambda: one.seqlen)
    refused(fa_tune.Error, "mean_q is 9999: use at most seq_q, which is 512", lambda: Problem(seq=512, varlen=True, mean_q=9999))


def a_problem_survives_repr_pickle_and_json():
    for one in (Problem(seq=64), problem(causal="top-left", layout="bshd", lse=True), problem(seq_k=9)):
        tap.equal(eval(repr(one)), one)
        tap.equal(pickle.loads(pickle.dumps(one)), one)
        tap.equal(Problem(**json.loads(one.as_json())), one)
        tap.equal(Problem.of(one.as_dict()), one)
    tap.equal(repr(Problem(seq=64)), "Problem(dtype='fp16', head_dim=64, batch=4, heads=8, seq=64)")


# ---- policy --------------------------------------------------------------------------------------
def a_policy_holds_until_its_block_ends():
    with fa_tune.policy(effort="cached") as outer:
        refused(fa_tune.NotTuned, 'no winner is stored for this problem on NVIDIA L4: effort="measure" tunes it',
                lambda: fa_tune.attention(*tensors(seq=700)))
        refused(fa_tune.NotTuned, 'effort="measure" tunes it', lambda: fa_tune.tune(problem(700), effort="cached"))
        with fa_tune.policy(on_miss="sdpa") as inner:
            tap.equal((inner.effort, inner.on_miss), ("cached", "sdpa"))
            tap.equal(repr(inner), "fa_tune.policy(effort='cached', on_miss='sdpa')")
            # These tensors are not PyTorch's, so that SDPA cannot answer for them.
            refused(fa_tune.NotTuned, "", lambda: fa_tune.attention(*tensors(seq=700)))
        tap.equal(outer.on_miss, "raise")
        refused(fa_tune.NotTuned, "", lambda: fa_tune.attention(*tensors(seq=700)))
    fa_tune.attention(*tensors())  # "measure" again
    with fa_tune.policy(same_bits="default") as same:
        tap.equal((repr(same)[-22:], fa_tune.kernel(problem()).answer.same_bits), (", same_bits='default')", "default"))
    tap.equal([fa_tune.kernel(problem()).answer.same_bits, fa_tune.tune(problem(), same_bits="default").same_bits], [None, "default"])


def with_nearest_a_loaded_kernel_answers_and_what_it_answered_is_recorded():
    from fa_tune import _policy
    path = os.path.join(place.folder, "met.jsonl")
    fa_tune.attention(*tensors())
    with fa_tune.policy(effort="cached", on_miss="nearest", record=path) as one:
        tap.equal(repr(one), "fa_tune.policy(effort='cached', on_miss='nearest', record=%r)" % path)
        for _ in range(2):  # once in the file
            fa_tune.attention(*tensors(seq=720))
        refused(fa_tune.NotTuned, "", lambda: fa_tune.attention(*tensors(seq=720), causal=True))  # none is right for it
    met = fa_tune.recording.load(path)
    tap.equal([(problem.seq_q, problem.causal) for problem in met], [(720, "none"), (720, "bottom-right")])
    _policy._recorded.clear()  # as of another process
    fa_tune.close()
    fa_tune.attention(*tensors())
    with fa_tune.policy(effort="cached", on_miss="nearest", record=path):
        fa_tune.attention(*tensors(seq=720))
    tap.equal(len(fa_tune.recording.load(path)), 2)
    tap.write(path, b"\xff\n")  # somebody else's bytes cost no call
    _policy._recorded.clear()
    with fa_tune.policy(effort="cached", on_miss="nearest", record=path):
        fa_tune.attention(*tensors(seq=730))
    tap.equal(len(tap.read(path, "rb").splitlines()), 2)
    with fa_tune.policy(effort="cached", record=place.folder), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        refused(fa_tune.NotTuned, "", lambda: fa_tune.attention(*tensors(seq=900)))
    tap.has(str(caught[0].message), "not recorded")


def a_miss_is_looked_up_again_after_a_while_only():
    from fa_tune import _policy
    asked = []
    kernel = fa_tune._core.best_kernel
    core = types.SimpleNamespace(best_kernel=lambda *a, **b: asked.append(now) or kernel(*a, **b), set_policy=fa_tune._core.set_policy)
    with mock.patch.multiple(_policy, time=types.SimpleNamespace(monotonic=lambda: now), _core=core), \
            fa_tune.policy(effort="cached", on_miss="sdpa"):
        for now in (100.0, 104.9, 105.1):
            refused(fa_tune.NotTuned, "", lambda: fa_tune.attention(*tensors(seq=700)))
    tap.equal(asked, [100.0, 105.1])


def what_sdpa_answers_for_is_a_miss_and_no_fault():
    from fa_tune import _policy
    no_kernel, fault = fa_tune.Error("every config failed"), fa_tune.Error("the store is full")
    no_kernel.code, fault.code = -21, -16
    tap.equal([_policy.is_a_miss(error) for error in (fa_tune.NotTuned(), fa_tune.NotSupported(), no_kernel,
                                                      fault, fa_tune.ShapeError())], [True] * 3 + [False] * 2)
    tap.equal([_policy.is_not_covered(error) for error in (fa_tune.NotTuned(), fa_tune.ShapeError(),
                                                           fa_tune.CaptureError(), fault)],
              [True, True, False, False])


# ---- warm-ups and recordings ---------------------------------------------------------------------
def a_warm_up_loads_what_calls_then_find():
    answers = fa_tune.warm_up([problem(16), dict(seq=24, batch=1, heads=2, heads_kv=1)], progress=False)
    tap.equal([(one.problem.seq_q, one.origin) for one in answers], [(16, "measured"), (24, "measured")])
    before = loads()
    with fa_tune.policy(effort="cached"):
        fa_tune.attention(*tensors(16))
        fa_tune.attention(*tensors(24))
    tap.equal(loads(), before)
    refused(fa_tune.ArgumentError, "not 'hard'", lambda: fa_tune.warm_up([], effort="hard"))
    refused(fa_tune.NotTuned, "", lambda: fa_tune.warm_up([problem(900)], effort="cached", progress=False))


def a_recording_collects_each_problem_once_with_its_calls():
    with fa_tune.recording() as outer:
        fa_tune.attention(*tensors(16))
        with fa_tune.recording() as inner:
            given = tensors(24)
            thread = threading.Thread(target=lambda: fa_tune.attention(*given, out=given[0], causal=True))
            thread.start()
            thread.join()
            fa_tune.attention(*tensors(16))
        fa_tune.attention(*tensors(16))
    fa_tune.attention(*tensors(16))
    tap.equal(list(outer), [problem(16), problem(24, causal=True)])
    tap.equal([outer.calls[one] for one in outer], [3, 1])
    tap.equal((len(inner), inner[1]), (2, problem(16)))
    tap.equal(repr(outer), "<recording of 2 problems>")
    tap.has(str(outer), "recording of 2 problems\n  dtype='fp16'")
    tap.has(str(outer), "  3 calls")


def a_recording_is_a_plan_that_can_be_saved_and_tuned_elsewhere():
    met = fa_tune.recording([problem(16), problem(24, causal=True), problem(16)])
    met.save("met.jsonl")
    again = fa_tune.recording.load("met.jsonl")
    tap.equal(list(again), [problem(16), problem(24, causal=True)])
    tap.equal([one.problem for one in again.warm_up(progress=False)], list(met))
    tap.equal([one.problem for one in fa_tune.warm_up("met.jsonl", progress=False)], list(met))
    plan = place.json("sweep", "--plan", "met.jsonl", "--quiet")
    tap.equal([item["problem"]["seq_q"] for item in plan["items"]], [16, 24])
    tap.write("met.jsonl", '\n{"problem": {"seq_q": 8, "no_such_field": 1}}\n', "a")
    refused(fa_tune.Error, "met.jsonl, line 4 is no problem", lambda: fa_tune.recording.load("met.jsonl"))
    for kind in FileNotFoundError, fa_tune.Error:
        refused(kind, "none.jsonl", lambda: fa_tune.recording.load("none.jsonl"))
        refused(kind, "none.jsonl", lambda: fa_tune.warm_up("none.jsonl"))
    for kind in OSError, fa_tune.Error:
        refused(kind, "directory", lambda: fa_tune.warm_up("."))
    for path in (place.store, pathlib.Path(place.store + "-wal")):
        refused(fa_tune.ArgumentError, "cannot write %s" % path, lambda: met.save(path))
    refused(fa_tune.ArgumentError, "the folder none does not exist", lambda: met.save("none/met.jsonl"))
    tap.equal([name for name in os.listdir(".") if ".new" in name], [])


# ---- objects -------------------------------------------------------------------------------------
def an_answer_reads_like_a_sentence():
    answer = fa_tune.tune(problem(16), progress=False)
    tap.equal((answer.problem, answer.origin, answer.family), (problem(16), "measured", "attn_fwd_sm80"))
    tap.equal(answer.tunables["BLOCK_M"], 64)
    assert answer.low_us <= answer.median_us <= answer.high_us
    lines = str(answer).splitlines()
    tap.has(lines[0], "problem   dtype='fp16'")
    tap.has(lines[2], " µs ± ")
    tap.has(lines[3], "measured  attn_fwd_sm80 BLOCK_M=64")
    for part in (" µs ± ", " on NVIDIA L4, measured: attn_fwd_sm80 BLOCK_M=64", " for Problem(dtype='fp16'"):
        tap.has(repr(answer), part)
    again = pickle.loads(pickle.dumps(answer))
    tap.equal((repr(again), again.as_dict()), (repr(answer), answer.as_dict()))
    refused(AttributeError, "no field 'speed'", lambda: answer.speed)
    refused(AttributeError, "no field 'mediam_us': did you mean 'median_us'?", lambda: answer.mediam_us)
    tap.equal((answer["median_us"], answer.shortlist_only), (answer.median_us, False))
    tap.equal((len(dir(answer)), len(dir(answer.problem))), (len(set(dir(answer))), len(set(dir(answer.problem)))))


def another_lengths_time_is_never_shown_as_measured():
    fa_tune.tune(problem(100), progress=False)  # stored as its bucket, 104
    for answer in (fa_tune.tune(problem(101), effort="cached"), fa_tune.warm_up([problem(101)], effort="cached", progress=False)[0]):
        tap.equal((answer.origin, answer.from_problem), ("nearest", problem(104)))
        for text in (repr(answer), str(answer), answer._repr_html_(), repr(fa_tune.kernel(problem(101), effort="cached"))):
            assert "±" not in text, text
        tap.equal(answer.time, "~%s" % fa_tune.tune(problem(104), effort="cached").time.partition(" ±")[0])
        tap.has(repr(answer), "<~")


def a_gpu_that_is_not_here_is_predicted_for():
    answer = fa_tune.tune(seq=128, batch=1, heads=1, gpu="L40S", progress=False)
    tap.equal((answer.gpu, answer.origin, answer.median_us), ("L40S", "predicted", None))
    tap.has(answer.time, "~")
    refused(fa_tune.ArgumentError, 'no GPU called "L5" is known; `fa-tune gpus`', lambda: fa_tune.tune(seq=128, gpu="L5"))
    refused(fa_tune.ArgumentError, "a problem or its fields", lambda: fa_tune.tune(problem(), seq=3))


def a_gpu_name_that_several_types_share_says_which_is_meant():
    told, handler = [], logging.Handler()
    handler.emit = lambda record: told.append(record.getMessage())
    logging.getLogger("fa_tune").addHandler(handler)
    try:
        for _ in range(2):  # said once
            tap.equal(fa_tune.tune(seq=128, batch=1, heads=1, gpu="L40", progress=False).gpu, "L40")
            tap.equal(fa_tune._engine.gpu_name("h100"), "H100 SXM")
    finally:
        logging.getLogger("fa_tune").removeHandler(handler)
    tap.equal(len(told), 1)
    tap.has(told[0], "h100 is taken for H100 SXM; the other is H100 PCIe")


class Sized:
    """As NumPy's integers are: no int, and one all the same."""

    def __init__(self, number):
        self.number = number

    def __index__(self):
        return self.number


def odd_arguments_are_refused_with_what_to_pass_instead():
    tap.equal(Problem(seq=Sized(512)), Problem(seq=512))
    one, several = "a problem is a fa_tune.Problem, a mapping of its fields", "problems are a list"
    file = os.path.join(place.folder, "odd.jsonl")
    rows = [
        (one, fa_tune.warm_up, [[3]], {}), (several, fa_tune.warm_up, [dict(seq=512)], {}), (several, fa_tune.recording, ["problems.jsonl"], {}),
        (one, fa_tune.kernel, [3], {}), (one, fa_tune.sweep, [[3]], {}), ("nothing to sweep", fa_tune.sweep, [[]], {}),
        ("not 'cuda:0'", fa_tune.kernel, [problem()], {"device": "cuda:0"}),
        ("from 0 on", fa_tune.tune, [problem()], {"device": 1 << 40}),
        *(("progress is a function", call, [one], {"progress": 3}) for call, one in ((fa_tune.tune, problem()), (fa_tune.sweep, [problem()]))),
        ("gpu is the name", fa_tune.sweep, [[problem()]], {"gpu": [4]}),
        ("seconds is a number", fa_tune.tune, [problem()], {"seconds": "30m"}),
        ("memory is a whole number, not '8G'", fa_tune.tune, [problem()], {"memory": "8G"}),
        ("evaluations is a whole number", fa_tune.tune_kernel, ["k.cu"], {"evaluations": "x"}),
        ("bundle is the path of a file", fa_tune.tune_kernel, ["k.cu"], {"bundle": 5}),
        ("range is a pair", fa_tune.array, ["f32", "n"], {"range": "0n"}),
        ("a shape has whole numbers and expressions, such as \"n + 1\", not 1.5", fa_tune.array, ["f32", 1.5], {}),
        ("again is True or False, not 'yes'", fa_tune.sweep, [[problem()]], {"again": "yes"}),
        ("dry_run is True or False, not 'no'", fa_tune.forget, [], {"gpu": "L4", "dry_run": "no"}),
        ("gpu names a type that need not be here, and device", fa_tune.tune, [problem()], {"gpu": "L4", "device": 0}),
        ("again=True tunes", fa_tune.tune, [problem()], {"effort": "cached", "again": True}),
        ("effort is 'predict', 'measure' or 'patient', not 'cached'", fa_tune.sweep, [[problem()]], {"effort": "cached"}),
        ("seq is a whole number, not {512}", Problem, [], {"seq": {512}}), ("not nan", Problem, [], {"seq": float("nan")}),
        ("no argument 'out'. fa_tune.report() has path, gpu, and fields: dtype", fa_tune.report, [], {"out": "report.html"}),
        ("no argument 'effor': did you mean 'effort'?", fa_tune.policy, [], {"effor": "cached"}),
        ("seconds is -1: give a number above 0", fa_tune.tune, [problem()], {"seconds": -1}),
        *(("%s is %s: give a " % (name, value), fa_tune.sweep, [[problem()]], {name: value})
          for name in ("evaluations", "trials", "seconds", "seconds_each") for value in (0, -1)),
        ("no field 'gpu': fa_tune.tune() or sweep() takes it.", Problem, [], {"seq": 64, "gpu": "L4"}),
        ("heads_kv is 4: it must divide heads, which is 6", Problem, [], {"seq": 64, "heads": 6, "heads_kv": 4}),
        ("effort is 'cached'", fa_tune.policy, [3], {}), ("on_miss is 'raise'", fa_tune.policy, [], {"on_miss": 3}),
        ("report.txt: its ending names no format", fa_tune.report, ["report.txt"], {}),
        ("record is the path of a file", fa_tune.policy, [], {"record": 5}),
        *(("gpu is %r, where a name is missing" % name, fa_tune.sweep, [[problem()]], {"gpu": name}) for name in ("L4,", "", ["L4", ""])),
        ("gpu is the name", fa_tune.sweep, [[problem()]], {"gpu": "\udc80"}), ("seconds is a number, not nan", fa_tune.sweep, [[problem()]], {"seconds": float("nan")}),
        ("source is the path", fa_tune.tune_kernel, ["a\0b.cu"], {}), ("source is empty", fa_tune.tune_kernel, [""], {}),
        ("tune is a dict", fa_tune.tune_kernel, ["__global__ void f(int n) {}"], {"args": {"n": 1}, "tune": ["A"]}),
        ("gpu is the name", fa_tune.winners, [], {"gpu": "a\0"}), ("is no path", fa_tune.warm_up, ["a\0"], {}),
    ]
    for part, call, args, more in rows:
        refused(fa_tune.ArgumentError, part, lambda: call(*args, **more))
    for text in (b"3\n", b"[1]\n", b"\xff\xfe\n"):
        tap.write(file, text)
        refused(fa_tune.Error, "odd.jsonl, line 1 is no problem", lambda: fa_tune.recording.load(file))
    refused(fa_tune.ArgumentError, "trials is a whole number, not 'x'", lambda: fa_tune.sweep([problem()], trials="x"))


def wrong_words_are_refused_with_the_word_that_was_meant_or_with_what_is_allowed():
    rows = [
        (Problem, "no field 'seqlen': did you mean 'seq'?", {"seqlen": 512}),
        (fa_tune.tune, "no field 'num_heads': did you mean 'heads'?", {"seq": 512, "num_heads": 8}),
        (fa_tune.sweep, "dtype is 'fp16' or 'bf16', not 'fp61': did you mean 'fp16'?", {"seq": 512, "dtype": ["fp61"]}),
        (Problem, "causal is 'none', 'bottom-right', 'top-left', True or False, not 'topleft': did you mean", {"seq": 9, "causal": "topleft"}),
        (Problem, "seq is 1,000,000,000,000: give 0 to 2,147,483,647", {"seq": 10**12}),
        (fa_tune.tune, "head_dim is 584: head dims above 576 are not covered", {"seq": 512, "head_dim": 584}),
        (Problem, "lse is True or False, not 1", {"seq": 512, "lse": 1}),
        (Problem, "needs its sequence length: seq=512", {"batch": 4}),
        (Problem, "no field 'seq_k'. It has dtype, rows", {"operation": "l1_norm", "rows": 64, "seq_k": 3}),
        (fa_tune.tune, "effort is 'cached', 'predict', 'measure' or 'patient', not 'mesure': did you mean 'measure'?",
         {"seq": 512, "effort": "mesure"}),
        (fa_tune.sweep, "no argument 'second': did you mean 'seconds'?", {"seq": 512, "second": 60}),
        (fa_tune.kernel, "there is no argument 'trials' here: fa_tune.sweep() takes it", {"problem": Problem(seq=512), "trials": 4}),
        (fa_tune.tune, "no field 'decode': one query each is seq_q=1, with the keys as seq_k. It has", {"seq": 512, "decode": True}),
        (fa_tune.tune, "window is True or False, not 128: how far it reaches is window_left and window_right", {"seq": 512, "window": 128}),
        (Problem, "heads is given beside heads_q: leave one of them out", {"seq": 512, "heads": 8, "heads_q": 4}),
    ]
    operations = os.path.join(SOURCE, "tests", "operations")
    for call, part, fields in rows:
        with mock.patch.dict(os.environ, {"FA_TUNE_TEMPLATES": operations} if "operation" in fields else {}):
            refused(fa_tune.ArgumentError, part, lambda: call(**fields))
    for name in ("attn_mask", "bias", "alibi_slopes", "score_mod", "key_padding_mask"):
        sentence = "%s is not covered: PyTorch's " % name
        for call in (fa_tune.attention, fa_tune.attention_varlen, fa_tune.attention_decode):
            refused(fa_tune.NotSupported, sentence, lambda: call(*tensors(), **{name: 0.1}))
        for call, more in ((Problem, {}), (fa_tune.tune, {}), (fa_tune.sweep, {}), (fa_tune.tune, {"operation": "attn_bwd"})):
            refused(fa_tune.NotSupported, sentence, lambda: call(seq=512, **more, **{name: True}))
        fa_tune.attention(*tensors(), **{name: None})
    fa_tune.attention(*tensors(), dropout_p=0.0)
    for call, name, meant in ((fa_tune.attention, "is_causal", "causal"), (fa_tune.attention, "casual", "causal"), (fa_tune.attention_varlen, "max_seq_q", "max_seqlen_q")):
        refused(TypeError, "has no argument '%s': did you mean '%s'?" % (name, meant), lambda: call(*tensors(), **{name: 1}))


def a_sweep_is_its_items():
    told = fa_tune.sweep(seq=[16, 24], causal=[False, True], batch=1, heads=2, heads_kv=1, progress=False)
    tap.equal([(one.problem.seq_q, one.problem.causal, one.state) for one in told],
              [(16, "none", "done"), (16, "bottom-right", "done"), (24, "none", "done"),
               (24, "bottom-right", "done")])
    tap.equal((told.state, len(told.answers())), ("done", 4))
    tap.has(repr(told), "<sweep of 4 problems, done after")
    tap.has(str(told), "\n  dtype='fp16'")
    again = fa_tune.sweep(fa_tune.recording([problem(16)]), trials=100, progress=False)
    tap.equal([one.answer.from_store for one in again], [True])
    refused(fa_tune.ArgumentError, 'no GPU called "L5"', lambda: fa_tune.sweep([problem(16)], gpu=["L4", "L5"],
                                                                               progress=False))
    events = []
    fa_tune.sweep([problem(16), problem(32)], gpu=["L4", "l4"], effort="predict", progress=events.append)
    tap.equal([one["item"]["gpu"] for one in events if one["event"] == "ends"], ["L4", "L4"])
    found = fa_tune.winners(gpu="l4")
    assert len(found) >= 2, found
    tap.equal(repr(found), repr(fa_tune.winners(gpu="NVIDIA L4")))
    for function in (fa_tune.winners, fa_tune.report):
        refused(fa_tune.ArgumentError, 'no GPU called "L5" is known', lambda: function(gpu="L5"))
    refused(fa_tune.ArgumentError, 'no GPU called "L5"', lambda: fa_tune.forget(gpu="L5", dry_run=True))

    def stop(event):
        raise LookupError("enough")
    refused(LookupError, "enough", lambda: fa_tune.sweep([problem(40)], progress=stop))
    refused(fa_tune.ArgumentError, "problems or a grid", lambda: fa_tune.sweep([problem(16)], seq=3))
    one = fa_tune.sweep([problem(48)], gpu="L4", again=True, strategy="random", evaluations=1, seconds_each=100, progress=False)[0]
    tap.equal((one.state, one.answer.funnel["compiled"]), ("done", 1))  # all of its space, which needs no strategy's name
    for sentence, wrong in (("there is no strategy \"guess\"", {"strategy": "guess"}), ("strategy is a name", {"strategy": 3}),
                            ("evaluations is a whole number", {"evaluations": 1.5}), ("seconds_each is a number", {"seconds_each": "1"})):
        refused(fa_tune.ArgumentError, sentence, lambda wrong=wrong: fa_tune.sweep([problem(16)], progress=False, **wrong))


def in_another_process(code, **env):
    env = {**os.environ, "PYTHONPATH": os.path.join(os.environ["FA_TEST_BUILD"], "python"), **env}
    return subprocess.run([sys.executable, "-c", "import fa_tune\n" + code], env=env, capture_output=True, encoding="utf-8",
                          check=False)


def a_sweep_without_a_driver_says_what_to_do():
    ended = in_another_process("fa_tune.sweep(seq=16, batch=1, heads=2, heads_kv=1, progress=False)",
                               FA_TUNE_LIBCUDA="/nonexistent/libcuda.so.1")
    tap.has(ended.stderr, "install the NVIDIA driver, or tune for a GPU that is not here by its name")


def an_interrupted_sweep_keeps_what_it_did_and_goes_on():
    code = ("import fa_tune\n"
            "print(repr(fa_tune.sweep(seq=range(32, 96), batch=1, heads=2, heads_kv=1)).splitlines()[0])")
    env = {**os.environ, "PYTHONPATH": os.path.join(os.environ["FA_TEST_BUILD"], "python")}
    running = subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, encoding="utf-8", start_new_session=True)
    tap.has(running.stderr.readline(), "[1/64]")
    running.send_signal(signal.SIGINT)
    told = running.communicate(timeout=60)
    tap.has(told[1], "KeyboardInterrupt")
    assert running.returncode != 0 and not told[0], told
    stands = place.json("queue")["sweeps"][0]
    assert stands["state"] == "stopped" and 1 <= stands["done"] < 64, stands


def winners_reports_and_findings_are_objects():
    all_of_them, some = fa_tune.winners(), fa_tune.winners(seq=16, causal=True)
    assert len(all_of_them) > len(some) == 1, (len(all_of_them), len(some))
    tap.equal(some[0].problem, problem(16, causal=True))
    tap.equal(repr(some), "<1 winner>")
    tap.has(str(some), "1 winner\n  dtype='fp16'")
    report = fa_tune.report("page.html", seq=16)
    assert os.path.getsize("page.html") > 10000
    tap.equal({one["problem"]["seq_q"] for one in report.problems}, {16})
    tap.has(repr(report), "<report of %d problem" % len(report.problems))
    tap.has(str(fa_tune.report(gpu="L40S")), "predicted  ~")
    for ending, beginning in (("html", b"<!"), ("json", b"{")):
        report.save("page." + ending)
        with open("page." + ending, "rb") as file:
            tap.equal(file.read(len(beginning)), beginning)
    found = fa_tune.doctor()
    assert found and found["gpu"].level == "ok" and found[0].name == "driver", found
    tap.has(str(found), "ok    gpu: ")
    tap.has(repr(found), " ok, ")


def what_is_forgotten_is_told_and_gone():
    fa_tune.tune(problem(40))
    fa_tune.tune(problem(40, lse=True))
    would = fa_tune.forget(seq=40, lse=True, dry_run=True)
    assert would.dry_run and len(would) == 1 and would[0].problem == problem(40, lse=True), would
    tap.has(repr(would), "<would forget 1 winner: 1 trial and ")
    tap.equal(len(fa_tune.winners(seq=40)), 2)
    tap.equal(fa_tune.forget(older_than=datetime.timedelta(days=30)), ())
    tap.equal(fa_tune.forget(older_than="2020-01-31"), ())
    for function in (lambda: fa_tune._core.forget(lambda study: 1 / 0, False),
                     lambda: fa_tune._core.report("json", lambda problem, gpu: 1 / 0)):
        refused(ZeroDivisionError, "division", function)
    tap.equal(len(fa_tune.winners(seq=40)), 2)
    gone = fa_tune.forget(seq=40, lse=True)
    tap.equal([one.as_dict() for one in gone], [one.as_dict() for one in would])
    tap.equal((gone.trials, gone.cubins, gone.bytes), (1, would.cubins, would.bytes))
    tap.has(repr(gone), "<forgot 1 winner: 1 trial and ")
    tap.equal(repr(pickle.loads(pickle.dumps(gone))), repr(gone))
    tap.equal([one.problem for one in fa_tune.winners(seq=40)], [problem(40)])
    refused(fa_tune.ArgumentError, "everything=True", fa_tune.forget)
    refused(fa_tune.ArgumentError, "everything=True", lambda: fa_tune.forget(seq=None, dry_run=True))
    refused(fa_tune.ArgumentError, "everything=True", lambda: fa_tune.forget(everything=True, gpu="L4"))
    tap.equal([one.problem for one in fa_tune.forget(seq=40, lse=False, dry_run=True)], [problem(40)])
    refused(fa_tune.ArgumentError, "no argument 'colour'", lambda: fa_tune.forget(colour=3))
    for older_than in ("30", "2026-13-31", "2999-01-31", 3, datetime.timedelta(days=-1)):
        refused(fa_tune.ArgumentError, "older_than is an age", lambda: fa_tune.forget(older_than=older_than))


def winners_of_an_operation_of_ones_own_are_told_by_its_own_fields():
    operations = os.path.join(SOURCE, "tests", "operations")
    place.run("--operation", "l1_norm", "--rows", "64", "--columns", "256", "--gpu", "L40S", "--templates", operations)
    with mock.patch.dict(os.environ, FA_TUNE_TEMPLATES=operations):
        told = fa_tune.winners()
        its = {"operation": "l1_norm", "dtype": "torch.float16", "rows": 64}
        tap.equal([len(fa_tune.winners(**its)), len(fa_tune.winners(**{**its, "rows": 65}))], [1, 0])
        tap.equal([one["problem"]["rows"] for one in fa_tune.report(**its).problems], [64])
        tap.equal([one.problem["rows"] for one in fa_tune.forget(**its, dry_run=True)], [64])
        refused(fa_tune.ArgumentError, "no field 'seq_k'. It has dtype, rows", lambda: fa_tune.forget(operation="l1_norm", seq_k=64))
        refused(fa_tune.ArgumentError, "operation=", lambda: fa_tune.winners(rows=64))
    another = in_another_process("print(fa_tune.forget(operation='l1_norm', dry_run=True))\n"  # there it has no templates
                                 "fa_tune.forget(operation='rms_nor', dry_run=True)")
    tap.has(another.stdout, "would forget 0 winners: ")
    tap.has(another.stdout, ", and 1 problem that cannot be read here")
    tap.has(another.stderr, "NotSupported: operation \"rms_nor\" is not known")
    tap.has(str(told), "operation='l1_norm', dtype='fp16', rows=64, columns=256  ")
    tap.has(repr(next(one for one in told if one.problem["operation"] == "l1_norm")), "<not timed on L40S, unranked: l1_norm_")


def the_package_names_nothing_but_what_is_public():
    tap.equal([name for name in dir(fa_tune) if not name.startswith("__")], fa_tune.__all__)
    tap.equal([name for name in fa_tune.__all__ if isinstance(getattr(fa_tune, name), types.ModuleType)], [])
    assert not hasattr(fa_tune, "importlib")
    refused(AttributeError, "has no attribute 'atention': did you mean 'attention'?", lambda: fa_tune.atention)
    refused(AttributeError, "has no attribute 'flex': import fa_tune.flex first", lambda: fa_tune.flex)
    refused(KeyError, "no check 'nvtrc': there are ", lambda: fa_tune.doctor()["nvtrc"])


def objects_show_themselves_in_a_line_in_a_notebook_and_to_pandas():
    answer, which = fa_tune.tune(problem(16)), {"seq": 16, "batch": 1, "heads": 2, "heads_kv": 1, "causal": False, "gpu": "L4"}
    found, report = fa_tune.winners(**which), fa_tune.report(**which)
    swept = fa_tune.sweep([problem(16)], progress=False)
    met = fa_tune.recording([problem(16)])
    for one in (answer, found, report, swept, swept[0], met, fa_tune.doctor(), fa_tune.doctor()[0], answer.problem,
                fa_tune.kernel(problem(16)), fa_tune.forget(seq=16, dry_run=True)):
        tap.lacks(repr(one), "\n")
    for one in (answer, found, report, swept, met, fa_tune.doctor()):
        page = one._repr_html_()
        assert page.count("<tr>") == page.count("</tr>") >= 2 and page.count("<table>") == 1, page
        tap.lacks(page, "<tr></tr>")
    odd = fa_tune.Doctor([fa_tune.Check("warn", "<gpu>", "a & b", "")])
    tap.has(odd._repr_html_(), "&lt;gpu&gt;</td>")
    tap.has(odd._repr_html_(), "a &amp; b</td>")
    with tap.modules({"pandas": types.SimpleNamespace(DataFrame=list)}):
        rows = [one.to_pandas()[0] for one in (found, swept, report)]
        calls = met.to_pandas()
    for row in rows:
        tap.equal((row["seq_q"], row["gpu"], row["origin"], row["kernel"], row["median_us"]),
                  (16, answer.gpu, answer.origin, answer.kernel, answer.median_us))
    tap.equal((rows[1]["state"], calls[0]["calls"]), ("done", 0))
    with tap.modules({"pandas": None}):  # as if it could not be imported
        refused(ImportError, "pip install pandas", found.to_pandas)


def every_name_has_a_docstring_and_is_known_to_editors():
    folder = os.path.dirname(fa_tune.__file__)
    told = dict(map(reversed, re.findall(r"from \.(\w+) import (\w+)", tap.read(os.path.join(folder, "__init__.pyi")))))
    tap.equal(told, fa_tune._NAMES)
    for name in fa_tune.__all__:
        assert len(getattr(fa_tune, name).__doc__) > 20, name


# ---- other packages ------------------------------------------------------------------------------
def whoever_is_imported_later_is_greeted_once():
    from fa_tune import _hooks
    greeted = []
    ours = types.ModuleType("fa_tune._greeter")
    ours.register = lambda: greeted.append(sys.modules["colorsys"].rgb_to_hsv)  # it is whole by then
    broken = types.ModuleType("fa_tune._broken")  # it has no register()
    with tap.modules({"fa_tune._greeter": ours, "fa_tune._broken": broken, "colorsys": ...}), \
            mock.patch.dict(_hooks.COMERS, {"colorsys": ("_greeter", "_broken")}, clear=True), \
            mock.patch.object(sys, "meta_path", list(sys.meta_path)):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            importlib.util.find_spec("colorsys")  # asking is not importing
            import colorsys
            import colorsys as again
        tap.equal(greeted, [colorsys.rgb_to_hsv])
        assert again is colorsys
        tap.has(str(told[0].message), "fa_tune could not register broken with colorsys")
        _hooks.install()  # now it is there already
        tap.equal(len(greeted), 2)


tap.main()
