#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A store, a bundle and a records file of an earlier version (tests/data/COMMIT, made there by its own
fa-tune without a GPU): read by this version, and their winners served."""
import json
import os
import shutil
import sqlite3
import subprocess

import tap
from place import FA_TUNE, Place, SOURCE

DATA = os.path.join(SOURCE, "tests", "data", "5f6f797")
# What was asked for, and the cubin and the config that answered it.
WINNERS = [
    (["--gpu", "L4", "--seq", "512"], "attn_fwd_sm80"),
    (["--gpu", "H100", "--seq", "1024", "--head-dim", "128", "--dtype", "bf16", "--causal"],
     "attn_fwd_sm90a"),
    (["--gpu", "T4", "--seq", "256", "--lse"], "attn_fwd_sm75"),
]
# Families whose text has changed since. Each that joins costs its users every winner of theirs.
CHANGED = {"attn_fwd_sm90a"}


def winners_of(path):
    """family -> (config, cubin's key, cubin's SHA-256), read without fa-tune."""
    store = sqlite3.connect("file:%s?mode=ro" % path, uri=True)
    rows = store.execute("SELECT config, cubin_key, sha256 FROM winner JOIN cubin "
                         "ON cubin.key = cubin_key").fetchall()
    store.close()
    return {row[0].split('"')[3]: row for row in rows}


def families(path):
    """The families' hashes that a records file was written under."""
    with open(path, encoding="utf-8") as file:
        return json.loads(file.readline())["families"]


def families_now(place):
    """By the records of the earlier store, which are written under the families of today; {}: none of
    its winners holds, and there is nothing to write."""
    store = os.path.join(place.folder, "families.db")
    path = os.path.join(place.folder, "now.jsonl")
    shutil.copy(os.path.join(DATA, "store.db"), store)
    os.chmod(store, 0o600)
    subprocess.run([FA_TUNE, "export", "--records", path, "--store", store], env=place.env,
                   check=False, capture_output=True)
    return families(path) if os.path.exists(path) else {}


def served(place):
    """A winner is found as it was stored, without a compile, while its family's text is the same."""
    now = families_now(place)
    then = families(os.path.join(DATA, "records.jsonl"))
    tap.equal({family for family in then if now.get(family) != then[family]}, CHANGED)
    for ask, family in WINNERS:
        if family in CHANGED:
            continue
        answer = place.json("tune", *ask, "--effort", "cached")["answer"]
        tap.equal(answer["config"]["family"], family)
        tap.equal(answer["origin"], "predicted")


def copied(place):
    shutil.copy(os.path.join(DATA, "store.db"), place.store)
    os.chmod(place.store, 0o600)


def a_store_is_brought_up_to_date_without_loss():
    with Place(None) as place:
        copied(place)
        before = winners_of(place.store)
        tap.equal(len(before), len(WINNERS))
        tap.equal(len(place.json("show")["winners"]), len(WINNERS))
        tap.equal(winners_of(place.store), before)
        store = sqlite3.connect(place.store)
        tap.equal(store.execute("SELECT count(*) FROM trial").fetchone()[0], len(WINNERS))
        tap.equal(store.execute("PRAGMA integrity_check").fetchone()[0], "ok")
        store.close()


def the_winners_of_a_store_are_served():
    with Place(None) as place:
        copied(place)
        served(place)


def the_winners_of_a_bundle_are_served():
    with Place(None) as place:
        told = place.run("import", os.path.join(DATA, "bundle.fab"), "--allow-unsigned").stdout
        tap.has(told, "3 added, 0 replaced, 0 kept, 0 the same")
        tap.equal(told.count("for other templates than these"), len(CHANGED))
        served(place)


def the_winners_of_a_system_bundle_are_served():
    with Place(None) as place:
        folder = os.path.join(place.folder, "bundles")
        os.makedirs(folder, mode=0o755)
        shutil.copy(os.path.join(DATA, "bundle.fab"), folder)
        place.env["FA_TUNE_SYSTEM"] = folder
        served(place)


def a_records_file_is_read():
    with Place(None) as place:
        place.run("export", "--from-records", os.path.join(DATA, "records.jsonl"), "--unsigned",
                  "--out", "made.fab")
        tap.has(place.run("import", "made.fab", "--allow-unsigned").stdout, "3 added")
        served(place)


def what_no_template_makes_any_more_is_forgotten_alone():
    with Place(None) as place:
        copied(place)
        gone = place.json("rm", "--stale")
        tap.equal({one["answer"]["config"]["family"] for one in gone["problems"]}, CHANGED)
        tap.equal(len(place.json("show")["winners"]), len(WINNERS) - len(CHANGED))
        served(place)


def a_report_calls_present_what_is_served():
    with Place(None) as place:
        copied(place)
        problems = place.json("report")["problems"]
        tap.equal(len(problems), len(WINNERS))
        for problem in problems:
            family = problem["winner"]["config"]["family"]
            tap.equal(problem["templates_are_present"], family not in CHANGED)


tap.main([
    a_store_is_brought_up_to_date_without_loss,
    the_winners_of_a_store_are_served,
    the_winners_of_a_bundle_are_served,
    the_winners_of_a_system_bundle_are_served,
    a_records_file_is_read,
    what_no_template_makes_any_more_is_forgotten_alone,
    a_report_calls_present_what_is_served,
])
