#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kernel families that clients send to a daemon whose operator allows it."""
import fcntl
import json
import os
import threading

import tap
from place import Place
from serve import Serve, ask, wait_for

NONE = "no_device\n"
ALLOW = "--allow-user-templates"
SOURCE = """#include "attn_params.h"
extern "C" __global__ void attn_fwd(fa_attn_params p) { static_cast<char *>(p.o)[0] = WHICH; }
"""
MANIFEST = {"name": "mine", "operation": "attn_fwd", "entry": "attn_fwd",
            "sm": {"min": 75, "max": 121}, "tunables": {"WHICH": [0, 1]}, "threads": "128", "shared_memory": {"q": "0"},
            "registers": "32", "grid": ["1", "1", "1"], "default": {"WHICH": 0}}


def family(source=SOURCE, name="mine", **manifest):
    return {"name": name, "manifest": dict(MANIFEST, name=name, **manifest), "source": source}


def a_server_that_does_not_allow_them_takes_none():
    with Place(script=NONE) as place, Serve(place) as daemon:
        tap.equal(daemon.post("/v1/families", family())[0], 403)
        status, document = daemon.post("/v1/kernel", ask(gpu="L4", family="0" * 64))
        tap.equal((status, document["error"]["code"]), (422, "FA_ENOTSUP"))
        assert not os.path.exists(os.path.join(place.folder, "families"))


def a_family_is_tuned_for_those_who_name_it_and_for_nobody_else():
    with Place(script=NONE) as place, Serve(place, ALLOW) as daemon:
        status, sent = daemon.post("/v1/families", family())
        tap.equal((status, sent["name"]), (201, "mine"))
        tap.equal(daemon.post("/v1/families", family()), (200, sent))
        other = daemon.post("/v1/families", family(SOURCE + "\n"))[1]
        assert other["family"] != sent["family"]
        mine = ask(gpu="L4", family=sent["family"])
        status, document = daemon.post("/v1/kernel", mine)
        tap.equal((status, document["answer"]["config"]["family"]), (200, "mine"))
        tap.equal(document["answer"]["funnel"]["space"], 2)
        status, cubin, _ = daemon.get("/v1/cubins/" + document["cubin"]["key"], raw=True)
        tap.equal((status, len(cubin)), (200, document["cubin"]["size"]))
        for body in (ask(gpu="L4"), ask(gpu="L4", family=other["family"])):
            tap.equal(daemon.post("/v1/kernel", dict(body, effort="cached"))[0], 404)
        # It outlives the daemon, and so does its winner.
        daemon.kill()
        daemon.start()
        status, again = daemon.post("/v1/kernel", dict(mine, effort="predict"))
        tap.equal((status, again["cubin"]), (200, document["cubin"]))
        mode = os.stat(os.path.join(place.folder, "families", sent["family"])).st_mode
        tap.equal(mode & 0o77, 0)


def what_is_no_family_is_told_and_not_kept():
    with Place(script=NONE) as place, Serve(place, ALLOW) as daemon:
        for wrong in ([], {}, {"name": "mine"}, dict(family(), source=""), dict(family(), source=7),
                      dict(family(), manifest="{}"), dict(family(), more=1), family(name="../mine"),
                      family(name="Mine"), family(name="m" * 32), family(name="attn_ref"),
                      family(name="attn_fwd_sm80"), dict(family(), name="other"),
                      family("x" * ((1 << 20) + 1)), family(threads="(SELECT 1)"),
                      family(threads="load_extension('x')"),
                      family(tunables={"WHICH": list(range(65))}), family(operation="nothing"),
                      family(grid=["1/0", "1", "1"]), family(let={"A": "B", "B": "A"})):
            status, document = daemon.post("/v1/families", wrong)
            assert status == 400, (status, str(wrong)[:200], document)
            assert document["error"]["message"], wrong
        tap.equal(daemon.post("/v1/families", b"[" * 100000)[0], 400)
        tap.equal(daemon.post("/v1/families", b"x" * (9 << 20))[0], 413)
        folder = os.path.join(place.folder, "families")
        tap.equal(os.listdir(folder) if os.path.exists(folder) else [], [])
        for unknown, status in (("0" * 64, 404), ("x", 400), ("A" * 64, 400), ("../" * 20, 400)):
            tap.equal(daemon.post("/v1/kernel", ask(gpu="L4", family=unknown))[0], status)


def a_family_that_takes_too_long_to_evaluate_is_refused():
    names = ["T%d" % i for i in range(9)]
    with Place(script=NONE) as place, Serve(place, ALLOW) as daemon:
        status, document = daemon.post("/v1/families", family(
            tunables={name: list(range(10)) for name in names}, default={name: 0 for name in names}, let={},
            constraints=[{"require": "CASE WHEN T8 < 10 THEN 0 ELSE %s END < 0" % "+".join(["T8 % 7"] * 100),
                          "why": "known with the last tunable alone"}]))
        tap.equal(status, 400)
        tap.has(document["error"]["message"], "too long to walk")
        tap.equal(os.listdir(os.path.join(place.folder, "families")), [])


