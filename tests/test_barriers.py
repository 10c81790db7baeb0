# SPDX-License-Identifier: Apache-2.0
"""The order of barriers of attn_fwd_sm90a and attn_fwd_prefill_sm90a, and of causal tiles, played through without a GPU.

One producer (three, and records that hand tiles over, in the serving family; of fp8 one, and three warps
that make the tiles which are multiplied) and some consumers run
as coroutines that a seeded scheduler steps in any order; they wait for and arrive at the barriers of
the kernel, in the kernel's order. Of every slot of shared memory the play knows what lies in it and
who still reads it. It ends well when everybody ends, each consumer has read what it asked for, and no
slot was written while somebody could read it.

What the kernel does is said once more here: a change of the order of its waits, arrivals or fetches
belongs in both.
"""
import random

import tap


class Barrier:
    """An mbarrier: a phase ends with its last arrival. Asked for parities, as the hardware is."""

    def __init__(self, count):
        self.count, self.left, self.phase = count, count, 0

    def arrive(self):
        self.left -= 1
        assert self.left >= 0, "more arrivals than a phase has"
        if self.left == 0:
            self.left, self.phase = self.count, self.phase + 1

    def passed(self, parity):
        return (self.phase + 1) % 2 == parity % 2


class Ring:
    def __init__(self, count):
        self.count, self.place = count, 0

    @property
    def slot(self):
        return self.place % self.count

    @property
    def parity(self):
        return self.place // self.count % 2

    def advance(self):
        self.place = (self.place + 1) % (2 * self.count)


CONVERTERS = 3


