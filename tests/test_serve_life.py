#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The daemon's life: starts, stops, deaths, full disks and lost stores, who else serves there, many clients at once; and the library,
the command line and operations of one's own against it."""
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading

import tap
from place import BUILD, DEADLINE, EIGHT, FA_TUNE, SMALL, SOURCE, Place
from serve import FA_TUNE_SERVE, FAST, HANGS, L4, LONG, Serve, a_place, ask, wait_for

ONCE = L4 + "init_once\n"
SLOW = ONCE + "fault * hang\n"  # each config takes the trial's whole time limit


# ---- starts, stops and deaths -------------------------------------------------------------------
def killed_in_mid_tune_it_goes_on_when_it_is_asked_again():
    for how in (signal.SIGKILL, signal.SIGTERM):
        with a_place(HANGS) as place, Serve(place, *LONG) as daemon:
            connection = daemon.begins(ask())
            wait_for(lambda: (daemon.jobs()[0]["progress"] or {}).get("measured"), "what was measured")
            daemon.process.send_signal(how)
            tap.equal(daemon.process.wait(DEADLINE), 0 if how == signal.SIGTERM else -signal.SIGKILL)
            connection.close()
            tap.equal(os.path.exists(daemon.socket), how == signal.SIGKILL)
            place.use_fake_driver(L4 + FAST)
            daemon.start()
            tap.equal(daemon.jobs(), [])
            name, data = list(daemon.events(ask()))[-1]
            tap.equal((name, data["answer"]["funnel"]["measured"]), ("done", 2))


def a_live_socket_and_what_is_no_socket_are_left_alone():
    with Place(script="no_device\n") as place, Serve(place) as daemon:
        mode = os.stat(daemon.socket).st_mode
        tap.equal((stat.S_ISSOCK(mode), stat.S_IMODE(mode)), (True, 0o600))
        other = os.path.join(daemon.folder, "o")  # no socket
        tap.write(other, "precious")
        for path, status, word in ((daemon.socket, 1, "another fa-tune-serve serves"), (other, 2, "is no socket")):
            second = subprocess.run([FA_TUNE_SERVE, "--socket", path], env=daemon.env, check=False, capture_output=True, text=True, timeout=DEADLINE)
            tap.equal(second.returncode, status)
            tap.has(second.stderr, word)
        tap.equal(daemon.get("/healthz", raw=True)[0], 200)
        tap.equal(tap.read(other), "precious")


def the_verb_becomes_the_daemon_and_the_default_is_in_the_runtime_directory():
    with Place(script="no_device\n") as place, Serve(place) as daemon:
        told = place.run("serve", "--help").stdout
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
        tap.equal((process.returncode, os.path.exists(path)), (0, False))
        del env["XDG_RUNTIME_DIR"]
        done = subprocess.run([FA_TUNE, "serve"], env=env, check=False, capture_output=True, text=True, timeout=DEADLINE)
        tap.equal(done.returncode, 2)
        tap.has(done.stderr, "--socket")


