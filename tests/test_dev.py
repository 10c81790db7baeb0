#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""./dev: what it says of a mistyped word, and ./dev fmt, in a git checkout of its own with one file; and what .ci/run has run."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import tap
from place import BUILD, SOURCE

OLD = "int  kept( void );  /* as somebody aligned it */\n\nint f(void)\n{\n    return 0;\n}\n"


class Checkout:
    def __enter__(self):
        for program in ("git", "clang-format", "clang-format-diff"):
            if shutil.which(program) is None:
                raise tap.Skip("there is no %s here" % program)
        self.temporary = tempfile.TemporaryDirectory()
        for name in ("dev", ".clang-format"):
            shutil.copy(os.path.join(SOURCE, name), self.temporary.name)
        self.write("old.c", OLD)
        self.git("init", "--quiet")
        self.git("add", ".")
        self.git("-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "--quiet", "-m", "a")
        return self

    def __exit__(self, *_):
        self.temporary.cleanup()

    def git(self, *arguments):
        subprocess.run(["git", *arguments], cwd=self.temporary.name, check=True)

    def write(self, name, text):
        tap.write(os.path.join(self.temporary.name, name), text)

    def read(self, name):
        return tap.read(os.path.join(self.temporary.name, name))

    def dev(self, *arguments, path=None):
        env = dict(os.environ, PATH=(path + ":" if path else "") + os.environ["PATH"])
        return subprocess.run(["./dev", *arguments], cwd=self.temporary.name, env=env, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, encoding="utf-8", check=False)


def fmt_formats_changed_lines_and_new_files_and_nothing_else():
    with Checkout() as here:
        tap.equal((here.dev("fmt").returncode, here.read("old.c")), (0, OLD))
        here.write("old.c", OLD.replace("return 0;", "return  1 ;"))
        here.write("new.c", "int  g( void );\n")
        done = here.dev("fmt")
        tap.equal(done.returncode, 0)
        tap.equal(here.read("old.c"), OLD.replace("return 0;", "return 1;"))
        tap.equal(here.read("new.c"), "int g(void);\n")


def ci_sums_two_runs_and_fails_for_what_neither_had():
    with tempfile.TemporaryDirectory() as folder:
        def summed(plain, sanitized):
            for name, said in (("plain", plain), ("sanitized", sanitized)):
                tap.write(os.path.join(folder, name), "".join(json.dumps({
                    "name": "fa-tune:quick+plain / " + program, "stdout": lines + "\n1..%d\n" % len(lines.splitlines()),
                    "returncode": 0, "result": "OK"}) + "\n" for program, lines in said.items()))
            tap.write(os.path.join(folder, "all"), json.dumps([{"name": "test_a"}, {"name": "test_b"}]))
            done = subprocess.run([sys.executable, os.path.join(SOURCE, "tests", "tap_sum.py"), "--all", *(
                os.path.join(folder, name) for name in ("all", "plain", "sanitized"))], stdout=subprocess.PIPE, encoding="utf-8", check=False)
            return done.returncode, done.stdout
        both = "ok 1 - x\nok 2 - y # SKIP the sanitizer has an allocator of its own"
        tap.equal(summed({"test_a": "ok 1 - x\nok 2 - y"}, {"test_a": both, "test_b": "ok 1 - z # SKIP no GPU"}),
                  (0, "skip  test_b: z  (no GPU)\n3 passed, 0 failed, 1 skipped\n"))
        status, told = summed({"test_b": "ok 1 - z"}, {"test_a": both})
        tap.equal((status, told.splitlines()[-1]), (1, "2 passed, 1 failed, 0 skipped"))
        tap.has(told, "FAIL  test_a: y\n      run without a sanitizer nowhere")
        tap.equal(summed({"test_b": "ok 1 - z"}, {"test_b": "ok 1 - z"}), (1, "FAIL  test_a\n      it was in none of these runs\n2 passed, 1 failed, 0 skipped\n"))


def every_test_is_of_a_run_of_ci():
    tests = json.loads(tap.read(os.path.join(BUILD, "meson-info", "intro-tests.json")))
    assert len(tests) > 100, len(tests)
    tap.equal([test["name"] for test in tests if not {"fa-tune:plain", "fa-tune:sanitized"} & set(test["suite"])], [])
    text = tap.read(os.path.join(SOURCE, ".ci", "run"))
    for command in ("./dev build --suite plain", "./dev build --asan --suite sanitized", "./dev test --suite plain", "./dev test --asan --suite sanitized", "tap_sum.py --all build/meson-info/intro-tests.json"):
        tap.has(text, command)


def the_target_of_a_suite_builds_each_program_of_it_and_no_test_of_the_other():
    tests = [test for test in json.loads(tap.read(os.path.join(BUILD, "meson-info", "intro-tests.json"))) if os.path.dirname(test["cmd"][0]).startswith(os.path.join(BUILD, "tests"))]
    assert len(tests) > 50, len(tests)
    for suite in ("plain", "sanitized"):
        asked = subprocess.run(["ninja", "-C", BUILD, "-t", "query", suite], stdout=subprocess.PIPE, encoding="utf-8", check=True).stdout
        built = {os.path.join(BUILD, word) for word in asked.split()}
        for test in tests:
            tap.equal((test["name"], test["cmd"][0] in built), (test["name"], "fa-tune:" + suite in test["suite"]))

def a_verb_is_built_without_the_tests():
    asked = subprocess.run(["ninja", "-C", BUILD, "-t", "query", "programs"], stdout=subprocess.PIPE, encoding="utf-8", check=True).stdout
    tap.equal(sorted(word for word in asked.split() if word.startswith(("fa-", "tests/"))), ["fa-tune", "fa-tune-serve", "fa-tune-worker"])
    tap.has(tap.read(os.path.join(SOURCE, "dev")), "targets=(programs)")


def dev_calls_no_function_that_is_gone():
    text = tap.read(os.path.join(SOURCE, "dev"))
    called = set(re.findall(r"^\s*(?:fetch|find|need|install|make|build|choose|run|have)_\w+", text, re.M))
    tap.equal({name.strip() for name in called} - set(re.findall(r"^(\w+)\(\) \{", text, re.M)), set())


tap.main()