class Play:
    def __init__(self, groups, stages, q_stages, turns, persistent, tiles, late_q=False, serving=False, places=2, few=0,
                 early_next=False, narrow=0):
        self.groups, self.stages, self.q_stages = groups, stages, q_stages
        self.turns, self.persistent, self.tiles, self.late_q = turns, persistent, tiles, late_q
        self.serving = serving   # tiles are handed over by records; few: readers that a record does not wait for
        self.early_next = early_next   # the next tile is asked for before the rest of this one is skipped
        self.narrow = narrow       # tiles of fp8 that there is room for; 0: keys and values are not fp8
        self.moves = 0   # whatever happened so far
        slots = {"k": stages, "v": stages, "q": q_stages * groups}
        self.full = {name: [Barrier(CONVERTERS if narrow and name != "q" else 1) for _ in range(n)] for name, n in slots.items()}
        self.empty = {name: [Barrier(groups if name != "q" else 1) for _ in range(n)]
                      for name, n in slots.items()}
        self.memory = {name: [None] * n for name, n in slots.items()}
        self.readers = {name: [0] * n for name, n in slots.items()}
        if serving:
            slots["record"] = places
            self.full["record"] = [Barrier(1) for _ in range(places)]
            self.empty["record"] = [Barrier(groups + (CONVERTERS if narrow else 2) - few) for _ in range(places)]
            self.memory["record"], self.readers["record"] = [None] * places, [0] * places
        if narrow:
            self.full["narrow"] = [Barrier(1) for _ in range(narrow)]
            self.empty["narrow"] = [Barrier(CONVERTERS) for _ in range(narrow)]
            self.memory["narrow"], self.readers["narrow"] = [None] * narrow, [0] * narrow
            self.written = {name: [0] * stages for name in "kv"}   # parts of the tile that is being made
        self.turn = [0] * groups   # arrivals at the named barrier of each consumer

    def fetch(self, name, ring, slot, what):
        while not self.empty[name][slot].passed(ring.parity ^ 1):
            yield
        assert self.readers[name][slot] == 0, f"{what} is written over what is being read"
        self.memory[name][slot] = None   # under way
        yield
        self.memory[name][slot] = what
        self.moves += 1
        self.full[name][slot].arrive()

    def fetch_q(self, ring, tile):
        for group in reversed(range(self.groups)) if self.serving else range(self.groups):
            yield from self.fetch("q", ring, ring.slot * self.groups + group, ("q", tile, group))
        ring.advance()

    def fetch_step(self, name, ring, tile, step):
        yield from self.fetch(name, ring, ring.slot, (name, tile, step))
        ring.advance()

    def produce(self):
        k, v, q, owed = Ring(self.stages), Ring(self.stages), Ring(self.q_stages), None
        for tile, (steps, *_) in enumerate(self.tiles):
            if steps == 0 and owed is not None:
                yield from self.fetch_step("v", v, owed, 0)
                owed = None
            if self.q_stages > 1 or steps == 0:
                yield from self.fetch_q(q, tile)
            if steps == 0:
                continue
            yield from self.fetch_step("k", k, tile, steps - 1)
            if owed is not None:
                yield from self.fetch_step("v", v, owed, 0)
            if self.q_stages == 1:
                yield from self.fetch_q(q, tile)
            for step in range(steps - 1, 0, -1):
                yield from self.fetch_step("k", k, tile, step - 1)
                yield from self.fetch_step("v", v, tile, step)
            owed = tile
        if owed is not None:
            yield from self.fetch_step("v", v, owed, 0)

    def produce_k(self):
        """Of the serving family: keys; hands the tiles over, at the end that there is none."""
        k, record = Ring(self.stages), Ring(len(self.memory["record"]))
        for tile in [*range(len(self.tiles)), None]:
            yield from self.fetch("record", record, record.slot, ("record", tile))
            record.advance()
            if tile is None:
                return
            for step in range(self.tiles[tile][0] - 1, -1, -1):
                yield from self.fetch_step("k", k, tile, step)

    def produce_q(self):
        q, record = Ring(self.q_stages), Ring(len(self.memory["record"]))
        for tile in [*range(len(self.tiles)), None]:
            yield from self.told(record, tile)
            if tile is None:
                return
            yield from self.fetch_q(q, tile)

    def produce_v(self):
        v, record = Ring(self.stages), Ring(len(self.memory["record"]))
        for tile in [*range(len(self.tiles)), None]:
            yield from self.told(record, tile)
            if tile is None:
                return
            for step in range(self.tiles[tile][0] - 1, -1, -1):
                yield from self.fetch_step("v", v, tile, step)

    def produce_narrow(self):
        """Of fp8: all that is fetched; hands the tiles over, too."""
        narrow, q, record = Ring(self.narrow), Ring(self.q_stages), Ring(len(self.memory["record"]))
        for tile in [*range(len(self.tiles)), None]:
            yield from self.fetch("record", record, record.slot, ("record", tile))
            record.advance()
            if tile is None:
                return
            steps = self.tiles[tile][0]
            if steps == 0:
                yield from self.fetch_q(q, tile)
            for step in range(steps - 1, -1, -1):
                for name in "kv":
                    yield from self.fetch_step("narrow", narrow, (name, tile), step)
                if step == steps - 1:
                    yield from self.fetch_q(q, tile)

    def convert(self):
        """One of the warps that make tiles of fp8 ones."""
        narrow, to, record = Ring(self.narrow), Ring(self.stages), Ring(len(self.memory["record"]))
        for tile in [*range(len(self.tiles)), None]:
            yield from self.told(record, tile)
            if tile is None:
                return
            for step in range(self.tiles[tile][0] - 1, -1, -1):
                for name in "kv":
                    yield from self.wait("narrow", narrow, narrow.slot, ("narrow", (name, tile), step))
                    while not self.empty[name][to.slot].passed(to.parity ^ 1):
                        yield
                    assert self.readers[name][to.slot] == 0, f"{(name, tile, step)} is written over what is being read"
                    self.memory[name][to.slot] = None
                    yield
                    self.written[name][to.slot] += 1
                    if self.written[name][to.slot] == CONVERTERS:
                        self.memory[name][to.slot], self.written[name][to.slot] = (name, tile, step), 0
                    self.release("narrow", narrow.slot)
                    self.full[name][to.slot].arrive()
                    narrow.advance()
                to.advance()

    def told(self, ring, tile):
        """What a record says is the next tile."""
        yield from self.wait("record", ring, ring.slot, ("record", tile))
        yield
        self.release("record", ring.slot)
        ring.advance()

    def wait(self, name, ring, slot, what):
        while not self.full[name][slot].passed(ring.parity):
            yield
        assert self.memory[name][slot] == what, f"{self.memory[name][slot]} where {what} belongs"
        self.readers[name][slot] += 1
        self.moves += 1

    def release(self, name, slot):
        self.readers[name][slot] -= 1
        self.empty[name][slot].arrive()
        self.moves += 1

    def turn_begin(self, group):
        if self.turns:
            while self.turn[group] == 0:
                yield
            self.turn[group] -= 1

    def turn_end(self, group):
        if self.turns:
            self.turn[(group + 1) % self.groups] += 1
            self.moves += 1
            assert self.turn[(group + 1) % self.groups] <= 1, "two arrivals in one phase of a turn"

    def consume(self, group):
        k, v, q = Ring(self.stages), Ring(self.stages), Ring(self.q_stages)

        def q_slot():
            return q.slot * self.groups + group

        kept = []   # parts of Q whose release waits for the tile's end, with late_q

        def release_q():
            kept.append(q_slot())
            q.advance()
            if not self.late_q:
                self.release("q", kept.pop())

        def issue(tile, step, first, before):
            """Q K^T of a step, P V of the one before it: (tile, step) or None; `first`: of the steps that these rows see."""
            yield from self.wait("k", k, k.slot, ("k", tile, step))
            yield from self.turn_begin(group)
            if before is not None:
                yield from self.wait("v", v, v.slot, ("v", *before))
            self.turn_end(group)
            yield
            self.release("k", k.slot)
            k.advance()
            if step == first:
                release_q()

        def finish_pv():
            yield
            self.release("v", v.slot)
            v.advance()

        def skip(tile, steps):
            for step in steps:
                yield from self.wait("k", k, k.slot, ("k", tile, step))
                yield from self.turn_begin(group)
                self.turn_end(group)
                self.release("k", k.slot)
                k.advance()
                yield from self.wait("v", v, v.slot, ("v", tile, step))
                self.release("v", v.slot)
                v.advance()

        def clean():
            """Values of a tile's first step are waited for before its second Q K^T, and not let go."""
            if self.serving:
                while not self.full["v"][v.slot].passed(v.parity):
                    yield

        record = Ring(len(self.memory.get("record", [0])))

        def following(tile):
            """Whether there is such a tile."""
            there = tile < len(self.tiles)
            if self.serving:
                yield from self.told(record, tile if there else None)
            return there

        if group == self.groups - 1:
            self.turn_end(group)
        at, more = 0, (yield from following(0))
        while more:
            steps, own, first = self.tiles[at][0], self.tiles[at][1][group], self.tiles[at][2][group]
            yield from self.wait("q", q, q_slot(), ("q", at, group))
            yield from skip(at, range(steps - 1, own - 1, -1))
            if own == 0:
                release_q()
                at += 1
                more = yield from following(at)
                continue
            yield from issue(at, own - 1, first, None)
            yield from clean()
            step = own - 1
            while True:
                while step > first:
                    step -= 1
                    yield from issue(at, step, first, (at, step + 1))
                    yield from finish_pv()
                if first > 0 and not self.early_next:
                    break
                more = yield from following(at + 1)
                if not self.persistent or not more or first > 0:
                    break
                steps, own, then = (part if i == 0 else part[group] for i, part in enumerate(self.tiles[at + 1]))
                if steps == 0 or own < steps:
                    break
                yield from self.wait("q", q, q_slot(), ("q", at + 1, group))
                step = own - 1
                yield from issue(at + 1, step, then, (at, 0))
                yield from finish_pv()
                yield from clean()
                at, first = at + 1, then
            yield from self.wait("v", v, v.slot, ("v", at, step))
            yield from finish_pv()
            yield from skip(at, range(first - 1, -1, -1))
            if first > 0 and not self.early_next:
                more = yield from following(at + 1)
            while kept:
                self.release("q", kept.pop())
            at += 1

    def run(self, rng):
        """False: nobody can move although somebody has not ended."""
        if self.narrow:
            producers = [self.produce_narrow(), *(self.convert() for _ in range(CONVERTERS))]
        else:
            producers = [self.produce_k(), self.produce_v(), self.produce_q()] if self.serving else [self.produce()]
        left = [*producers, *(self.consume(group) for group in range(self.groups))]
        favour, idle = rng.random(), 0
        while left:
            runner = left[0] if rng.random() < favour * 0.5 else rng.choice(left)
            before = self.moves
            try:
                next(runner)
            except StopIteration:
                left.remove(runner)
                before = -1
            idle = 0 if self.moves != before else idle + 1
            if idle > 100 * len(left):
                return False
        return True


