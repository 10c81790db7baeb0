# SPDX-License-Identifier: Apache-2.0
"""Cases of attention for tests of the Python package: a place with one config of each family and the fake driver,
of which fa_tune is imported; numbers, tensors that hold them, and what is right in double precision."""
import atexit
import contextlib
import json
import math
import operator
import os
import random
import sys

import tap
from place import ONE, Place

SPLIT = {"BLOCK_M": [16], "BLOCK_N": [32], "STAGES": [2], "GROUPS": [4], "MIN_BLOCKS": [1], "EVICT_FIRST": [0],
         "SPREAD": [1]}
place = Place(space=ONE, script="device sm=89\ndevice sm=89 board=1\ninit_once\nlog log\n")
atexit.register(place.__exit__)
for variable in ("FA_TUNE_STORE", "FA_TUNE_TEMPLATES", "FA_TUNE_LIBCUDA", "FAKE_CUDA_SCRIPT"):
    os.environ[variable] = place.env[variable]
# The family for serving has one config too, and leaves dense problems to the other.
split = json.loads(tap.read(os.path.join(os.environ["FA_TEST_TEMPLATES"], "attn_fwd_splitkv_sm80.json")))
split.update(tune=SPLIT, default={name: values[0] for name, values in SPLIT.items()})
split["supports"].append({"require": "SERVING == 1", "why": "dense problems are the other family's here"})
tap.write(os.path.join(place.env["FA_TUNE_TEMPLATES"], "attn_fwd_splitkv_sm80.json"), json.dumps(split))
os.chdir(place.folder)  # where the log goes
PACKAGE = os.path.join(os.environ["FA_TEST_BUILD"], "python")
sys.path.insert(0, PACKAGE)

import producer  # noqa: E402
from producer import Exchanged  # noqa: E402
import fa_tune  # noqa: E402

producer.start()
DIM = 64
random.seed(7)


def dropout(p, seed, head, q, k):
    """What dropout makes of a weight (attn_dropout.cuh); head: of all batches."""
    x, a, b, least = [q // 16 * 4 + q % 8 // 2, k // 16 * 4 + k % 8 // 2, head, seed[1] % 2**32], seed[0] % 2**32, seed[0] // 2**32, int(p * 256 + 0.5)
    for i in range(7):
        y, z = 0xd2511f53 * x[0], 0xcd9e8d57 * x[2]
        x = [z >> 32 ^ x[1] ^ (a + i * 0x9e3779b9) % 2**32, z % 2**32, y >> 32 ^ x[3] ^ (b + i * 0xbb67ae85) % 2**32, y % 2**32]
    byte = x[q % 16 // 8 * 2 + (q + k // 16) % 2] >> (k % 16 // 8 * 2 + (k + q // 16) % 2) * 8 & 255
    return 256 / (256 - least) if byte >= least else 0.0


def attend(q, k, v, batch, heads, heads_kv, rows, keys, first_hidden=None, sees=None, scale=1 / math.sqrt(DIM)):
    """(O, LSE) in double precision, as flat lists; first_hidden(row): the first key it does not see; sees(row, key)."""
    out, lse = [], []
    rows_of = lambda flat: [flat[at:at + DIM] for at in range(0, len(flat), DIM)]
    q, k, v = rows_of(q), rows_of(k), rows_of(v)
    for b in range(batch):
        for h in range(heads):
            kv = (b * heads_kv + h * heads_kv // heads) * keys
            for i in range(rows):
                query = q[(b * heads + h) * rows + i]
                seen = [j for j in range(keys if first_hidden is None else first_hidden(i))
                        if sees is None or sees(i, j)]
                if not seen:
                    lse.append(-math.inf)
                    out += [0.0] * DIM
                    continue
                score = [scale * sum(map(operator.mul, query, k[kv + j])) for j in seen]
                top = max(score)
                weight = [math.exp(s - top) for s in score]
                total = sum(weight)
                lse.append(top + math.log(total))
                out += [sum(map(operator.mul, weight, column)) / total for column in zip(*(v[kv + j] for j in seen))]
    return out, lse


def numbers(count):
    return [round(random.gauss(0, 1), 2) for _ in range(count)]


class Inputs:
    """Numbers for one problem, and tensors of a kind that hold them."""

    def __init__(self, batch=1, heads=2, heads_kv=1, rows=6, keys=9, kind=Exchanged, device=0):
        self.sizes = (batch, heads, heads_kv, rows, keys)
        self.numbers = [numbers(batch * heads * rows * DIM)] + [
            numbers(batch * heads_kv * keys * DIM) for _ in range(2)]
        self.shape = (batch, heads, rows, DIM)
        shapes = (self.shape,) + ((batch, heads_kv, keys, DIM),) * 2
        self.tensors = [kind(shape, values, device=(producer.DEVICE, device))
                        for shape, values in zip(shapes, self.numbers)]

    def expected(self, **how):
        return attend(*self.numbers, *self.sizes, **how)


def close(actual, expected, most=4e-3, how=""):
    worst = max(abs(a - b) for a, b in zip(actual, expected))
    assert len(actual) == len(expected) and worst < most, "off by %g %s" % (worst, how)


def logged(word):
    """Lines of the fake driver's log."""
    return [line for line in tap.read(os.path.join(place.folder, "log")).splitlines() if word in line]


def refused(kind, part, *args, by=None, **kwargs):
    return tap.refused(kind, part, lambda: (by or fa_tune.attention)(*args, **kwargs))


@contextlib.contextmanager
def captured(stream=None):
    """A graph of the stream is captured."""
    producer.CUDA.fake_cuda_capture(stream, 1)
    try:
        yield
    finally:
        producer.CUDA.fake_cuda_capture(stream, 0)


@contextlib.contextmanager
def answered(on_miss):
    """Nothing is tuned: what has no kernel is this function's to answer."""
    fa_tune._core.set_policy("cached", on_miss)
    try:
        yield
    finally:
        fa_tune._core.set_policy("measure")
