#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The daemon's life: starts, stops, deaths, full disks, and who else serves or tunes there."""
import json
import os
import shutil
import signal
import socket
import stat
import subprocess

import tap
from place import DEADLINE, FA_TUNE, Place
from serve import FAST, FA_TUNE_SERVE, HANGS, L4, LONG, Serve, TWO, a_place, ask, wait_for


def killed_in_mid_tune_it_goes_on_when_it_is_asked_again():
    with a_place(HANGS) as place, Serve(place, *LONG) as daemon:
        connection = daemon.begins(ask())
        wait_for(lambda: (daemon.jobs()[0]["progress"] or {}).get("measured"), "what was measured")
        daemon.kill()
        connection.close()
        place.use_fake_driver(L4 + FAST)
        daemon.start()
        tap.equal(daemon.jobs(), [])
        answer = daemon.events(ask())
        name, data = list(answer)[-1]
        tap.equal((name, data["answer"]["funnel"]["measured"]), ("done", 2))


def told_to_stop_it_lets_clients_come_back_and_keeps_what_was_measured():
    with a_place(HANGS) as place, Serve(place, *LONG) as daemon:
        connection = daemon.begins(ask())
        wait_for(lambda: (daemon.jobs()[0]["progress"] or {}).get("measured"), "what was measured")
        daemon.process.send_signal(signal.SIGTERM)
        answer = connection.getresponse()
        tap.equal((answer.status, answer.headers["Retry-After"]), (503, "5"))
        tap.has(json.loads(answer.read())["error"]["message"], "what was measured is kept")
        tap.equal(daemon.process.wait(DEADLINE), 0)
        assert not os.path.exists(daemon.socket)
        place.use_fake_driver(L4 + FAST)
        daemon.start()
        tap.equal(daemon.post("/v1/kernel", ask())[1]["answer"]["funnel"]["measured"], 2)


def a_stale_socket_is_replaced_and_a_live_one_is_refused():
    with Place(script="no_device\n") as place, Serve(place) as daemon:
        mode = os.stat(daemon.socket).st_mode
        tap.equal((stat.S_ISSOCK(mode), stat.S_IMODE(mode)), (True, 0o600))
        second = subprocess.run([FA_TUNE_SERVE, "--socket", daemon.socket], env=daemon.env, check=False,
                                capture_output=True, text=True, timeout=DEADLINE)
        tap.equal(second.returncode, 1)
        tap.has(second.stderr, "another fa-tune-serve serves")
        tap.equal(daemon.get("/healthz", raw=True)[0], 200)
        daemon.kill()
        assert os.path.exists(daemon.socket), "kill -9 leaves the socket"
        daemon.start()
        tap.equal(daemon.get("/healthz", raw=True)[0], 200)
        other = os.path.join(daemon.folder, "o")  # no socket
        with open(other, "w", encoding="ascii") as file:
            file.write("precious")
        second = subprocess.run([FA_TUNE_SERVE, "--socket", other], env=daemon.env, check=False,
                                capture_output=True, text=True, timeout=DEADLINE)
        tap.has(second.stderr, "is no socket")
        with open(other, encoding="ascii") as file:
            tap.equal(file.read(), "precious")
        for path, word in ((os.path.join(daemon.folder, "x" * 120), "longer than"),
                           (os.path.join(daemon.folder, "no", "s"), "is its folder there")):
            second = subprocess.run([FA_TUNE_SERVE, "--socket", path], env=daemon.env, check=False,
                                    capture_output=True, text=True, timeout=DEADLINE)
            tap.has(second.stderr, word)
            tap.equal(second.returncode, 2)
        for option, word in (("--store", "does not exist; make it"), ("--templates", "there is no such folder")):
            second = subprocess.run([FA_TUNE_SERVE, "--socket", os.path.join(daemon.folder, "t"), option,
                                     os.path.join(daemon.folder, "no", "it")], env=daemon.env, check=False,
                                    capture_output=True, text=True, timeout=DEADLINE)
            tap.has(second.stderr, word)
            tap.equal(second.returncode, 2)


