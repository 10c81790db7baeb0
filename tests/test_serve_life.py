#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The daemon's life: starts, stops, deaths, full disks, and who else serves or tunes there."""
import fcntl
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


def under_way(daemon, job):
    daemon.wait_for_state(job, "running")
    wait_for(lambda: daemon.job(job)["progress"], "progress")


def journals(place):
    """The names in each daemon's folder."""
    folders = [os.path.join(place.folder, name) for name in os.listdir(place.folder) if name.startswith("serve-")]
    return [os.listdir(folder) for folder in folders if os.path.isdir(folder)]


def killed_in_mid_tune_it_goes_on_with_sweeps_and_tunes_when_it_starts_again():
    with a_place(HANGS) as place, Serve(place, *LONG) as daemon:
        sweep = daemon.post("/v1/sweeps", {"items": [ask(seq=64), ask(seq=512)]})[1]["job"]
        under_way(daemon, sweep)
        tunes = [daemon.post("/v1/tunes", ask(seq=seq))[1]["job"] for seq in (128, 2048)]
        daemon.kill()
        place.use_fake_driver(L4 + FAST)
        daemon.start()
        listed = {job["id"] for job in daemon.get("/v1/jobs")[1]["jobs"]}
        tap.equal(listed, {sweep, *tunes})
        for job in (sweep, *tunes):
            daemon.wait_for_state(job, "done")
        tap.equal(daemon.job(sweep)["sweep"]["done"], 2)
        winners = [w for w in daemon.get("/v1/winners")[1]["winners"] if w["problem"]["batch"] == 1]
        tap.equal(sorted(w["problem"]["seq_q"] for w in winners), [64, 128, 512, 2048])
        tap.equal({w["origin"] for w in winners}, {"measured"})
        # What has ended does not come back. The journal's thread removes it soon after clients are told.
        wait_for(lambda: journals(place) == [[]], "a journal without jobs")
        daemon.kill()
        daemon.start()
        tap.equal(daemon.get("/v1/jobs")[1]["jobs"], [])
        tap.equal(journals(place), [[]])


def told_to_stop_it_hands_its_jobs_back_and_keeps_what_was_measured():
    with a_place(HANGS) as place, Serve(place, *LONG) as daemon:
        job = daemon.post("/v1/tunes", ask())[1]["job"]
        events = daemon.events(job)
        heard = iter(events)
        while True:
            name, data = next(heard)
            if data["measured"] == 1:
                break  # the one that does not hang
        waiter = daemon.connect()
        waiter.request("POST", "/v1/kernel", json.dumps(ask()))
        wait_for(lambda: daemon.metric("requests_waiting") == 1, "the waiter")
        tap.equal(daemon.stop(), 0)
        response = waiter.getresponse()
        tap.equal((response.status, response.getheader("Retry-After")), (503, "2"))
        tap.equal([name for name, _ in heard if name != "progress"], [])
        assert not os.path.exists(daemon.socket)
        place.use_fake_driver(L4 + FAST)
        daemon.start()
        found = daemon.wait_for_state(job, "done")
        tap.equal(found["answer"]["origin"], "measured")
        explained = place.json("explain", "--seq", "128", "--batch", "1", "--heads", "1")
        tap.equal(sorted(row["status"] for row in explained["configs"]), ["measured"] * 2)
        tap.equal(daemon.stop(signal.SIGINT), 0)


def a_canceled_job_does_not_come_back():
    with a_place(HANGS) as place, Serve(place, *LONG) as daemon:
        job = daemon.post("/v1/tunes", ask())[1]["job"]
        under_way(daemon, job)
        daemon.delete("/v1/jobs/" + job)
        tap.equal(daemon.stop(), 0)  # before its runner has come to an end, or after
        daemon.start()
        tap.equal(daemon.get("/v1/jobs")[1]["jobs"], [])


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
        # One that is served without the lock file, and things that are no socket.
        other = os.path.join(daemon.folder, "o")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(other)
            listener.listen()
            second = subprocess.run([FA_TUNE_SERVE, "--socket", other], env=daemon.env, check=False,
                                    capture_output=True, text=True, timeout=DEADLINE)
            tap.has(second.stderr, "a process listens on")
        os.unlink(other)
        with open(other, "w", encoding="ascii") as file:
            file.write("precious")
        second = subprocess.run([FA_TUNE_SERVE, "--socket", other], env=daemon.env, check=False,
                                capture_output=True, text=True, timeout=DEADLINE)
        tap.has(second.stderr, "is no socket")
        with open(other, encoding="ascii") as file:
            tap.equal(file.read(), "precious")
        for path, word in ((os.path.join(daemon.folder, "x" * 120), "longer than"),
                           (os.path.join(daemon.folder, "no", "s"), "does not exist: make it")):
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
        tap.equal([line for line in told.splitlines() if len(line) > 80], [])
        env = {**daemon.env, "XDG_RUNTIME_DIR": daemon.folder, "FA_TUNE_SERVE_LOG_FORMAT": "json"}
        process = subprocess.Popen([FA_TUNE, "serve"], env=env, stderr=subprocess.PIPE, text=True)
        lines = []
        while not lines or lines[-1]["event"] != "ready":
            lines.append(json.loads(process.stderr.readline()))
        path = os.path.join(daemon.folder, "fa-tune.sock")
        tap.equal(lines[0]["on"], "unix:" + path)
        assert os.path.exists(path)
        process.send_signal(signal.SIGTERM)
        rest = [json.loads(line) for line in process.communicate(timeout=DEADLINE)[1].splitlines()]
        tap.equal((process.returncode, rest[-1]["event"]), (0, "stopped"))
        assert not os.path.exists(path)
        del env["XDG_RUNTIME_DIR"]
        done = subprocess.run([FA_TUNE, "serve"], env=env, check=False, capture_output=True, text=True,
                              timeout=DEADLINE)
        tap.equal(done.returncode, 2)
        tap.has(done.stderr, "--socket")