def its_source_reads_nothing_and_its_end_is_told():
    with Place(script=NONE) as place, Serve(place, ALLOW) as daemon:
        secret = os.path.join(place.folder, "secret")
        with open(secret, "w", encoding="ascii") as file:
            file.write("Tr0ub4dor")
        sent = daemon.post("/v1/families", family('#include "%s"\n' % secret + SOURCE))[1]
        status, document = daemon.post("/v1/kernel", ask(gpu="L4", family=sent["family"]))
        tap.equal((status, document["error"]["code"]), (422, "FA_ENOKERNEL"))
        tap.lacks(json.dumps(daemon.get("/v1/jobs")[1]) + daemon.log(), "Tr0ub4dor")
        with open(place.store, "rb") as file:
            tap.lacks(file.read(), b"Tr0ub4dor")
        tap.equal(daemon.get("/healthz", raw=True)[0], 200)


def lying_about(folder):
    return sorted(name for name in os.listdir(folder) if len(name) != 64)


def leave_behind(folder, name):
    os.makedirs(os.path.join(folder, name))
    for ending in (".json", ".cu"):
        with open(os.path.join(folder, name, "mine" + ending), "w", encoding="ascii") as file:
            file.write("{")


def what_a_killed_daemon_left_half_made_is_swept_and_nothing_else():
    with Place(script=NONE) as place:
        folder = os.path.join(place.folder, "families")
        kept = [".new-", ".new-seven77", "other", "x.new-Ab3dEf"]
        for name in kept + [".new-Ab3dEf", ".new-000000"]:
            leave_behind(folder, name)
        os.symlink(os.path.join(place.folder, "families", "other"),
                   os.path.join(folder, ".new-linked"))
        leave_behind(folder, ".new-filled")
        with open(os.path.join(folder, ".new-filled", "notes.txt"), "w", encoding="ascii"):
            pass
        with Serve(place, ALLOW) as daemon:
            sent = daemon.post("/v1/families", family())[1]
            tap.equal(lying_about(folder), sorted(kept + [".new-filled", ".new-linked"]))
            tap.equal(len(os.listdir(os.path.join(folder, "other"))), 2)
            assert os.path.isdir(os.path.join(folder, sent["family"]))


def a_family_that_another_daemon_makes_just_now_is_not_swept():
    with Place(script=NONE) as place:
        folder = os.path.join(place.folder, "families")
        leave_behind(folder, ".new-Ab3dEf")
        lock = os.open(folder, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_SH)
        with Serve(place, ALLOW) as daemon:
            tap.equal(daemon.post("/v1/families", family())[0], 201)  # after the sweep
            tap.equal(lying_about(folder), [".new-Ab3dEf"])
            # It makes its own under that lock too.
            fcntl.flock(lock, fcntl.LOCK_EX)
            answers = []
            asking = threading.Thread(target=lambda: answers.append(
                daemon.post("/v1/families", family(SOURCE + "\n"))))
            asking.start()
            asking.join(1)
            tap.equal((answers, lying_about(folder)), ([], [".new-Ab3dEf"]))
            # However long a family takes, nobody's lookup waits for it.
            tap.equal(daemon.get("/v1/winners")[0], 200)
            tap.equal(daemon.post("/v1/kernel", ask(gpu="L4", effort="cached"))[0], 404)
            tap.equal(answers, [])
            fcntl.flock(lock, fcntl.LOCK_UN)
            wait_for(lambda: answers, "the family that waited")
            tap.equal(answers[0][0], 201)
            asking.join()
            daemon.kill()
            daemon.start()
            wait_for(lambda: lying_about(folder) == [], "the sweep")
        os.close(lock)


KERNEL = "__global__ void axpy(float *y, const float *x, float a, int n)\n{ int i = threadIdx.x; if (i < n) y[i] += a * x[i]; }\n"
SPECIFIED = {
    "kernel": "axpy", "arguments": [{"name": "y", "type": "f32", "shape": ["n"], "is": "inout"}, {"name": "x", "type": "f32", "shape": ["n"]},
                                    {"name": "a", "type": "f32", "value": 2}, {"name": "n"}],
    "sizes": {"n": 64}, "tune": {"THREADS": [64, 128]}, "block": "THREADS", "grid": 1}


def specification(source=KERNEL, name="axpy", **changes):
    return {"name": name, "specification": {**SPECIFIED, **changes}, "source": source}