def draw_tiles(rng, groups, windows):
    """[(steps, [those before which each consumer's rows see], [the first that they see])], as masks, windows and the ends of
    sequences make them."""
    tiles = []
    for _ in range(rng.randint(1, 5)):
        steps = rng.randint(0, 5)
        kind = rng.random()
        if kind < 0.4:
            own = [steps] * groups
        elif kind < 0.8:   # under a causal mask earlier rows see no more than later ones
            own = sorted(rng.randint(0, steps) for _ in range(groups - 1)) + [steps]
        else:              # rows beyond the sequence
            valid = rng.randint(1, groups)
            own = [steps] * valid + [0] * (groups - valid)
        tiles.append((steps, own, [rng.randrange(end) if windows and end > 0 else 0 for end in own]))
    return tiles


def plays(rng, count):
    for i in range(count):
        groups, serving = rng.randint(1, 4), i % 2 == 1
        persistent = serving or rng.random() < 0.8
        tiles = draw_tiles(rng, groups, serving and rng.random() < 0.5)
        yield dict(groups=groups, stages=rng.randint(2, 4), q_stages=rng.randint(1, 2), serving=serving,
                   narrow=rng.choice((2, 4)) if i % 4 == 3 else 0,
                   turns=groups > 1 and rng.random() < 0.6, persistent=persistent,
                   tiles=tiles if persistent else tiles[:1])