def two_daemons_on_one_store_tune_a_problem_once():
    with a_place(L4 + FAST) as place, Serve(place, slow_s=1) as one, Serve(place, slow_s=1) as two:
        jobs = [(daemon, daemon.post("/v1/tunes", ask())[1]["job"]) for daemon in (one, two)]
        ends = [daemon.wait_for_state(job, "done", "failed") for daemon, job in jobs]
        tap.equal([end["state"] for end in ends], ["done", "done"])
        tap.equal(sorted(end["answer"]["from_store"] for end in ends), [False, True])
        tap.equal(ends[0]["cubin"], ends[1]["cubin"])
        # What one stores the other serves, and each keeps its own jobs.
        tap.equal(one.post("/v1/kernel", ask(seq=512))[0], 200)
        tap.equal(two.post("/v1/kernel", ask(seq=512, effort="cached"))[0], 200)
        tap.equal(len(two.get("/v1/jobs")[1]["jobs"]), 1)


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


def other_users_are_turned_away():
    if os.getuid() != 0:
        raise tap.Skip("only root can become somebody else")
    with Place(script="no_device\n") as place, Serve(place) as daemon:
        os.chmod(daemon.folder, 0o755)
        os.chmod(daemon.socket, 0o666)  # as if somebody had been careless
        script = ("import socket,sys\ns = socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\n"
                  "s.sendall(b'GET /healthz HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n')\n"
                  "sys.exit(0 if s.recv(100) == b'' else 1)\n")
        done = subprocess.run(["setpriv", "--reuid=65534", "--clear-groups", "/usr/bin/python3", "-c",
                               script, daemon.socket], check=False, capture_output=True, text=True,
                              timeout=DEADLINE)
        if "setpriv" in done.stderr or "No such file" in done.stderr:
            raise tap.Skip("no setpriv: " + done.stderr.strip())
        # It is closed at once; the request may not even get there.
        assert done.returncode == 0 or "BrokenPipe" in done.stderr or "reset" in done.stderr, done.stderr
        tap.equal(daemon.metric("connections_foreign_total"), 1)


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
            journal, = [inside + name for name in os.listdir(inside) if name.startswith("serve-")]
            wait_for(lambda: os.listdir(journal) == [], "the end of the job's file")
            with open(filler, "wb", buffering=0) as file:
                try:
                    while True:
                        file.write(b"x" * 4096)
                except OSError as error:
                    tap.has(os.strerror(error.errno), "No space left")
            status, document = daemon.post("/v1/tunes", ask(seq=512))
            tap.equal((status, document["error"]["code"]), (507, "FA_EFULL"))
            wait_for(lambda: all(job["state"] in ("done", "failed", "canceled")
                                 for job in daemon.get("/v1/jobs")[1]["jobs"]), "the end of that job")
            status, document = daemon.post("/v1/kernel", ask(seq=2048))
            tap.equal((status, document["error"]["code"]), (507, "FA_EFULL"))
            tap.equal(daemon.post("/v1/kernel", ask())[0], 200)
            tap.equal(daemon.get("/readyz", raw=True)[0], 200)
            os.unlink(filler)
            tap.equal(daemon.post("/v1/kernel", ask(seq=2048))[0], 200)
            tap.equal(daemon.post("/v1/tunes", ask(seq=512))[0], 202)


def a_store_that_is_deleted_in_mid_tune_is_no_fault_of_the_client():
    with a_place(HANGS) as place, Serve(place, "--trial-timeout", "5") as daemon:
        job = daemon.post("/v1/tunes", ask(seq=512))[1]["job"]
        daemon.wait_for_state(job, "running")
        wait_for(lambda: (daemon.job(job)["progress"] or {}).get("compiled"), "its first cubin")
        for name in os.listdir(place.folder):
            if name.startswith("store.db") and not name.endswith(".locks"):
                os.unlink(os.path.join(place.folder, name))
        ended = daemon.wait_for_state(job, "done", "failed")
        if ended["state"] == "failed":
            tap.has(("FA_EIO", "FA_ESTORE"), ended["error"]["code"])
        tap.equal(daemon.post("/v1/kernel", ask(seq=512))[0], 200)


