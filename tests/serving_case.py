# SPDX-License-Identifier: Apache-2.0
"""Sequences of different lengths for tests of the Python package: rows behind one another, or keys in pages."""
from attention_case import DIM, attend, numbers
import producer
from producer import Exchanged


def ints(*shape, values=None):
    return Exchanged(shape, values, dtype=(producer.INT, 32))


def floats(*shape, values=None):
    return Exchanged(shape, values, dtype=(producer.FLOAT, 32))


class Ragged:
    """Sequences of different lengths, their rows behind one another: [total, heads, DIM] as flat lists."""
    HEADS, HEADS_KV = 4, 2

    def __init__(self, queries, keys):
        self.queries, self.keys = queries, keys
        self.starts = [[sum(lengths[:i]) for i in range(len(lengths) + 1)] for lengths in (queries, keys)]
        self.q = numbers(sum(queries) * self.HEADS * DIM)
        self.k, self.v = (numbers(sum(keys) * self.HEADS_KV * DIM) for _ in range(2))

    def by_heads(self, flat, heads, first, count):
        """[heads, count, DIM] of the rows from `first` on."""
        return [flat[((first + i) * heads + h) * DIM + d] for h in range(heads) for i in range(count) for d in range(DIM)]

    def tensors(self):
        """q, k and v as rows, and where they begin."""
        q = Exchanged((sum(self.queries), self.HEADS, DIM), self.q)
        k, v = (Exchanged((sum(self.keys), self.HEADS_KV, DIM), flat) for flat in (self.k, self.v))
        return q, k, v, *(ints(len(starts), values=starts) for starts in self.starts)

    def pages(self, page, most, spare=2):
        """k and v in pages [num_pages, page, heads_kv, DIM], shuffled, and the block table."""
        columns = -(-most // page)
        count = len(self.keys) * columns + spare
        order = list(range(count))[::-1]
        table = [[order.pop() for _ in range(columns)] for _ in self.keys]
        pool = [[0.0] * (count * page * self.HEADS_KV * DIM) for _ in range(2)]
        for b, length in enumerate(self.keys):
            for j in range(length):
                to = (table[b][j // page] * page + j % page) * self.HEADS_KV * DIM
                at = (self.starts[1][b] + j) * self.HEADS_KV * DIM
                for cache, flat in zip(pool, (self.k, self.v)):
                    cache[to:to + self.HEADS_KV * DIM] = flat[at:at + self.HEADS_KV * DIM]
        shape = (count, page, self.HEADS_KV, DIM)
        return (*(Exchanged(shape, cache) for cache in pool),
                ints(len(self.keys), columns, values=[entry for row in table for entry in row]))

    def expected(self, causal=False):
        """(O [total_q, heads, DIM], LSE [heads, total_q]) as flat lists."""
        out, lse = [], [[] for _ in range(self.HEADS)]
        for b, (rows, keys) in enumerate(zip(self.queries, self.keys)):
            o, l = attend(self.by_heads(self.q, self.HEADS, self.starts[0][b], rows),
                          *(self.by_heads(flat, self.HEADS_KV, self.starts[1][b], keys) for flat in (self.k, self.v)),
                          1, self.HEADS, self.HEADS_KV, rows, keys,
                          first_hidden=(lambda i, shift=keys - rows: i + shift + 1) if causal else None)
            out += [o[(h * rows + i) * DIM + d] for i in range(rows) for h in range(self.HEADS) for d in range(DIM)]
            for h in range(self.HEADS):
                lse[h] += l[h * rows:(h + 1) * rows]
        return out, sum(lse, [])
