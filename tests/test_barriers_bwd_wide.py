# SPDX-License-Identifier: Apache-2.0
"""The order of barriers of both main launches of attn_bwd_wide_sm90a, played through without a GPU.

One block and the jobs that it takes: two producers and two consumers of two warps, of each warp lane 0 and one other lane. Lanes, copies and
rooms of shared memory are test_barriers_bwd.py's. It ends well when everybody ends, whatever was read was what belongs there, and nothing
was written while somebody read it.

What the kernel does is said once more here: a change of its order belongs in both. CHANGES are orders that are wrong.
"""
import random

import tap
from test_barriers_bwd import Barrier, Play, Ring, Room, Transactions

WARPS, LANES, GROUPS = range(2), range(2), range(2)
CHANGES = {
    "keys": {
        "producers do not wait for room for keys", "producers do not wait for a slot", "a job is told before all have read the one before",
        "consumers do not wait for keys", "consumers do not wait for a tile", "Q is released before dK is complete",
        "dO is released before dV is complete", "P is read without waiting for it", "LSE is read when Q is released", "delta is read when dO is released",
        "keys are released before the last scores", "fewer slots of P than tiles of Q", "jobs without steps are counted as rounds"},
    "queries": {
        "producers do not wait for room for queries", "producers do not wait for a slot", "a job is told before all have read the one before",
        "consumers do not wait for queries", "consumers do not wait for a tile", "K is released before dQ is complete",
        "V is released before dP is complete", "queries are released before the last scores", "one consumer releases K",
        "jobs without steps are counted as rounds"},
}


