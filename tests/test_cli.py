#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The fa-tune program from outside, without a GPU: what it prints, where, and how it ends."""
import fcntl
import json
import os
import pty
import re
import resource
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time

import tap
from place import BUILD, DEADLINE, EIGHT, FA_TUNE, SMALL, TEMPLATES, Place
from report_store import multiply, tuned

def every_bad_input_gets_its_sentence_and_status_2():
    table = [
        ([], "say what to tune, as in `fa-tune --gpu L4 --seq 512`"),
        (["--seq", "x"], '--seq: "x" is not a whole number (0 to 2147483647)'),
        (["--seq", "--quiet"], "--seq: its value is missing (N)"),
        (["--seq", "9" * 5000], '999..." is not a whole number'),
        (["--seq", "5", "--head-dim", "7"], '--head-dim: "7" is not a multiple of 8 (8 to 576'),
        (["--seq", "5", "--heads-kv", "3"], "heads_kv is 3: it must divide heads_q, which is 8"),
        (["--seq", "5", "--dtype", "bf61"], '--dtype: "bf61" is not fp16 or bf16: did you mean bf16?'),
        (["--seq", "5", "--time", "0"], '--time: "0" is not a time (90s, 30m, 2h, 3d; at most a year)'),
        (["--seq", "5", "--lse=yes"], '--lse: "yes" is not taken: it has no value'),
        (["--gpu", "L4"], "--seq N is missing, as in fa-tune --gpu L4 --seq 512"),
        (["--gpu", "L4", "--device", "0", "--seq", "5"], "--gpu: does not go with --device"),
        (["--gpu", "RTX", "--seq", "5"], "near it: RTX 2080 Ti; `fa-tune gpus`"),
        (["--sqe", "5"], '"--sqe" is not an option of `fa-tune tune` (--help lists them): did you mean --seq?'),
        (["--seq", "64", "--head-dim-v", "1024"], "head dims of V above 512 are not covered"),
        (["show", "a.fab", "b.fab"], '"b.fab" is not an option of `fa-tune show`'),
        (["import"], "FILE is missing: see `fa-tune import --help`"),
        (["missing.cu", "--gpu", "L4"], "missing.cu: there is no such file"),
        (["dokter"], '"dokter" is not a verb (`fa-tune help` lists them): did you mean doctor?'),
        (["\x1b[31mred"], "\\x1b[31mred"),
        (["serve", "--sokcet", "x"], "did you mean --socket?"),
    ]
    with Place() as place:
        for arguments, part in table:
            done = place.run(*arguments, status=2)
            tap.equal((arguments, done.stdout), (arguments, ""))
            assert re.match("fa-tune( serve)?: ", done.stderr), (arguments, done.stderr)
            tap.lacks(done.stderr, "\x1b")
            tap.has(done.stderr, part)
        assert not os.path.exists(place.store), "bad input made a store"


def help_and_version_go_to_stdout():
    with Place() as place:
        tap.equal(place.run("--version").stdout, place.run("version").stdout)
        tap.equal(place.run("-V").stdout, place.run("version").stdout)
        tap.equal("fa-tune %s\n" % place.json("version")["fa_tune"], place.run("version").stdout)
        assert re.fullmatch(r"fa-tune \d+\.\d+\.\d+\n", place.run("version").stdout)
        overview, options = place.run("help").stdout, place.run("tune", "--help").stdout
        for option in (*re.findall(r"(?m)^  (?:    |-., )(--[a-z-]+)", overview), "--sinks", "--trial-timeout", "--templates"):
            tap.has(options, " %s" % option)
        for verb, operands in (("tune", " [FILE.cu]"), ("check", " FILE.cu"), ("show", " [FILE.cu] [FILE]"), ("import", " [FILE.cu] FILE"),
                               ("doctor", ""), ("serve", " [FILE.cu …]")):
            tap.has(overview, "\n  %s " % verb)
            text = place.run(verb, "--help").stdout
            tap.has(text, "\nusage: fa-tune %s%s [OPTIONS]\n" % (verb, operands))
            tap.equal((place.run("help", verb).stdout, "--head-dim N" in text), (text, verb in ("tune", "show", "import")))


def gpus_lists_the_catalogue_and_what_it_refuses():
    with Place() as place:
        listed = {gpu["name"]: gpu for gpu in place.json("gpus")["gpus"]}
        tap.equal((listed["L4"]["sm"], listed["L4"]["sm_count"], listed["L4"]["refused"]), (89, 58, None))
        tap.has(listed["V100"]["refused"], "sm_70")
        text = place.run("gpus").stdout
        for name in listed:
            assert re.search(r"(?m)^(  %s  +sm_|%s: )" % (name, name), text), (name, text)


