# SPDX-License-Identifier: Apache-2.0
"""The order of barriers of attn_bwd_sm90a, played through without a GPU.

One block and the jobs that it takes: two producers, two draining warps and two consumers of four warps, of each warp lane 0 and one other lane.
Each lane is a coroutine that a seeded scheduler steps in any order, and so is each copy: it begins some time after its
command, and ends some time later. Of every room of shared memory the play knows what lies in each lane's part of it,
whether the async proxy can see that, and who reads it. It ends well when everybody ends, whatever was read was what
belongs there, nothing was written while somebody read it, and each job's halves of dQ were added once.

What the kernel does is said once more here: a change of its order belongs in both. CHANGES are orders that are wrong.
"""
import random

import racecheck_bwd
import tap

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
    "dV is written into dS before the last dQ",
    "dV is written while the other consumer reads dS",
    "dS is written while dV is read",
    "producers do not wait for room for keys",
    "a job is told before all have read the one before",
    "a draining warp begins a job before the consumer does",
    "dV is not fenced",
    "lanes do not meet before dV is stored",
    "a block ends while dK is read",
    "the first step does not wait for V",
    "V is released before the last dP is complete",
    "producers do not wait for a slot",
    "consumers do not wait for dO",
}


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

    def unread(self, parts):
        for part in parts:
            assert self.readers[part] == 0, "%r is written over while it is read" % (self.holds[part],)

    def begin(self, what, parts, by_copy=True):
        """Somebody reads it from now on: the async proxy (copies, wgmma), or with by_copy false a lane itself."""
        for part in parts:
            assert self.holds[part] == what, "%r where %r belongs" % (self.holds[part], what)
            assert not (by_copy and part in self.unfenced), "the async proxy does not see %r yet" % (what,)
            self.readers[part] += 1

    def end(self, parts):
        for part in parts:
            self.readers[part] -= 1


class Play:
    """A block: what its lanes do to barriers and rooms, copies that go on beside them, and their running in any order."""

    def __init__(self):
        self.warp_barriers, self.copies, self.moves = {}, [], 0

    def wait(self, barrier, parity):
        while not barrier.passed(parity):
            yield
        self.moves += 1

    def meet(self, who):
        """A warp barrier."""
        yield from self.warp_barriers.setdefault(who[:-1], Named(len(LANES))).sync(who)
        self.moves += 1

    def arrive(self, barrier, who):
        self.moves += 1
        if who[-1] == 0:
            barrier.arrive()

    def look(self, room, what, parts=None):
        """A lane reads with its own loads, which takes a while."""
        parts = list(room.holds) if parts is None else parts
        room.begin(what, parts, by_copy=False)
        yield
        room.end(parts)
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

    def products(self, who):
        """Of a lane: its products that were not waited for, and how it issues and finishes them. A product reads rooms until it is waited
        for; it is the whole warp's, and lane 0 stands for it."""
        flying = []

        def issue(*reads):
            reads = reads if who[-1] == 0 else ()
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
        return flying, issue, finish

    def read_job(self, turn, who):
        """Of a warp lane 0 reads; the others meet it in a shuffle."""
        if who is None or who[-1] == 0:
            yield from self.wait(self.full["job"][0], turn % 2)
            yield from self.look(self.rooms["job"][0], ("job", turn))
            self.empty["job"][0].arrive()
        if who is not None:
            yield from self.meet(who)
        self.moves += 1

    def play(self, lanes, rng):
        """False: nobody can move although somebody has not ended."""
        slow = set(rng.sample(range(len(lanes)), rng.randint(0, 6)))   # lanes that seldom run
        late_copies = rng.random() < 0.3
        left, idle = list(enumerate(lanes)), 0
        while left:
            running = len(left) + len(self.copies)
            at = int(rng.random() * running)   # choice() takes three times as long
            number, runner = left[at] if at < len(left) else (-1, self.copies[at - len(left)])
            if (number in slow or number < 0 and late_copies) and rng.random() < 0.95:
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
            if idle > 200 * running:
                return False
        assert not self.copies, "a block ends while its shared memory is read or written"
        return True