def every_order_of_steps_ends_well():
    rng = random.Random(20261122)
    for play in plays(rng, 3000):
        assert Play(**play).run(rng), f"a knot in {play}"


def queries_that_are_kept_until_the_output_is_complete_make_a_knot():
    """That the play would notice: with one part of Q the next tile's is waited for beside the last P V."""
    rng = random.Random(1)
    play = dict(groups=2, stages=2, q_stages=1, turns=True, persistent=True,
                tiles=[(3, [3, 3], [0, 0]), (3, [3, 3], [0, 0])])
    assert Play(**play).run(rng)
    assert not Play(**play, late_q=True).run(rng)


def a_record_that_does_not_wait_for_all_its_readers_is_noticed():
    rng = random.Random(2)
    play = dict(groups=2, stages=4, q_stages=2, turns=False, persistent=True, serving=True,
                tiles=[(1, [1, 1], [0, 0])] * 5)
    noticed = 0
    for _ in range(200):
        assert Play(**play).run(rng)
        try:
            noticed += not Play(**play, few=1).run(rng)
        except AssertionError:
            noticed += 1
    assert noticed > 0


def a_record_that_does_not_wait_for_all_its_converters_is_noticed():
    rng = random.Random(5)
    play = dict(groups=1, stages=4, q_stages=2, turns=False, persistent=True, serving=True, narrow=4,
                tiles=[(0, [0], [0])] * 8)
    assert all(Play(**play).run(rng) for _ in range(20))
    noticed = 0
    for _ in range(200):
        try:
            noticed += not Play(**play, few=1).run(rng)
        except AssertionError:
            noticed += 1
    assert noticed > 0


