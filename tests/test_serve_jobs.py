#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tunes of the daemon: who shares one, what its clients hear, and what is left when they go."""
import contextlib
import json

import tap
from serve import FAST, HANGS, L4, LONG, Serve, a_place, ask, wait_for


def lengths_of_one_bucket_share_a_tune_and_each_gets_its_own_answer():
    with a_place(L4 + FAST) as place, Serve(place, slow_s=0.3) as daemon:
        lengths = [1000, 1024, 1001, 1024]
        answers = tap.at_once(4, lambda i: daemon.post("/v1/kernel", ask(seq=lengths[i])))
        tap.equal([status for status, _ in answers], [200] * 4)
        tap.equal([document["answer"]["problem"]["seq_q"] for _, document in answers], lengths)
        tap.equal(len({document["answer"]["unix_time"] for _, document in answers}), 1)
        tap.equal(sum(not document["answer"]["from_store"] for _, document in answers), 1)
        tap.equal(len([w for w in daemon.get("/v1/winners")[1]["winners"] if w["problem"]["seq_q"] == 1024]), 1)


def events_tell_the_progress_and_the_answer():
    with a_place(L4 + FAST) as place:
        with Serve(place) as daemon:
            told = list(daemon.events(ask()))
            tap.equal({name for name, _ in told[:-1]}, {"progress"})
            tap.equal(told[-1][0], "done")
            tap.equal(told[-1][1]["answer"]["config"]["tunables"]["BLOCK_M"], 128)
            assert any(data["stage"] == "tune" and data["in_budget"] == 2 for name, data in told[:-1]), told
            # What is stored needs no stream.
            status, data, headers = daemon.post("/v1/kernel", ask(), headers={"Accept": "text/event-stream"}, raw=True)
            tap.equal((status, headers["Content-Type"]), (200, "application/json"))
            tap.equal(json.loads(data)["answer"]["from_store"], True)
            status, data, _ = daemon.post("/v1/kernel", ask(seq=256), headers={"Accept": "text/event-stream;progress=no"}, raw=True)
            tap.equal((status, data[:12]), (200, b"event: done\n"))
        place.use_fake_driver(L4 + "fault * wrong\n")
        with Serve(place) as daemon:
            name, data = list(daemon.events(ask(seq=512)))[-1]
            tap.equal((name, data["error"]["code"]), ("failed", "FA_ENOKERNEL"))


def a_stored_answer_does_not_wait_behind_tunes():
    with a_place(L4 + FAST) as place:
        with Serve(place) as daemon:
            tap.equal(daemon.post("/v1/kernel", ask(seq=64))[0], 200)
        place.use_fake_driver(HANGS)
        with Serve(place, *LONG) as daemon:
            behind_tunes(daemon)


def behind_tunes(daemon):
    with contextlib.ExitStack() as stack:
        waiting = [daemon.begins(ask())]
        waiting += [daemon.connect() for _ in range(40)]  # more than the daemon has threads
        for i, connection in enumerate(waiting[1:]):
            connection.request("POST", "/v1/kernel", json.dumps(ask(seq=512 + 512 * i)))
        wait_for(lambda: daemon.metric("tunes_waiting") == 40, "their tunes")
        for seq in (64, 63):  # the second is not in memory
            tap.equal(daemon.post("/v1/kernel", ask(seq=seq, effort="cached"))[0], 200)
        tap.equal(daemon.get("/v1/winners")[0], 200)
        tap.equal(daemon.get("/v1/report", raw=True)[0], 200)
        tap.equal(daemon.metric("tunes_running"), 1)  # the GPU measures one kernel at a time
        # And a GPU that is not here is compiled for meanwhile.
        tap.equal(daemon.post("/v1/kernel", ask(gpu="A10", effort="predict"))[0], 200)
        for connection in waiting:
            stack.callback(connection.close)
    wait_for(lambda: daemon.jobs() == [], "the end of tunes that nobody waits for")


def each_waits_no_longer_than_it_said_and_the_tune_goes_on():
    with a_place(HANGS) as place, Serve(place, "--trial-timeout", "3") as daemon:
        status, document = daemon.post("/v1/kernel", ask(timeout_ms=200))
        tap.equal((status, document["error"]["code"]), (504, "FA_ETIMEOUT"))
        tap.has(document["error"]["message"], "it goes on")
        job, = daemon.jobs()
        tap.equal((job["gpu"], job["ordinal"]), ("NVIDIA L4", 0))
        tap.has(job["what"], "S 128")
        # Its second config is given up after three seconds, and the first one wins.
        wait_for(lambda: daemon.jobs() == [], "the tune's end")
        tap.equal(daemon.post("/v1/kernel", ask(effort="cached"))[0], 200)


def a_tune_whose_client_leaves_is_canceled_and_the_next_goes_on_there():
    with a_place(HANGS) as place, Serve(place, *LONG) as daemon:
        connection = daemon.begins(ask())
        other = daemon.connect()  # waits for the same key, behind it
        other.request("POST", "/v1/kernel", json.dumps(ask(seq=127)))
        wait_for(lambda: len(daemon.jobs()) == 2, "both")
        wait_for(lambda: any(job["progress"] and job["progress"]["measured"] for job in daemon.jobs()), "what was measured")
        place.use_fake_driver(L4 + FAST)  # for the workers that are started next
        connection.close()
        answer = other.getresponse()
        tap.equal(answer.status, 200)
        funnel = json.loads(answer.read())["answer"]["funnel"]
        tap.equal((funnel["measured"], funnel["failed"]), (2, 0))
        other.close()
        tap.equal(daemon.metric("tunes_total"), 2)
        stream = daemon.events(ask(seq=256, again=True))
        stream.close()  # of a stream, too
        wait_for(lambda: daemon.jobs() == [], "its end")


def too_many_tunes_are_asked_to_come_back():
    with a_place(HANGS) as place, Serve(place, "--max-tunes", "1", *LONG) as daemon:
        connection = daemon.begins(ask())
        status, data, headers = daemon.post("/v1/kernel", ask(seq=512), raw=True)
        tap.equal((status, headers["Retry-After"]), (503, "5"))
        tap.has(json.loads(data)["error"]["message"], "too many tunes")
        tap.equal(daemon.metric("refused_total"), 1)
        connection.close()


tap.main()