def an_absent_l4_is_tuned_explained_shown_and_found_again():
    problem = ["--gpu", "L4", "--seq", "512", "--head-dim", "128"]  # the head dim leaves 45 configs to compile
    with Place(space=None) as place:
        first = place.run(*problem, "--json")
        told = json.loads(first.stdout)
        answer, funnel = told["answer"], told["funnel"]
        tap.equal((answer["origin"], answer["from_store"], answer["median_us"], answer["status"]),
                  ("predicted", False, None, "compiled"))
        tap.equal((told["gpu"]["name"], told["gpu"]["present"]), ("L4", False))
        tap.equal((told["problem"]["seq_q"], told["problem"]["seq_k"], told["problem"]["batch"]), (512, 512, 4))
        assert funnel["space"] > funnel["in_budget"] > funnel["compiled"] >= funnel["clean"] >= 10, funnel
        tap.equal((funnel["proved"], funnel["measured"]), (0, 0))
        tap.equal((told["store"], answer["rank"], len(told["ranking"])), (place.store, 1, 10))
        times = [row["predicted_us"] for row in told["ranking"]]
        tap.equal(times, sorted(times))
        tap.equal(told["ranking"][0]["config"], answer["config"])
        tap.has(first.stderr, "to compile, with")

        again = place.run(*problem, "--json")
        found = json.loads(again.stdout)
        tap.equal((found["answer"]["from_store"], found["answer"]["config"]), (True, answer["config"]))
        tap.equal((found["ranking"], again.stderr), (told["ranking"], ""))

        text = place.run(*problem, "--top", "3").stdout
        for part in ("attention forward", "on L4 (sm_89", "not present here", "space {space:,} → budget {in_budget}".format(**funnel), "winner #1, predicted"):
            tap.has(text, part)

        explained = place.json("explain", *problem)
        counts = dict(explained["counts"])
        tap.equal((list(counts)[:2], list(counts)[-1]), (["space", "measured"], "constraint"))
        tap.equal((counts.pop("space"), len(explained["configs"])), (funnel["space"],) * 2)
        tap.equal((sum(counts.values()), counts["compiled"], counts["pending"]),
                  (funnel["space"], funnel["clean"], funnel["in_budget"] - funnel["compiled"]))
        unexplained = [row for row in explained["configs"]
                       if row["status"] not in ("compiled", "measured", "pending") and not row["reason"]]
        tap.equal(unexplained, [])
        shown = place.json("show")["winners"]
        tap.equal([(w["gpu"]["name"], w["answer"]["origin"], w["problem"]["seq_q"]) for w in shown], [("L4", "predicted", 512)])
        tap.equal(len(place.json("show", "--gpu", "NVIDIA L4")["winners"]), 1)
        tap.equal(place.json("show", "--gpu", "T4")["winners"], [])
        tap.has(place.run("show", "--gpu", "T4").stdout, "0 winners, 1 left out by the filters, in %s" % place.store.replace(place.folder, "~"))
        tap.has(place.run("report", "--gpu", "T4").stderr, "note: 1 problem is left out by the filters\n")
        for more in ([], ["--gpu", "T4", "--quiet"]):
            tap.equal(place.run("report", *more).stderr, "")
        place.run("show", "--gpu", "nonsense", status=2)
        os.symlink("loop.cu", os.path.join(place.folder, "loop.cu"))
        tap.has(place.run("check", "loop.cu", "--gpu", "L4", status=1).stderr, "loop.cu: it cannot be read: Too many levels")
        tap.has(place.run("--gpu", "L4", *SMALL, "--effort", "cached", status=1).stderr, "leave --effort cached out")


