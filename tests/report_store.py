# SPDX-License-Identifier: Apache-2.0
"""Stores for the tests of reports: tuned ones, changed by hand into what a tune would not make
(hostile texts, many problems), and baselines beside them."""
import hashlib
import json
import os
import sqlite3

import tap
from place import EIGHT, L4, Place

# Times that tell every config from every other one, the fastest in the middle of the space.
TIMES = "time * 90\ntime BLOCK_M=128; 70\ntime STAGES=2; 65\ntime BLOCK_M=128;BLOCK_N=64; 52\n" \
        "time BLOCK_M=64;BLOCK_N=64;STAGES=2; 47\ntime BLOCK_M=128;BLOCK_N=32;STAGES=2; 41\n"


def tune(place, seq, *more):
    place.run("--seq", str(seq), "--batch", "1", "--heads", "1", "--quiet", *more)


TUNED = {}  # for Place.take_store(), by what it was tuned with


def tuned(space=EIGHT, script=L4 + TIMES, problems=((128,),)):
    """A place with these problems tuned on the fake driver, which is done once for all tests."""
    place = Place(space=space, script=script)
    place.take_store(TUNED.setdefault(repr((space, script, problems)), []), lambda: [tune(place, *problem) for problem in problems])
    return place


def baseline(seq, peer, median_us, gpu="L4", **more):
    return {"gpu": gpu, "peer": peer, "median_us": median_us,
            "problem": {"dtype": "fp16", "causal": "none", "head_dim": 64, "batch": 1, "heads_q": 1,
                        "heads_kv": 1, "seq_q": seq, "seq_k": seq}, **more}


def add_baselines(place, rows):
    path = os.path.join(place.folder, "baselines.jsonl")
    tap.write(path, "".join(json.dumps(row) + "\n" for row in rows))
    place.run("import", path)


def change(place, *statements):
    """Runs SQL on the store; each statement is a text or a text with its values."""
    store = sqlite3.connect(place.store)
    with store:
        for statement in statements:
            text, values = (statement, ()) if isinstance(statement, str) else statement
            store.execute(text, values)
    store.close()


def rename_gpu(place, name):
    """The GPU's name wherever the store keeps it."""
    store = sqlite3.connect(place.store)
    with store:
        for scope, text in store.execute("SELECT scope_id, evidence FROM winner").fetchall():
            evidence = json.loads(text)
            evidence["gpu"]["name"] = name
            store.execute("UPDATE winner SET evidence = ?, gpu_name = ? WHERE scope_id = ?",
                          (json.dumps(evidence), name, scope))
        for number, text in store.execute("SELECT id, environment FROM trial").fetchall():
            environment = json.loads(text)
            for key in environment:
                if isinstance(environment[key], str):
                    environment[key] = name
            store.execute("UPDATE trial SET environment = ? WHERE id = ?", (json.dumps(environment), number))
    store.close()


def scope_key(*parts):
    """What db/trials.c makes of a scope's texts."""
    digest = hashlib.blake2b(digest_size=32)
    for part in parts:
        digest.update(len(part.encode()).to_bytes(8, "little") + part.encode())
    return digest.hexdigest()


def multiply(place, problems):
    """Copies the store's one problem, with its winner and trials, to so many others that differ in
    their batch size."""
    store = sqlite3.connect(place.store)

    def columns(table):
        return [row[1] for row in store.execute("PRAGMA table_info(%s)" % table)]

    def copy(table, condition, changed):
        names = [name for name in columns(table) if name != "id"]
        store.execute("INSERT INTO %s (%s) SELECT %s FROM %s WHERE %s" % (
            table, ", ".join(names), ", ".join(changed.get(name, name) for name in names), table,
            condition))

    with store:
        scope, problem, text, silicon, templates, policy = store.execute(
            "SELECT id, problem_key, problem, silicon, templates, policy FROM scope").fetchone()
        batch = json.loads(text)["batch"]
        for i in range(1, problems):
            other = problem.replace(" b=%d " % batch, " b=%d " % (batch + i))
            key = scope_key(other, silicon, templates, policy)
            copy("scope", "id = %d" % scope, {
                "key": "'%s'" % key, "problem_key": "'%s'" % other,
                "problem": "'%s'" % json.dumps({**json.loads(text), "batch": batch + i}),
                "shape": "replace(shape, ' b=%d ', ' b=%d ')" % (batch, batch + i)})
            new = store.execute("SELECT id FROM scope WHERE key = ?", (key,)).fetchone()[0]
            copy("winner", "scope_id = %d" % scope, {"scope_id": str(new)})
            copy("trial", "scope_id = %d" % scope, {"scope_id": str(new)})
    store.close()
