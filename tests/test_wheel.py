#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The wheel, as ./dev wheel makes it: installed in a clean environment without the network, it needs
nothing of this machine but the C library, and finds its own programs and a Python package's NVRTC."""
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile

import tap

SOURCE = os.environ["FA_TEST_SOURCE"]
TOOLS = os.path.join(SOURCE, ".python-tools")
GLIBC = re.compile(r"(linux-vdso|libc|libm|libdl|libpthread|librt|ld-linux[-\w]*)\.so")
folder = tempfile.TemporaryDirectory()
SITE = os.path.join(folder.name, "site-packages")
# Meson puts the compiler cache before a compiler that it finds by itself, not before one that CC names.
# What pip and Meson are made of is compiled once, not in each of their processes: ./dev installs it as source.
BUILDING = {**os.environ, "CC": " ".join(filter(None, [shutil.which("ccache"), os.environ["CC"]])), "CCACHE_NOHASHDIR": "1", "CCACHE_DEPEND": "1",
            "PYTHONDONTWRITEBYTECODE": ""}
# Nothing of what a user of this machine has set.
CLEAN = {"PATH": "/usr/bin:/bin", "HOME": folder.name, "LC_ALL": "C.UTF-8", "PYTHONPATH": SITE,
         "FA_TUNE_STORE": os.path.join(folder.name, "store.db"),
         "FA_TUNE_LIBCUDA": os.path.join(folder.name, "no-libcuda.so.1")}