# ---- stores -------------------------------------------------------------------------------------
def a_full_disk_is_told_and_what_is_stored_is_still_served():
    # A disk of its own: a small tmpfs in a mount namespace, which needs no root where the kernel lets users have namespaces.
    with a_place(L4 + FAST) as place:
        disk = os.path.join(place.folder, "disk")
        os.mkdir(disk)
        inside = ('mount -t tmpfs -o size=%dk,mode=700 none "$DISK" && cp "$FROM" "$FA_TUNE_STORE" && exec "$@"'
                  % (os.path.getsize(place.store) // 1024 + 2048))
        prefix = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", inside, "sh"]
        env = {"DISK": disk, "FROM": place.store, "FA_TUNE_STORE": os.path.join(disk, "store.db")}
        can = subprocess.run([*prefix, "true"], env={**place.env, **env}, check=False, capture_output=True, text=True, timeout=DEADLINE)
        if can.returncode != 0:
            raise tap.Skip("no namespace of our own here: " + can.stderr.strip())
        with Serve(place, env=env, prefix=prefix) as daemon:
            tap.equal(daemon.post("/v1/kernel", ask())[0], 200)
            filler = "/proc/%d/root%s/filler" % (daemon.process.pid, disk)
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


def a_store_that_is_deleted_in_mid_tune_or_emptied_is_made_anew():
    with a_place(HANGS) as place, Serve(place, "--trial-timeout", "5") as daemon:
        connection = daemon.begins(ask(seq=512))
        wait_for(lambda: (daemon.jobs()[0]["progress"] or {}).get("compiled"), "its first cubin")
        for name in os.listdir(place.folder):
            if name.startswith("store.db") and not name.endswith(".lock"):
                os.unlink(os.path.join(place.folder, name))
        assert connection.getresponse().status in (200, 500), "no fault of the client"
        connection.close()
        place.use_fake_driver(L4 + FAST)
        for _ in range(2):
            tap.equal(daemon.post("/v1/kernel", ask(seq=512))[0], 200)
            tap.write(place.store, "")
        tap.equal(daemon.get("/v1/winners"), (200, {"winners": []}))
        tap.equal(daemon.get("/readyz", raw=True)[0], 200)


# ---- many clients -------------------------------------------------------------------------------
def two_hundred_clients_of_a_cold_key_cause_one_tune():
    with Place(script="no_device\n") as place, Serve(place) as daemon:
        barrier = threading.Barrier(200)

        def one(i):
            connection = daemon.connect()
            connection.connect()
            barrier.wait()
            # The same problem in two hundred texts.
            asked = json.dumps(ask(gpu="L4"), indent=i % 10) + " " * (i // 10)
            status = daemon.post("/v1/kernel", asked, connection=connection)[0]
            connection.close()
            return status
        tap.equal(tap.at_once(200, one), [200] * 200)
        tap.equal(len(daemon.get("/v1/winners")[1]["winners"]), 1)
        # And each config of its space was tried once.
        answer = daemon.post("/v1/kernel", ask(gpu="L4"))[1]["answer"]
        told = place.json("explain", "--gpu", "L4", "--seq", "128", "--batch", "1", "--heads", "1")
        tap.equal(answer["funnel"]["compiled"], len([c for c in told["configs"] if c["status"] == "compiled"]))
        # Fifty thousand answers from memory leave it as it is; whoever writes to the store makes one be looked up again, now and then.
        def load(requests):
            done = subprocess.run([os.path.join(BUILD, "tests", "bench_serve"), daemon.socket, "64", str(requests)],
                                  input=json.dumps(ask(gpu="L4")).encode(), stdout=subprocess.PIPE, check=True, timeout=DEADLINE)
            tap.equal(json.loads(done.stdout)["good"], requests)
        load(5000)
        before, lookups = daemon.memory_kb(), daemon.metric("lookups_total")
        load(50000)
        assert daemon.metric("lookups_total") - lookups < 100, daemon.metric("lookups_total")
        if "san" not in os.path.basename(BUILD):
            assert daemon.memory_kb() - before < 2 << 10, "%d kB more" % (daemon.memory_kb() - before)


# ---- the library and the command line -----------------------------------------------------------
def run(place, *command, status=0):
    done = subprocess.run(command, env=place.env, cwd=place.folder, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8",
                          check=False, timeout=DEADLINE)
    assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
    return done


def launch(place):
    return run(place, os.path.join(BUILD, "examples", "tune_and_launch"))


def notes(text):
    return [line for line in text.splitlines() if line.startswith("note: ")]


def begun(place, daemon, *more):
    """fa-tune at work, whose tune is under way."""
    before = len(daemon.jobs())
    process = place.start(*SMALL, "--server", daemon.socket, *more, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_for(lambda: len(daemon.jobs()) > before, "its tune")
    return process


def both_examples_and_the_command_line_get_a_kernel_from_the_daemon():
    with Place(space=dict(EIGHT, BLOCK_N=[64], STAGES=[1], BLOCK_M=[64]), script=ONCE) as home, Place(script=ONCE) as away, Serve(home) as daemon:
        there = "unix:" + daemon.socket
        away.env["FA_TUNE_SERVER"] = there
        first = launch(away)
        tap.equal(first.stderr, "")
        tap.has(first.stdout, "not in %s yet: tuning" % there)
        tap.has(first.stdout, "from the service at " + there)
        second = launch(away)
        tap.has(second.stdout, "origin measured, found in the store")
        told = away.run(*SMALL)
        tap.has(told.stdout, "winner #1, measured")
        tap.has(told.stdout, "kept in " + there)
        tap.equal(notes(told.stderr), [])
        again = away.json(*SMALL)
        tap.equal((again["answer"]["from_store"], again["server"]), (True, there))
        tap.equal(away.json("show")["winners"], [])  # nothing is kept here
        away.preload_sanitizers()
        example = [sys.executable, os.path.join(SOURCE, "examples", "serve_and_launch.py")]
        told = run(away, *example, daemon.socket).stdout
        tap.has(told, "origin measured, ")
        tap.has(told, "against double precision")
        tap.has(run(away, *example, daemon.socket + "x", status=1).stderr, "no service answers")
        away.env["FA_TUNE_LIBCUDA"] = os.path.join(away.folder, "none")
        tap.has(run(away, *example, daemon.socket, status=77).stdout, "no CUDA device")


def a_client_that_is_interrupted_cancels_its_tune_and_one_whose_daemon_dies_does_without():
    home, away = Place(script=SLOW), Place(script=ONCE)
    home.take_cubins()
    away.take_cubins()
    with home, away, Serve(home, "--trial-timeout", "3600") as daemon:
        first, second = begun(away, daemon), begun(away, daemon, "--json")
        wait_for(lambda: any((job["progress"] or {}).get("compiled") for job in daemon.jobs()), "the first one's work")
        home.use_fake_driver(ONCE)
        first.send_signal(signal.SIGINT)
        first.communicate(timeout=DEADLINE)
        tap.equal(first.returncode, 130)
        told, _ = second.communicate(timeout=DEADLINE)
        tap.equal((json.loads(told)["answer"]["origin"], bool(json.loads(told)["server"])), ("measured", True))
        home.use_fake_driver(SLOW)
        third = begun(away, daemon, "--json", "--again")
        daemon.kill()
        told, errors = third.communicate(timeout=DEADLINE)
        tap.equal((json.loads(told)["server"], json.loads(told)["answer"]["origin"]), (None, "measured"))
        tap.equal(len(notes(errors if isinstance(errors, str) else errors.decode())), 1)


# ---- operations of one's own --------------------------------------------------------------------
def a_kernel_of_ones_own_is_served_from_its_file():
    """To who asks over HTTP, to the client of the same file, and on the page; never another text of its name."""
    with Place(space=None, script=L4) as place:
        path = shutil.copy(os.path.join(SOURCE, "tests", "specifications", "gather.cu"), place.folder)
        with Serve(place, path) as daemon:
            asked = {"problem": {"operation": "gather", "n": 300}}
            status, document = daemon.post("/v1/kernel", asked)
            tap.equal((status, document["answer"]["origin"]), (200, "measured"))
            place.env.update(FA_TUNE_SERVER="unix:" + daemon.socket, FA_TUNE_STORE=place.store + ".own")
            found = place.json(path, "--n", "300")["answer"]
            tap.equal((found["cubin_key"], found["origin"]), (document["answer"]["cubin_key"], "measured"))
            tap.equal([one["problem"]["n"] for one in daemon.get("/v1/winners")[1]["winners"]], [300])
            tap.has(json.dumps(daemon.get("/v1/report")[1]), "gather")
            tap.write(path, "// another text\n", "a")
            told = place.run(path, "--n", "300")
            tap.has(told.stderr, "operation \"gather@")
            tap.has(told.stdout, "measured 4")
            daemon.kill()
            daemon.start()  # with the text that is there now
            tap.equal(daemon.post("/v1/kernel", dict(asked, effort="cached"))[0], 404)


tap.main()