def a_specification_is_an_operation_that_its_own_name_alone_finds():
    with Place(script=NONE) as place, Serve(place, ALLOW) as daemon:
        status, sent = daemon.post("/v1/families", specification())
        tap.equal((status, sent["operation"].startswith("axpy@")), (201, True))
        tap.equal(daemon.post("/v1/families", specification()), (200, sent))
        asked = {"problem": {"operation": sent["operation"], "n": 32}, "gpu": "L4"}
        status, document = daemon.post("/v1/kernel", asked)
        tap.equal((status, document["answer"]["origin"], document["answer"]["funnel"]["space"]), (200, "unranked", 2))
        tap.equal(daemon.post("/v1/kernel", {"problem": {"operation": "axpy", "n": 32}, "gpu": "L4"})[0], 400)
        # It outlives the daemon, and so does its winner.
        daemon.kill()
        daemon.start()
        status, again = daemon.post("/v1/kernel", dict(asked, effort="predict"))
        tap.equal((status, again["cubin"]), (200, document["cubin"]))
    with Place(script=NONE) as place, Serve(place) as daemon:
        tap.equal(daemon.post("/v1/families", specification())[0], 403)


def a_specification_is_compiled_in_the_strict_sandbox_alone():
    with Place(script=NONE) as place, Serve(place, ALLOW) as daemon:
        secret = os.path.join(place.folder, "secret")
        with open(secret, "w", encoding="ascii") as file:
            file.write("Tr0ub4dor")
        for include in (secret, "../" * 20 + secret):
            sent = daemon.post("/v1/families", specification('#include "%s"\n' % include + KERNEL))[1]
            status, document = daemon.post("/v1/kernel", {"problem": {"operation": sent["operation"], "n": 32}, "gpu": "L4"})
            tap.equal((status, document["error"]["code"]), (422, "FA_ENOKERNEL"))
            tap.lacks(json.dumps(daemon.get("/v1/jobs")[1]) + daemon.log(), "Tr0ub4dor")
    with Place(script=NONE) as place:  # where the kernel cannot confine, nothing of it is compiled
        place.env["FA_TUNE_WORKER"] = os.environ["FA_TEST_NO_SECCOMP"]
        with Serve(place, ALLOW) as daemon:
            sent = daemon.post("/v1/families", specification())[1]
            status, document = daemon.post("/v1/kernel", {"problem": {"operation": sent["operation"], "n": 32}, "gpu": "L4"})
            tap.equal((status, document["error"]["code"]), (422, "FA_ENOTSUP"))
            tap.has(document["error"]["message"], "source from outside is not compiled here")


def a_specification_names_no_file_and_no_operation_of_ours():
    with Place(script=NONE) as place, Serve(place, ALLOW) as daemon:
        for wrong in (specification(include=["/etc"]), specification(include=[]), specification(answer={"kernel": "axpy", "source": "x.cu"}),
                      specification(options=["-I/etc"]), specification(tune={}), specification(name="attn_fwd"), specification(source=""),
                      dict(specification(), manifest=MANIFEST), specification(sizes=None),
                      specification(cluster="1/0"), specification(cluster=1e9), specification(strategy="none"), specification(evaluations=1e12),
                      specification(seconds=-1)):
            status, document = daemon.post("/v1/families", wrong)
            tap.equal((status, document["error"]["message"] != ""), (400, True))
        folder = os.path.join(place.folder, "families")
        tap.equal(os.listdir(folder) if os.path.exists(folder) else [], [])


def a_specification_that_there_is_no_room_for_is_not_kept_in_mind():
    with Place(script=NONE) as place, Serve(place, ALLOW) as daemon:
        folder = os.path.join(place.folder, "families")
        for i in range(256):
            os.makedirs(os.path.join(folder, "full%d" % i))
        for i in range(1, 514):  # more than a process knows
            status, document = daemon.post("/v1/families", specification(sizes={"n": i}))
            tap.equal((status >= 400, "256 families" in document["error"]["message"]), (True, True))
        os.rmdir(os.path.join(folder, "full0"))
        tap.equal(daemon.post("/v1/families", specification())[0], 201)


tap.main([
    a_server_that_does_not_allow_them_takes_none,
    a_family_is_tuned_for_those_who_name_it_and_for_nobody_else,
    what_is_no_family_is_told_and_not_kept,
    a_family_that_takes_too_long_to_evaluate_is_refused,
    its_source_reads_nothing_and_its_end_is_told,
    what_a_killed_daemon_left_half_made_is_swept_and_nothing_else,
    a_family_that_another_daemon_makes_just_now_is_not_swept,
    a_specification_is_an_operation_that_its_own_name_alone_finds,
    a_specification_is_compiled_in_the_strict_sandbox_alone,
    a_specification_names_no_file_and_no_operation_of_ours,
    a_specification_that_there_is_no_room_for_is_not_kept_in_mind,
])
