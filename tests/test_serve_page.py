#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The service's page and its doors: links that are good once, sessions that read and change nothing,
who is turned away, and what the page is told."""
import contextlib
import http.client
import json
import os
import re
import socket
import stat
import subprocess
import time
import urllib.parse

import openapi
import tap
from place import DEADLINE, FA_TUNE, Place
from serve import (FA_TUNE_SERVE, FAST, HANGS, L4, LONG, TWO, Events, Serve, a_place, ask, wait_for)

READ = ("/v1/jobs", "/v1/winners", "/v1/gpus", "/v1/queue", "/v1/report")


def link_of(daemon):
    """(port, secret) of a new link."""
    status, document = daemon.post("/v1/links", b"")
    tap.equal(status, 201)
    where = urllib.parse.urlsplit(document["url"])
    tap.equal((where.hostname, where.path), ("127.0.0.1", "/"))
    return where.port, where.fragment


class Visitor:
    """Asks the page's port as a browser on this host would."""

    def __init__(self, daemon, port, secret=None):
        self.daemon, self.port, self.secret = daemon, port, secret

    def ask(self, method, path, body=None, **headers):
        """(status, document or bytes, headers); a header of None is left out."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.secret is not None:
            headers.setdefault("Authorization", "Bearer " + self.secret)
        headers.setdefault("Host", "127.0.0.1:%d" % self.port)
        connection.putrequest(method, path, skip_host=True)
        for name, value in headers.items():
            if value is not None:
                connection.putheader(name, value)
        if body is not None or method == "POST":
            connection.putheader("Content-Length", str(len(body or b"")))
        connection.endheaders(body)
        response = connection.getresponse()
        data, found = response.read(), dict(response.getheaders())
        connection.close()
        openapi.check_response(method, path, response.status, found, data)
        tap.lacks(str(found).lower(), "access-control-")
        is_json = found.get("Content-Type") == "application/json" and data
        return response.status, json.loads(data) if is_json else data, found

    def enter(self, **headers):
        """Hands the link in; then asks with the session."""
        status, document, _ = self.ask("POST", "/v1/session", **headers)
        if status == 200:
            self.secret = document["session"]
        return status


def visitor(daemon):
    port, secret = link_of(daemon)
    made = Visitor(daemon, port, secret)
    tap.equal(made.enter(), 200)
    return made


def tcp_ports(process):
    """The TCP ports that a process listens on."""
    inodes, ports = set(), set()
    for fd in os.listdir("/proc/%d/fd" % process.pid):
        with contextlib.suppress(OSError):
            inodes.add(os.readlink("/proc/%d/fd/%s" % (process.pid, fd)))
    for table in ("tcp", "tcp6"):
        if not os.path.exists("/proc/net/" + table):
            continue
        with open("/proc/net/" + table, encoding="ascii") as file:
            for row in (line.split() for line in file.readlines()[1:]):
                if row[3] == "0A" and "socket:[%s]" % row[9] in inodes:
                    ports.add((row[1].rpartition(":")[0], int(row[1].rpartition(":")[2], 16)))
    return ports


def nothing_listens_on_tcp_until_a_link_is_asked_for_and_then_the_loopback_does():
    with Place(script="no_device\n") as place, Serve(place) as daemon:
        tap.equal(tcp_ports(daemon.process), set())
        port, _ = link_of(daemon)
        tap.equal(tcp_ports(daemon.process), {("0100007F", port)})
        tap.equal(link_of(daemon)[0], port)


def a_link_is_good_once_and_until_the_next():
    with Place(script="no_device\n") as place, Serve(place) as daemon:
        port, secret = link_of(daemon)
        for wrong in ("0" * 64, secret[:-1], secret + "0", secret.upper(), "x" * 600, ""):
            tap.equal((wrong, Visitor(daemon, port, wrong).enter()), (wrong, 401))
        tap.equal(Visitor(daemon, port, secret).ask("GET", "/v1/jobs")[0], 401)  # it is no session
        tap.equal(Visitor(daemon, port, secret).enter(), 200)
        tap.equal(Visitor(daemon, port, secret).enter(), 401)
        _, older = link_of(daemon)
        _, newer = link_of(daemon)
        assert len({secret, older, newer}) == 3
        tap.equal(Visitor(daemon, port, older).enter(), 401)
        tap.equal(Visitor(daemon, port, newer).enter(), 200)
        assert daemon.metric("unauthorized_total") >= 8


def a_link_is_too_old_after_its_time():
    with Place(script="no_device\n") as place, Serve(place, "--link-timeout", "1") as daemon:
        port, secret = link_of(daemon)
        time.sleep(1.1)
        tap.equal(Visitor(daemon, port, secret).enter(), 401)


def a_session_reads_and_changes_nothing():
    with Place(space=TWO, script=L4 + FAST) as place, Serve(place) as daemon:
        job = daemon.post("/v1/tunes", ask())[1]["job"]
        daemon.wait_for_state(job, "done")
        key = daemon.job(job)["answer"]["cubin_key"]
        page = visitor(daemon)
        for path in (*READ, "/v1/jobs/" + job):
            tap.equal((path, page.ask("GET", path)[0]), (path, 200))
        tap.equal(page.ask("HEAD", "/v1/jobs")[0], 200)
        for method, path in (("POST", "/v1/kernel"), ("POST", "/v1/tunes"), ("POST", "/v1/sweeps"),
                             ("POST", "/v1/families"), ("POST", "/v1/links"), ("GET", "/metrics"),
                             ("GET", "/v1/cubins/" + key), ("DELETE", "/v1/jobs/" + job),
                             ("DELETE", "/v1/jobs"), ("PUT", "/v1/report"), ("OPTIONS", "/v1/jobs")):
            status, document, _ = page.ask(method, path, json.dumps(ask()).encode()
                                           if method == "POST" else None)
            tap.equal((method, path, status), (method, path, 401))
        tap.equal(page.ask("GET", "/v1/jobs", Authorization=None)[0], 401)


def the_oldest_session_gives_way_to_the_ninth():
    with Place(script="no_device\n") as place, Serve(place) as daemon:
        visitors = [visitor(daemon) for _ in range(9)]
        tap.equal([one.ask("GET", "/v1/jobs")[0] for one in visitors], [401] + 8 * [200])


def other_hosts_and_other_origins_are_turned_away():
    with Place(script="no_device\n") as place, Serve(place) as daemon:
        port, secret = link_of(daemon)
        page = Visitor(daemon, port, secret)
        for host in ("attacker.example", "attacker.example:%d" % port, "127.0.0.1.example",
                     "localhost.example:80", "127.0.0.1:", "127.0.0.1:80x", "127.0.0.1@example", "",
                     "0.0.0.0:%d" % port, "[::1", "[::1]x", "fa-tune", "localhost:80:80"):
            tap.equal((host, page.ask("GET", "/", Host=host)[0]), (host, 403))
            tap.equal((host, page.enter(Host=host)), (host, 401))
        for origin in ("http://attacker.example", "null", "", "http://127.0.0.1:%d.example" % port,
                       "https://127.0.0.1:%d" % port, "http://127.0.0.1:%d" % (port + 1),
                       "http://localhost:%d" % port, "http://127.0.0.1"):
            tap.equal((origin, page.enter(Origin=origin)), (origin, 401))
        own = "http://127.0.0.1:%d" % port
        tap.equal(page.enter(Origin=own), 200)  # nothing of that has spent the link
        tap.equal(page.ask("GET", "/v1/jobs", Origin=own)[0], 200)
        tap.equal(page.ask("GET", "/v1/jobs", Origin="http://attacker.example")[0], 401)
        tap.equal(page.ask("GET", "/v1/jobs", Host="attacker.example")[0], 401)
        for host in ("localhost", "LOCALHOST:80", "[::1]:%d" % port, "127.0.0.1"):
            tap.equal((host, page.ask("GET", "/", Host=host)[0]), (host, 200))


def the_page_has_no_script_and_no_style_but_its_own_and_stands_in_no_frame():
    with Place(script="no_device\n") as place, Serve(place) as daemon:
        port, _ = link_of(daemon)
        status, data, headers = Visitor(daemon, port).ask("GET", "/")
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
        tap.equal(Visitor(daemon, port).ask("GET", "/v1/jobs")[2]["X-Content-Type-Options"], "nosniff")
        file = place.run("report", "--format", "html").stdout
        tap.has(file, "connect-src 'none'")
        tap.lacks(file, "/v1/session")


def the_report_is_that_of_the_command_line_and_told_once_until_the_store_changes():
    with a_place(L4 + FAST) as place, Serve(place) as daemon:
        page = visitor(daemon)
        status, document, headers = page.ask("GET", "/v1/report")
        tap.equal((status, len(document["problems"])), (200, 1))
        source = place.run("report", "--format", "html").stdout
        told = json.loads(re.search(r'id="document">(.*?)</script>', source, re.DOTALL)[1])
        told["unix_time"] = document["unix_time"] = 0
        tap.equal(document, told)
        again = page.ask("GET", "/v1/report", If_None_Match=headers["ETag"])
        tap.equal(again[:2], (304, b""))
        daemon.wait_for_state(daemon.post("/v1/tunes", ask(seq=512))[1]["job"], "done")

        def newer():
            status, document, found = page.ask("GET", "/v1/report", If_None_Match=headers["ETag"])
            return status == 200 and found["ETag"] != headers["ETag"] and len(document["problems"]) == 2
        wait_for(newer, "the new winner in the report")


def a_report_does_not_hold_lookups_up_and_is_made_once_for_all_who_wait():
    with a_place(L4 + FAST) as place, Serve(place) as daemon:
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(daemon.raw_socket()) for _ in range(50)]
            for client in clients:
                client.sendall(b"GET /v1/report HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            tap.equal(daemon.post("/v1/kernel", ask(gpu="L4", effort="cached"))[0], 404)
            tags = set()
            for client in clients:
                came = b""
                while True:
                    block = client.recv(1 << 16)
                    if not block:
                        break
                    came += block
                tap.has(came, b"HTTP/1.1 200 ")
                tags |= set(re.findall(rb"ETag: (\S+)", came))
        assert len(tags) <= 2, tags


def a_store_that_no_host_shares_has_no_queue_and_a_fleets_is_told():
    with Place(script="no_device\n") as place, Serve(place) as daemon:
        tap.equal(daemon.get("/v1/queue")[1], {"sweeps": []})
    with Place(script="no_device\n") as place:
        place.env["FA_TUNE_STORE"] = "sqlite://" + os.path.join(place.folder, "fleet.db")
        place.env["FA_TUNE_LOCAL_STORE"] = place.store
        place.run("sweep", "--enqueue", "--gpu", "L4", "--seq", "128,256", "--batch", "1", "--heads", "1")
        with Serve(place) as daemon:
            sweep, = visitor(daemon).ask("GET", "/v1/queue")[1]["sweeps"]
            tap.equal((sweep["items"], sweep["pending"], sweep["held"]), (2, 2, []))
            tap.equal(place.json("queue")["sweeps"], [sweep])


def what_is_under_way_is_told_as_it_changes():
    with a_place(HANGS) as place, Serve(place, *LONG) as daemon:
        events = Events(daemon.connect(), "/v1/events")
        states = iter(events)
        tap.equal(next(states)[1]["jobs"], [])
        job = daemon.post("/v1/tunes", ask())[1]["job"]
        waiting = daemon.post("/v1/tunes", ask(seq=512))[1]["job"]

        def state(accept):
            return next(state for name, state in states if accept(
                {one["id"]: one for one in state["jobs"]}))
        found = state(lambda jobs: job in jobs and jobs[job].get("progress"))
        one = next(one for one in found["jobs"] if one["id"] == job)
        tap.equal((one["what"], one["ordinal"], one["state"]),
                  ("fp16 · B 1 · H 1 · S 128 · D 64", 0, "running"))
        tap.equal(found["queued"], 1)
        before = found["report"]
        for each in (waiting, job):
            daemon.delete("/v1/jobs/" + each)
        state(lambda jobs: all(jobs[each]["state"] == "canceled" for each in (job, waiting)))
        place.use_fake_driver(L4 + FAST)
        daemon.wait_for_state(daemon.post("/v1/tunes", ask(seq=64))[1]["job"], "done")
        assert next(state for _, state in states if state["report"] != before)["ready"]
        daemon.process.terminate()  # it does not wait for who follows
        list(states)
        events.close()
        tap.equal(daemon.process.wait(DEADLINE), 0)


def followers_that_do_not_read_or_are_too_many_cost_nobody_anything():
    with a_place(HANGS) as place, Serve(place, *LONG, "--send-timeout", "1") as daemon, \
            contextlib.ExitStack() as stack:
        for i in range(32):
            client = stack.enter_context(daemon.raw_socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            client.sendall(b"GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n")
            tap.has(client.recv(12), b" 200")
        status, data, headers = daemon.get("/v1/events", raw=True)
        tap.equal(status, 503)
        tap.has(json.loads(data)["error"]["message"], "follow")
        cut = daemon.metric("connections_timed_out_total")
        jobs = []

        def is_cut():
            jobs.append(daemon.post("/v1/tunes", ask(seq=64 + len(jobs) % 100 * 8, gpu="A10"))[1])
            return daemon.metric("connections_timed_out_total") > cut
        wait_for(is_cut, "the end of those who never read")
        tap.equal(daemon.get("/healthz", raw=True)[0], 200)


def run_open(daemon, env, **how):
    return subprocess.run([FA_TUNE, "serve", "--socket", daemon.socket, "--open"], env=env, check=False,
                          timeout=DEADLINE, **how)


def open_asks_the_service_that_runs_and_opens_the_link_without_telling_it_to_anybody():
    with Place(script="no_device\n") as place, Serve(place, "--log-level", "debug") as daemon:
        programs, runtime = (os.path.join(place.folder, name) for name in ("programs", "runtime"))
        seen = os.path.join(place.folder, "seen")
        for folder in (programs, runtime):
            os.mkdir(folder, 0o700)
        with open(os.path.join(programs, "xdg-open"), "w", encoding="ascii") as file:
            file.write('#!/bin/sh\ncp -p "$1" %s.file\ntr "\\0" " " </proc/$$/cmdline >%s.new\n'
                       'mv %s.new %s\n' % (seen, seen, seen, seen))
            os.chmod(file.fileno(), 0o700)
        env = dict(place.env, PATH=programs + ":" + place.env["PATH"])
        quiet = run_open(daemon, env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="ascii")
        tap.equal((quiet.returncode, quiet.stderr), (0, ""))
        assert not os.path.exists(seen)  # there is no display
        done = run_open(daemon, dict(env, DISPLAY=":7", XDG_RUNTIME_DIR=runtime),
                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="ascii")
        tap.equal((done.returncode, done.stderr), (0, ""))
        url = done.stdout.strip()
        wait_for(lambda: os.path.exists(seen), "xdg-open")
        with open(seen, encoding="utf-8") as file:
            arguments = file.read()
        with open(seen + ".file", encoding="utf-8") as file:
            tap.has(file.read(), '<meta http-equiv="refresh" content="0;url=%s">' % url)
        tap.equal(stat.S_IMODE(os.stat(seen + ".file").st_mode), 0o600)
        where = urllib.parse.urlsplit(url)
        tap.has(arguments, runtime + "/fa-tune-open.html")
        page = Visitor(daemon, where.port, where.fragment)
        tap.equal(page.enter(), 200)
        tap.equal(page.ask("GET", "/v1/jobs")[0], 200)
        for secret in (where.fragment, page.secret, quiet.stdout.strip().rpartition("#")[2]):
            assert len(secret) == 64
            tap.lacks(arguments, secret)
            tap.lacks(daemon.log(), secret)
            with open("/proc/%d/cmdline" % daemon.process.pid, encoding="ascii") as file:
                tap.lacks(file.read(), secret)
        tap.equal(page.ask("POST", "/v1/links")[0], 401)


def a_service_that_starts_with_open_prints_its_link_but_never_into_its_log():
    with Place(script="no_device\n") as place:
        folder = os.path.join(place.folder, "s")
        with subprocess.Popen([FA_TUNE_SERVE, "--socket", folder, "--open"], env=place.env,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="ascii") as process:
            where = urllib.parse.urlsplit(process.stdout.readline().strip())
            tap.equal((where.scheme, where.hostname, len(where.fragment)), ("http", "127.0.0.1", 64))
            tap.equal(Visitor(None, where.port, where.fragment).enter(), 200)
            process.terminate()
            log = process.communicate(timeout=DEADLINE)[1]
        tap.equal(process.returncode, 0)
        tap.lacks(log, where.fragment)
        with Serve(place, "--open") as daemon:  # whose stdout is its log
            wait_for(lambda: "where the log goes" in daemon.log(), "a word of it")
            assert not re.search(r"#[0-9a-f]{64}", daemon.log()), daemon.log()
            asked = run_open(daemon, place.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             encoding="ascii")
            tap.equal(asked.returncode, 0)
            assert re.fullmatch(r"http://127\.0\.0\.1:\d+/#[0-9a-f]{64}\n", asked.stdout), asked.stdout
            shown = place.on_a_terminal("stdout", "serve", "--socket", daemon.socket, "--open").replace("\r", "")
            assert re.fullmatch(r"\n  The page, for one visit: http://\S+/#[0-9a-f]{64}\n\n", shown), shown


tap.main([
    nothing_listens_on_tcp_until_a_link_is_asked_for_and_then_the_loopback_does,
    a_link_is_good_once_and_until_the_next,
    a_link_is_too_old_after_its_time,
    a_session_reads_and_changes_nothing,
    the_oldest_session_gives_way_to_the_ninth,
    other_hosts_and_other_origins_are_turned_away,
    the_page_has_no_script_and_no_style_but_its_own_and_stands_in_no_frame,
    the_report_is_that_of_the_command_line_and_told_once_until_the_store_changes,
    a_report_does_not_hold_lookups_up_and_is_made_once_for_all_who_wait,
    a_store_that_no_host_shares_has_no_queue_and_a_fleets_is_told,
    what_is_under_way_is_told_as_it_changes,
    followers_that_do_not_read_or_are_too_many_cost_nobody_anything,
    open_asks_the_service_that_runs_and_opens_the_link_without_telling_it_to_anybody,
    a_service_that_starts_with_open_prints_its_link_but_never_into_its_log,
])