def the_verb_becomes_the_daemon_and_the_default_is_in_the_runtime_directory():
    with Place(script="no_device\n") as place, Serve(place) as daemon:
        told = place.run("serve", "--help").stdout
        tap.has(told, "FA_TUNE_SERVE_SOCKET")
        tap.has(" ".join(told.split()), "--wait TIME how long a request waits for its tune if it names no time itself (600s)")
        env = {**daemon.env, "XDG_RUNTIME_DIR": daemon.folder}
        process = subprocess.Popen([FA_TUNE, "serve"], env=env, stderr=subprocess.PIPE, text=True)
        told = ""
        while "event=ready" not in told:
            told += process.stderr.readline()
        path = os.path.join(daemon.folder, "fa-tune.sock")
        tap.has(told, "on=unix:" + path)
        assert os.path.exists(path)
        process.send_signal(signal.SIGTERM)
        tap.has(process.communicate(timeout=DEADLINE)[1].splitlines()[-1], "event=stopped")
        tap.equal(process.returncode, 0)
        assert not os.path.exists(path)
        del env["XDG_RUNTIME_DIR"]
        done = subprocess.run([FA_TUNE, "serve"], env=env, check=False, capture_output=True, text=True,
                              timeout=DEADLINE)
        tap.equal(done.returncode, 2)
        tap.has(done.stderr, "--socket")


def two_daemons_on_one_store_tune_a_problem_once():
    with a_place(L4 + FAST) as place, Serve(place, slow_s=1) as one, Serve(place, slow_s=1) as two:
        connections = [daemon.connect() for daemon in (one, two)]
        for connection in connections:
            connection.request("POST", "/v1/kernel", json.dumps(ask()))
        answers = [json.loads(connection.getresponse().read()) for connection in connections]
        tap.equal(sorted(each["answer"]["from_store"] for each in answers), [False, True])
        tap.equal(answers[0]["cubin"], answers[1]["cubin"])
        for connection in connections:
            connection.close()
        # What one stores the other serves.
        tap.equal(one.post("/v1/kernel", ask(seq=512))[0], 200)
        tap.equal(two.post("/v1/kernel", ask(seq=512, effort="cached"))[0], 200)


def systemd_passes_the_socket_and_hears_when_it_is_ready():
    with Place(script="no_device\n") as place:
        daemon = Serve(place, wait=False)
        notify = os.path.join(daemon.folder, "n")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard, \
                socket.socket(socket.AF_UNIX) as listener:
            heard.bind(notify)
            heard.settimeout(DEADLINE)
            listener.bind(daemon.socket)
            listener.listen()
            env = {**daemon.env, "NOTIFY_SOCKET": notify}
            process = subprocess.Popen(
                ["sh", "-c", 'export LISTEN_FDS=1 LISTEN_PID=$$; exec "$0" 3<&%d' % listener.fileno(),
                 FA_TUNE_SERVE], env=env, pass_fds=[listener.fileno()], stderr=subprocess.DEVNULL)
            try:
                # A client may come before the daemon does.
                tap.equal(daemon.get("/healthz", raw=True)[0], 200)
                tap.equal(heard.recv(100), b"READY=1")
                tap.equal(daemon.get("/readyz", raw=True)[0], 200)
                process.send_signal(signal.SIGTERM)
                tap.equal(heard.recv(100), b"STOPPING=1")
                tap.equal(process.wait(DEADLINE), 0)
                assert os.path.exists(daemon.socket), "the socket is systemd's"
            finally:
                process.kill()
                process.wait()
                shutil.rmtree(daemon.folder)


