# SPDX-License-Identifier: Apache-2.0
"""An engine's kernels before it serves: what the store lacks is tuned within a budget, and all that may serve is loaded.

While the engine serves nothing is tuned, proved, read from the store or loaded: policy(on_miss="nearest") gives a problem
that was not met before the nearest loaded kernel that is right for it, and adds it to a file. The next start tunes the
problems of that file first, within RECORDED_S where what it needs is stored; `fa-tune sweep --plan` tunes all of them.
What a start has tuned leaves the file, and what no family computes is marked in it and not tried again by this version.

Processes that share a store or a service agree: each key is tuned by one of them while the others wait for its winner, all
go through the same problems in the same order, and engines begin to serve when every process has ended its start.
"""
import json
import os
import sys
import time
import warnings

from .. import _core, _engine
from .._errors import Error
from .._objects import Answer
from .._policy import is_a_miss, missed, policy
from .._problem import Problem, ceiling, planned

MOST_BYTES = 2 << 30  # of keys and values of a problem that is tuned here: weights lie in the same memory
RECORDED_S = 10       # that tuning what earlier runs met may take of a start whose needed problems are stored
LOADING_S = 10        # that loading what is stored may take where the budget is less
VARIES = ("batch", "seq_q", "seq_k", "mean_q", "mean_k")  # among the problems of one kind of layer
_prepared = set()  # kinds of layers
_spent = 0.0       # seconds, by all of them
_on_met = 0.0      # of these on problems that earlier runs met


def begin_to_serve(engine):
    """What a call may cost from now on: nothing but a launch, once prepare() has loaded kernels."""
    policy(effort="predict", on_miss="nearest", record=record_of(engine))


def record_of(engine):
    """The file of problems that an engine met and had no kernel of their own for, beside the store."""
    store = os.environ.get("FA_TUNE_STORE", "")
    if "://" in store:  # a fleet's
        store = os.environ.get("FA_TUNE_LOCAL_STORE", "")
    cache = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(cache):  # as the library has it
        cache = os.path.expanduser("~/.cache")
    store = store or os.path.join(cache, "fa-tune", "store.db")
    return os.path.join(os.path.dirname(store), "met-by-%s.jsonl" % engine)


def budget():
    """Seconds that an engine's start may tune for."""
    text = os.environ.get("FA_TUNE_ENGINE_SECONDS") or "60"
    try:
        seconds = float(text)
        if 0 <= seconds < 1e9:
            return seconds
    except ValueError:
        pass
    raise ValueError("FA_TUNE_ENGINE_SECONDS is the seconds that an engine's start may tune for, from 0 on, not %r" % text)


