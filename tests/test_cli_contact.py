#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Where an answer comes from, as a person sees it: `show --why`, buckets and --exact, and what was promised
before it was measured. Under the fake CUDA driver. First contact itself is test_engine_contact.c's."""
import tap
from place import L4, SMALL, Place

OF_128 = ["--batch", "1", "--heads", "1", "--seq"]


def steps(place, *problem):
    told = place.json("show", "--why", *problem)
    return {step["step"]: step for step in reversed(told["steps"])}, told


def taken(by_name):
    return [name for name, step in by_name.items() if step["taken"]]


def why_tells_every_step_and_changes_nothing():
    with Place() as place:
        place.run("--gpu", "L4", *SMALL)
        place.use_fake_driver(L4)
        before = tap.read(place.store, "rb")
        by_name, told = steps(place, *SMALL)
        tap.equal(tap.read(place.store, "rb") == before, True)
        tap.equal(list(by_name)[::-1], ["bucket", "predicted"])
        tap.equal(taken(by_name), ["predicted"])
        tap.has(by_name["predicted"]["why"], "not launched before this GPU has proved it")
        tap.equal(told["bucket"], told["problem"])
        text = place.run("show", "--why", *SMALL).stdout
        tap.has(text, "→ predicted")


def lengths_between_buckets_are_answered_by_the_nearest():
    with Place(script=L4) as place:
        told = place.json(*OF_128, "126")
        answer = told["answer"]
        tap.equal((answer["origin"], told["problem"]["seq_q"], answer["from_problem"]["seq_q"]), ("nearest", 126, 128))
        tap.has(answer["why"], "S 128")
        again = place.json(*OF_128, "135")["answer"]
        tap.equal((again["origin"], again["from_store"]), ("nearest", True))
        text = place.run(*OF_128, "135").stdout
        tap.has(text, "its kernel is that of")
        exact = place.json(*OF_128, "135", "--exact")
        tap.equal((exact["answer"]["origin"], exact["answer"]["from_problem"]["seq_q"]), ("measured", 135))
        by_name, told = steps(place, *OF_128, "135")
        tap.equal((taken(by_name), told["bucket"]["seq_q"]), (["exact"], 128))
        tap.has(by_name["bucket"]["why"], "something above is trusted more")
        far, _ = steps(place, *OF_128, "200")
        tap.equal(taken(far), [])


def the_time_of_another_problem_is_an_estimate_without_a_rate():
    asked = ["--gpu", "L4", *OF_128, "126"]
    with Place(script=L4) as place:
        tap.equal(place.json(*SMALL)["answer"]["tflops"] > 0, True)
        answer = place.json(*asked, "--effort", "cached")["answer"]
        tap.equal((answer["origin"], answer["tflops"]), ("nearest", None))
        for text in (place.run(*asked, "--effort", "cached").stdout, place.run("show", "--why", *asked).stdout):
            tap.has(text, "~%.1f µs" % answer["median_us"])
            tap.lacks(text, " %.1f µs" % answer["median_us"])
            tap.lacks(text, "±")
            tap.lacks(text, "default config")
            tap.lacks(text, "TFLOP/s")


def a_prediction_is_for_the_length_that_was_asked_for_and_its_winner_is_row_1():
    """At 520, on an L4, another of the eight configs wins than at 512, the bucket of that length."""
    problem = ["--gpu", "L4", "--batch", "2", "--seq"]
    command = [*problem, "520", "--effort", "predict", "--top", "1"]
    with Place() as place:
        for told in (place.json(*command), place.json(*command)):
            answer, first = told["answer"], told["ranking"][0]
            tap.equal((first["config"], first["rank"], answer["rank"]), (answer["config"], 1, 1))
            tap.equal(first["predicted_us"], answer["predicted_us"])
            tap.has(answer["why"], "where another config won: scaled by the model this one takes ~%.1f µs here and that one ~"
                    % answer["predicted_us"])
        text = place.run(*command).stdout
        tap.has(text, "its kernel is that of")
        tap.has(text, "winner #1, predicted.")
        tap.has(text, "  ~%.1f µs" % answer["predicted_us"])
        tap.equal(place.json("explain", *problem, "520")["configs"][0]["predicted_us"], answer["predicted_us"])
        bucket = place.json(*problem, "512", "--effort", "predict", "--top", "1")
        tap.equal(bucket["ranking"][0]["config"], bucket["answer"]["config"])
        assert bucket["answer"]["config"] != answer["config"], answer


tap.main()
