# SPDX-License-Identifier: Apache-2.0
"""A place for end-to-end tests: a directory with its own store, templates and fake driver script,
and the built programs run there with an environment that holds nothing else."""
import json
import os
import shutil
import subprocess
import sys
import tempfile

import tap

SOURCE = os.environ["FA_TEST_SOURCE"]
BUILD = os.environ["FA_TEST_BUILD"]
TEMPLATES = os.environ["FA_TEST_TEMPLATES"]
FAKE_CUDA = os.environ["FA_TEST_FAKE_CUDA"]
FA_TUNE = os.path.join(BUILD, "fa-tune")
SCRATCH = os.environ.get("FA_TEST_SCRATCH", os.path.join(BUILD, "tests"))  # a folder in memory, where ./dev made one

# Of attn_fwd_sm80: enough to have a ranking, few enough to compile in seconds.
EIGHT = {"BLOCK_M": [64, 128], "BLOCK_N": [32, 64], "STAGES": [1, 2], "WARPS": [4],
         "Q_IN_REGS": [0], "MIN_BLOCKS": [2]}
ONE = {**EIGHT, "BLOCK_M": [64], "BLOCK_N": [64], "STAGES": [1]}
TWO = {**EIGHT, "BLOCK_N": [64], "STAGES": [1]}
L4 = "device name=NVIDIA_L4 sm=89 sms=58\n"
FAST = "time BLOCK_M=128 40\ntime BLOCK_M=64 60\n"  # for TWO
DEADLINE = 240  # seconds until something that never comes is given up
TINY = ["--batch", "1", "--heads", "1"]
FOUR = ["sweep", "--seq", "64,128", "--causal", "both", *TINY]
SMALL = ["--seq", "128", *TINY]

cubins = {}  # a space -> a store's bytes


def read_manifest(family, folder=TEMPLATES):
    return {"name": family, **json.loads(tap.read(os.path.join(folder, family + ".json")))}


def write_manifest(folder, manifest):
    tap.write(os.path.join(folder, manifest["name"] + ".json"), json.dumps(manifest))


def eight_of_conv2d(folder):
    """A copy of tests/specifications/conv2d.cu in the folder, with 12 configs, of which 8 keep its rule, in place of 54 of 72."""
    head, name, rest = tap.read(os.path.join(SOURCE, "tests", "specifications", "conv2d.cu")).partition('"tune": ')
    path = os.path.join(folder, "conv2d.cu")
    tap.write(path, head + name + json.dumps({"BLOCK_X": [16, 32, 64], "BLOCK_Y": [1, 4], "TILE_X": [1, 4], "TILE_Y": [1]}) + rest[rest.index("}") + 1:])
    return path


def is_sanitized():
    """A sanitizer's runtime has an allocator of its own, and will not be the second library."""
    program = tap.read(FA_TUNE, "rb")
    return b"__asan_init" in program or b"__tsan_init" in program


def is_foreign():
    """What was built is for another machine than Python, and runs in an emulator."""
    machines = []
    for path in (FA_TUNE, sys.executable):
        with open(path, "rb") as file:
            machines.append(file.read(20)[18:])
    return machines[0] != machines[1]


sought = set()  # verbs whose leaks were looked for


def leaks_once(env, *arguments):
    """The environment for a run: under the address sanitizer a test's first run of each verb looks for leaks at its end, which takes as long as
    all else that a short run does. test_cli.py looks for them in each run."""
    verb = arguments[0] if arguments and not arguments[0].startswith("-") else "tune"
    if verb in sought:
        return {**env, "ASAN_OPTIONS": env.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}
    if not sys.argv[0].endswith("test_cli.py"):
        sought.add(verb)
    return env


