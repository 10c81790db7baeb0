# SPDX-License-Identifier: Apache-2.0
"""The order of barriers of attn_bwd_sm90a, played through without a GPU, as test_barriers.py does for forward.

One block: two producers, two draining warps and two consumers of four warps, of each warp lane 0 and one other lane.
Each lane is a coroutine that a seeded scheduler steps in any order, and so is each copy: it begins some time after its
command, and ends some time later. Of every room of shared memory the play knows what lies in each lane's part of it,
whether the async proxy can see that, and who reads it. It ends well when everybody ends, whatever was read was what
belongs there, nothing was written while somebody read it, and dQ's halves were each added once.

What the kernel does is said once more here: a change of its order belongs in both. CHANGES are orders that are wrong.
"""
import random

import racecheck_bwd
import tap
from test_barriers import Barrier, Ring

WARPS, LANES, GROUPS = range(4), range(2), range(2)
CHANGES = {
    "Q is released before dK is complete",
    "dO is released before dV is complete",
    "LSE is read when Q is released",
    "one tile of dS",
    "a tile of dS is released before dQ is complete",
    "a tile of dS is complete when one consumer has written it",
    "lanes do not meet before dS is complete",
    "dS is not fenced",
    "dQ is not fenced",
    "a half of dQ is written without waiting for its room",
    "a half of dQ is released while it is read",
    "a half of dQ is passed on before its product is complete",
    "dK is written into a half of dQ that is still read",
    "dV is written into V before the last dQ",
    "dV is not fenced",
    "lanes do not meet before dV is stored",
    "a block ends while dK is read",
    "the first step does not wait for V",
    "producers do not wait for a slot",
    "consumers do not wait for dO",
}


class Transactions(Barrier):
    """An mbarrier that counts copies as well as arrivals."""

    def __init__(self, count):
        super().__init__(count)
        self.copies = 0

    def arrive(self, copies=0):
        self.copies += copies
        self.left -= 1
        assert self.left >= 0, "more arrivals than a phase has"
        self.end_phase()

    def copied(self):
        self.copies -= 1
        self.end_phase()

    def end_phase(self):
        if self.left == 0 and self.copies == 0:
            self.left, self.phase = self.count, self.phase + 1


class Named:
    """A named barrier among `count` threads, each of which takes part once in each phase."""

    def __init__(self, count):
        self.count, self.here, self.phase = count, set(), 0

    def arrive(self, who):
        assert who not in self.here, "a thread comes to a named barrier twice in one phase"
        self.here.add(who)
        if len(self.here) == self.count:
            self.here, self.phase = set(), self.phase + 1

    def sync(self, who):
        phase = self.phase
        self.arrive(who)
        while self.phase == phase:
            yield


class Room:
    """Part of shared memory: what each of its parts holds, how often it is read, and those that the async proxy does not see."""

    def __init__(self, parts):
        self.holds, self.readers, self.unfenced = dict.fromkeys(parts), dict.fromkeys(parts, 0), set()

    def write(self, what, parts, by_copy=False):
        for part in parts:
            assert self.readers[part] == 0, "%r is written over what is being read" % (what,)
            self.holds[part] = what
            self.unfenced.discard(part)
            if not by_copy:
                self.unfenced.add(part)

    def begin(self, what, parts, by_copy=True):
        """Somebody reads it from now on: the async proxy (copies, wgmma), or with by_copy false a lane itself."""
        for part in parts:
            assert self.holds[part] == what, "%r where %r belongs" % (self.holds[part], what)
            assert not (by_copy and part in self.unfenced), "the async proxy does not see %r yet" % (what,)
            self.readers[part] += 1

    def end(self, parts):
        for part in parts:
            self.readers[part] -= 1


