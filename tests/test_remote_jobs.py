#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Clients of a service that tunes for them: its job is followed to the end, done here when it cannot
be, and canceled with the client."""
import signal
import subprocess

import tap
from place import DEADLINE, Place
from remote import EXAMPLE, L4, Served, local_winner, one_note
from serve import wait_for
from stub_service import STREAM, Stub, event, failure, reply

JOB = "0123456789abcdef"


def progress(measured):
    counts = dict.fromkeys(("space", "in_budget", "compiled", "clean", "proved", "measured", "failed",
                            "resumed", "compile_workers", "reused"), 8)
    return dict(counts, kind="progress", stage="tune", measured=measured, elapsed_s=0.5, left_s=None,
                trial=None, best=None, default_us=None)


def follows(streams, **kernel):
    """A service whose tune becomes a job; streams: what each request for its events gets."""
    served, left = Served.get(), list(streams)

    def answers(request):
        if request.path == "/v1/kernel":
            return failure(504, "FA_ETIMEOUT", "it takes a while", **(kernel or {"job": JOB}))
        if request.path == "/v1/sweeps":
            return reply(202, {"job": JOB})
        if request.path.endswith("/events"):
            stream = left.pop(0) if left else None
            return None if stream is None else STREAM + stream
        if request.method == "DELETE":
            return reply(200, {"id": JOB})
        return served.answers(request)
    return answers


def a_tune_at_the_server_is_followed_to_its_end():
    served = Served.get()
    done = event("done", served.document())
    for streams in (
        [event("progress", progress(1)) + done],
        [b": still there\n\n" + done.replace(b"\n", b"\r\n")],
        [event("progress", progress(1)), event("progress", progress(2)) + done],  # it was restarted
        [None, done],
        [event("of another kind", 1) + b"id: 7\nretry\n\n" + done],
    ):
        with Place(script=L4) as place, Stub(follows(streams)) as stub:
            told = place.json(*EXAMPLE, "--server", stub.address)
            tap.equal(told["answer"]["cubin_key"], served.where["key"])
            tap.equal(told["server"], stub.address)
            tap.equal(len(told["ranking"]), 1)


def a_job_that_ends_badly_ends_the_tune():
    for name, error, status in [("failed", "FA_ENOKERNEL", 1), ("canceled", "FA_ECANCELED", 1)]:
        stream = event(name, {"error": {"code": error, "message": "no kernel survived there"}})
        with Place(script=L4) as place, Stub(follows([stream])) as stub:
            done = place.run(*EXAMPLE, "--server", stub.address, status=status)
            tap.has(done.stderr, "canceled" if name == "canceled" else "no kernel survived there")
            tap.lacks(done.stderr, "note:")


def a_sweep_that_somebody_cancels_at_the_server_has_failed():
    stream = event("canceled", {"error": {"code": "FA_ECANCELED", "message": "canceled"}})
    with Place(script=L4) as place, Stub(follows([stream])) as stub:
        done = place.run("sweep", *EXAMPLE[:-1], "--server", stub.address, status=1)
        tap.has(done.stderr, "fa-tune: the job was canceled at the server")
        tap.has(done.stderr, "stopped; the same command goes on from there")
        tap.equal(done.stdout, "")


def a_job_that_cannot_be_followed_is_done_here():
    served = Served.get()
    huge = b"data: " + b"x" * (1 << 19)
    wrong = [event("progress", {"kind": "progress"})], [event("done", {"answer": 1})], [huge], \
        [b"data: \0\n\n"], [event("failed", {})], [event("failed", {"error": {
            "code": "FA_EIO", "message": "a disk failed"}})], [], \
        [event("done", served.document(answer__gpu={}))]
    for streams in wrong:
        with Place(script=L4) as place, Stub(follows(streams)) as stub:
            local_winner(place)
            done = place.run(*EXAMPLE, "--server", stub.address)
            one_note(done.stderr, "")
            tap.has(done.stdout, "found in ~/store.db")
    for job in ("../../healthz", "", "x" * 65, "a b", 7):
        with Place(script=L4) as place, Stub(follows([], job=job)) as stub:
            local_winner(place)
            one_note(place.run(*EXAMPLE, "--server", stub.address).stderr, "job")
            assert all(request.path in ("/v1/gpus", "/v1/kernel") for request in stub.requests)


def ctrl_c_cancels_the_job_at_the_server():
    listening = []

    def answers(request):
        if request.path.endswith("/events"):
            request.send(STREAM + event("progress", progress(1)))
            listening.append(True)
            wait_for(lambda: len(listening) > 1, "the end of the test")
            return None
        return follows([])(request)
    with Place(script=L4) as place, Stub(answers) as stub:
        process = place.start(*EXAMPLE, "--server", stub.address, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE)
        wait_for(lambda: listening, "somebody who follows")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=DEADLINE)
        listening.append(True)
        tap.equal(process.returncode, 130)
        tap.lacks(errors.decode(), "note:")
        tap.equal([request.path for request in stub.requests if request.method == "DELETE"],
                  ["/v1/jobs/%s?unless=shared" % JOB])


tap.main([
    a_tune_at_the_server_is_followed_to_its_end,
    a_job_that_ends_badly_ends_the_tune,
    a_sweep_that_somebody_cancels_at_the_server_has_failed,
    a_job_that_cannot_be_followed_is_done_here,
    ctrl_c_cancels_the_job_at_the_server,
])