def verbs_that_read_make_no_store_and_say_that_there_is_none():
    with Place() as place:
        place.run("--gpu", "L4", *SMALL, "--quiet")
        place.run("export", "--unsigned", "--out", "l4.fab")
        missing = os.path.join(place.folder, "not", "here", "store.db")
        place.env["FA_TUNE_STORE"] = missing
        for status, *arguments in [
                (0, "show"), (0, "show", "--json"), (0, "show", "--why", "--gpu", "L4", *SMALL),
                (0, "report"), (0, "report", "--json"), (0, "explain", "--gpu", "L4", *SMALL),
                (0, "queue"),
                (1, "export", "--unsigned", "--out", "none.fab"),
                (0, "import", "l4.fab", "--dry-run", "--allow-unsigned")]:
            done = place.run(*arguments, status=status)
            tap.has(done.stderr, "note: there is no store at %s yet" % missing)
            assert not os.path.exists(os.path.dirname(os.path.dirname(missing))), arguments
        tap.lacks(place.run("show", "--quiet").stderr, "no store")
        assert not os.path.exists(os.path.dirname(missing))
        told = place.run("import", "l4.fab", "--allow-unsigned", status=1).stderr
        tap.has(told, "the folder %s does not exist" % os.path.dirname(missing))
        store, = [check for check in place.json("doctor", status=1)["checks"] if check["name"] == "store"]
        tap.equal(store["level"], "fail")
        assert not os.path.exists(os.path.dirname(os.path.dirname(missing)))
        os.makedirs(os.path.dirname(missing), 0o700)
        place.run("import", "l4.fab", "--allow-unsigned")
        done = place.run("show")
        tap.has(done.stdout, "1 winner")
        tap.equal(done.stderr, "")


def an_empty_problem_is_told_as_it_was_asked():
    with Place() as place:
        first, second, *_ = place.run("--gpu", "L4", *SMALL[2:], "--seq", "0").stdout.splitlines()
        tap.has(first, "B 1 · H 1 · S 0 · D 64")
        tap.has(second, "its kernel is that of attention forward")
        first, second, *_ = place.run("--gpu", "L4", *SMALL[:2], *SMALL[4:], "--batch", "0").stdout.splitlines()
        tap.has(first, "B 0 · H 1 · S 128 · D 64")
        tap.has(second, "B 1 · H 1 · S 128 · D 64")


def the_second_process_waits_for_the_first_and_says_so():
    arguments = ["--gpu", "L4", *SMALL]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "encoding": "utf-8"}
    with Place() as place:
        place.compiles_slowly()
        first = place.start(*arguments, "--effort", "patient", "--jobs", "1", **pipes)
        tap.has(first.stderr.readline(), "to compile, with")
        impatient, patient = (place.start(*arguments, **pipes) for _ in range(2))
        for child in (impatient, patient):
            tap.has(child.stderr.readline(), "another process tunes this problem")
        impatient.send_signal(signal.SIGTERM)
        out, err = impatient.communicate(timeout=DEADLINE)
        tap.equal((impatient.returncode, out), (128 + signal.SIGTERM, ""))
        assert err.endswith("fa-tune: stopped waiting; the other process continues its tune\n"), err
        told = first.communicate(timeout=DEADLINE)[0].splitlines()
        out, err = patient.communicate(timeout=DEADLINE)
        tap.equal((first.returncode, patient.returncode), (0, 0))
        tap.lacks(err, "0/0")
        found = out.splitlines()
        tap.equal(found[2:-1], told[2:-1])
        tap.has(found[-1], "found in")


def when_nothing_is_left_to_compile_it_says_so():
    with Place() as place:
        folder = place.env["FA_TUNE_TEMPLATES"]
        tap.write(os.path.join(folder, "attn_fwd_sm80.cu"), "no kernel;\n")
        arguments = ["--gpu", "L4", *SMALL]
        tap.has(place.run(*arguments, status=1).stderr, "to compile, with")
        again = place.run(*arguments, status=1).stderr
        if "to compile" in again:  # a config that another worker was compiling when the tune ended stays to be tried
            again = place.run(*arguments, status=1).stderr
        tap.has(again, "space 8 → every compile is on record\n")
        tap.has(again, "fa-tune explain")
        tap.has(again, "8 of them ended in an earlier run: --effort patient tries them again\n")
        patient = place.run(*arguments, "--effort", "patient", status=1).stderr
        tap.has(patient, "to compile, with")
        tap.lacks(patient, "earlier run")


def an_absent_gpus_choice_stands_though_a_config_does_not_compile():
    with Place(space=dict(EIGHT, BLOCK_M=[64], BLOCK_N=[64])) as place:
        source = tap.read(os.path.join(TEMPLATES, "attn_fwd_sm80.cu"))
        folder = place.env["FA_TUNE_TEMPLATES"]
        tap.write(os.path.join(folder, "attn_fwd_sm80.cu"), "#if STAGES == 2\n#error not this one\n#endif\n" + source)
        first = place.json("--gpu", "L4", *SMALL)
        tap.equal((first["answer"]["from_store"], first["funnel"]["failed"]), (False, 1))
        tap.equal(place.json("--gpu", "L4", *SMALL)["answer"]["from_store"], True)


