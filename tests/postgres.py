# SPDX-License-Identifier: Apache-2.0
"""A real PostgreSQL for tests: Debian's server in a directory of its own, on a Unix socket, gone
when whoever asked for it is gone, however that ended.

    with postgres.Server() as server:            # raises tap.Skip where no server is installed
        url = server.url()                       # an empty schema of its own, password and all
        server.crash(); server.start()

Run as a program it is that server for a C test (pg_fixture.h): it says "ready ADDRESS" or "skip
REASON" and then obeys, a line each: crash, start, stop (SIGSTOP), go, schema N (there is a schema test_N), sql COMMAND.
The end of its input ends it.
"""
import fcntl
import glob
import hashlib
import os
import pwd
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

USER, PASSWORD, DATABASE = "fa", "s3cret-wörd", "fleet"
DEADLINE = 60  # seconds until a server that does not come is given up

SETTINGS = {
    "listen_addresses": "", "shared_buffers": "16MB", "fsync": "off",
    "full_page_writes": "off", "autovacuum": "off",
    "log_min_messages": "fatal", "log_min_error_statement": "panic",
}


class Missing(Exception):
    """No server is installed; with the reason."""


class Broken(Exception):
    """One is, and does not run."""


def find_bin():
    folders = glob.glob("/usr/lib/postgresql/*/bin")
    folders.sort(key=lambda path: [int(part) for part in path.split("/") if part.isdigit()])
    for folder in folders[::-1] + os.environ.get("PATH", "").split(":"):
        if all(os.access(os.path.join(folder, program), os.X_OK)
               for program in ("initdb", "postgres", "psql")):
            return folder
    raise Missing("no PostgreSQL server is installed")


def unprivileged():
    """Who runs the server: it refuses to be root."""
    if os.getuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            pass
    raise Missing("no user to run a PostgreSQL server as")


def base_folder(user):
    """Memory, where there is enough: a server is a thousand files. Else a folder of which a socket's path stays below 107
    bytes; root's own folders are closed to the server."""
    memory, base = "/dev/shm", os.environ.get("TMPDIR", "/tmp")
    if os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 1 << 30:
        return memory
    return base if len(base) < 60 and user is None else "/tmp"


