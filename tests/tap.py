# SPDX-License-Identifier: Apache-2.0
"""The test harness of the Python tests: TAP on stdout.

    def a_sentence_that_says_what_is_proved(): ...
    tap.main()

A test is a function of the file that runs, without parameters, whose name has three words or more; helpers have fewer.
A failed assert, or any other exception, fails its test and the next one runs. What a test returns stands behind its verdict, with its seconds.
"""
import contextlib
import inspect
import signal
import sys
import threading
import time
import traceback


class Skip(Exception):
    """Raised with the reason."""


def cases():
    """The tests of the file that runs, in its order."""
    return [one for name, one in vars(sys.modules["__main__"]).items() if inspect.isfunction(one) and one.__module__ == "__main__"
            and name.count("_") >= 2 and not inspect.signature(one).parameters]


def main(tests=None):
    """Runs these, or the file's own."""
    tests = cases() if tests is None else tests
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests in the background ignores it
    failures = 0
    for number, test in enumerate(tests, 1):
        verdict, directive, begin = "ok", "", time.monotonic()
        try:
            told = test()
            directive = " # %s (%.1f s)" % (told, time.monotonic() - begin) if told else ""
        except Skip as reason:
            directive = " # SKIP %s" % reason
        except Exception:  # whatever a test meets is that test's failure
            verdict = "not ok"
            failures += 1
            for line in traceback.format_exc().splitlines()[-40:]:
                print("# " + line)
        print("%s %d - %s%s" % (verdict, number, test.__name__, directive), flush=True)
    print("1..%d" % len(tests))
    sys.exit(1 if failures else 0)


def equal(actual, expected):
    assert actual == expected, "%r is not %r" % (actual, expected)


def has(text, part):
    assert part in text, "%r lacks %r" % (text, part)


def refused(kind, part, call):
    """The exception of this kind that the call raises, with these words in it."""
    try:
        call()
    except kind as error:
        has(str(error), part)
        return error
    raise AssertionError("was not refused: " + part)


def at_once(count, call):
    """Calls it with 0, 1, ... on as many threads; what it returned for each."""
    results = [None] * count

    def one(i):
        results[i] = call(i)
    threads = [threading.Thread(target=one, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def lacks(text, part):
    assert part not in text, "%r has %r" % (text, part)


def read(path, mode="r"):
    with open(path, mode, encoding=None if "b" in mode else "utf-8") as file:
        return file.read()


def write(path, what, mode="w"):
    """Text, or bytes."""
    with open(path, mode + ("" if isinstance(what, str) else "b"), encoding="utf-8" if isinstance(what, str) else None) as file:
        file.write(what)


@contextlib.contextmanager
def modules(given):
    """These stand for the modules of their names; `...`: it is imported anew. What else is imported meanwhile stays."""
    had = {name: sys.modules.pop(name, None) for name in given}
    sys.modules.update((name, module) for name, module in given.items() if module is not ...)
    try:
        yield
    finally:
        for name, module in had.items():
            sys.modules.pop(name, None)
            if module is not None:
                sys.modules[name] = module
