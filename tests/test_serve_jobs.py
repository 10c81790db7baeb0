#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The daemon's jobs: one tune for any number of clients, who wait, follow, give up or cancel."""
import json
import threading

import tap
from place import Place
from serve import FAST, HANGS, L4, LONG, Serve, TWO, a_place, ask, wait_for


def in_threads(count, work):
    """work(i) side by side; their results in order."""
    results = [None] * count
    threads = [threading.Thread(target=lambda i=i: results.__setitem__(i, work(i)))
               for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def running(daemon, body):
    """A job under way for this."""
    job = daemon.post("/v1/tunes", body)[1]["job"]
    daemon.wait_for_state(job, "running")
    wait_for(lambda: daemon.job(job)["progress"], "progress")
    return job


def lengths_of_one_bucket_share_a_tune_and_each_gets_its_own_answer():
    lengths = [1000, 1010, 1024, 1030, 1040]
    with a_place(L4 + FAST) as place, Serve(place, slow_s=1) as daemon:
        answers = in_threads(5, lambda i: daemon.post("/v1/kernel", ask(seq=lengths[i])))
        for seq, (status, document) in zip(lengths, answers):
            tap.equal((status, document["answer"]["problem"]["seq_q"]), (200, seq))
            tap.equal(document["answer"]["from_problem"]["seq_q"], 1024)
            tap.equal(document["answer"]["origin"], "measured" if seq == 1024 else "nearest")
        # One of them tuned; the others were given what it stored.
        tap.equal(sorted(document["answer"]["from_store"] for _, document in answers),
                  [False, True, True, True, True])
        winners = daemon.get("/v1/winners")[1]["winners"]
        tap.equal([w["problem"]["seq_q"] for w in winners if w["problem"]["batch"] == 1], [1024])


def who_asks_after_a_cancel_gets_a_tune_of_his_own():
    with a_place(L4 + FAST) as place, Serve(place, slow_s=2) as daemon:
        def first(seq):
            return daemon.post("/v1/kernel", ask(seq=seq))

        def second(seq):
            wait_for(lambda: daemon.metric("jobs_running") == 1, "a tune")
            daemon.delete("/v1/jobs/" + daemon.get("/v1/jobs")[1]["jobs"][0]["id"])
            return daemon.post("/v1/kernel", ask(seq=seq))

        def is_canceled(seq):
            """False: the tune was faster, and it is tried again."""
            canceled, answered = in_threads(2, lambda i: (first, second)[i](seq))
            tap.equal(answered[0], 200)
            return canceled[0] == 409
        assert any(is_canceled(64 << i) for i in range(5)), "no tune could be canceled"


def requests_that_nobody_waits_for_are_forgotten_before_their_tune_ends():
    with a_place(HANGS) as place, Serve(place, *LONG) as daemon:
        job = running(daemon, ask())
        connection = daemon.connect()
        for i in range(10):  # the same problem in ten texts
            text = json.dumps(ask(timeout_ms=1)) + " " * i
            tap.equal(daemon.post("/v1/kernel", text, connection=connection)[0], 504)
        wait_for(lambda: daemon.metric("requests_different") == 0, "an end of what is kept of them")
        tap.equal(daemon.job(job)["state"], "running")
        daemon.delete("/v1/jobs/" + job)


def an_answer_that_was_stored_leaves_the_others_in_memory():
    with Place(space=TWO, script="no_device\n") as place, Serve(place) as daemon:
        tap.equal(daemon.post("/v1/kernel", ask(gpu="L4"))[0], 200)
        tap.equal(daemon.post("/v1/kernel", ask(gpu="L4"))[0], 200)
        tap.equal(daemon.metric("cache_entries"), 1)
        job = daemon.post("/v1/tunes", ask(gpu="L4"))[1]["job"]
        tap.equal(daemon.job(job)["state"], "done")
        tap.equal(daemon.metric("cache_entries"), 1)


def a_cached_answer_does_not_wait_behind_a_tune():
    with a_place(L4 + FAST) as place, Serve(place, *LONG) as daemon:
        tap.equal(daemon.post("/v1/kernel", ask(seq=64))[0], 200)
        place.use_fake_driver(HANGS)
        job = running(daemon, ask(seq=512))
        for _ in range(20):
            tap.equal(daemon.post("/v1/kernel", ask(seq=64))[0], 200)
        # One that is in the store and not in memory neither.
        tap.equal(daemon.post("/v1/kernel", ask(seq=64, effort="cached"))[0], 200)
        # Another GPU's tune goes on beside it.
        tap.equal(daemon.post("/v1/kernel", ask(gpu="A10"))[1]["answer"]["origin"], "predicted")
        tap.equal(daemon.job(job)["state"], "running")
        tap.equal(daemon.delete("/v1/jobs/" + job)[0], 202)
        daemon.wait_for_state(job, "canceled")


def who_wants_it_tuned_anew_within_other_bounds_gets_a_tune_of_his_own():
    with a_place(HANGS) as place, Serve(place, *LONG) as daemon:
        first = running(daemon, ask(again=True, evaluations=2))

        def job_of(**how):
            return daemon.post("/v1/tunes", ask(**how))[1]["job"]
        tap.equal(job_of(again=True, evaluations=2), first)
        tap.equal(job_of(evaluations=1), first)  # whatever is measured will do
        others = [job_of(again=True, **bounds) for bounds in ({}, {"evaluations": 1}, {"evaluations": 2, "strategy": "random"},
                                                               {"evaluations": 2, "seconds": 100})]
        tap.equal(len({first, *others}), 5)
        for job in (*others, first):
            daemon.delete("/v1/jobs/" + job)


def each_waits_no_longer_than_it_said():
    with a_place(HANGS) as place, Serve(place, *LONG) as daemon:
        status, document = daemon.post("/v1/kernel", ask(timeout_ms=300))
        tap.equal((status, document["error"]["code"]), (504, "FA_ETIMEOUT"))
        job = document["job"]
        tap.equal(daemon.job(job)["state"], "running")
        # The next one joins the same tune.
        status, document = daemon.post("/v1/kernel", ask(timeout_ms=1))
        tap.equal((status, document["job"]), (504, job))
        tap.equal(daemon.metric("expired_total"), 2)
        tap.equal(daemon.post("/v1/tunes", ask(timeout_ms=2)), (202, {"job": job}))
        daemon.delete("/v1/jobs/" + job)
    with a_place(HANGS) as place, Serve(place, *LONG, "--wait", "1") as daemon:
        tap.equal(daemon.post("/v1/kernel", ask())[0], 504)


def who_waits_for_a_job_that_is_canceled_is_told():
    with a_place(HANGS) as place, Serve(place, *LONG) as daemon:
        job = running(daemon, ask())
        waiter = []
        thread = threading.Thread(target=lambda: waiter.append(daemon.post("/v1/kernel", ask())))
        thread.start()
        wait_for(lambda: daemon.metric("requests_waiting") == 1, "the waiter")
        events = daemon.events(job)
        heard = iter(events)
        tap.equal(next(heard)[0], "progress")
        status, document = daemon.delete("/v1/jobs/%s?unless=shared" % job)
        tap.equal((status, document["error"]["code"]), (409, "FA_EBUSY"))
        tap.equal(daemon.delete("/v1/jobs/%s?unless=bored" % job)[0], 400)
        tap.equal(daemon.delete("/v1/jobs/" + job)[0], 202)
        thread.join()
        tap.equal((waiter[0][0], waiter[0][1]["error"]["code"]), (409, "FA_ECANCELED"))
        rest = list(heard)
        tap.equal((rest[-1][0], rest[-1][1]["error"]["code"]), ("canceled", "FA_ECANCELED"))
        found = daemon.wait_for_state(job, "canceled")
        tap.equal(found["error"]["code"], "FA_ECANCELED")
        tap.equal(daemon.delete("/v1/jobs/" + job)[0], 200)  # as it was
        # Nobody listens any more: the next one may be taken away.
        job = running(daemon, ask())
        listener = daemon.events(job)
        next(iter(listener))
        listener.close()
        wait_for(lambda: daemon.delete("/v1/jobs/%s?unless=shared" % job)[0] == 202,
                 "a cancel that nobody is in the way of")
        daemon.wait_for_state(job, "canceled")


def a_queued_job_is_canceled_before_it_begins():
    with a_place(HANGS) as place, Serve(place, *LONG) as daemon:
        first = running(daemon, ask(seq=64))
        second = daemon.post("/v1/tunes", ask(seq=512))[1]["job"]
        tap.equal(daemon.job(second)["state"], "queued")
        status, document = daemon.delete("/v1/jobs/" + second)
        tap.equal((status, document["state"]), (200, "canceled"))
        listed = daemon.get("/v1/jobs")[1]["jobs"]
        tap.equal([(j["id"], j["state"]) for j in listed], [(second, "canceled"), (first, "running")])
        daemon.delete("/v1/jobs/" + first)


def events_tell_every_trial_and_the_answer():
    with a_place(L4 + FAST) as place, Serve(place) as daemon:
        job = daemon.post("/v1/tunes", ask())[1]["job"]
        events = list(daemon.events(job))
        tap.equal(events[-1][0], "done")
        tap.equal(events[-1][1]["answer"]["config"]["tunables"]["BLOCK_M"], 128)
        tap.equal({name for name, _ in events[:-1]} - {"progress"}, set())
        tap.equal(events[-1][1], {k: daemon.job(job)[k] for k in ("answer", "cubin")})
        # Whoever comes late hears the end at once.
        tap.equal([name for name, _ in daemon.events(job)], ["done"])
        place.use_fake_driver(L4 + "fault family wrong\n")
    with a_place(L4 + "fault family wrong\n") as place, Serve(place) as daemon:
        job = daemon.post("/v1/tunes", ask())[1]["job"]
        name, data = list(daemon.events(job))[-1]
        tap.equal((name, data["error"]["code"]), ("failed", "FA_ENOKERNEL"))
        tap.equal(daemon.job(job)["error"], data["error"])
        status, document = daemon.post("/v1/kernel", ask())
        tap.equal((status, document["error"]["code"]), (422, "FA_ENOKERNEL"))


def a_sweep_lets_tunes_through_between_its_problems():
    with a_place(L4 + FAST) as place, Serve(place, slow_s=1) as daemon:
        items = [ask(seq=seq) for seq in (64, 512, 2048)]
        status, document = daemon.post("/v1/sweeps", {"items": items, "plan": "three"})
        tap.equal(status, 202)
        sweep = document["job"]
        tap.equal(daemon.post("/v1/sweeps", {"items": items, "plan": "the same"})[1]["job"], sweep)
        daemon.wait_for_state(sweep, "running")
        ended = []

        def follow():
            for name, data in daemon.events(sweep):
                ended.append((name, data))
        follower = threading.Thread(target=follow)
        follower.start()
        tune = daemon.post("/v1/tunes", ask(seq=4096))[1]["job"]
        follower.join()
        # It did not wait for the sweep's end.
        assert daemon.wait_for_state(tune, "done")["ended"] < daemon.job(sweep)["ended"]
        tap.equal(ended[-1][0], "done")
        tap.equal((ended[-1][1]["sweep"]["done"], ended[-1][1]["sweep"]["plan"]), (3, "three"))
        tap.equal([d["index"] for name, d in ended if name == "item"][-1], 2)
        tap.equal(len(daemon.get("/v1/winners")[1]["winners"]), 5)  # with that of the cubins
        tap.equal(place.json("sweep", "--list")["sweeps"][0]["done"], 3)


def too_many_jobs_are_asked_to_come_back():
    with a_place(HANGS) as place, \
            Serve(place, *LONG, "--max-jobs", "2", "--max-sweeps", "1") as daemon:
        jobs = [running(daemon, ask(seq=64))]
        jobs.append(daemon.post("/v1/sweeps", {"items": [ask(seq=128)]})[1]["job"])
        for path, body in (("/v1/tunes", ask(seq=512)), ("/v1/kernel", ask(seq=512)),
                           ("/v1/sweeps", {"items": [ask(seq=256)]})):
            status, data, headers = daemon.post(path, body, raw=True)
            tap.equal((status, headers["Retry-After"]), (503, "5"))
            tap.equal(json.loads(data)["error"]["code"], "FA_EBUSY")
        # What is under way can still be joined.
        tap.equal(daemon.post("/v1/tunes", ask(seq=64))[1]["job"], jobs[0])
        for job in jobs:
            daemon.delete("/v1/jobs/" + job)
        for job in jobs:
            daemon.wait_for_state(job, "canceled")
        tap.equal(daemon.post("/v1/tunes", ask(seq=512))[0], 202)


def jobs_that_ended_long_ago_are_forgotten():
    with Place(space=TWO, script="no_device\n") as place, Serve(place) as daemon:
        daemon.post("/v1/kernel", ask(gpu="L4"))
        connection = daemon.connect()
        first = daemon.post("/v1/tunes", ask(gpu="L4"), connection=connection)[1]["job"]
        for _ in range(300):
            tap.equal(daemon.post("/v1/tunes", ask(gpu="L4"), connection=connection)[0], 202)
        wait_for(lambda: daemon.get("/v1/jobs/" + first)[0] == 404, "the first to be forgotten")
        wait_for(lambda: len(daemon.get("/v1/jobs")[1]["jobs"]) == 256, "no more than 256 jobs")


tap.main([
    lengths_of_one_bucket_share_a_tune_and_each_gets_its_own_answer,
    who_asks_after_a_cancel_gets_a_tune_of_his_own,
    requests_that_nobody_waits_for_are_forgotten_before_their_tune_ends,
    an_answer_that_was_stored_leaves_the_others_in_memory,
    a_cached_answer_does_not_wait_behind_a_tune,
    who_wants_it_tuned_anew_within_other_bounds_gets_a_tune_of_his_own,
    each_waits_no_longer_than_it_said,
    who_waits_for_a_job_that_is_canceled_is_told,
    a_queued_job_is_canceled_before_it_begins,
    events_tell_every_trial_and_the_answer,
    a_sweep_lets_tunes_through_between_its_problems,
    too_many_jobs_are_asked_to_come_back,
    jobs_that_ended_long_ago_are_forgotten,
])
