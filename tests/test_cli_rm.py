#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""rm: what goes, what stays, and what is then as if it had never been tuned. On the fake driver."""
import os
import signal
import subprocess

import tap
from place import FA_TUNE, L4, SOURCE, Place
from report_store import add_baselines, baseline, change, tuned

TWO = {"BLOCK_M": [64], "BLOCK_N": [32, 64], "STAGES": [1], "WARPS": [4], "Q_IN_REGS": [0], "MIN_BLOCKS": [2]}
THREE = ((128,), (256,), (512, "--causal"))  # the first two share all of their cubins
OF = ("--batch", "1", "--heads", "1", "--seq")


def lengths(document):
    return sorted(one["problem"]["seq_q"] for one in document.get("winners") or document.get("problems") or [] if one["problem"])


def rm(place, *arguments):
    """How much went."""
    return place.json("rm", *arguments)["forgotten"]


def bytes_of(place):
    return tap.read(place.store, "rb")


def a_dry_run_tells_what_a_real_run_takes_and_changes_nothing():
    with tuned(problems=THREE) as place:
        before = bytes_of(place)
        would = place.json("rm", "--gpu", "L4", "--causal", "--dry-run")
        tap.has(place.run("rm", "--gpu", "L4", "--causal", "--dry-run").stdout, "would forget 1 winner, 8 trials and 8 cubins")
        tap.equal((bytes_of(place) == before, would["dry_run"], lengths(would)), (True, True, [512]))
        did = place.json("rm", "--gpu", "L4", "--causal")
        gone = did.pop("forgotten")
        assert gone["bytes"] > 50000 and len(before) > len(bytes_of(place)), gone
        tap.equal(gone, {**would.pop("forgotten"), "winners": 1, "trials": 8, "cubins": 8})
        tap.equal(did, {**would, "dry_run": False})
        tap.equal(lengths(place.json("show")), [128, 256])
        tap.equal(rm(place, "--causal"), dict.fromkeys(gone, 0))
        left = len(bytes_of(place))
        rm(place, "--all")
        assert len(bytes_of(place)) < left


def cubins_stay_while_another_problem_has_them():
    with tuned(problems=THREE) as place:
        tap.equal(rm(place, "--seq", "128")["cubins"], 0)
        tap.equal(place.json("--seq", "256", "--batch", "1", "--heads", "1", "--effort", "cached")["answer"]["origin"], "measured")
        tap.equal(rm(place, "--seq", "256")["cubins"], 8)


def what_is_forgotten_is_as_if_it_had_never_been_tuned():
    asked = (*OF, "512", "--causal")
    with tuned(problems=THREE) as place, Place(script=L4) as fresh:
        place.run("rm", "--causal")
        place.run("rm", "--seq", "256", "--quiet")
        tap.equal(place.json("explain", *asked)["counts"], fresh.json("explain", *asked)["counts"])
        tap.equal([(step["step"], step["found"]) for step in place.json("show", "--why", *asked)["steps"]],
                  [(step["step"], step["found"]) for step in fresh.json("show", "--why", *asked)["steps"]])
        tap.equal(lengths(place.json("report")), [128])
        place.run(*asked, "--effort", "cached", status=1)
        again = place.run(*asked)
        tap.lacks(again.stdout + again.stderr, "earlier run")
        tap.equal(lengths(place.json("show")), [128, 512])


def each_way_to_choose_keeps_to_what_it_names():
    with tuned(problems=THREE) as place:
        for choice, chosen in ((["--operation", "attn_fwd"], [128, 256, 512]), (["--gpu", "H100"], []), (["--seq-k", "256"], [256]),
                               (["--all"], [128, 256, 512])):
            tap.equal((choice, lengths(place.json("rm", *choice, "--dry-run"))), (choice, chosen))


def winners_of_an_operation_whose_templates_are_gone_are_told_and_reached():
    stored = {"operation": "l1_norm", "dtype": "fp16", "rows": 64, "columns": 256}
    with tuned(problems=((128,),)) as place:
        place.run("--operation", "l1_norm", "--rows", "64", "--columns", "256", "--gpu", "L40S", "--quiet",
                  "--templates", os.path.join(SOURCE, "tests", "operations"))
        for choice in (["--gpu", "L40S"], ["--all"]):
            would = place.json("rm", *choice, "--dry-run")
            found = [one for one in would["problems"] if one["problem"] == stored]
            tap.equal((choice, [(one["gpu"]["name"], one["unread"], one["answer"]) for one in found]), (choice, [("L40S", True, None)]))
            tap.equal(would["forgotten"]["winners"], len(would["problems"]))
        for choice in (["--gpu", "L4"], ["--operation", "attn_fwd"]):
            assert stored not in [one["problem"] for one in place.json("rm", *choice, "--dry-run")["problems"]], choice
        tap.has(place.run("rm", "--operation", "rms_nrom", status=2).stderr, "rms_nrom")
        tap.has(place.run("rm", "--gpu", "L40S", "--dry-run").stdout, "l1_norm")
        tap.equal((rm(place, "--gpu", "L40S")["winners"], lengths(place.json("show"))), (1, [128]))