def a_store_that_is_emptied_is_made_anew_and_used_again():
    with a_place(L4 + FAST) as place, Serve(place) as daemon:
        tap.equal(daemon.post("/v1/kernel", ask())[0], 200)
        with open(place.store, "wb"):
            pass
        tap.equal(daemon.post("/v1/kernel", ask(seq=512))[0], 200)
        # Also while nobody asks.
        with open(place.store, "wb"):
            pass
        wait_for(lambda: os.path.getsize(place.store) > 0, "a store")
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


def another_daemon_s_jobs_are_left_to_it():
    with Place(space=TWO, script="no_device\n") as place, Serve(place) as daemon:
        daemon.stop()
        folder, = [os.path.join(place.folder, name) for name in os.listdir(place.folder)
                   if name.startswith("serve-") and not name.endswith(".log")]
        one = "0" * 32
        with open(os.path.join(folder, one), "w", encoding="ascii") as file:
            file.write("fa-tune-job 1 tune %s 5\n%s" % (one, json.dumps(ask(gpu="L4"))))
        # As one in another container does that serves at the same path.
        lock = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            daemon.start()
            tap.equal(daemon.get("/v1/jobs")[1]["jobs"], [])
            daemon.wait_for_state(daemon.post("/v1/tunes", ask(gpu="L4", seq=512))[1]["job"], "done")
            tap.equal(os.path.isdir(folder + ".1"), True)
            daemon.stop()
        finally:
            os.close(lock)
        daemon.start()
        daemon.wait_for_state(one, "done")


def what_is_in_the_journal_is_not_believed():
    with Place(space=TWO, script="no_device\n") as place, Serve(place) as daemon:
        daemon.stop()
        folder, = [os.path.join(place.folder, name) for name in os.listdir(place.folder)
                   if name.startswith("serve-") and not name.endswith(".log")]
        tap.equal(stat.S_IMODE(os.stat(folder).st_mode), 0o700)
        good, deep = "0" * 32, "1" * 32
        for name, text in ((good, "fa-tune-job 1 tune %s 5\n%s" % (good, json.dumps(ask(gpu="L4")))),
                           (deep, "fa-tune-job 1 sweep %s 6\n%s" % (deep, "[" * 100000)),
                           ("2" * 32, "fa-tune-job 1 tune %s 5\n{}" % good),  # another one's name
                           ("3" * 32, ""), ("4" * 32, "\0" * 4096), ("passwd", "x"),
                           ("5" * 32, "fa-tune-job 2 tune %s 5\n{}" % ("5" * 32))):
            with open(os.path.join(folder, name), "w", encoding="ascii") as file:
                file.write(text)
        daemon.start()
        tap.equal(daemon.wait_for_state(good, "done")["answer"]["origin"], "predicted")
        tap.equal(daemon.wait_for_state(deep, "failed")["error"]["code"], "FA_EINVAL")
        tap.equal(len(daemon.get("/v1/jobs")[1]["jobs"]), 2)
        # Nor is anything in it, where others can write to it.
        daemon.stop()
        with open(os.path.join(folder, good), "w", encoding="ascii") as file:
            file.write("fa-tune-job 1 tune %s 5\n%s" % (good, json.dumps(ask(gpu="L4"))))
        os.chmod(folder, 0o777)
        daemon.start()
        tap.has(daemon.log(), "others than this user can write to " + folder)
        tap.equal(daemon.get("/v1/jobs")[1]["jobs"], [])
        status, document = daemon.post("/v1/tunes", ask(gpu="L4", seq=512))
        tap.equal((status, document["error"]["code"]), (500, "FA_EIO"))


tap.main([
    killed_in_mid_tune_it_goes_on_with_sweeps_and_tunes_when_it_starts_again,
    told_to_stop_it_hands_its_jobs_back_and_keeps_what_was_measured,
    a_canceled_job_does_not_come_back,
    a_stale_socket_is_replaced_and_a_live_one_is_refused,
    the_verb_becomes_the_daemon_and_the_default_is_in_the_runtime_directory,
    two_daemons_on_one_store_tune_a_problem_once,
    systemd_passes_the_socket_and_hears_when_it_is_ready,
    other_users_are_turned_away,
    a_full_disk_is_told_and_what_is_stored_is_still_served,
    a_store_that_is_deleted_in_mid_tune_is_no_fault_of_the_client,
    a_store_that_is_emptied_is_made_anew_and_used_again,
    a_store_that_can_neither_be_read_nor_made_anew_is_not_ready,
    a_store_that_cannot_be_used_is_told_and_nothing_is_served,
    another_daemon_s_jobs_are_left_to_it,
    what_is_in_the_journal_is_not_believed,
])