class Block:
    def __init__(self, steps, change=None):
        assert change is None or change in CHANGES, change
        self.steps, self.change = steps, change
        warps, threads = len(GROUPS) * len(WARPS), len(WARPS) * len(LANES)
        self.ds_tiles = 1 if change == "one tile of dS" else 2
        one_writes = change == "a tile of dS is complete when one consumer has written it"
        self.full = {"k": [Transactions(1)], "v": [Transactions(1)], "q": [Transactions(1) for _ in range(2)],
                     "do": [Transactions(1) for _ in range(2)],
                     "ds": [Barrier(warps // 2 if one_writes else warps) for _ in range(self.ds_tiles)]}
        self.empty = {"q": [Barrier(warps) for _ in range(2)], "do": [Barrier(warps) for _ in range(2)],
                      "ds": [Barrier(warps) for _ in range(self.ds_tiles)]}
        everybody = [(group, warp, lane) for group in GROUPS for warp in WARPS for lane in LANES]
        self.rooms = {"k": [Room([0])], "q": [Room([0]), Room([0])], "do": [Room([0]), Room([0])],
                      "lse": [Room([0]), Room([0])], "delta": [Room([0]), Room([0])],
                      "ds": [Room(everybody) for _ in range(self.ds_tiles)],
                      # of each consumer: its rows of V and later of dV, and its half of dQ and later dK
                      "v": [Room([one for one in everybody if one[0] == group]) for group in GROUPS],
                      "half": [Room([one for one in everybody if one[0] == group]) for group in GROUPS]}
        self.half_empty = [Named(threads + len(LANES)) for _ in GROUPS]
        self.half_full = [Named(threads + len(LANES)) for _ in GROUPS]
        self.warp_barriers = {}
        self.copies, self.added, self.stored, self.passed = [], [], [], {}
        self.moves = 0

    # -- what lanes do ------------------------------------------------------------------------------------------
    def wait(self, barrier, parity):
        while not barrier.passed(parity):
            yield
        self.moves += 1

    def meet(self, who):
        """A warp barrier."""
        yield from self.warp_barriers.setdefault(who[:-1], Named(len(LANES))).sync(who)
        self.moves += 1

    def named(self, barrier, who, arrive_only=False):
        self.passed[who] = self.passed.get(who, 0) + 1
        self.moves += 1
        if arrive_only:
            barrier.arrive(who)
        else:
            yield from barrier.sync(who)
            self.moves += 1

    def arrive(self, barrier, who):
        self.moves += 1
        if who[-1] == 0:
            barrier.arrive()

    def fence(self, who, name):
        if self.change == "%s is not fenced" % name:
            return
        for rooms in self.rooms.values():
            for room in rooms:
                room.unfenced.discard(who)

    def look(self, room, what):
        """A lane reads with its own loads, which takes a while."""
        room.begin(what, room.holds, by_copy=False)
        yield
        room.end(room.holds)
        self.moves += 1

    def copy(self, room, parts, begin, end):
        def run():
            yield
            begin(room, parts)
            self.moves += 1
            yield
            end(room, parts)
            self.moves += 1
        self.copies.append(run())

    def load(self, room, what, barrier):
        def end(room, parts):
            room.write(what, parts, by_copy=True)
            barrier.copied()
        self.copy(room, list(room.holds), lambda room, parts: room.write(None, parts, by_copy=True), end)

    def store(self, room, what, parts, to):
        """Of shared memory to global memory; its end is told in what this returns."""
        state = {"read": False}

        def end(room, parts):
            room.end(parts)
            to.append(what)
            state["read"] = True
        self.copy(room, parts, lambda room, parts: room.begin(what, parts), end)
        return state

    # -- the producing warpgroup --------------------------------------------------------------------------------
    def produce(self, of_v):
        keys, tiles, rows = ("v", "do", "delta") if of_v else ("k", "q", "lse")
        ring, full = Ring(2), self.full[keys][0]
        full.arrive(copies=len(self.rooms[keys]))
        for room in self.rooms[keys]:
            self.load(room, keys, full)
        for step in range(self.steps):
            full = self.full[tiles][ring.slot]
            if self.change != "producers do not wait for a slot":
                yield from self.wait(self.empty[tiles][ring.slot], ring.parity ^ 1)
            full.arrive(copies=2)
            self.load(self.rooms[tiles][ring.slot], (tiles, step), full)
            self.load(self.rooms[rows][ring.slot], (rows, step), full)
            ring.advance()
            yield

    def drain(self, half, lane):
        who = ("drain", half, lane)
        room = self.rooms["half"][half]
        yield from self.named(self.half_empty[half], who, arrive_only=True)
        for step in range(self.steps):
            yield from self.named(self.half_full[half], who)
            if lane == 0:
                copied = self.store(room, ("dq", step), list(room.holds), self.added)
                late = step == self.steps - 1 and self.change == "dK is written into a half of dQ that is still read"
                while not (copied["read"] or late or self.change == "a half of dQ is released while it is read"):
                    yield
            yield from self.meet(who)
            yield from self.named(self.half_empty[half], who, arrive_only=True)

    # -- a consumer ---------------------------------------------------------------------------------------------
    def consume(self, group, warp, lane):
        who, flying = (group, warp, lane), []
        ring, own, before = Ring(2), Ring(self.ds_tiles), Ring(self.ds_tiles)
        rooms, change = self.rooms, self.change

        def issue(*reads):
            """A product reads these rooms until it is waited for. It is the whole warp's; lane 0 stands for it."""
            reads = reads if lane == 0 else ()
            for room, what in reads:
                room.begin(what, room.holds)
            flying.append([room for room, _ in reads])
            self.moves += 1

        def finish(pending):
            yield
            while len(flying) > pending:
                for room in flying.pop(0):
                    room.end(room.holds)
            self.moves += 1

        def start_dq(step):
            yield from self.wait(self.full["ds"][before.slot], before.parity)
            issue((rooms["k"][0], "k"), (rooms["ds"][before.slot], ("ds", step)))

        def pass_dq(step, pending):
            self.arrive(self.empty["ds"][before.slot], who)
            if change == "a tile of dS is released before dQ is complete":
                yield from finish(pending)
            assert len(flying) <= pending, "a product still writes the registers of dQ"
            before.advance()
            if change != "a half of dQ is written without waiting for its room":
                yield from self.named(self.half_empty[group], who)
            rooms["half"][group].write(("dq", step), [who])
            self.fence(who, "dQ")
            yield from self.named(self.half_full[group], who, arrive_only=True)

        def take_step(step):
            first = step == 0
            lse, delta = rooms["lse"][ring.slot], rooms["delta"][ring.slot]
            yield from self.wait(self.full["q"][ring.slot], ring.parity)
            issue((rooms["k"][0], "k"), (rooms["q"][ring.slot], ("q", step)))
            if first and change != "the first step does not wait for V":
                yield from self.wait(self.full["v"][0], 0)
            if change != "consumers do not wait for dO":
                yield from self.wait(self.full["do"][ring.slot], ring.parity)
            issue((rooms["v"][group], "v"), (rooms["do"][ring.slot], ("do", step)))
            yield from finish(1)
            yield from self.look(lse, ("lse", step))
            yield from finish(0)
            yield from self.wait(self.empty["ds"][own.slot], own.parity ^ 1)
            yield from self.look(delta, ("delta", step))
            yield from self.look(lse, ("lse", step))   # with a softcap
            rooms["ds"][own.slot].write(("ds", step), [who])
            self.fence(who, "dS")
            if change != "lanes do not meet before dS is complete":
                yield from self.meet(who)   # and for lane 0's releases of dO and Q: all have read delta and LSE
            self.arrive(self.full["ds"][own.slot], who)
            own.advance()

            if not first:
                yield from start_dq(step - 1)
            issue((rooms["do"][ring.slot], ("do", step)))
            issue((rooms["q"][ring.slot], ("q", step)))
            if change == "Q is released before dK is complete":
                self.arrive(self.empty["q"][ring.slot], who)
            if not first:
                if change not in ("a tile of dS is released before dQ is complete",
                                  "a half of dQ is passed on before its product is complete"):
                    yield from finish(2)
                yield from pass_dq(step - 1, 2)
            if change == "dO is released before dV is complete":
                self.arrive(self.empty["do"][ring.slot], who)
            yield from finish(1)
            if change != "dO is released before dV is complete":
                self.arrive(self.empty["do"][ring.slot], who)
            yield from finish(0)
            if change != "Q is released before dK is complete":
                self.arrive(self.empty["q"][ring.slot], who)
            if change == "LSE is read when Q is released":
                yield from self.look(lse, ("lse", step))
            ring.advance()

        def store_gradient(room, name):
            room.write((name, group), [who])
            self.fence(who, name)
            if change != "lanes do not meet before %s is stored" % name:
                yield from self.meet(who)
            parts = [(group, warp, other) for other in LANES]
            return self.store(room, (name, group), parts, self.stored) if lane == 0 else {"read": True}

        if self.steps > 0:
            yield from self.wait(self.full["k"][0], 0)
            for step in range(self.steps):
                yield from take_step(step)
            early = change == "dV is written into V before the last dQ"
            stored = (yield from store_gradient(rooms["v"][group], "dV")) if early else None
            yield from start_dq(self.steps - 1)
            yield from finish(0)
            yield from pass_dq(self.steps - 1, 0)
        if self.steps == 0 or not early:
            stored = yield from store_gradient(rooms["v"][group], "dV")
        yield from self.named(self.half_empty[group], who)
        also = yield from store_gradient(rooms["half"][group], "dK")
        while not (stored["read"] and also["read"] or change == "a block ends while dK is read"):
            yield

    def run(self, rng):
        """False: nobody can move although somebody has not ended."""
        lanes = [self.consume(group, warp, lane) for group in GROUPS for warp in WARPS for lane in LANES]
        lanes += [self.drain(half, lane) for half in GROUPS for lane in LANES]
        lanes += [self.produce(of_v) for of_v in (False, True)] if self.steps > 0 else []
        slow = set(rng.sample(range(len(lanes)), rng.randint(0, 6)))   # lanes that seldom run
        left, idle = list(enumerate(lanes)), 0
        while left:
            running = left + [(-1, copy) for copy in self.copies]
            number, runner = rng.choice(running)
            if number in slow and rng.random() < 0.95:
                continue
            before = self.moves
            try:
                next(runner)
            except StopIteration:
                if number < 0:
                    self.copies.remove(runner)
                else:
                    left.remove((number, runner))
                before = -1
            idle = 0 if self.moves != before else idle + 1
            if idle > 200 * len(running):
                return False
        assert not self.copies, "a block ends while its shared memory is read"
        assert sorted(self.added) == sorted([("dq", step) for step in range(self.steps)] * 2)
        assert sorted(self.stored) == sorted([(name, group) for name in ("dK", "dV") for group in GROUPS for _ in WARPS])
        return True


def every_order_of_steps_ends_well():
    rng = random.Random(20261125)
    for i in range(120):
        steps = i % 8
        assert Block(steps).run(rng), "a knot with %d steps" % steps


def a_consumer_and_its_draining_warp_pass_as_many_barriers():
    """racecheck counts the barriers that a thread passes, without their names."""
    for steps in (0, 1, 5):
        block = Block(steps)
        assert block.run(random.Random(steps))
        tap.equal(set(block.passed.values()), {2 * steps + 1})


def every_wrong_order_is_noticed():
    rng = random.Random(7)
    for change in sorted(CHANGES):
        def noticed(change=change):
            try:
                return not Block(rng.randint(1, 6), change).run(rng)
            except AssertionError:
                return True
        assert any(noticed() for _ in range(60)), "not noticed: " + change


def of_what_racecheck_reports_reads_of_lse_and_delta_alone_are_expected():
    """What a sanitized run on a GPU is judged by; the addresses are those of a run on an H100."""
    config = 'config: {"family": "attn_bwd_sm90a", "tunables": {"BLOCK_M": 64, "BLOCK_N": 128}, "smem_bytes": 115840}\n'
    summary = "========= RACECHECK SUMMARY: 2 hazards displayed (2 errors, 0 warnings)\n"

    def wrong(*hazards, config=config, summary=summary):
        lines = ["========= Error: Potential %s hazard detected at __shared__ 0x%x in block (0,0,0) :\n" % hazard for hazard in hazards]
        return racecheck_bwd.judged("".join(lines) + config + summary)[0]
    first, last = 0x400 + 115840 - 128 - 1024, 0x400 + 115840 - 128 - 4
    tap.equal(first + 512, 0x1c600)
    tap.equal(wrong(), None)
    tap.equal(wrong(("WAR", first), ("WAR", last)), None)
    for hazard in (("WAR", first - 4), ("WAR", last + 4), ("RAW", first), ("WAW", last)):
        tap.equal(wrong(("WAR", first), hazard), "%s at 0x%x" % hazard)
    tap.equal(wrong(("WAR", first), config=config.replace("sm90a", "sm80")), "WAR at 0x%x" % first)
    tap.has(wrong(summary=""), "no summary")
    tap.has(wrong(config=""), "0 configs ran")
    tap.has(wrong(summary="Maximum number of hazards reached." + summary), "was cut")


if __name__ == "__main__":
    tap.main([every_order_of_steps_ends_well, a_consumer_and_its_draining_warp_pass_as_many_barriers,
              every_wrong_order_is_noticed, of_what_racecheck_reports_reads_of_lse_and_delta_alone_are_expected])