def a_file_chooses_the_winners_of_its_own_operation_alone():
    file = os.path.join(SOURCE, "tests", "specifications", "sums.cu")
    with tuned(problems=((128,),)) as place:
        place.run(file, "--gpu", "L4", "--effort", "predict", "--quiet")
        for verb, key in (("rm", "problems"), ("show", "winners"), ("report", "problems")):
            for more, count in (([], 1), (["--gpu", "L4"], 1), (["--gpu", "H100"], 0), (["--n", "7"], 0)):
                told = place.json(verb, file, *more, *(["--dry-run"] if verb == "rm" else []))[key]
                tap.equal((verb, more, [one["problem"]["operation"] for one in told]), (verb, more, ["sums"] * count))
        tap.has(place.run("export", file, "--unsigned", "--out", "sums.fab").stdout, "1 winner, 1 cubin")
        tap.equal([place.run("show", *more).stderr.count("files are not named") for more in ((), (file,), ("--operation", "attn_fwd"))], [1, 0, 0])
        tap.has(place.run("rm", file, "--all", status=2).stderr, "--all")
        tap.equal((rm(place, file)["winners"], lengths(place.json("show"))), (1, [128]))


def what_frees_space_needs_none():
    """On a file system of its own, which needs no root where users may have mount namespaces: it is filled to its last byte."""
    for choice, left in ((["--all"], []), (["--causal"], [128, 256]), (["--gpu", "L4", "--seq", "128"], [256, 512])):
        with tuned(problems=THREE) as place:
            disk = os.path.join(place.folder, "disk")
            os.mkdir(disk)
            env = {**place.env, "FROM": place.store, "FA_TUNE_STORE": os.path.join(disk, "store.db"), "TMPDIR": disk, "SQLITE_TMPDIR": disk}
            inside = ('mount -t tmpfs -o size=%dk,mode=700 none %s || exit 99; cp "$FROM" "$FA_TUNE_STORE"; "$@" show >/dev/null\n'
                      'cat /dev/zero >%s/filler 2>/dev/null; "$@" rm %s --json; status=$?; cp "$FA_TUNE_STORE" "$FROM"; exit $status'
                      % (os.path.getsize(place.store) // 1024 + 20, disk, disk, " ".join(choice)))
            done = subprocess.run(["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", inside, "sh", FA_TUNE], env=env,
                                  capture_output=True, encoding="utf-8", check=False)
            if "unshare" in done.stderr or done.returncode == 99:
                raise tap.Skip("no namespace of our own here: " + done.stderr.strip())
            tap.equal((done.returncode, done.stderr), (0, ""))
            tap.equal(lengths(place.json("show")), left)


def what_is_not_chosen_clearly_is_refused():
    with tuned(problems=THREE) as place:
        before = bytes_of(place)
        for arguments, part in (((), "say what to forget"), (("--dry-run",), "say what to forget"), (("--all", "--gpu", "L4"), "--all"),
                                (("--gpu", "L400"), "near it: L40"), (("512",), "512")):
            tap.has(place.run("rm", *arguments, status=2).stderr, part)
        tap.has(place.run("rm", "--seq", "300").stdout, "no problem matches in ~/store.db")
        tap.equal(bytes_of(place) == before, True)
    with Place() as place:
        tap.has(place.run("rm", "--all").stdout, "nothing to forget")
        assert not os.path.exists(place.store)


def everything_goes_but_baselines_and_the_plans_of_sweeps_which_tune_again():
    sweep = ("sweep", "--seq", "64,128", "--batch", "1", "--heads", "1")
    with Place(space=TWO, script=L4) as place:
        tap.equal(place.json(*sweep)["sweep"]["spent"]["trials"], 4)
        add_baselines(place, [baseline(64, "fa2", 10)])
        change(place, "UPDATE scope SET problem = '{}' WHERE id = 1")  # only another version could read it
        tap.equal(lengths(place.json("show")), [128])
        gone = place.json("rm", "--all")
        tap.equal((lengths(gone), gone["forgotten"]["winners"], gone["forgotten"]["trials"]), ([128], 2, 4))
        tap.equal(place.json("queue")["sweeps"][0]["items"], 2)
        tap.equal(rm(place, "--all")["winners"], 0)
        again = place.json(*sweep)
        tap.equal(([one["state"] for one in again["items"]], again["sweep"]["spent"]["trials"]), (["done"] * 2, 8))
        tap.equal(len(place.json("report", "--seq", "64")["problems"][0]["baselines"]), 1)


def a_tune_under_way_is_waited_for_and_killed_it_holds_nobody_up():
    with Place(space=TWO) as place:
        log = os.path.join(place.folder, "log")
        place.use_fake_driver(L4 + "fault BLOCK_N=64; hang\nlog %s\n" % log)
        tune = place.start(*OF, "128", "--trial-timeout", "3600", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL, start_new_session=True)
        while not (os.path.exists(log) and "launch" in open(log, encoding="utf-8").read()):
            assert tune.poll() is None
        try:
            tap.has(place.run("rm", "--all", status=1).stderr, "is under way")
            place.run("rm", "--all", "--dry-run")
        finally:
            os.killpg(tune.pid, signal.SIGKILL)
            tune.wait()
        place.run("rm", "--all")
        tap.equal(place.json("show")["winners"], [])


tap.main()
