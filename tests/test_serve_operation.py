#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An operation that only a folder describes, L1 norm of tests/operations, over the service: the daemon
learns it from its templates, describes it and serves it as it serves attention."""
import json
import os
import shutil

import tap
from place import SOURCE, Place
from serve import Serve

L4 = "device name=NVIDIA_L4 sm=89 sms=58\n"
TIMES = "time WARPS= 50\ntime WARPS=2; 30\ntime PARTS= 60\n"
FOLDER = os.path.join(SOURCE, "tests", "operations")
PROBLEM = {"operation": "l1_norm", "dtype": "fp16", "rows": 64, "columns": 256}
ROWS = ["--operation", "l1_norm", "--rows", "64", "--columns", "256"]


def a_place(script=L4 + TIMES):
    place = Place(space=None, script=script)
    place.env["FA_TUNE_TEMPLATES"] = FOLDER
    return place


class served:
    """A daemon in its place."""

    def __init__(self, place, *flags):
        self.place, self.daemon = place, Serve(place, *flags)

    def __enter__(self):
        self.place.__enter__()
        return self.daemon.__enter__()

    def __exit__(self, *how):
        self.daemon.__exit__(*how)
        self.place.__exit__(*how)


def it_is_tuned_once_and_then_answered_from_memory_with_its_cubin():
    with served(a_place()) as daemon:
        for _ in range(2):
            status, told = daemon.post("/v1/kernel", {"problem": PROBLEM})
            tap.equal((status, told["answer"]["problem"]), (200, PROBLEM))
            tap.equal(told["answer"]["origin"], "measured")
        tap.equal(told["answer"]["config"]["family"], "l1_norm_rows")
        tap.equal(daemon.metric("tunes_total"), 1)
        status, cubin, _ = daemon.get("/v1/cubins/" + told["cubin"]["key"], raw=True)
        tap.equal((status, len(cubin)), (200, told["cubin"]["size"]))
        tap.equal([winner["problem"] for winner in daemon.get("/v1/winners")[1]["winners"]], [PROBLEM])
        for wrong in ({"rows": 64}, {"rows": 64, "columns": 12}, {"rows": 64, "columns": 256, "seq_q": 1}):
            status, told = daemon.post("/v1/kernel", {"problem": dict(wrong, operation="l1_norm")})
            tap.equal((status, told["error"]["code"]), (400, "FA_EINVAL"))


def a_client_gets_its_kernel_from_the_service():
    place = a_place()
    with served(place) as daemon:
        place.env.update(FA_TUNE_SERVER="unix:" + daemon.socket, FA_TUNE_STORE=place.store + ".own")
        del place.env["FA_TUNE_LIBCUDA"]  # no device of its own
        answer = place.json("--gpu", "L4", *ROWS)["answer"]
        tap.equal((answer["origin"], answer["problem"]), ("measured", PROBLEM))
        tap.equal(daemon.metric("tunes_total"), 1)


def gradients_are_tuned_by_the_service():
    """Of several launches: for its client, by the description, and in a bundle of its store."""
    place = Place(script=L4 + "time attn_bwd_sm80 30\n")
    place.one_backward_config()
    asked = ["--operation", "attn_bwd", "--gpu", "L4", "--seq", "64", "--heads", "2", "--heads-kv", "1", "--batch", "1"]
    with served(place) as daemon:
        place.env.update(FA_TUNE_SERVER="unix:" + daemon.socket, FA_TUNE_STORE=place.store + ".own")
        answer = place.json(*asked)["answer"]
        tap.equal((answer["origin"], answer["config"]["family"]), ("measured", "attn_bwd_sm80"))
        assert abs(answer["median_us"] - 3 * 30) < 2, answer
        status, told = daemon.post("/v1/kernel", {"problem": answer["problem"], "effort": "cached"})
        tap.equal((status, told["answer"]["registers"]), (200, answer["registers"]))
        tap.has(place.run("export", "--store", place.store, "--unsigned", "--out", "one.fab").stdout, "1 winner, 1 cubin")


def a_kernel_of_ones_own_is_served_from_its_file():
    """To who asks over HTTP, to the client of the same file, and on the page; never another text of its name."""
    place = Place(space=None, script=L4)
    path = shutil.copy(os.path.join(SOURCE, "tests", "specifications", "gather.cu"), place.folder)
    with served(place, path) as daemon:
        asked = {"problem": {"operation": "gather", "n": 300}}
        status, document = daemon.post("/v1/kernel", asked)
        tap.equal((status, document["answer"]["origin"]), (200, "measured"))
        place.env.update(FA_TUNE_SERVER="unix:" + daemon.socket, FA_TUNE_STORE=place.store + ".own")
        found = place.json(path, "--n", "300")["answer"]
        tap.equal((found["cubin_key"], found["origin"]), (document["answer"]["cubin_key"], "measured"))
        tap.equal([one["problem"]["n"] for one in daemon.get("/v1/winners")[1]["winners"]], [300])
        page = daemon.get("/v1/report")[1]
        tap.has(json.dumps(page), "gather")
        with open(path, "a", encoding="utf-8") as file:
            file.write("// another text\n")
        run = place.run(path, "--n", "300")
        tap.has(run.stderr, "operation \"gather@")
        tap.has(run.stdout, "measured 4")
        daemon.kill()
        daemon.start()  # with the text that is there now
        tap.equal(daemon.post("/v1/kernel", dict(asked, effort="cached"))[0], 404)
        for wrong, sentence in ((["nothing.cu"], "nothing.cu: there is no such file"), (["gather"], "gather: there is no such file"),
                                ([path, "--sockets"], "did you mean --socket?")):
            tap.has(place.run("serve", *wrong, status=2).stderr, "fa-tune serve: " + sentence if sentence.endswith("found") else sentence)


tap.main([
    it_is_tuned_once_and_then_answered_from_memory_with_its_cubin,
    a_client_gets_its_kernel_from_the_service,
    gradients_are_tuned_by_the_service,
    a_kernel_of_ones_own_is_served_from_its_file,
])