def a_full_disk_is_told_and_what_is_stored_is_still_served():
    # A disk of its own: a small tmpfs in a mount namespace, which needs no root where the kernel lets
    # users have namespaces.
    with a_place(L4 + FAST) as place:
        disk = os.path.join(place.folder, "disk")
        os.mkdir(disk)
        size = os.path.getsize(place.store)
        inside = ('mount -t tmpfs -o size=%dk,mode=700 none "$DISK" && cp "$FROM" "$FA_TUNE_STORE" && '
                  'exec "$@"' % (size // 1024 + 2048))
        prefix = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", inside, "sh"]
        env = {"DISK": disk, "FROM": place.store, "FA_TUNE_STORE": os.path.join(disk, "store.db")}
        can = subprocess.run([*prefix, "true"], env={**place.env, **env}, check=False,
                             capture_output=True, text=True, timeout=DEADLINE)
        if can.returncode != 0:
            raise tap.Skip("no namespace of our own here: " + can.stderr.strip())
        with Serve(place, env=env, prefix=prefix) as daemon:
            tap.equal(daemon.post("/v1/kernel", ask())[0], 200)
            inside = "/proc/%d/root%s/" % (daemon.process.pid, disk)
            filler = inside + "filler"
            with open(filler, "wb", buffering=0) as file:
                try:
                    while True:
                        file.write(b"x" * 4096)
                except OSError as error:
                    tap.has(os.strerror(error.errno), "No space left")
            status, document = daemon.post("/v1/kernel", ask(seq=2048))
            tap.equal((status, document["error"]["code"]), (507, "FA_EFULL"))
            tap.equal(daemon.post("/v1/kernel", ask())[0], 200)
            tap.equal(daemon.get("/readyz", raw=True)[0], 200)
            os.unlink(filler)
            tap.equal(daemon.post("/v1/kernel", ask(seq=2048))[0], 200)


def a_store_that_is_deleted_in_mid_tune_is_no_fault_of_the_client():
    with a_place(HANGS) as place, Serve(place, "--trial-timeout", "5") as daemon:
        connection = daemon.begins(ask(seq=512))
        wait_for(lambda: (daemon.jobs()[0]["progress"] or {}).get("compiled"), "its first cubin")
        for name in os.listdir(place.folder):
            if name.startswith("store.db") and not name.endswith(".locks"):
                os.unlink(os.path.join(place.folder, name))
        assert connection.getresponse().status in (200, 500), "no fault of the client"
        connection.close()
        tap.equal(daemon.post("/v1/kernel", ask(seq=512))[0], 200)


def a_store_that_is_emptied_is_made_anew_and_used_again():
    with a_place(L4 + FAST) as place, Serve(place) as daemon:
        tap.equal(daemon.post("/v1/kernel", ask())[0], 200)
        with open(place.store, "wb"):
            pass
        tap.equal(daemon.post("/v1/kernel", ask(seq=512))[0], 200)
        with open(place.store, "wb"):
            pass
        tap.equal(daemon.get("/v1/winners"), (200, {"winners": []}))
        tap.equal(daemon.get("/readyz", raw=True)[0], 200)
        tap.equal(daemon.post("/v1/kernel", ask(seq=512))[0], 200)


def a_store_that_can_neither_be_read_nor_made_anew_is_not_ready():
    with a_place(L4 + FAST) as place, Serve(place) as daemon:
        tap.equal(daemon.post("/v1/kernel", ask())[0], 200)
        with open(place.store, "rb") as file:
            good = file.read()
        os.unlink(place.store)
        os.mkdir(place.store)
        wait_for(lambda: daemon.post("/v1/kernel", ask(seq=512))[0] != 200, "a failure")
        wait_for(lambda: daemon.get("/readyz", raw=True)[0] == 503, "its being told")
        tap.has(daemon.get("/readyz")[1]["error"]["message"], place.store)
        os.rmdir(place.store)
        with open(os.open(place.store, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
            file.write(good)
        wait_for(lambda: daemon.get("/readyz", raw=True)[0] == 200, "a daemon that is ready again")
        tap.equal(daemon.post("/v1/kernel", ask(seq=512))[0], 200)


def a_store_that_cannot_be_used_is_told_and_nothing_is_served():
    with Place(script="no_device\n") as place:
        daemon = Serve(place, "--store", "/dev/null/store.db", wait=False)
        with daemon:
            tap.equal(daemon.process.wait(DEADLINE), 2)
            tap.has(daemon.log(), "cannot start")
            assert not os.path.exists(daemon.socket)
            daemon.process = None


tap.main([
    killed_in_mid_tune_it_goes_on_when_it_is_asked_again,
    told_to_stop_it_lets_clients_come_back_and_keeps_what_was_measured,
    a_stale_socket_is_replaced_and_a_live_one_is_refused,
    the_verb_becomes_the_daemon_and_the_default_is_in_the_runtime_directory,
    two_daemons_on_one_store_tune_a_problem_once,
    systemd_passes_the_socket_and_hears_when_it_is_ready,
    a_full_disk_is_told_and_what_is_stored_is_still_served,
    a_store_that_is_deleted_in_mid_tune_is_no_fault_of_the_client,
    a_store_that_is_emptied_is_made_anew_and_used_again,
    a_store_that_can_neither_be_read_nor_made_anew_is_not_ready,
    a_store_that_cannot_be_used_is_told_and_nothing_is_served,
])