def doctor_says_what_fails_and_its_status_agrees():
    with Place() as place:
        checks = place.json("doctor")
        named = {check["name"]: check for check in checks["checks"]}
        for name in ("driver", "nvrtc", "store", "worker"):
            assert named[name]["level"] in ("ok", "warn"), named[name]
        tap.equal((named["driver"]["level"], checks["fail"]), ("warn", 0))
        assert named["driver"]["advice"] != ""
        text = place.run("doctor").stdout
        assert re.search(r"^warn +driver ", text, re.MULTILINE), text
        tap.has(named["store"]["text"], place.store)
        os.mkdir(os.path.join(place.folder, "empty"))
        tap.has(place.run("doctor", "--templates", "empty", status=1).stdout, "holds no manifest")
        tap.write(place.store, b"this is no store" * 512)
        os.chmod(place.store, 0o666)
        failed = place.json("doctor", status=1)
        bad = [check for check in failed["checks"] if check["level"] == "fail"]
        tap.equal(([check["name"] for check in bad], failed["fail"]), (["store"], 1))
        assert bad[0]["advice"] != ""


def make_nvrtc(folder, version, *beside):
    """A made-up NVRTC of that version (tests/fake_nvrtc.c), and empty files beside it."""
    os.makedirs(folder)
    for name in ("libnvrtc.so." + version.split(".")[0], "libnvrtc-builtins.so." + version):
        shutil.copy(os.environ["FA_TEST_FAKE_NVRTC"], os.path.join(folder, name))
    for name in beside:
        tap.write(os.path.join(folder, name), "")
    return folder


def doctors(place, status=0):
    return {check["name"]: check for check in place.json("doctor", status=status)["checks"]}


def doctor_compiles_with_nvrtc_and_blames_who_fails():
    with Place(script="driver 12080\n") as place:
        place.env["FA_TUNE_NVRTC"] = make_nvrtc(os.path.join(place.folder, "good"), "12.7")
        told = doctors(place)
        tap.equal([told[name]["level"] for name in ("nvrtc", "skew", "worker")], ["ok", "ok", "ok"])
        tap.has(told["nvrtc"]["text"], "NVRTC 12.7 compiles: ")
        place.env["FA_TUNE_NVRTC"] = make_nvrtc(os.path.join(place.folder, "bad"), "12.7", "broken")
        told = doctors(place, status=1)
        tap.equal([told[name]["level"] for name in ("nvrtc", "worker")], ["fail", "ok"])
        tap.has(told["nvrtc"]["text"], "NVRTC_ERROR_INTERNAL_ERROR")
        tap.has(told["nvrtc"]["text"], "/bad/libnvrtc.so.12")
        tap.has(told["nvrtc"]["advice"], "nvrtc12")  # CUDA 13's would not do with this driver
        place.env["FA_TUNE_NVRTC"] = make_nvrtc(os.path.join(place.folder, "worse"), "12.7", "crashing")
        told = doctors(place, status=1)
        tap.equal([told[name]["level"] for name in ("nvrtc", "worker")], ["fail", "ok"])
        tap.has(told["nvrtc"]["text"], "/worse/libnvrtc.so.12: the worker exited with code 9")
        tap.has(place.run("--gpu", "L4", *SMALL, status=1).stderr, "/worse/libnvrtc.so.12: exited with code 9")
        place.env["FA_TUNE_NVRTC"] = os.path.join(place.folder, "good")
        place.env["FA_TUNE_WORKER"] = os.path.join(place.folder, "nowhere")
        told = doctors(place, status=1)
        tap.equal([told[name]["level"] for name in ("nvrtc", "worker")], ["ok", "fail"])


def a_tune_and_doctor_pass_over_an_nvrtc_that_does_not_compile():
    with Place() as place:
        root, real = os.path.join(place.folder, "root"), place.env["FA_TUNE_NVRTC"]
        make_nvrtc(os.path.join(root, "lib64"), "12.7", "broken")
        os.makedirs(os.path.join(root, "nvidia", "cu13"))
        os.symlink(real, os.path.join(root, "nvidia", "cu13", "lib"))
        place.env["FA_TUNE_NVRTC"] = root
        passed, taken = (check for check in place.json("doctor")["checks"][::-1] if check["name"] == "nvrtc")
        tap.has(passed["text"], "passed over: %s/lib64/libnvrtc.so.12: " % root)
        tap.has(taken["text"], "NVRTC 13.")
        assert place.json("--gpu", "L4", *SMALL)["answer"]["nvrtc"].startswith("13.")