def a_tile_that_is_asked_for_before_the_one_before_is_skipped_makes_a_knot():
    play = dict(groups=3, stages=2, q_stages=1, turns=False, persistent=True, serving=True,
                tiles=[(4, [4, 4, 4], [1, 3, 3]), (4, [2, 4, 4], [0, 2, 3])])
    assert Play(**play).run(random.Random(3))
    assert not Play(**play, early_next=True).run(random.Random(3))


# ---- which tiles a persistent block takes under a causal mask ------------------------------------
def deal(block, blocks, tiles, heads, fit=None):
    """(tile, head), one after another, as Schedule::next_causal has them. fit: heads whose keys fit in L2."""
    last = max(blocks // tiles, 1) * 2
    pairs = (heads - last) // 2 * tiles if heads > last else 0
    singles = last + (heads - last) % 2 if heads > last else heads
    section = singles if blocks < tiles * heads or fit is None else min(max(fit, 1), singles)
    turn, full = 0, pairs // blocks
    while True:
        back = turn > full and (turn - full) % 2 == 1
        place = turn * blocks + (blocks - 1 - block if back else block)
        turn += 1
        if place < pairs:
            head, tile = place // tiles * 2, place % tiles
            yield tiles - 1 - tile, head
            yield tile, head + 1
            continue
        rest = place - pairs
        if rest >= singles * tiles:
            return
        first, within = rest // (section * tiles) * section, rest % (section * tiles)
        here = min(singles - first, section)
        yield tiles - 1 - within // here, heads - singles + first + within % here


def every_causal_tile_is_dealt_out_once():
    for tiles in (*range(1, 12), 43, 86):
        for heads in (*range(1, 12), 16, 31, 64):
            for blocks in {1, 2, 7, 132, 264}:
                blocks = min(blocks, tiles * heads)
                dealt = [one for block in range(blocks) for one in deal(block, blocks, tiles, heads)]
                tap.equal(len(dealt), tiles * heads)
                tap.equal(len(set(dealt)), tiles * heads)


def single_blocks_start_longest_first_within_what_fits_in_l2():
    for tiles, heads, fit in ((1, 1, 4), (4, 7, 3), (5, 8, 0), (3, 10, 4), (86, 16, 4), (2, 6, 100)):
        dealt = [one for block in range(tiles * heads) for one in deal(block, tiles * heads, tiles, heads, fit)]
        tap.equal(len(set(dealt)), tiles * heads)
        section = min(max(fit, 1), heads)
        expected = [(tile, head) for first in range(0, heads, section) for tile in reversed(range(tiles))
                    for head in range(first, min(first + section, heads))]
        tap.equal(dealt, expected)


def the_shares_of_blocks_are_even():
    """Of 132 blocks the fullest has at most 3% more than the mean, where there are many tiles."""
    for tiles, heads in ((16, 128), (22, 64), (32, 64), (43, 32), (64, 32), (86, 16), (128, 8)):
        shares = [sum(tile + 1 for tile, _ in deal(block, 132, tiles, heads)) for block in range(132)]
        assert max(shares) <= 1.03 * sum(shares) / 132, (tiles, heads, max(shares), sum(shares) / 132)


if __name__ == "__main__":
    tap.main([every_order_of_steps_ends_well,
              queries_that_are_kept_until_the_output_is_complete_make_a_knot,
              a_record_that_does_not_wait_for_all_its_readers_is_noticed,
              a_record_that_does_not_wait_for_all_its_converters_is_noticed,
              a_tile_that_is_asked_for_before_the_one_before_is_skipped_makes_a_knot,
              every_causal_tile_is_dealt_out_once,
              single_blocks_start_longest_first_within_what_fits_in_l2,
              the_shares_of_blocks_are_even])