def problems_of(decode, prefill, most_batch, most_queries, most_keys, queries=1):
    """The problems of a kind of layer that a start tunes: (those without which it could not be served, the others), the
    most wanted first. `queries`: of a sequence that decodes; `prefill` None: others compute prompts; `decode` None: others decode."""
    kind = decode or prefill
    element = 2 if kind["kv_dtype"] == "same" else 1
    tokens = max(MOST_BYTES // (2 * kind["heads_kv"] * kind["head_dim"] * element), 1)

    def of(fields, batch, seq_q, seq_k):
        seq_k = max(min(seq_k, tokens // batch), seq_q, 16)
        return Problem(**fields, batch=batch, seq_q=seq_q, seq_k=ceiling(seq_k))
    decodes, prefills, batch, length = [], [], most_batch, ceiling(max(min(most_queries, most_keys), 1))
    while batch and decode is not None:
        decodes.append(of(decode, batch, queries, most_keys))
        batch //= 2
    while prefill is not None and (length > 33 or not prefills):  # below, decoding's family is alone
        prefills.append(of(prefill, max(min(most_queries // length, most_batch), 1), length, length))
        length = ceiling(length // 4)
    needed = [*decodes[:1], *prefills[:1]]
    del decodes[:1], prefills[:1]
    if decodes:
        decodes.insert(0, decodes.pop())  # a batch of one, then the larger ones
    turns = [one for pair in zip(decodes, prefills) for one in pair]
    return needed, turns + decodes[len(prefills):] + prefills[len(decodes):]


def _lines(path):
    """Of each line of the file: (it, its problem or None, the version that found no kernel for it or None)."""
    if not os.path.exists(path):
        return
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            try:
                given = json.loads(line)
                yield line, planned(given), given.get("no_kernel_in")
            except (ValueError, AttributeError, Error):
                yield line, None, None


def recorded(path, kinds):
    """The problems of the file that are of one of these kinds, but for those that have no kernel. A line that is no
    problem, as a run leaves it that was killed while it wrote, costs that line alone."""
    try:
        found = list(_lines(path))
    except OSError as error:
        warnings.warn("what an earlier run met is not tuned: %s" % error, RuntimeWarning, stacklevel=2)
        return []
    if any(problem is None for _, problem, _ in found):
        warnings.warn("some of what an earlier run met is not tuned: %s has a line that is no problem" % path, RuntimeWarning,
                      stacklevel=2)
    refused = {problem for _, problem, version in found if version == _core.version()}
    return [problem for _, problem, _ in found if problem is not None and problem not in refused and kind_of(problem) in kinds]


def settle(path, tuned, refused):
    """Takes out of the file what was tuned, and marks what has no kernel. A line that another process adds meanwhile may
    be lost: what it says is met again."""
    try:
        before, after = [], {}
        for line, problem, version in _lines(path):
            before.append(line)
            if version == _core.version():
                refused = {*refused, problem}
            if problem in refused:
                line = json.dumps({"problem": problem.as_dict(), "no_kernel_in": _core.version()}) + "\n"
            if problem is not None and problem not in tuned:
                after[line] = None
        if before != list(after):
            _core.write_file(path, "".join(after).encode("utf-8", "surrogateescape"))
            os.chmod(path, 0o600)
    except (OSError, Error) as error:
        warnings.warn("%s keeps what is settled: %s" % (path, error), RuntimeWarning, stacklevel=2)


def kind_of(problem):
    return json.dumps({name: value for name, value in problem.as_dict().items() if name not in VARIES}, sort_keys=True)


def prepare(engine, decode, prefill, **most):
    """Called for each kind of layer before the engine serves: tunes within FA_TUNE_ENGINE_SECONDS and loads every kernel
    that may serve it. `decode` and `prefill` are the problem's fields of its calls, without batch and lengths; `most` as
    of problems_of(). The first problem of each is tuned whatever the budget says. Raises fa_tune.Error where one of
    them has no kernel: then this engine cannot be served."""
    global _spent, _on_met
    needed, wanted = problems_of(decode, prefill, **most)
    kinds = {kind_of(one) for one in needed}
    if kinds <= _prepared:
        return
    begun, seconds = time.monotonic() - _spent, budget()
    met, is_warm, tuned, refused, left = recorded(record_of(engine), kinds), True, set(), set(), 0
    extra = set(met).difference(needed, wanted)
    wanted = list(dict.fromkeys([*needed, *met, *wanted]))
    for number, problem in enumerate(wanted):
        spent = time.monotonic() - begun
        if problem in extra and is_warm and _on_met >= RECORDED_S:
            left += 1
            continue
        if problem not in needed and spent >= seconds:
            say("%s starts with %d of %d kernels tuned: %.0f of %.0f s are over" % (
                engine, number, len(wanted), spent, seconds))
            break
        try:
            answer = Answer(_engine.tune(problem.as_dict(), None, None, "measure", False, False, False))
            _engine.kernel(problem, None, "measure", False)
        except Error as error:
            if problem in needed:
                raise
            if is_a_miss(error):
                refused.add(problem)
            say("%s starts without a kernel of its own for %r: %s" % (engine, problem, error))
            continue
        finally:
            if problem in extra:
                _on_met += time.monotonic() - begun - spent
        tuned.add(problem)
        if not answer.from_store:
            is_warm = is_warm and problem not in needed
            say("%s starts, kernel %d of %d, %.0f of %.0f s: %s for %d × %d queries of %d keys" % (
                engine, number + 1, len(wanted), time.monotonic() - begun, seconds, answer.family, problem.batch,
                problem.seq_q, problem.seq_k))
    if left:
        say("%s leaves %d problems that earlier runs met to later starts: %.0f s for them are over" % (engine, left, RECORDED_S))
    settle(record_of(engine), tuned, refused)
    load_stored(engine, kinds, max(seconds, LOADING_S))
    _prepared.update(kinds)
    _spent = time.monotonic() - begun


def find(kind, batches, queries, keys):
    """Looks for the kernels of batches that will be captured with these longest lengths, before the capture."""
    for batch in batches:
        problem = Problem(**kind, batch=batch, seq_q=ceiling(queries), seq_k=ceiling(keys))
        missed(problem.as_dict(), _engine.current_device(), {}, False)


def load_stored(engine, kinds, seconds):
    """Loads the stored winners of these kinds, so that any of them may serve as the nearest. That takes milliseconds each,
    and a proof each where the driver is another one: what is left when the seconds are over is not loaded."""
    begun = time.monotonic()
    for winner in _core.winners():
        try:
            problem = Problem(**winner["problem"])
            if kind_of(problem) not in kinds:
                continue
            if time.monotonic() - begun >= seconds:
                return say("%s starts without some stored kernels: loading them takes longer than %.0f s" % (engine, seconds))
            _engine.kernel(problem, None, "cached", False)
        except Error as error:
            if not is_a_miss(error):  # as a winner of another GPU is
                say("%s starts without a stored kernel: %s" % (engine, error))


def say(sentence):
    sys.stderr.write("fa_tune: %s\n" % sentence)
    sys.stderr.flush()