class Block(Play):
    """Jobs: how many steps each of them has. `stages`: of the tiles that are walked, of K or Q and of V or dO."""

    def __init__(self, launch, jobs, stages=(2, 2), change=None):
        super().__init__()
        assert change is None or change in CHANGES[launch], change
        self.keys, self.jobs, self.change, self.stages = launch == "keys", jobs, change, dict(zip(("tile", "tile_v"), stages))
        warps = len(GROUPS) * len(WARPS)
        readers = len(WARPS) if self.keys else warps
        slots = stages[0] - (change == "fewer slots of P than tiles of Q")
        each = len(WARPS) if change == "one consumer releases K" else warps
        self.full = {"job": [Barrier(1)], "own": [Transactions(1)], "own_v": [Transactions(1)], "weights": [Barrier(len(WARPS)) for _ in range(slots)]}
        self.empty = {"job": [Barrier(1 + warps)], "own": [Barrier(readers)], "own_v": [Barrier(readers)]}
        lanes = [(warp, lane) for warp in WARPS for lane in LANES]
        self.rooms = {"job": [Room([0])], "own": [Room([0])], "own_v": [Room([0])], "weights": [Room(lanes) for _ in range(slots)]}
        for name, count in self.stages.items():
            self.full[name] = [Transactions(1) for _ in range(count)]
            self.empty[name] = [Barrier(each if name == "tile" else warps) for _ in range(count)]
            self.rooms[name] = [Room([0]) for _ in range(count)]
            self.rooms["rows_" + name] = [Room([0]) for _ in range(count)]

    def counts(self, turn):
        """Whether a job is one of the rounds by which the barriers of a block's own tiles go."""
        return self.jobs[turn] > 0

    # -- the producers ------------------------------------------------------------------------------------------
    def produce(self, of_v):
        own, tile = ("own_v", "tile_v") if of_v else ("own", "tile")
        ring, step, rounds, change = Ring(self.stages[tile]), 0, 0, self.change
        for turn in range(len(self.jobs) + 1):
            if of_v:
                yield from self.read_job(turn, None)
            else:
                if change != "a job is told before all have read the one before":
                    yield from self.wait(self.empty["job"][0], turn % 2 ^ 1)
                self.rooms["job"][0].write(("job", turn), [0])
                self.full["job"][0].arrive()
                self.moves += 1
            if turn == len(self.jobs):
                return
            if self.jobs[turn] == 0:
                rounds += change == "jobs without steps are counted as rounds"
                continue
            if not (change or "").startswith("producers do not wait for room"):
                yield from self.wait(self.empty[own][0], rounds % 2 ^ 1)
            self.full[own][0].arrive(copies=1)
            self.load(self.rooms[own][0], (own, turn), self.full[own][0])
            rounds += 1
            for step in range(step, step + self.jobs[turn]):
                full = self.full[tile][ring.slot]
                if change != "producers do not wait for a slot":
                    yield from self.wait(self.empty[tile][ring.slot], ring.parity ^ 1)
                full.arrive(copies=1 + self.keys)
                self.load(self.rooms[tile][ring.slot], (tile, step), full)
                if self.keys:
                    self.load(self.rooms["rows_" + tile][ring.slot], ("rows_" + tile, step), full)
                ring.advance()
                yield
            step = sum(self.jobs[:turn + 1])

    # -- consumers ----------------------------------------------------------------------------------------------
    def products(self, who):
        """The warp issues its products together."""
        flying, issue_one, finish = super().products(who)

        def issue(*reads):
            yield from self.meet(who)
            issue_one(*reads)
        return flying, issue, finish

    def consume_keys(self, group, warp, lane):
        """Group 0: S, P and dV; group 1: dP, dS and dK."""
        who, change, rooms = (group, warp, lane), self.change, self.rooms
        _, issue, finish = self.products(who)
        own, tile, other = ("own", "tile", "tile_v") if group == 0 else ("own_v", "tile_v", "tile")
        early = "dO is released before dV is complete" if group == 0 else "Q is released before dK is complete"
        late = "LSE is read when Q is released" if group == 0 else "delta is read when dO is released"
        rounds = step = 0

        def slot_of(step):
            return step % self.stages["tile"], step // self.stages["tile"] % 2

        def slot_of_weights(step):
            return step % len(rooms["weights"])

        def issue_scores():
            slot, parity = slot_of(step)
            if change != "consumers do not wait for a tile":
                yield from self.wait(self.full[tile][slot], parity)
            yield from issue((rooms[own][0], (own, turn)), (rooms[tile][slot], (tile, step)))

        def look_at_rows():
            yield from self.look(rooms["rows_" + tile][slot_of(step)[0]], ("rows_" + tile, step))

        def weigh():
            if group == 0:
                yield from look_at_rows()
                return
            slot, parity = slot_of_weights(step), step // len(rooms["weights"]) % 2
            if change != "P is read without waiting for it":
                yield from self.wait(self.full["weights"][slot], parity)
            if change != late:
                yield from look_at_rows()
            yield from self.look(rooms["weights"][slot], ("weights", step), [(warp, lane)])
            yield from self.meet(who)
            self.arrive(self.empty[tile][slot_of(step)[0]], who)
            if change == late:
                yield from look_at_rows()

        def hand_over():
            if group == 1:
                return
            slot = slot_of_weights(step)
            if change != late:
                yield from look_at_rows()   # with a softcap
            rooms["weights"][slot].write(("weights", step), [(warp, lane)])
            yield from self.meet(who)
            self.arrive(self.full["weights"][slot], who)
            self.arrive(self.empty[tile][slot_of(step)[0]], who)
            if change == late:
                yield from look_at_rows()

        def issue_gradient():
            slot, parity = slot_of(step - 1)
            if change != "consumers do not wait for a tile":
                yield from self.wait(self.full[other][slot], parity)
            yield from issue((rooms[other][slot], (other, step - 1)))
            if change == early:
                self.arrive(self.empty[other][slot], who)

        def finish_gradient(pending):
            yield from finish(pending)
            if change != early:
                self.arrive(self.empty[other][slot_of(step - 1)[0]], who)

        for turn in range(len(self.jobs) + 1):
            yield from self.read_job(turn, who)
            if turn == len(self.jobs):
                return
            if self.jobs[turn] == 0:
                continue
            if change != "consumers do not wait for keys":
                yield from self.wait(self.full[own][0], rounds % 2)
            rounds += 1
            yield from issue_scores()
            yield from finish(0)
            yield from weigh()
            yield from hand_over()
            step += 1
            for left in range(self.jobs[turn] - 1, 0, -1):
                yield from issue_gradient()
                yield from issue_scores()
                if left == 1 and change == "keys are released before the last scores":
                    self.arrive(self.empty[own][0], who)
                yield from finish_gradient(1)
                yield from finish(0)
                yield from weigh()
                yield from hand_over()
                step += 1
            if self.jobs[turn] == 1 or change != "keys are released before the last scores":
                self.arrive(self.empty[own][0], who)
            yield from issue_gradient()
            yield from finish_gradient(0)

    def consume_queries(self, group, warp, lane):
        who, change, rooms = (group, warp, lane), self.change, self.rooms
        _, issue, finish = self.products(who)
        ring, ring_v = Ring(self.stages["tile"]), Ring(self.stages["tile_v"])
        rounds = step = slot = 0

        def issue_s():
            if change != "consumers do not wait for a tile":
                yield from self.wait(self.full["tile"][ring.slot], ring.parity)
            yield from issue((rooms["own"][0], ("own", turn)), (rooms["tile"][ring.slot], ("tile", step)))

        def issue_dp():
            if change != "consumers do not wait for a tile":
                yield from self.wait(self.full["tile_v"][ring_v.slot], ring_v.parity)
            yield from issue((rooms["own_v"][0], ("own_v", turn)), (rooms["tile_v"][ring_v.slot], ("tile_v", step)))
            if change == "V is released before dP is complete":
                self.arrive(self.empty["tile_v"][ring_v.slot], who)

        def hand_over():
            nonlocal slot, step
            yield from finish(0)
            if change != "V is released before dP is complete":
                self.arrive(self.empty["tile_v"][ring_v.slot], who)
            slot = ring.slot
            ring.advance()
            ring_v.advance()
            step += 1

        def release_k():
            if change != "K is released before dQ is complete" and not (change == "one consumer releases K" and group == 1):
                self.arrive(self.empty["tile"][slot], who)

        def issue_dq():
            yield from issue((rooms["tile"][slot], ("tile", step - 1)))
            if change == "K is released before dQ is complete":
                self.arrive(self.empty["tile"][slot], who)

        for turn in range(len(self.jobs) + 1):
            yield from self.read_job(turn, who)
            if turn == len(self.jobs):
                return
            if self.jobs[turn] == 0:
                continue
            for name in ("own", "own_v"):
                if change != "consumers do not wait for queries":
                    yield from self.wait(self.full[name][0], rounds % 2)
                yield from (issue_s() if name == "own" else issue_dp())
            rounds += 1
            yield from finish(1)
            yield from hand_over()
            for left in range(self.jobs[turn] - 1, 0, -1):
                yield from issue_dq()
                yield from issue_s()
                yield from finish(1)
                release_k()
                yield from finish(0)
                yield from issue_dp()
                if left == 1 and change == "queries are released before the last scores":
                    self.arrive(self.empty["own_v"][0], who)
                yield from hand_over()
            self.arrive(self.empty["own"][0], who)
            if self.jobs[turn] == 1 or change != "queries are released before the last scores":
                self.arrive(self.empty["own_v"][0], who)
            yield from issue_dq()
            yield from finish(0)
            release_k()

    def run(self, rng):
        """False: nobody can move although somebody has not ended."""
        consume = self.consume_keys if self.keys else self.consume_queries
        lanes = [consume(group, warp, lane) for group in GROUPS for warp in WARPS for lane in LANES]
        lanes += [self.produce(of_v) for of_v in (False, True)]
        return self.play(lanes, rng)


def random_jobs(rng):
    return [rng.choice([0, 1, 2, 3, 5]) for _ in range(rng.choice([0, 1, 2, 3, 4]))]


def every_order_of_steps_ends_well():
    rng = random.Random(20261126)
    for launch, stages in (("keys", (2, 2)), ("keys", (3, 3)), ("queries", (2, 1)), ("queries", (2, 2))):
        for _ in range(40):
            jobs = random_jobs(rng)
            assert Block(launch, jobs, stages).run(rng), "a knot of %s with %r steps" % (launch, jobs)


def every_wrong_order_is_noticed():
    rng = random.Random(7)
    for launch, stages in (("keys", (2, 2)), ("queries", (2, 1))):
        for change in sorted(CHANGES[launch]):
            def noticed(launch=launch, stages=stages, change=change):
                try:
                    return not Block(launch, [rng.randint(1, 4), 0, rng.randint(1, 3), 2], stages, change).run(rng)
                except AssertionError:
                    return True
            assert any(noticed() for _ in range(60)), "not noticed: %s, %s" % (launch, change)


if __name__ == "__main__":
    tap.main([every_order_of_steps_ends_well, every_wrong_order_is_noticed])