class Block(Play):
    """Jobs: how many steps each of them has."""

    def __init__(self, jobs, change=None):
        super().__init__()
        assert change is None or change in CHANGES, change
        self.jobs, self.change = jobs, change
        warps, threads = len(GROUPS) * len(WARPS), len(WARPS) * len(LANES)
        self.ds_tiles = 1 if change == "one tile of dS" else 2
        one_writes = change == "a tile of dS is complete when one consumer has written it"
        self.full = {"job": [Barrier(1)], "k": [Transactions(1)], "v": [Transactions(1)], "q": [Transactions(1) for _ in range(2)],
                     "do": [Transactions(1) for _ in range(2)], "apart": [Barrier(len(WARPS))],
                     "ds": [Barrier(warps // 2 if one_writes else warps) for _ in range(self.ds_tiles)]}
        self.empty = {"job": [Barrier(1 + len(GROUPS) + warps)], "k": [Barrier(warps)], "v": [Barrier(warps)], "q": [Barrier(warps) for _ in range(2)], "do": [Barrier(warps) for _ in range(2)],
                      "ds": [Barrier(warps) for _ in range(self.ds_tiles)]}
        everybody = [(group, warp, lane) for group in GROUPS for warp in WARPS for lane in LANES]
        self.rooms = {"job": [Room([0])], "k": [Room([0])], "q": [Room([0]), Room([0])], "do": [Room([0]), Room([0])],
                      "lse": [Room([0]), Room([0])], "delta": [Room([0]), Room([0])],
                      "ds": [Room(everybody) for _ in range(self.ds_tiles)],   # and later dV
                      # of each consumer: its rows of V, and its half of dQ and later dK
                      "v": [Room([one for one in everybody if one[0] == group]) for group in GROUPS],
                      "half": [Room([one for one in everybody if one[0] == group]) for group in GROUPS]}
        self.half_empty = [Named(threads + len(LANES)) for _ in GROUPS]
        self.half_full = [Named(threads + len(LANES)) for _ in GROUPS]
        self.rooms_free = [Named(threads + len(LANES)) for _ in GROUPS]
        self.added, self.stored, self.passed = [], [], {}

    # -- what lanes do ------------------------------------------------------------------------------------------
    def named(self, barrier, who, arrive_only=False):
        self.passed[who] = self.passed.get(who, 0) + 1
        self.moves += 1
        if arrive_only:
            barrier.arrive(who)
        else:
            yield from barrier.sync(who)
            self.moves += 1

    def fence(self, who, name):
        if self.change == "%s is not fenced" % name:
            return
        for rooms in self.rooms.values():
            for room in rooms:
                room.unfenced.discard(who)

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
        ring, step = Ring(2), 0
        for turn in range(len(self.jobs) + 1):
            if of_v:
                yield from self.read_job(turn, None)
            else:
                if self.change != "a job is told before all have read the one before":
                    yield from self.wait(self.empty["job"][0], turn % 2 ^ 1)
                self.rooms["job"][0].write(("job", turn), [0])
                self.full["job"][0].arrive()
                self.moves += 1
            if turn == len(self.jobs):
                return
            full = self.full[keys][0]
            if self.change != "producers do not wait for room for keys":
                yield from self.wait(self.empty[keys][0], turn % 2 ^ 1)
            full.arrive(copies=len(self.rooms[keys]))
            for room in self.rooms[keys]:
                self.load(room, (keys, turn), full)
            for step in range(step, step + self.jobs[turn]):
                full = self.full[tiles][ring.slot]
                if self.change != "producers do not wait for a slot":
                    yield from self.wait(self.empty[tiles][ring.slot], ring.parity ^ 1)
                full.arrive(copies=2)
                self.load(self.rooms[tiles][ring.slot], (tiles, step), full)
                self.load(self.rooms[rows][ring.slot], (rows, step), full)
                ring.advance()
                yield
            step = sum(self.jobs[:turn + 1])

    def drain(self, half, lane):
        who, step = ("drain", half, lane), 0
        room = self.rooms["half"][half]
        for turn in range(len(self.jobs) + 1):
            yield from self.read_job(turn, who)
            if turn == len(self.jobs):
                return
            if self.change != "a draining warp begins a job before the consumer does":
                yield from self.named(self.rooms_free[half], who)
            yield from self.named(self.half_empty[half], who, arrive_only=True)
            for left in range(self.jobs[turn], 0, -1):
                yield from self.named(self.half_full[half], who)
                if lane == 0:
                    copied = self.store(room, ("dq", step), list(room.holds), self.added)
                    late = left == 1 and self.change == "dK is written into a half of dQ that is still read"
                    while not (copied["read"] or late or self.change == "a half of dQ is released while it is read"):
                        yield
                step += 1
                yield from self.meet(who)
                yield from self.named(self.half_empty[half], who, arrive_only=True)

    # -- a consumer ---------------------------------------------------------------------------------------------
    def consume(self, group, warp, lane):
        who, stored = (group, warp, lane), []
        flying, issue, finish = self.products(who)
        own_parts = [(group, other, of) for other in WARPS for of in LANES]
        ring, own, before = Ring(2), Ring(self.ds_tiles), Ring(self.ds_tiles)
        rooms, change = self.rooms, self.change

        def start_dq(step):
            yield from self.wait(self.full["ds"][before.slot], before.parity)
            issue((rooms["k"][0], ("k", turn)), (rooms["ds"][before.slot], ("ds", step)))

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

        def await_stores():
            while not (all(one["read"] for one in stored) or change == "dS is written while dV is read"):
                yield
            stored.clear()
            yield from self.named(self.rooms_free[group], who)

        def take_step(step, first, last):
            lse, delta = rooms["lse"][ring.slot], rooms["delta"][ring.slot]
            yield from self.wait(self.full["q"][ring.slot], ring.parity)
            if first and group == 1:   # only for D 128; nothing but time depends on it
                yield from self.wait(self.full["apart"][0], turn % 2)
            issue((rooms["k"][0], ("k", turn)), (rooms["q"][ring.slot], ("q", step)))
            if first and change != "the first step does not wait for V":
                yield from self.wait(self.full["v"][0], turn % 2)
            if change != "consumers do not wait for dO":
                yield from self.wait(self.full["do"][ring.slot], ring.parity)
            yield from self.meet(who)   # wgmma is one instruction of a whole warp, so that all lanes have waited for V
            issue((rooms["v"][group], ("v", turn)), (rooms["do"][ring.slot], ("do", step)))
            yield from finish(1)
            yield from self.look(lse, ("lse", step))
            if last and change == "V is released before the last dP is complete":
                self.arrive(self.empty["v"][0], who)
            yield from finish(0)
            if last and change != "V is released before the last dP is complete":
                self.arrive(self.empty["v"][0], who)
            if first:
                come_apart()
            yield from self.wait(self.empty["ds"][own.slot], own.parity ^ 1)
            if first:
                yield from await_stores()
            yield from self.look(delta, ("delta", step))
            yield from self.look(lse, ("lse", step))   # with a softcap
            rooms["ds"][own.slot].unread(own_parts)
            rooms["ds"][own.slot].write(("ds", step), [who])
            issue((rooms["do"][ring.slot], ("do", step)))
            self.fence(who, "dS")
            if change != "lanes do not meet before dS is complete":
                yield from self.meet(who)   # and for lane 0's releases of dO and Q: all have read delta and LSE
            self.arrive(self.full["ds"][own.slot], who)
            own.advance()

            if not first:
                yield from start_dq(step - 1)
            issue((rooms["q"][ring.slot], ("q", step)))
            if change == "Q is released before dK is complete":
                self.arrive(self.empty["q"][ring.slot], who)
            if change == "dO is released before dV is complete":
                self.arrive(self.empty["do"][ring.slot], who)
            yield from finish(2 if not first and change in ("a tile of dS is released before dQ is complete",
                                                            "a half of dQ is passed on before its product is complete") else 1)
            if change != "dO is released before dV is complete":
                self.arrive(self.empty["do"][ring.slot], who)
            if not first:
                yield from pass_dq(step - 1, 1)
            yield from finish(0)
            if change != "Q is released before dK is complete":
                self.arrive(self.empty["q"][ring.slot], who)
            if change == "LSE is read when Q is released":
                yield from self.look(lse, ("lse", step))
            ring.advance()

        def come_apart():
            if group == 0:
                self.arrive(self.full["apart"][0], who)

        def store_gradient(where, name):
            """Through the warp's part of these rooms."""
            for room in where:
                if name == "dV":   # it covers what other lanes have written of dS
                    room.unread([part for part in own_parts if (room.holds[part] or ("ds",))[0] == "ds"])
                room.write((name, group, turn), [who])
            self.fence(who, name)
            if change != "lanes do not meet before %s is stored" % name:
                yield from self.meet(who)
            parts = [(group, warp, other) for other in LANES]
            if lane == 0:
                stored.extend(self.store(room, (name, group, turn), parts, self.stored) for room in where)

        step = 0
        for turn in range(len(self.jobs) + 1):
            yield from self.read_job(turn, who)
            if turn == len(self.jobs):
                break
            early = self.jobs[turn] > 0 and change == "dV is written into dS before the last dQ"
            yield from self.wait(self.full["k"][0], turn % 2)
            for i in range(self.jobs[turn]):
                yield from take_step(step, i == 0, i == self.jobs[turn] - 1)
                step += 1
            if self.jobs[turn] == 0:
                come_apart()
                yield from self.wait(self.full["v"][0], turn % 2)
                yield from await_stores()   # here all lanes of the warp have met
            if early:
                yield from store_gradient(rooms["ds"], "dV")
            if self.jobs[turn] > 0:
                yield from start_dq(step - 1)
                yield from finish(0)
            self.arrive(self.empty["k"][0], who)
            if self.jobs[turn] == 0:
                self.arrive(self.empty["v"][0], who)
            else:
                last = before.slot, before.parity
                yield from pass_dq(step - 1, 0)
                if change != "dV is written while the other consumer reads dS":
                    yield from self.wait(self.empty["ds"][last[0]], last[1])
            if not early:
                yield from store_gradient(rooms["ds"], "dV")
            yield from self.named(self.half_empty[group], who)
            yield from store_gradient([rooms["half"][group]], "dK")
        while not (all(one["read"] for one in stored) or change == "a block ends while dK is read"):
            yield

    def run(self, rng):
        """False: nobody can move although somebody has not ended."""
        lanes = [self.consume(group, warp, lane) for group in GROUPS for warp in WARPS for lane in LANES]
        lanes += [self.drain(half, lane) for half in GROUPS for lane in LANES]
        lanes += [self.produce(of_v) for of_v in (False, True)]
        if not self.play(lanes, rng):
            return False
        assert sorted(self.added) == sorted([("dq", step) for step in range(sum(self.jobs))] * 2)
        assert sorted(self.stored) == sorted([(name, group, turn) for name, rooms in (("dK", 1), ("dV", self.ds_tiles)) for group in GROUPS
                                              for turn in range(len(self.jobs)) for _ in WARPS for _ in range(rooms)])
        return True


def random_jobs(rng):
    return [rng.choice([0, 1, 2, 3, 5]) for _ in range(rng.choice([0, 1, 2, 3]))]


def every_order_of_steps_ends_well():
    rng = random.Random(20261125)
    for _ in range(80):
        jobs = random_jobs(rng)
        assert Block(jobs).run(rng), "a knot with %r steps" % (jobs,)


def a_consumer_and_its_draining_warp_pass_as_many_barriers():
    """racecheck counts the barriers that a thread passes, without their names."""
    for jobs in ([0], [1], [5, 0, 2]):
        block = Block(jobs)
        assert block.run(random.Random(len(jobs)))
        tap.equal(set(block.passed.values()), {2 * (sum(jobs) + len(jobs))})


def every_wrong_order_is_noticed():
    rng = random.Random(7)
    for change in sorted(CHANGES):
        def noticed(change=change):
            try:
                return not Block([rng.randint(1, 4), rng.randint(1, 3)], change).run(rng)
            except AssertionError:
                return True
        assert any(noticed() for _ in range(60)), "not noticed: " + change


def pass_sums(rng, key_tiles, blocks, beyond, change=None):
    """Blocks that clear, add to and round sums of dQ in passing, in any order of their steps. `key_tiles`: of each head of each sequence.
    False: nobody can move although jobs are left."""
    head_of = [head for head, count in enumerate(key_tiles) for _ in range(count)]
    jobs = len(head_of)
    ahead = min(beyond + (0 if change == "ahead is not counted from a head's end" else max(key_tiles, default=0)), jobs)
    cleared, added, clear, rounded = [0] * len(key_tiles), [0] * len(key_tiles), set(), set()
    numbers, first_parts = iter(range(jobs)), iter(range(ahead))

    def until(there):
        while not there():
            yield "waits"

    def until_added(job):
        return until(lambda: added[head_of[job]] == key_tiles[head_of[job]])

    def produce(told):
        for number in numbers:
            if number >= ahead and change != "a part is rounded before all jobs have added":
                yield from until_added(number - ahead)
            yield from until(lambda: all(len(queue) < 1 for queue in told))
            for queue in told:
                queue.append(number)
            yield "moves"
        yield from until(lambda: all(len(queue) < 1 for queue in told))
        for queue in told:
            queue.append(None)

    def parts_of(number):
        if number < ahead and change != "the first parts are not cleared":
            yield from first_parts
        if number + ahead < jobs:
            yield number + ahead

    def drain(told, products):
        while True:
            yield from until(lambda: told)
            number = told.pop()
            if number is None:
                return
            for part in parts_of(number):
                yield "moves"
                clear.add(part)
                cleared[head_of[part]] += 1
            head = head_of[number]
            if change != "a head is added to before all of it is clear":
                yield from until(lambda: cleared[head] == key_tiles[head])
            parts = {job for job in range(jobs) if head_of[job] == head}
            yield from until(lambda: products)
            products.pop()
            assert parts <= clear and not parts & rounded, "sums are added to what is not clear, or rounded"
            yield "moves"
            added[head] += 1

    def round_part(job):
        assert added[head_of[job]] == key_tiles[head_of[job]], "sums are rounded before they are complete"
        rounded.add(job)

    def consume(block, told, products):
        while True:
            yield from until(lambda: told)
            number = told.pop()
            if number is None:
                break
            yield "moves"
            products.append(number)
            if number >= ahead:
                round_part(number - ahead)
        for job in range(jobs - ahead + block, jobs, blocks):
            if change != "the rest is rounded before all jobs have added":
                yield from until_added(job)
            round_part(job)

    running = []
    for block in range(blocks):
        told, products = ([], []), []
        running += [produce(told), drain(told[0], products), consume(block, told[1], products)]
    slow, idle = set(rng.sample(running, len(running) // 3)), 0
    while running and idle < 400 * blocks:
        one = rng.choice(running)
        if one in slow and rng.random() < 0.9:
            continue
        state = next(one, None)
        if state is None:
            running.remove(one)
        idle = idle + 1 if state == "waits" else 0
    assert running or rounded == set(range(jobs)), "not all sums were rounded"
    return not running


def sums_of_dq_are_cleared_added_and_rounded_in_passing():
    rng = random.Random(20261127)
    for i in range(150):
        key_tiles = [rng.randint(1, 5)] * rng.randint(0, 6) if i % 2 else [rng.randint(0, 5) for _ in range(rng.randint(0, 6))]
        shape = key_tiles, rng.randint(1, 4), rng.randint(1, 6)
        assert pass_sums(rng, *shape), "a knot with %r" % (shape,)
    for change in ("a part is rounded before all jobs have added", "a head is added to before all of it is clear",
                   "the rest is rounded before all jobs have added", "ahead is not counted from a head's end", "the first parts are not cleared"):
        def noticed(change=change):
            try:
                return not pass_sums(rng, [5] * 6, 3, 1, change)
            except AssertionError:
                return True
        assert any(noticed() for _ in range(60)), "not noticed: " + change


def of_what_racecheck_reports_reads_of_lse_delta_and_p_alone_are_expected():
    """What a sanitized run on a GPU is judged by; the addresses are those of a run on an H100."""
    config = 'config: {"family": "attn_bwd_sm90a", "tunables": {"BLOCK_M": 64, "BLOCK_N": 128}, "smem_bytes": 115904}\n'
    summary = "========= RACECHECK SUMMARY: 2 hazards displayed (2 errors, 0 warnings)\n"

    def wrong(*hazards, config=config, summary=summary):
        lines = ["========= Error: Potential %s hazard detected at __shared__ 0x%x in block (0,0,0) :\n" % hazard[:2] + "".join(
            "=========     %s Thread (%d,0,0) at attn_bwd+0x70\n" % pair
            for pair in zip(("Read", "Write") if hazard[0] == "WAR" else ("Write", "Read"), hazard[2:])) for hazard in hazards]
        return racecheck_bwd.judged("".join(lines) + config + summary)[0]
    first, last = 0x400 + 115904 - 192 - 1024, 0x400 + 115904 - 192 - 4
    tap.equal(first + 512, 0x1c600)
    tap.equal(wrong(), None)
    tap.equal(wrong(("WAR", first), ("WAR", last)), None)
    for hazard in (("WAR", first - 4), ("WAR", last + 4), ("RAW", first), ("WAW", last)):
        tap.equal(wrong(("WAR", first), hazard), "%s at 0x%x" % hazard)
    tap.equal(wrong(("WAR", first), config=config.replace("sm90a", "sm80")), "WAR at 0x%x" % first)
    wide = config.replace("attn_bwd_sm90a", "attn_bwd_wide_sm90a").replace('"BLOCK_N": 128', '"BLOCK_N": 64, "STAGES": 2')
    tap.equal([wrong(("WAR", at), config=wide) for at in (0x400, 0x7fc, 0x800)], [None, None, "WAR at 0x800"])
    place = 0x800 + 2048 + 65 * 16   # of the second 16 rows, thread 65's
    tap.equal(wrong(("RAW", place, 193, 321), ("RAW", place + 15, 193, 321), ("WAR", place, 321, 193), config=wide), None)
    tap.equal(wrong(("RAW", place, 193, 321)), "RAW at 0x%x" % place)   # of attn_bwd_sm90a
    for hazard in (("WAR", place, 193, 321), ("WAR", place, 321, 194), ("WAR", place - 16, 320, 192), ("WAR", place), ("WAW", place, 193, 321), ("RAW", place, 193, 322), ("RAW", place, 192, 321), ("RAW", place - 1, 193, 321),
                   ("RAW", place - 16, 192, 320), ("RAW", place + 2 * 8192, 193, 321), ("RAW", place - 4096, 193, 321), ("RAW", place)):
        tap.equal(wrong(("WAR", 0x400), hazard, config=wide), "%s at 0x%x" % hazard[:2])
    tap.has(wrong(summary=""), "no summary")
    tap.has(wrong(config=""), "0 configs ran")
    tap.has(wrong(summary="Maximum number of hazards reached." + summary), "was cut")


if __name__ == "__main__":
    tap.main([every_order_of_steps_ends_well, a_consumer_and_its_draining_warp_pass_as_many_barriers,
              every_wrong_order_is_noticed, sums_of_dq_are_cleared_added_and_rounded_in_passing,
              of_what_racecheck_reports_reads_of_lse_delta_and_p_alone_are_expected])
