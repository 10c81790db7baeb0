#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Bundles from the command line: a key, an export, what another machine says to it, and records."""
import functools
import os
import re
import shutil
import subprocess

import tap
from place import DEADLINE, EIGHT, Place, SMALL

TWO = {**EIGHT, "BLOCK_M": [64], "BLOCK_N": [64]}


def key_of(place):
    return place.run("keygen").stdout.split()[0]


def tuned(place):
    place.run("tune", "--gpu", "L4", *SMALL, "--no-progress")
    return place


def elsewhere(place, name):
    """The same programs as another user on another machine: own store, own keys."""
    folder = os.path.join(place.folder, name)
    os.makedirs(folder, mode=0o700)
    place.env["FA_TUNE_STORE"] = os.path.join(folder, "store.db")
    place.env["XDG_CONFIG_HOME"] = os.path.join(folder, "config")


def trust(place, name, key):
    """What a person does to trust a key."""
    path = os.path.join(place.env.get("XDG_CONFIG_HOME", os.path.join(place.folder, ".config")), "fa-tune", "trusted", name)
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    tap.write(path, key + "\n")
    return path


def a_bundle_goes_from_one_machine_to_another_in_four_commands():
    with Place(TWO) as place:
        tuned(place)
        key = key_of(place)
        assert re.fullmatch("RW[A-Za-z0-9+/]{54}", key), key
        told = place.run("export", "--gpu", "l4", "--out", "l4.fab").stdout
        tap.has(told, "1 winner, 1 cubin")
        tap.has(told, "signed by " + key)
        elsewhere(place, "there")
        refused = place.run("import", "l4.fab", status=1).stderr
        tap.has(refused, "not trusted here: key ID ")
        tap.has(refused, "copy its .pub file into %s/fa-tune/trusted" % place.env["XDG_CONFIG_HOME"])
        tap.has(place.run("show", "l4.fab").stdout, "which is not trusted here")
        place.run("import", "l4.fab", "--allow-unsigned", status=1)
        tap.equal(place.json("show")["winners"], [])
        trusted = trust(place, "the lab.pub", key)
        told = place.run("import", "l4.fab").stdout
        tap.has(told, "(the lab)")
        tap.has(told, "1 added, 0 replaced, 0 kept, 0 the same")
        tap.has(place.run("import", "l4.fab").stdout, "1 the same")
        tap.equal(len(place.json("show")["winners"]), 1)
        os.remove(trusted)
        place.run("import", "l4.fab", status=1)


def show_checks_a_bundle_and_needs_no_store():
    with Place(TWO) as place:
        tuned(place)
        place.run("export", "--unsigned", "--out", "l4.fab")
        place.env["FA_TUNE_STORE"] = "/no/such/place/store.db"
        told = place.run("show", "l4.fab").stdout
        tap.has(told, "not signed")
        tap.has(told, "every cubin is what its winner says")
        document = place.json("show", "l4.fab")
        tap.equal(document["bundle"]["signed"], False)
        tap.equal(document["winners"][0]["answer"]["origin"], "predicted")


def bytes_of(path):
    return tap.read(path, "rb")


