#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Hosts that share a store on a real PostgreSQL server, on the fake driver."""
import tap
from fleet import Host, OnServer, finish, tests, until


def a_better_winner_that_comes_while_another_is_published_stays():
    with OnServer() as fleet, Host(fleet.location, gpu=1) as one, Host(fleet.location) as two:
        with fleet.down():
            two.ask(64, "--gpu", "L4")  # predicted, and kept for the fleet
        one.ask(64)
        fleet.ask("CREATE TABLE aside AS SELECT * FROM winner")
        fleet.ask("DELETE FROM winner")
        # A worker in the middle of publishing what it measured.
        worker = fleet.session()
        worker.stdin.write("BEGIN;\nSELECT 1 FROM scope FOR UPDATE;\n"
                           "INSERT INTO winner SELECT * FROM aside;\n")
        worker.stdin.flush()
        sessions = "SELECT count(*) FROM pg_stat_activity WHERE "
        until(lambda: fleet.ask(sessions + "state = 'idle in transaction' AND query LIKE 'INSERT%'")
              == "1", "the worker's lock")
        publisher = two.begin("show")
        until(lambda: fleet.ask(sessions + "wait_event_type = 'Lock'") == "1", "who waits for it")
        worker.communicate("COMMIT;\n")
        finish(publisher)
        tap.equal((fleet.ask("SELECT origin FROM winner"), two.waiting()), ("measured", 0))


def the_password_is_in_nothing_that_is_said():
    with OnServer() as fleet, Host(fleet.location) as one:
        said = one.run("doctor").stdout + one.run("queue", "--json").stdout
        one.env["FA_TUNE_STORE"] = fleet.gone
        said += one.run("show").stderr + one.run("queue", status=1).stderr
        said += one.run("doctor", status=1).stdout
        for secret in ("s3cret", "w%C3%B6rd", "w\u00f6rd"):
            tap.lacks(said, secret)


tap.main(tests(OnServer) + [
    a_better_winner_that_comes_while_another_is_published_stays,
    the_password_is_in_nothing_that_is_said,
])
