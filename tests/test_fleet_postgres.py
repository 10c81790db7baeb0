#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Hosts that share a store on a real PostgreSQL server, on the fake driver."""
import tap
from fleet import Host, OnServer, tests


def the_password_is_in_nothing_that_is_said():
    with OnServer() as fleet, Host(fleet.location) as one:
        said = one.run("doctor").stdout + one.run("queue", "--json").stdout
        one.env["FA_TUNE_STORE"] = fleet.gone
        said += one.run("show").stderr + one.run("queue", status=1).stderr
        said += one.run("doctor", status=1).stdout
        for secret in ("s3cret", "w%C3%B6rd", "w\u00f6rd"):
            tap.lacks(said, secret)


tap.main(tests(OnServer) + [
    the_password_is_in_nothing_that_is_said,
])