class Place:
    """Use as a context manager; everything is removed at its end."""

    def __init__(self, space=EIGHT, script=None):
        self.folder = tempfile.mkdtemp(prefix="place-", dir=SCRATCH)
        self.store = os.path.join(self.folder, "store.db")
        self.env = {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "HOME": self.folder,
            "LC_ALL": "C.UTF-8",
            "FA_TUNE_STORE": self.store,
            "FA_TUNE_SYSTEM": "",
            "FA_TUNE_LIBCUDA": os.path.join(self.folder, "no-libcuda.so.1"),
        }
        for name in ("FA_TUNE_NVRTC", "ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS", "LSAN_OPTIONS"):
            if name in os.environ:
                self.env[name] = os.environ[name]
        if space is not None:
            self.env["FA_TUNE_TEMPLATES"] = self.templates(space)
        if script is not None:
            self.use_fake_driver(script)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder)

    def templates(self, space):
        folder = os.path.join(self.folder, "templates")
        os.makedirs(folder, exist_ok=True)
        for family in ("attn_fwd_splitkv_sm80", "attn_fwd_prefill_sm80"):  # beside which what serves has its default alone
            manifest = read_manifest(family)
            manifest["restrictions"] = [{"require": "%s == (%s)" % pair, "why": "a test asks for the default"}
                                        for pair in manifest["default"].items()]
            write_manifest(folder, manifest)
        manifest = read_manifest("attn_fwd_sm80")
        assert set(space) <= set(manifest["tune"]), "attn_fwd_sm80 has other tunables now"
        manifest["tune"] = {name: space.get(name, [0]) for name in manifest["tune"]}
        # What pays is not asked here, only what works: the space is then exactly the product.
        manifest["restrictions"] = [constraint for constraint in manifest["restrictions"]
                                    if "BLOCK_M %" in constraint["require"]]
        manifest["default"] = {"BLOCK_M": 64, "BLOCK_N": 64, "STAGES": 1, "WARPS": 4,
                               "Q_IN_REGS": 0, "MIN_BLOCKS": 2}
        write_manifest(folder, manifest)
        return folder

    def compiles_slowly(self):
        """A fifth of a second for each config, also where its cubin is kept (kept_nvrtc.c): what takes no time is over before it is interrupted."""
        manifest = read_manifest("attn_fwd_sm80", self.env["FA_TUNE_TEMPLATES"])
        manifest["defines"]["SLOWLY"] = "1"
        write_manifest(self.env["FA_TUNE_TEMPLATES"], manifest)

    def one_backward_config(self, **more):
        """Leaves one config of attention backward's family for every GPU, in this place's templates, or these values of tunables."""
        one = {"BLOCK_M": 64, "BLOCK_N": 64, "STAGES": 1, "WARPS": 8, "MIN_BLOCKS": 1}
        manifest = read_manifest("attn_bwd_sm80", os.path.join(SOURCE, "kernel_templates", "attn_bwd"))
        manifest.update(tune={name: more.get(name, [value]) for name, value in one.items()}, default=one, restrictions=[
            constraint for constraint in manifest["restrictions"] if "BLOCK_M %" in constraint["require"]])
        write_manifest(self.env["FA_TUNE_TEMPLATES"], manifest)

    def use_fake_driver(self, script):
        """An L4 with these further lines of script (tests/fake_cuda_script.c)."""
        path = os.path.join(self.folder, "script")
        tap.write(path, script)
        self.env["FA_TUNE_LIBCUDA"] = FAKE_CUDA
        self.env["FAKE_CUDA_SCRIPT"] = path

    def preload_sanitizers(self):
        """Those that the library and the fake driver are linked with: a Python that is not has to load them first."""
        listed = subprocess.run(["ldd", FA_TUNE], stdout=subprocess.PIPE, encoding="utf-8", check=True)
        runtimes = [line.split()[2] for line in listed.stdout.splitlines()
                    if line.split()[0].startswith(("libasan", "libtsan", "libubsan"))]
        if runtimes:
            self.env["LD_PRELOAD"] = ":".join(runtimes)
            self.env["ASAN_OPTIONS"] = "detect_leaks=0"  # Python's own are not ours

    def begin_with(self, content):
        """Makes the store, which is not there yet, of these bytes."""
        tap.write(os.open(self.store, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), content)

    def take_store(self, kept, make):
        """A store as make() leaves it, which is called for the first of the places that share the list `kept`."""
        if not kept:
            make()
            kept.append(tap.read(self.store, "rb"))
        else:
            self.begin_with(kept[0])

    def take_cubins(self, space=EIGHT):
        """Gives the store this space's cubins for an L4, compiled once for all tests: from another
        problem, so that nothing else is known of the one that a test asks for."""
        what = repr(space)
        if what not in cubins:
            with Place(space=space) as other:
                other.run("--gpu", "L4", *SMALL[:2], *SMALL[4:], "--batch", "2", "--quiet")
                cubins[what] = tap.read(other.store, "rb")
        self.begin_with(cubins[what])

    def run(self, *arguments, status=0):
        """Runs fa-tune to its end and checks its exit status."""
        done = subprocess.run([FA_TUNE, *arguments], env=leaks_once(self.env, *arguments), cwd=self.folder,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, encoding="utf-8", check=False, timeout=DEADLINE)
        assert done.returncode == status, "exit status %d, not %d: %r\n%s\n%s" % (
            done.returncode, status, arguments, done.stdout[-2000:], done.stderr[-2000:])
        return done

    def json(self, *arguments, status=0):
        return json.loads(self.run(*arguments, "--json", status=status).stdout)

    def records(self, path, *filters):
        """Writes the store's winners with their trials to a file, one a line, and returns them."""
        self.run("export", "--unsigned", "--out", "records.fab", *filters)
        winners = self.json("show", "records.fab")["winners"]
        tap.write(os.path.join(self.folder, path), "".join((json.dumps(winner) + "\n" for winner in winners)))
        return winners

    def start(self, *arguments, **how):
        return subprocess.Popen([FA_TUNE, *arguments], env=leaks_once(self.env, *arguments), cwd=self.folder, **how)


def tunables(trial):
    """A row's tunables as the marker of its cubin words them: "BLOCK_M=64;BLOCK_N=…"."""
    return ";".join("%s=%d" % item for item in trial["config"]["tunables"].items())