def headers_are_of_nvrtcs_version_or_the_pair_is_named():
    with Place() as place:
        root = os.path.join(place.folder, "cuda")
        place.env["FA_TUNE_NVRTC"] = make_nvrtc(os.path.join(root, "lib"), "12.7")
        os.makedirs(os.path.join(root, "include"))

        def own(version):
            for name, text in (("cuda_fp16.h", ""), ("cuda_runtime_api.h", "#define CUDART_VERSION  %d\n" % version)):
                tap.write(os.path.join(root, "include", name), text)
            return doctors(place)["headers"]

        tap.equal((own(12070)["level"], own(12070)["text"]), ("ok", "of CUDA 12.7, read by NVRTC 12.7: %s/include" % root))
        place.env["CUDA_HOME"] = root + "/none"
        told = own(12040)
        tap.equal((told["level"], told["text"]), ("warn", "of CUDA 12.4, read by NVRTC 12.7: %s/include" % root))
        tap.has(told["advice"], "nvidia-cuda-runtime-cu12==12.7.*")
        path = os.path.join(place.folder, "k.cu")
        tap.write(path, '/* fa-tune\n{"arguments": [{"name": "y", "type": "f16", "shape": ["n"], "is": "out"}, {"name": "n"}], "sizes": {"n": 9}, '
                        '"tune": {"BLOCK": [64]}, "block": "BLOCK", "grid": "1"}\n*/\n#include <cuda_fp16.h>\n'
                        "__global__ void k(__half *y, int n) { y[BLOCK] = wrong; }\n")
        tap.has(place.run("check", path, status=1).stdout, "this is wrong (headers of CUDA 12.4, read by NVRTC 12.7)")


# Opens the library by a relative name, goes to another folder, and says which worker it would start.
ASK_LIBRARY = """
import ctypes, os, sys
class Check(ctypes.Structure):
    _fields_ = [("level", ctypes.c_int), ("name", ctypes.c_char * 32), ("text", ctypes.c_char * 512), ("advice", ctypes.c_char * 512)]
library = ctypes.CDLL(os.path.join(os.curdir, sys.argv[1]))
os.chdir(sys.argv[2])
checks, count = ctypes.POINTER(Check)(), ctypes.c_size_t()
library.fa_doctor(None, ctypes.byref(checks), ctypes.byref(count), None)
print(*(check.text.decode() for check in checks[:count.value] if check.name == b"worker"))
"""


def nothing_of_ours_is_looked_for_in_the_current_folder():
    with Place() as place:
        here, linked, beside = (os.path.join(place.folder, name) for name in ("here", "linked", "beside"))
        library = "libfa_tune.so.0.2"
        for folder in (here, linked, beside, os.path.join(place.folder, "libexec", "fa-tune")):
            os.makedirs(folder)
            for name in ("fa-tune", library, "fa-tune-worker", "fa-tune-serve"):  # each tells that it was started
                tap.write(os.open(os.path.join(folder, name), os.O_WRONLY | os.O_CREAT, 0o700), "#!/bin/sh\ntouch %s/ran\n" % place.folder)
        os.replace(os.path.join(linked, "fa-tune"), os.path.join(linked, "none-of-ours"))
        os.symlink(FA_TUNE, os.path.join(linked, "fa-tune"))

        def run(*command, **how):
            env = {**place.env, "LD_LIBRARY_PATH": "."}  # as a variable that ends with a colon says, too
            return subprocess.run(command, env=env, cwd=here, stdout=subprocess.PIPE, check=True, **how).stdout

        for path in (FA_TUNE, os.path.join(linked, "fa-tune")):  # as a shell runs what it found in PATH
            worker, = [check for check in json.loads(run("fa-tune", "doctor", "--json", executable=path))["checks"]
                       if check["name"] == "worker"]
            tap.equal((worker["level"], worker["text"]), ("ok", os.path.join(BUILD, "fa-tune-worker")))
            tap.has(run("fa-tune", "serve", "--openapi", executable=path), b'"openapi"')
        for name in (library, "fa-tune-worker"):
            shutil.copy(os.path.join(BUILD, name), os.path.join(beside, name))
        place.preload_sanitizers()
        told = subprocess.run([sys.executable, "-c", ASK_LIBRARY, library, here], env=place.env, cwd=beside,
                              check=False, stdout=subprocess.PIPE, encoding="utf-8")
        tap.equal((told.returncode, told.stdout), (0, os.path.join(beside, "fa-tune-worker") + "\n"))
        assert not os.path.exists(os.path.join(place.folder, "ran"))