def what_a_bundle_says_and_cannot_be_is_no_mistake_of_whoever_gives_it():
    with Place(TWO) as place:
        tuned(place)
        place.run("export", "--unsigned", "--out", "good.fab")
        elsewhere(place, "there")
        tap.equal(place.json("show")["winners"], [])
        place.run("tune", "--gpu", "A10", *SMALL, "--no-progress")
        before = bytes_of(place.env["FA_TUNE_STORE"])
        good = bytes_of(os.path.join(place.folder, "good.fab"))
        for at, sentence in [(None, "cut short"), (0, "is no bundle"), (63, "the fa-tune that made it"),
                             (140, "does not match"), (-100, "does not match"), (-20000, "does not match")]:
            bad = bytearray(good if at is not None else good[:len(good) // 2])
            if at is not None:
                bad[at] ^= 0x40
            tap.write(os.path.join(place.folder, "bad.fab"), bad)
            for arguments in (["show", "bad.fab"], ["import", "bad.fab", "--allow-unsigned"],
                              ["import", "bad.fab", "--allow-unsigned", "--dry-run"]):
                tap.has(place.run(*arguments, status=1).stderr, sentence)
        tap.equal(bytes_of(place.env["FA_TUNE_STORE"]), before)
        place.run("import", "good.fab", "--allow-unsigned")


def a_bundle_is_no_store_and_is_replaced_by_another():
    with Place(TWO) as place:
        tuned(place)
        for _ in range(2):
            place.run("export", "--unsigned", "--out", "l4.fab")
        place.env["FA_TUNE_STORE"] = os.path.join(place.folder, "l4.fab")
        tap.has(place.run("show", status=1).stderr, "is a bundle and not a store")


def a_dry_run_says_what_would_change_and_unsigned_is_said_twice():
    with Place(TWO) as place:
        tuned(place)
        tap.has(place.run("export", "--out", "l4.fab", status=1).stderr, "fa-tune keygen")
        place.run("export", "--unsigned", "--out", "l4.fab")
        elsewhere(place, "there")
        tap.has(place.run("import", "l4.fab", status=1).stderr, "--allow-unsigned")
        tap.equal(place.json("show")["winners"], [])
        document = place.json("import", "l4.fab", "--allow-unsigned", "--dry-run")
        tap.equal((document["dry_run"], document["added"]), (True, 1))
        tap.equal(place.json("show")["winners"], [])


def sentences_about_a_hostile_file_send_the_terminal_nothing():
    with Place(TWO) as place:
        tap.write(os.path.join(place.folder, "bad.jsonl"), '{"\x1b]0;owned\x07":1,"\x1b]0;owned\x07":2}\n')
        told = place.run("export", "--from-records", "bad.jsonl", "--unsigned", "--out", "x.fab", status=1).stderr
        tap.has(told, "appears twice")
        tap.has(told, "\\x1b]0;owned\\x07")
        tap.equal("\x1b" in told, False)


def filters_choose_winners_and_choosing_none_is_a_mistake():
    with Place(TWO) as place:
        tuned(place)
        place.run("export", "--unsigned", "--out", "a.fab", "--seq", "128", "--dtype", "fp16", "--head-dim", "64", "--causal", "none")
        for other in (["--seq", "999"], ["--dtype", "bf16"], ["--head-dim", "128"],
                      ["--causal", "bottom-right"], ["--gpu", "A100"]):
            refused = place.run("export", "--unsigned", "--out", "b.fab", *other, status=1).stderr
            tap.has(refused, "no winner to put into b.fab")
            assert not os.path.exists(os.path.join(place.folder, "b.fab"))


def records_make_the_bundle_that_a_system_shares():
    with Place(TWO) as place:
        tuned(place)
        tap.equal(len(place.records("records.jsonl")), 1)
        elsewhere(place, "there")
        os.makedirs(os.path.join(place.folder, "share"))
        place.run("export", "--from-records", "records.jsonl", "--unsigned", "--out", "share/all.fab")
        place.env["FA_TUNE_SYSTEM"] = os.path.join(place.folder, "share")
        answer = place.json("tune", "--gpu", "L4", *SMALL, "--effort", "cached")["answer"]
        tap.equal((answer["from_system"], answer["origin"]), (True, "predicted"))
        text = place.run("tune", "--gpu", "L4", *SMALL, "--effort", "cached").stdout
        tap.has(text, "found in a system bundle")
        tap.has(place.run("doctor").stdout, "1 winner in system bundles, 1 for these templates")
        tap.equal(place.json("show")["winners"], [])
        place.env.pop("FA_TUNE_TEMPLATES")  # and with them what the winner was chosen from
        tap.has(place.run("doctor").stdout, "1 winner in system bundles, 0 for these templates")
        place.run("tune", "--gpu", "L4", *SMALL, "--effort", "cached", status=1)
        tap.has(place.run("import", "share/all.fab", "--allow-unsigned").stdout, "are for other templates than this")


def a_winner_of_several_launches_goes_through_bundles_records_and_systems():
    """The passes of gradients have 30 to 120 registers each: the winner states the most of them."""
    gradients = ["--operation", "attn_bwd", "--gpu", "L4", *SMALL]
    with Place(TWO) as place:
        place.one_backward_config()
        place.run("tune", *gradients, "--quiet")
        here = place.json("show")["winners"][0]["answer"]
        tap.has(place.run("export", "--unsigned", "--out", "one.fab").stdout, "1 winner, 1 cubin")
        tap.equal(len(place.records("records.jsonl")), 1)
        elsewhere(place, "there")
        tap.has(place.run("import", "one.fab", "--allow-unsigned").stdout, "1 added")
        there = place.json("show")["winners"][0]["answer"]
        tap.equal(there["registers"], here["registers"])
        elsewhere(place, "third")
        os.makedirs(os.path.join(place.folder, "share"))
        told = place.json("export", "--from-records", "records.jsonl", "--unsigned", "--out", "share/all.fab")
        tap.equal((told["bundle"]["winners"], told["bundle"]["failed"]), (1, 0))
        place.env["FA_TUNE_SYSTEM"] = os.path.join(place.folder, "share")
        answer = place.json("tune", *gradients, "--effort", "cached")["answer"]
        tap.equal((answer["from_system"], answer["registers"], answer["predicted_us"]), (True, here["registers"], here["predicted_us"]))


def minisign_and_fa_tune_take_each_others_files():
    if shutil.which("minisign") is None:
        raise tap.Skip("there is no minisign here")

    def minisign(*arguments, status=0):
        done = subprocess.run(["minisign", *arguments], cwd=place.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              encoding="utf-8", check=False, timeout=DEADLINE)
        tap.equal((done.stdout, done.returncode), (done.stdout, status))
    with Place(TWO) as place:
        tuned(place)
        key_of(place)
        own = os.path.join(place.folder, ".config", "fa-tune")
        place.run("export", "--out", "l4.fab")
        minisign("-Vm", "l4.fab", "-p", os.path.join(own, "trusted", "own.pub"))
        minisign("-Sm", "l4.fab", "-s", os.path.join(own, "minisign.key"))
        tap.has(place.run("import", "l4.fab").stdout, "(own)")
        minisign("-G", "-W", "-p", "lab.pub", "-s", "lab.key")
        for more in ([], ["-l"]):
            minisign("-S", *more, "-m", "l4.fab", "-s", "lab.key", "-t", "of the lab")
            place.run("import", "l4.fab", status=1)
            trusted = shutil.copy(os.path.join(place.folder, "lab.pub"), os.path.join(own, "trusted"))
            tap.has(place.run("import", "l4.fab").stdout, "(lab)")
            os.remove(trusted)
        os.chmod(os.path.join(place.folder, "lab.key"), 0o600)
        place.run("export", "--key", "lab.key", "--out", "l4.fab")
        minisign("-Vm", "l4.fab", "-p", "lab.pub")
        tap.write(os.path.join(place.folder, "l4.fab"), b"x", "a")
        minisign("-Vm", "l4.fab", "-p", "lab.pub", status=1)


def a_key_with_a_password_is_minisigns_to_use():
    with Place(TWO) as place:
        tuned(place)
        key_of(place)
        path = os.path.join(place.folder, ".config", "fa-tune", "minisign.key")
        comment, key = bytes_of(path).decode().splitlines()
        for changed, sentence in ((key.replace("RWQAAEIy", "RWRTY0Iy"), "minisign -Sm FILE"), (key[:-8], "`fa-tune keygen` makes one"),
                                  (key[:100] + ("A" if key[100] != "A" else "B") + key[101:], "is damaged")):
            tap.write(path, comment + "\n" + changed + "\n")
            tap.has(place.run("export", "--out", "l4.fab", status=1).stderr, sentence)
        tap.equal(os.path.exists(os.path.join(place.folder, "l4.fab")), False)


def what_is_asked_wrongly_says_what_to_do():
    with Place(space=None) as place:
        for arguments, sentence in [
                (["export"], "--out FILE"),
                (["import"], "FILE is missing"),
                (["show", "a", "b"], "is not an option of"),
                (["export", "--unsigned", "--out", "none/a/x.fab"], "the folder none/a does not exist"),
                *((arguments, "none.x: there is no such file") for arguments in (
                    ["import", "none.x"], ["show", "none.x"],
                    ["export", "--unsigned", "--out", "x.fab", "--from-records", "none.x"])),
        ]:
            tap.has(place.run(*arguments, status=2).stderr, sentence)
        tap.has(place.run("import", place.folder, status=2).stderr, "it is a folder: name a file in it")
        assert not os.path.exists(os.path.join(place.folder, "none"))
        place.run("keygen")
        tap.equal(os.stat(os.path.join(place.folder, ".config", "fa-tune", "minisign.key")).st_mode & 0o777, 0o600)
        tap.has(place.run("keygen", status=2).stderr, "never written over")


def bytes_below(folder):
    """Of every file, by its path."""
    found = {}
    for path, _, names in os.walk(folder):
        for name in map(functools.partial(os.path.join, path), names):
            if os.path.isfile(name):  # not a store's mark, a link to nothing
                found[name] = bytes_of(name)
    return found


def no_output_replaces_a_store_or_a_key_by_any_name():
    with Place(TWO) as place:
        tuned(place)
        key_of(place)
        keys = os.path.join(place.folder, ".config", "fa-tune")
        for name, there in (("other-key", "minisign.key"), ("other-key.pub", "trusted/own.pub")):
            shutil.copy(os.path.join(keys, there), os.path.join(place.folder, name))
        tap.write(os.path.join(place.folder, "former-key"), "fa-tune-secret-key-1 " + "ab" * 32 + "\n")
        tap.write(os.path.join(place.folder, "kernel.cu"), "__global__ void k() {}\n")
        shutil.copy(place.store, os.path.join(place.folder, "other.db"))  # a store that no option names
        os.symlink("other.db", os.path.join(place.folder, "link.html"))
        os.link(os.path.join(place.folder, "other.db"), os.path.join(place.folder, "hard.html"))
        os.link(os.path.join(keys, "trusted", "own.pub"), os.path.join(place.folder, "trust.html"))
        place.run("export", "--unsigned", "--out", "a.fab")
        os.link(os.path.join(place.folder, "other.db"), os.path.join(place.folder, "b.fab.minisig"))
        os.symlink(place.folder, os.path.join(place.folder, "round"))
        tap.write(os.path.join(place.folder, "of-another-program.db"), b"SQLite format 3\0".ljust(4096, b"\0"))
        tap.write(place.store + "-shm", "")
        names = ["store.db", "other.db", "./round/../" + os.path.basename(place.folder) + "/store.db", "link.html",
                 "hard.html", "trust.html", "store.db-wal", "store.db-WAL", "store.db-shm", "store.db-journal", "round/other.db-wal", "store.db.lock", "other-key",
                 "other-key.pub", "former-key", "of-another-program.db", ".config/fa-tune/minisign.key",
                 ".config/fa-tune/trusted/own.pub", ".config/fa-tune/trusted/new.pub"]
        before = bytes_below(place.folder)
        for name in names:
            for verb in (["report", "--json", "--out"], ["export", "--out"], ["export", "--unsigned", "--out"]):
                told = place.run(*verb, name, status=2).stderr
                tap.has(told, "cannot write %s: " % name)
        for name, told, *signed in (("b.fab", "b.fab.minisig: "), ("b.fab", "b.fab.minisig: ", "--unsigned"), ("kernel.cu", "kernel.cu: it is there and no bundle")):
            tap.has(place.run("export", *signed, "--out", name, status=2).stderr, "cannot write " + told)
        tap.equal(bytes_below(place.folder), before)
        place.run("export", "--out", os.path.join(keys, "bundle.fab"))  # what is not a key may lie there


tap.main()
