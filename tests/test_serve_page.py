#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The service's page: what is served to whom, and that its address has the token."""
import contextlib
import json
import os
import re
import subprocess
import urllib.request

import tap
from place import DEADLINE, FA_TUNE, Place
from serve import FAST, L4, Serve, a_place


def the_page_has_no_script_and_no_style_but_its_own_and_stands_in_no_frame():
    with Place(script="no_device\n") as place, Serve(place) as daemon:
        status, data, headers = daemon.get("/", raw=True)
        tap.equal(status, 200)
        for name, value in (("Content-Security-Policy", "frame-ancestors 'none'"),
                            ("X-Content-Type-Options", "nosniff"), ("Referrer-Policy", "no-referrer"),
                            ("Cross-Origin-Opener-Policy", "same-origin"),
                            ("Cross-Origin-Resource-Policy", "same-origin"),
                            ("Cache-Control", "no-store")):
            tap.equal((name, headers.get(name)), (name, value))
        policy, = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', data.decode())
        rules = dict(rule.strip().partition(" ")[::2] for rule in policy.split(";"))
        tap.equal(rules["default-src"], "'none'")
        tap.equal(rules["connect-src"], "'self'")
        for kind in ("script-src", "style-src"):
            assert re.fullmatch(r"'sha256-[\w+/]{43}='", rules[kind]), rules
        file = place.run("report", "--format", "html").stdout
        tap.has(file, "connect-src 'none'")
        tap.lacks(file, "/v1/jobs")


def the_report_is_that_of_the_command_line():
    with a_place(L4 + FAST) as place, Serve(place) as daemon:
        document = daemon.get("/v1/report")[1]
        tap.equal(len(document["problems"]), 1)
        source = place.run("report", "--format", "html").stdout
        told = json.loads(re.search(r'id="document">(.*?)</script>', source, re.DOTALL)[1])
        told["unix_time"] = document["unix_time"] = 0
        tap.equal(document, told)


@contextlib.contextmanager
def started(place, folder, *flags):
    """`fa-tune serve --page` with these flags: the address that it prints, and its log."""
    process = subprocess.Popen([FA_TUNE, "serve", "--socket", os.path.join(folder, "p"), "--page", *flags], env=place.env,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        url = process.stdout.readline().strip()
        yield url
    finally:
        process.terminate()
        log = process.communicate(timeout=DEADLINE)[1]
    tap.lacks(log, url.partition("#")[2])


def status_of(url, path, token=None):
    request = urllib.request.Request(url.partition("#")[0] + path, headers={"Authorization": "Bearer " + token} if token else {})
    try:
        return urllib.request.urlopen(request, timeout=DEADLINE).status
    except urllib.error.HTTPError as refused:
        return refused.code


def its_address_has_a_token_which_is_never_logged():
    with Place(script="no_device\n") as place, Serve(place) as daemon:
        with started(place, daemon.folder) as url:
            assert re.fullmatch(r"http://127\.0\.0\.1:\d+/#[0-9a-f]{64}", url), url
            token = url.partition("#")[2]
            tap.equal([status_of(url, ""), status_of(url, "v1/jobs"), status_of(url, "v1/jobs", token), status_of(url, "v1/jobs", token[:-1])],
                      [200, 401, 200, 401])
        with started(place, daemon.folder) as other:  # another token each time
            assert other.partition("#")[2] != token
        path = os.path.join(place.folder, "token")
        with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as file:
            file.write("the-token-of-the-operator\n")
        with started(place, daemon.folder, "--tcp", "0", "--token-file", path) as url:
            tap.equal(url.partition("#")[2], "the-token-of-the-operator")
            tap.equal(status_of(url, "v1/winners", "the-token-of-the-operator"), 200)


tap.main([
    the_page_has_no_script_and_no_style_but_its_own_and_stands_in_no_frame,
    the_report_is_that_of_the_command_line,
    its_address_has_a_token_which_is_never_logged,
])