def doctor_changes_nothing():
    with Place() as place:
        for size in (None, 0):
            if size is not None:
                open(place.store, "wb").close()
            before = sorted(os.listdir(place.folder))
            check, = [one for one in place.json("doctor")["checks"] if one["name"] == "store"]
            tap.equal((check["level"], check["text"]), ("ok", place.store + ", which the first tune makes"))
            tap.equal(sorted(os.listdir(place.folder)), before)
        tap.equal(os.stat(place.store).st_size, 0)
        place.env["FA_TUNE_STORE"] = os.path.join(place.store, "under", "a", "file.db")
        check, = [one for one in place.json("doctor", status=1)["checks"] if one["name"] == "store"]
        tap.equal(check["level"], "fail")


def quiet_is_silent_and_progress_is_not():
    with Place() as place:
        told = place.run("--gpu", "L4", *SMALL)
        lines = told.stderr.splitlines()
        tap.has(lines[0], "to compile, with")
        rows = [line for line in lines if re.match(r"  compiled: ~[\d.]+ µs by the model, attn_fwd_sm80 BLOCK_M=", line)]
        assert len(rows) >= 3, "too few first rows: %r" % told.stderr
        tap.lacks(told.stderr, "\x1b")
        for option in ("--quiet", "--no-progress"):
            tap.equal(place.run("--gpu", "L4", *SMALL, "--again", option).stderr, "")


def raw_terminal(columns=80):
    """A pseudo-terminal that passes bytes through unchanged."""
    master, slave = pty.openpty()
    mode = termios.tcgetattr(slave)
    mode[1] &= ~termios.OPOST
    termios.tcsetattr(slave, termios.TCSANOW, mode)
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    return master, slave


def start_on_terminal(place, *arguments, stdout_too=False):
    """A child with stderr on a terminal, and the terminal."""
    master, slave = raw_terminal()
    child = place.start(*arguments, stdin=subprocess.DEVNULL, stdout=slave if stdout_too else subprocess.DEVNULL, stderr=slave)
    os.close(slave)
    return child, master


def read_terminal(master, until=None):
    """Everything written until its writers are gone, or until a pattern is there."""
    text, end = b"", time.monotonic() + DEADLINE
    while until is None or not re.search(until, text):
        assert time.monotonic() < end, "waited in vain for %r in %r" % (until, text[-2000:])
        if not select.select([master], [], [], 1)[0]:
            continue
        try:
            more = os.read(master, 65536)
        except OSError:  # EIO: the last writer has closed it
            break
        if not more:
            break
        text += more
    return text


def stdout_is_the_same_in_a_pipe_and_on_a_terminal_that_is_wide_enough():
    with Place() as place:
        arguments = ["--gpu", "L4", *SMALL]
        place.run(*arguments)
        piped = place.run(*arguments).stdout.encode()
        assert piped.count(b"\n") > 8, piped
        for stderr_too in (False, True):
            master, slave = raw_terminal(columns=250)
            child = place.start(*arguments, stdin=subprocess.DEVNULL, stdout=slave,
                                stderr=slave if stderr_too else subprocess.DEVNULL)
            os.close(slave)
            shown = read_terminal(master)
            os.close(master)
            tap.equal((child.wait(), shown), (0, piped))


def the_progress_line_is_erased_at_the_end():
    with Place() as place:
        place.compiles_slowly()  # else kept cubins come too fast for a line to be drawn
        child, master = start_on_terminal(place, "--gpu", "L4", *SMALL)
        text = read_terminal(master).decode()
        os.close(master)
        tap.equal(child.wait(), 0)
        drawn = [part for part in re.split(r"\r\x1b\[K|\n", text) if re.match(r"\d+/\d+ ", part)]
        assert len(drawn) > 3, "the line was not updated: %r" % text
        assert max(len(part) for part in drawn) < 80, "the line wraps"
        assert re.search(r"\d+/\d+ · \d+ compiled", drawn[-1]), drawn[-1]
        assert text.endswith("\r\x1b[K"), "the line stays: %r" % text[-200:]


def a_long_report_tells_how_far_it_is_and_can_be_stopped():
    with tuned() as place:
        multiply(place, 1000)
        for number in (None, signal.SIGINT):
            child, master = start_on_terminal(place, "report", "--out", "r.json")
            text = read_terminal(master, until=rb"reported \d+ of 1000")
            if number is not None:
                child.send_signal(number)
            text += read_terminal(master)
            os.close(master)
            path = os.path.join(place.folder, "r.json")
            if number is None:
                tap.equal(child.wait(DEADLINE), 0)
                assert text.endswith(b"\r\x1b[K"), "the line stays: %r" % text[-200:]
                os.unlink(path)
            else:
                tap.equal(child.wait(DEADLINE), 128 + number)
                assert text.endswith(b"fa-tune: the report was stopped\n"), text[-200:]
                assert not os.path.exists(path)