class Cluster:
    """The server's processes and its directory, in the process that holds them."""

    def __init__(self):
        self.bin = find_bin()
        self.user = unprivileged()
        self.folder = tempfile.mkdtemp(prefix="fa-tune-pg-", dir=base_folder(self.user))
        self.data = os.path.join(self.folder, "data")
        self.server = None
        self.schemas = 0
        try:
            self.make()
            self.start()
        except BaseException:
            self.end()
            raise

    def how(self):
        """As whom to run the server's programs; whatever happens to us, the kernel kills them."""
        import ctypes
        libc = ctypes.CDLL(None)

        def drop():
            if self.user is not None:
                os.setgroups([])
                os.setgid(self.user.pw_gid)
                os.setuid(self.user.pw_uid)
            libc.prctl(1, signal.SIGQUIT)  # PR_SET_PDEATHSIG

        return {"preexec_fn": drop, "cwd": self.folder, "stdin": subprocess.DEVNULL,
                "stdout": subprocess.DEVNULL,
                "env": {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "TZ": "UTC"}}

    def make(self):
        """A copy of the directory that the first test of this build has made."""
        if self.user is not None:
            os.chown(self.folder, self.user.pw_uid, self.user.pw_gid)
        if "FA_TEST_BUILD" not in os.environ:
            self.initialise()
            return
        about = repr((self.bin, os.stat(self.bin).st_mtime, self.user, os.stat(__file__).st_mtime))
        name = "postgres-" + hashlib.sha256(about.encode()).hexdigest()[:16]
        kept = os.path.join(os.environ["FA_TEST_BUILD"], "tests", name)
        with open(kept + ".lock", "w", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not os.path.exists(kept):
                self.initialise()
                self.start()
                self.server.send_signal(signal.SIGINT)  # it writes all down and ends
                self.server.wait(DEADLINE)
                subprocess.run(["cp", "-a", self.data, kept + ".new"], check=True)
                os.rename(kept + ".new", kept)
                return
        subprocess.run(["cp", "-a", kept, self.data], check=True)

    def initialise(self):
        secret = os.path.join(self.folder, "secret")
        with open(secret, "w", encoding="utf-8") as file:
            file.write(PASSWORD + "\n")
        if self.user is not None:
            os.chown(secret, self.user.pw_uid, self.user.pw_gid)
        done = subprocess.run([os.path.join(self.bin, "initdb"), "-D", self.data, "-U", USER,
                               "--pwfile", secret, "-A", "scram-sha-256", "-E", "UTF8",
                               "--locale", "C.UTF-8", "--no-sync", "--no-instructions", "--wal-segsize=1"],
                              stderr=subprocess.PIPE, encoding="utf-8", check=False, **self.how())
        if done.returncode != 0:
            raise Broken("initdb failed: %s" % " ".join(done.stderr.split())[-400:])
        with open(os.path.join(self.data, "postgresql.conf"), "a", encoding="utf-8") as file:
            for name, value in SETTINGS.items():
                file.write("%s = '%s'\n" % (name, value))

    def spawn(self):
        with open(os.path.join(self.folder, "log"), "wb") as log:
            self.server = subprocess.Popen([os.path.join(self.bin, "postgres"), "-D", self.data, "-k", self.folder, "-c",
                                            "max_connections=" + os.environ.get("FA_TEST_CONNECTIONS", "60")],
                                           stderr=log, **self.how())

    def start(self):
        self.spawn()
        end = time.monotonic() + DEADLINE
        while not os.path.exists(os.path.join(self.folder, ".s.PGSQL.5432")) or self.psql("postgres", "SELECT 1") != 0:
            ended = self.server.poll() is not None
            with open(os.path.join(self.folder, "log"), encoding="utf-8") as file:
                said = " ".join(file.read().split())
            if time.monotonic() > end or (ended and "pre-existing shared memory" not in said):
                raise Broken("the server does not start: " + said[-400:])
            time.sleep(0.02)
            if ended:  # a process of the killed one is not gone yet
                self.spawn()
        if self.psql(DATABASE, "SELECT 1") != 0:
            self.psql("postgres", "CREATE DATABASE %s" % DATABASE)

    def make_schema(self, number):
        """Twenty at a time: to start psql and to log in takes longer than to make them."""
        if number <= self.schemas:
            return True
        numbers = range(self.schemas + 1, number + 20)
        self.schemas = numbers[-1]
        return self.psql(DATABASE, "; ".join("CREATE SCHEMA test_%d" % each for each in numbers)) == 0

    def psql(self, database, sql):
        how = self.how()
        how["env"]["PGPASSWORD"] = PASSWORD
        return subprocess.run([os.path.join(self.bin, "psql"), "-X", "-q", "-h", self.folder, "-U",
                               USER, "-d", database, "-c", sql], stderr=subprocess.DEVNULL,
                              check=False, **how).returncode

    def processes(self):
        """The server and its children."""
        found = [self.server.pid]
        for path in glob.glob("/proc/[0-9]*/stat"):
            try:
                with open(path, encoding="ascii", errors="replace") as file:
                    fields = file.read().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[1]) == self.server.pid:
                found.append(int(path.split("/")[2]))
        return found

    def signal_all(self, number):
        for pid in self.processes():
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def crash(self):
        """kill -9, of all of its processes."""
        if self.server is not None:
            self.signal_all(signal.SIGKILL)
            self.server.wait()
        self.server = None

    def end(self):
        if self.server is not None:
            self.signal_all(signal.SIGCONT)
            self.server.send_signal(signal.SIGQUIT)  # at once, and nothing of it stays
            try:
                self.server.wait(10)
            except subprocess.TimeoutExpired:
                self.crash()
        shutil.rmtree(self.folder, ignore_errors=True)