def run(*command, **more):
    done = subprocess.run(command, env=dict(CLEAN, **more), cwd=folder.name, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, encoding="utf-8", check=False)
    assert done.returncode == 0, "%r: %s\n%s" % (command, done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout


def pip_install(site, what):
    subprocess.run([sys.executable, "-m", "pip", "--python", os.path.join(TOOLS, "bin", "python"), "install", "--quiet",
                    "--no-index", "--no-deps", "--no-compile", "--no-build-isolation", "--disable-pip-version-check",
                    "--target", site, what], check=True, env=dict(BUILDING, PATH=os.path.join(TOOLS, "bin") + ":" + os.environ["PATH"]))


def in_the_wheel(*parts):
    return os.path.join(SITE, "fa_tune", *parts)


def one_wheel_is_made_for_every_python():
    if not os.path.exists(os.path.join(TOOLS, "wheel-tools.stamp")):
        raise tap.Skip("what makes a wheel is not here: ./dev test fetches it")
    done = subprocess.run([os.path.join(SOURCE, "dev"), "wheel"], env=BUILDING, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    wheels = glob.glob(os.path.join(SOURCE, "build-wheel", "dist", "*.whl"))
    tap.equal(done.stdout.splitlines()[-1:], [os.path.relpath(wheels[0], SOURCE)])
    assert re.search(r"-cp310-abi3-manylinux_2_\d+_%s\.whl$" % os.uname().machine, wheels[0]), wheels
    with zipfile.ZipFile(wheels[0]) as archive:
        files = archive.namelist()
        metadata = archive.read(next(name for name in files if name.endswith("/METADATA"))).decode()
        commands = archive.read(next(n for n in files if n.endswith("/entry_points.txt"))).decode()
    for name in ("_core.abi3.so", "__init__.py", "integrations/vllm.py", "_native/libfa_tune.so", "_native/fa-tune",
                 "_native/fa-tune-worker", "_native/fa-tune-serve"):
        assert "fa_tune/" + name in files, "%s is not in the wheel" % name
    for line in ("Requires-Python: >=3.10", "Provides-Extra: nvrtc12"):
        tap.has(metadata, line)
    tap.lacks(metadata, "Requires-Dist: torch")
    for line in ("fa-tune = fa_tune._package:main", "[vllm.general_plugins]\nfa_tune = fa_tune.integrations:register_vllm",
                 "[sglang.srt.plugins]\nfa_tune = fa_tune.integrations:register_sglang"):
        tap.has(commands, line)
    pip_install(SITE, wheels[0])


def sizes_are_those_that_the_documentation_states():
    installed()
    wheel, = glob.glob(os.path.join(SOURCE, "build-wheel", "dist", "*.whl"))
    for page, stated in (("README.md", r"a wheel of ([\d.]+) MB"), ("docs/python.md", r"\.whl, ([\d.]+) MB")):
        found = re.search(stated, tap.read(os.path.join(SOURCE, page)))
        assert found, "%s does not say the size of the wheel" % page
        ratio = os.path.getsize(wheel) / 1e6 / float(found.group(1))
        assert 1 / 1.25 < ratio < 1.25, "it has %.1f MB, and %s says %s" % (os.path.getsize(wheel) / 1e6, page, found.group(1))


def installed():
    if not os.path.exists(in_the_wheel()):
        raise tap.Skip("there is no wheel")


def nothing_is_needed_of_this_machine_but_the_c_library():
    installed()
    programs = [path for path in glob.glob(in_the_wheel("_native", "*")) + [in_the_wheel("_core.abi3.so")]
                if open(path, "rb").read(4) == b"\x7fELF"]
    assert len(programs) == 5, programs
    for program in programs:
        for line in run("ldd", program).splitlines():
            name, _, at = line.strip().partition(" => ")
            assert SITE in at or GLIBC.search(name), "%s needs %s" % (program, line)
        needed = subprocess.run(["readelf", "-d", program], stdout=subprocess.PIPE, check=True).stdout
        assert not re.search(rb"NEEDED.*(cuda|torch|python)", needed), program


def the_packages_programs_find_one_another():
    installed()
    code = "import fa_tune._package as c; c.main()"
    wheel, = glob.glob(os.path.join(SOURCE, "build-wheel", "dist", "*.whl"))
    tap.has(run(sys.executable, "-c", code, "version"), os.path.basename(wheel).split("-")[1])
    checks = {check["name"]: check for check in json.loads(
        run(sys.executable, "-c", "import sys; sys.argv[1:] = ['doctor', '--json']; " + code))["checks"]}
    tap.equal(checks["worker"]["text"], in_the_wheel("_native", "fa-tune-worker"))
    tap.has(run(sys.executable, "-c", code, "serve", "--openapi"), '"openapi"')


def nvrtc_is_found_among_the_packages_beside_it_and_serves_a_tune():
    installed()
    real = os.environ.get("FA_TEST_NVRTC") or find_nvrtc()
    if not real:
        raise tap.Skip("no NVRTC here")
    wheel = os.path.join(SITE, "nvidia", "cu13", "lib")
    os.makedirs(wheel)
    for path in glob.glob(os.path.join(real, "libnvrtc*.so.13*")):
        if not os.path.islink(path) or os.path.basename(path) == "libnvrtc.so.13":
            shutil.copyfile(path, os.path.join(wheel, os.path.basename(path)))
    told = run(sys.executable, "-c", "import fa_tune._package, fa_tune._core, sys\n"
               "answer = fa_tune._core.tune({'head_dim': 16, 'batch': 1, 'heads_q': 1, 'seq_q': 128},\n"
               "                            gpu='L4', effort='predict', evaluations=1)\n"
               "print(answer['origin'], [m for m in ('torch', 'numpy') if m in sys.modules], flush=True)\n"
               "fa_tune._package.main()", "doctor", "--json")
    tap.equal(told.splitlines()[0], "predicted []")
    checks = json.loads(told[told.index("{"):])["checks"]
    nvrtc = next(check for check in checks if check["name"] == "nvrtc")
    tap.has(nvrtc["text"], os.path.join(wheel, "libnvrtc.so.13"))


def the_source_distribution_has_every_file_of_the_commit_and_pip_installs_from_it():
    if not os.environ.get("FA_TEST_SLOW"):
        raise tap.Skip("only with --slow: it compiles once more what the wheel was made of")
    if not os.path.exists(os.path.join(TOOLS, "wheel-tools.stamp")):
        raise tap.Skip("what makes a wheel is not here: ./dev test fetches it")
    done = subprocess.run([os.path.join(SOURCE, "dev"), "sdist"], env=BUILDING, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          encoding="utf-8", check=False)
    if "not a git" in done.stderr.lower() or "revision control" in done.stderr:
        raise tap.Skip("the files are of no commit here")
    assert done.returncode == 0, done.stderr[-4000:]
    archive, = glob.glob(os.path.join(SOURCE, "build-wheel", "sdist", "*.tar.gz"))
    with tarfile.open(archive) as files:
        names = {name.partition("/")[2] for name in files.getnames()}
    committed = subprocess.run(["git", "-C", SOURCE, "ls-tree", "-rz", "--name-only", "HEAD"], stdout=subprocess.PIPE, check=True)
    tap.equal({"PKG-INFO", *os.fsdecode(committed.stdout).split("\0")} - names, {""})
    site = os.path.join(folder.name, "from-source")
    pip_install(site, archive)
    version = re.search(r"fa_tune-(.*)\.tar\.gz$", archive)[1]
    tap.has(run(sys.executable, "-c", "import fa_tune._package as c; c.main()", "version", PYTHONPATH=site), version)
    told = run(sys.executable, "-c", "import fa_tune._core as core; print(core.__file__, core.problem({'seq_q': 128})['seq_k'])",
               PYTHONPATH=site)
    tap.equal((told.startswith(site), told.split()[-1]), (True, "128"))


def find_nvrtc():
    """The directory of the NVRTC that this build was given."""
    return tap.read(os.path.join(os.environ["FA_TEST_BUILD"], "dev.stamp")).splitlines()[1]


tap.main()