def products_of_every_size_have_configs_of_hopper_and_a_tune_tries_the_first():
    with Place() as place:
        for m, n, k in ((100000, 100000, 100000), (1, 151936, 4096), (8, 100000000, 64), (130, 18944, 3584)):
            problem = ["--operation", "gemm", "--gpu", "H200", "--m", str(m), "--n", str(n), "--k", str(k)]
            rows = [row for row in place.json("explain", *problem)["configs"] if row["config"]["family"] == "gemm_sm90a" and row["status"] == "pending"]
            assert rows and all(row["predicted_us"] > 0 for row in rows), problem
        assert len(rows) > 16, rows
        for again in [], ["--again"]:
            tap.equal(place.json("tune", *problem, *again)["funnel"]["in_budget"], 17)  # and one of mma.sync
        place.use_fake_driver("device name=NVIDIA_H200 sm=90 sms=7 smem_block=232448\n")  # a share of one
        assert place.json("explain", *problem[:2], *problem[4:])["configs"][0]["config"]["family"] == "gemm_sm90a"


def a_tune_on_hopper_leaves_out_what_the_model_puts_far_behind_and_so_does_the_next():
    problem = ["--seq", "64", "--heads", "1", "--head-dim", "32"]
    with Place(space=None, script="device name=NVIDIA_H200 sm=90 sms=132 smem_block=232448\n") as place:
        rows = [row for row in place.json("explain", *problem)["configs"] if row["status"] == "pending"]
        near = [row for row in rows if row["predicted_us"] <= 1.25 * rows[0]["predicted_us"]]
        assert 0 < len(near) < len(rows)
        for again in [], ["--again"]:
            tap.equal(place.json("tune", *problem, *again)["funnel"]["in_budget"], len(near))
        place.env["FA_TUNE_TEMPLATES"] = TEMPLATES
        tap.equal(place.json("tune", *problem)["funnel"]["in_budget"], len(rows))  # somebody's own model may be wrong


def kept_and_unharmed(place, arguments):
    """How many configs a stopped tune has kept; none may look as if it had failed by itself."""
    counts = place.json("explain", *arguments)["counts"]
    harmed = {name: counts[name] for name in ("crashed", "timeout", "compile-failed", "compile-timeout", "launch-failed", "load-failed")}
    tap.equal(harmed, dict.fromkeys(harmed, 0))
    assert counts["pending"] > 0, "nothing was left to do: %r" % counts
    return sum(counts[name] for name in ("compiled", "spills", "cubin"))


def ctrl_c_keeps_what_was_done_and_the_next_run_goes_on():
    arguments = ["--gpu", "L4", *SMALL]
    with Place() as place:
        place.compiles_slowly()
        master, slave = raw_terminal()

        def take_terminal():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        child = place.start(*arguments, "--effort", "patient", "--jobs", "1", stdin=slave, stdout=slave, stderr=slave, preexec_fn=take_terminal)
        os.close(slave)
        text = read_terminal(master, until=rb"(?s)(BLOCK_M=.*){3}")
        os.write(master, b"\x03")  # to the whole process group, workers included
        text += read_terminal(master)
        os.close(master)
        tap.equal(child.wait(DEADLINE), 130)
        told = re.search(rb"stopped; (\d+) configs? (?:is|are) kept, the same command continues", text)
        assert told, text
        kept = kept_and_unharmed(place, arguments)
        tap.equal(int(told.group(1)), kept)
        funnel = place.json(*arguments)["funnel"]
        assert funnel["resumed"] >= kept > 0, (funnel, kept)
        tap.equal(funnel["clean"], 8)