class Server:
    """A cluster of a Python test, held by a process of its own that outlives nothing."""

    def __init__(self):
        self.process = subprocess.Popen([sys.executable, os.path.abspath(__file__)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        encoding="utf-8", start_new_session=True)
        self.schemas = 0
        word, _, rest = self.process.stdout.readline().strip().partition(" ")
        if word != "ready":
            self.close()
            import tap
            raise (tap.Skip if word == "skip" else Broken)(rest)
        self.host = rest

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()

    def tell(self, word):
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        assert answer == "ok", answer

    def crash(self):
        self.tell("crash")

    def start(self):
        self.tell("start")

    def url(self, schema=None):
        """The address of a schema; without a name, of a new and empty one."""
        if schema is None:
            self.schemas += 1
            schema = "test_%d" % self.schemas
            self.tell("schema %d" % self.schemas)
        return address(self.host, schema)

    def sql(self, sql):
        self.tell("sql " + sql)


def address(host, schema):
    from urllib.parse import quote
    return "postgresql://%s:%s@/%s?host=%s&options=-csearch_path%%3D%s" % (
        USER, quote(PASSWORD), DATABASE, quote(host, safe=""), schema)


class Stub:
    """What speaks just enough of the protocol to let everybody log in, and then answers every command with these
    bytes; those who still wait after a long time get an error that names it."""
    LATE = "the stub spoke at last"

    def __init__(self, answer, at_login=b""):
        self.answer, self.at_login, self.logins = answer, at_login, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = "postgresql://fa:s3cret@127.0.0.1:%d/fleet" % self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    @staticmethod
    def message(kind, body):
        return kind + struct.pack("!i", len(body) + 4) + body

    @staticmethod
    def said(kind, severity, text):
        """A notice (b"N") or an error (b"E")."""
        return Stub.message(kind, b"S%s\0VFATAL\0C58000\0M%s\0\0" % (severity, text))

    def serve(self, client):
        with client:
            try:
                self.talk(client)
            except OSError:
                pass

    def talk(self, client):
        client.settimeout(15)
        while (begin := client.recv(8)) and struct.unpack("!ii", begin)[1] == 80877103:
            client.sendall(b"N")  # no TLS
        if not begin:
            return
        client.recv(4096)
        self.logins += 1
        ready = self.message(b"Z", b"I")
        client.sendall(self.message(b"R", bytes(4)) + self.message(b"S", b"server_version\x0015.0\0") +
                       self.message(b"K", bytes(8)) + self.at_login + ready)
        while client.recv(65536):
            client.sendall(self.answer)
            try:
                if not client.recv(65536):
                    return
            except socket.timeout:
                client.sendall(self.said(b"E", b"FATAL", self.LATE.encode()) + ready)


def main():
    # Whoever stops us with the test (Ctrl-C, a time limit) leaves the cleaning to us.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    try:
        cluster = Cluster()
    except (Missing, Broken) as why:
        print("%s %s" % ("skip" if isinstance(why, Missing) else "broken", why), flush=True)
        return
    try:
        print("ready %s" % cluster.folder, flush=True)
        for line in sys.stdin:
            word, _, rest = line.strip().partition(" ")
            if word == "crash":
                cluster.crash()
            elif word == "start":
                cluster.start()
            elif word == "stop":
                cluster.signal_all(signal.SIGSTOP)
            elif word == "go":
                cluster.signal_all(signal.SIGCONT)
            elif word in ("sql", "schema"):
                if not (cluster.make_schema(int(rest)) if word == "schema" else cluster.psql(DATABASE, rest) == 0):
                    print("failed: %s" % rest, flush=True)
                    continue
            print("ok", flush=True)
    except BrokenPipeError:
        pass
    finally:
        cluster.end()


if __name__ == "__main__":
    main()