def a_terminate_signal_stops_in_order_and_the_problem_is_unfinished():
    for seq in ("0", "128"):
        arguments = ["--gpu", "L4", *SMALL[2:], "--seq", seq]
        with Place() as place:
            place.compiles_slowly()
            child = place.start(*arguments, "--effort", "patient", "--jobs", "1", stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8")
            while "BLOCK_M=" not in child.stderr.readline():
                pass
            child.send_signal(signal.SIGTERM)
            out, err = child.communicate(timeout=DEADLINE)
            tap.equal((child.returncode, out), (128 + signal.SIGTERM, ""))
            tap.has(err, "stopped; ")
            kept_and_unharmed(place, arguments)
            tap.equal([one["known_how"] for one in place.json("report")["problems"]], ["unfinished"])


def a_full_disk_below_stdout_is_a_failure():
    with Place() as place, open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run([FA_TUNE, "gpus"], env=place.env, stdout=full,
                              stderr=subprocess.PIPE, encoding="utf-8", check=False)
        tap.equal(done.returncode, 1)
        tap.has(done.stderr, "standard output")


def a_limit_on_file_sizes_has_a_sentence_and_leaves_nothing():
    def limit(blocks):
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(512 * blocks), resource.RLIM_INFINITY))
    with tuned() as place:
        place.env["XDG_CONFIG_HOME"] = os.path.join(place.folder, "config")
        before = set(os.listdir(place.folder)) | {"store.db-journal", "store.db.lock", "config"}
        for blocks, words, sentence in (
                (0, "report --out r.html", "r.html: File too large"), (0, "export --unsigned --out b.fab", "b.fab: File too large"),
                (9, "export --unsigned --out b.fab", "b.fab: File too large"),
                (0, "tune --gpu L4 --seq 192", "no space is left"), (0, "sweep --gpu L4 --seq 192,256", "no space is left"),
                (0, "keygen", "own.pub: File too large"), (1 / 64, "keygen", "own.pub: File too large"),
                (0, "rm --all", "no space is left"), (0, "show", "standard output: File too large"), (4, "gpus --json", "standard output: File")):
            with open(os.path.join(place.folder, "out"), "w", encoding="utf-8") as out:
                done = subprocess.run([FA_TUNE, *words.split()], env=place.env, cwd=place.folder, stdout=out, stderr=subprocess.PIPE,
                                      encoding="utf-8", check=False, preexec_fn=lambda blocks=blocks: limit(blocks), timeout=DEADLINE)
            tap.equal((words, done.returncode), (words, 1))
            tap.has(done.stderr, sentence)
            tap.equal((words, set(os.listdir(place.folder)) - before), (words, {"out"}))
        tap.equal([os.listdir(os.path.join(place.folder, "config", "fa-tune", one)) for one in (".", "trusted")], [["trusted"], []])
        tap.equal(len(place.json("show")["winners"]), 1)


def a_tune_without_descriptors_ends_with_that_sentence_and_no_signal():
    ended = {}
    with Place() as place:
        env = {**place.env, "ASAN_OPTIONS": "detect_leaks=0"}  # which takes descriptors
        for most in range(40, 3, -1):
            done = subprocess.run([FA_TUNE, "--gpu", "L4", *SMALL, "--effort", "predict", "--again"], env=env, stdin=subprocess.DEVNULL, check=False,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, encoding="utf-8", timeout=DEADLINE,
                                  preexec_fn=lambda most=most: resource.setrlimit(resource.RLIMIT_NOFILE, (most, most)))
            ended.setdefault(done.returncode, []).append(most)
            for wrong in ("out of memory", "was not found"):
                tap.lacks(done.stderr, wrong)
    assert set(ended) == {0, 1} and len(ended[1]) >= 3, ended


def a_failure_under_json_is_a_document():
    with Place(space=None) as place:
        for arguments, status, parts in (
                (["--seq", "12x", "--json"], 2, ['--seq: "12x"']),
                (["tunee", "--json"], 2, ["did you mean tune?"]),
                (["--seq", "5", "--json"], 1, ["a GPU that is not here by its name"]),
                (["show", "--json", "x.fab"], 2, ["x.fab"])):
            done = place.run(*arguments, status=status)
            document = json.loads(done.stdout)
            tap.equal(list(document), ["fa_tune", "error"])
            error = document["error"]
            tap.equal((error["exit_status"], len(error["sentences"])), (status, len(parts)))
            for sentence, part in zip(error["sentences"], parts):
                tap.has(sentence, part)
                tap.has(done.stderr, sentence)
        tap.equal(place.run("--seq", "12x", status=2).stdout, "")


def filters_keep_problems_and_a_name_its_variants():
    with Place() as place:
        place.run("--gpu", "L4", *SMALL, "--quiet")
        place.run("--gpu", "L4", *SMALL[:4], "--heads", "2", "--causal", "--quiet")
        for asked, count in (([], 2), (["--causal"], 1), (["--heads", "2"], 1), (["--seq", "128"], 2), (["--seq", "127"], 2),  # whose bucket is 128
                              (["--dtype", "bf16"], 0),
                             (["--gpu", "L4", "--heads", "1"], 1), (["--gpu", "T4"], 0)):
            tap.equal((asked, len(place.json("show", *asked)["winners"])), (asked, count))
    with Place(space=None) as place:
        named = [gpu["name"] for gpu in place.json("gpus")["gpus"]]
        tap.equal([gpu["name"] for gpu in place.json("gpus", "--gpu", "L4")["gpus"]], ["L4"] + [name for name in named if "L4" in name and name != "L4"])


tap.main()
