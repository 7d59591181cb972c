"""Heads and tails: when each op can start at the earliest, and what has to follow it.

Everything is derived from relations "the i-th op of one chain ends before the (i + shift)-th of
another starts", which hold in every folded schedule: dependencies (shift 0), order within a chain
(shift 1), and memory (an F waits for the release of the micro-batch that had its room before it).
Reversing the relations turns heads into tails.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from synth.folding import Folded
from synth.op import Kind

NEVER = -(2**60)  # opening time of a device that does not hold anything back

Heads = list[list[int]]


@dataclass(frozen=True, slots=True)
class Relation:
    """Op i + shift of chain `after` starts at least `lag` steps behind the end of i of `before`."""

    before: int
    after: int
    lag: int
    shift: int


@dataclass(frozen=True, slots=True)
class Relations:
    """All relations of a folded problem, sorted so that one sweep over the ops is enough."""

    folded: Folded
    into: tuple[tuple[Relation, ...], ...]
    order: tuple[int, ...]  # chains in an order that respects every relation of shift 0

    @property
    def ops(self) -> int:
        """Number of ops of all chains."""
        return sum(chain.count for chain in self.folded.chains)

    def reversed(self) -> Relations:
        """The same problem run backwards in time."""
        flat = [relation for relations in self.into for relation in relations]
        return _relations(
            self.folded,
            [Relation(r.after, r.before, r.lag, r.shift) for r in flat],
            self.order[::-1],
        )


def relate(folded: Folded, rooms: Mapping[int, int] | None = None) -> Relations:
    """Collect the relations of a folded problem.

    With `rooms`, an F chain has room for that many micro-batches only, as if its device's memory
    were divided among the chunks: no longer true of every schedule, but a plan for a good one.
    """
    relations = [Relation(edge.before, edge.after, edge.lag, 0) for edge in folded.edges]
    relations += [Relation(index, index, 0, 1) for index in range(len(folded.chains))]
    relations += _memory_relations(folded)
    relations += _room_relations(folded, rooms or {})
    waves = {Kind.F: 0, Kind.B: 1, Kind.W: 2}

    def rank(index: int) -> tuple[int, int]:
        chain = folded.chains[index]
        return waves[chain.kind], -chain.stage if chain.kind is Kind.B else chain.stage

    order = sorted(range(len(folded.chains)), key=rank)
    return _relations(folded, relations, tuple(order))


def _relations(folded: Folded, relations: Iterable[Relation], order: tuple[int, ...]) -> Relations:
    into: list[list[Relation]] = [[] for _ in folded.chains]
    for relation in relations:
        into[relation.after].append(relation)
    return Relations(folded, tuple(tuple(group) for group in into), order)


def _memory_relations(folded: Folded) -> list[Relation]:
    """An F needs the room of an earlier micro-batch once its chunk's share of memory is full.

    Between F and the end of B of a chunk, a micro-batch also holds the device's chunks that this
    one needs, be it through others: their F come before, their B later. Until the end of W it holds
    at least the smaller of activation and context.
    """
    problem = folded.problem
    ancestors = problem.ancestors()
    index = {(c.stream, c.stage, c.kind): i for i, c in enumerate(folded.chains)}
    found: list[Relation] = []
    for stream in problem.streams:
        for stage, device in enumerate(stream.route):
            limit = problem.limits_quanta[device]
            if limit is None:
                continue
            here = [s for s in (*ancestors[stage], stage) if stream.route[s] == device]
            held = sum(problem.cost(stream.name, s).activation_quanta for s in here)
            cost = problem.cost(stream.name, stage)
            before = held - cost.activation_quanta
            late = before + min(cost.activation_quanta, cost.context_quanta)
            forward = index[stream.name, stage, Kind.F]
            for kind, each in ((Kind.B, held), (Kind.W, late if len(here) == 1 else 0)):
                if each and limit // each < stream.microbatches:
                    release = index[stream.name, stage, kind]
                    found.append(Relation(release, forward, 0, limit // each))
    return found


def _room_relations(folded: Folded, rooms: Mapping[int, int]) -> list[Relation]:
    """Like the memory relations of a device that holds a single chunk."""
    found: list[Relation] = []
    for forward, room in rooms.items():
        chain = folded.chains[forward]
        cost = folded.problem.cost(chain.stream, chain.stage)
        act, context = cost.activation_quanta, cost.context_quanta
        found.append(Relation(forward + 1, forward, 0, room))
        if min(act, context):
            found.append(Relation(forward + 2, forward, 0, room * act // min(act, context)))
    return found


def heads(relations: Relations, opens: Sequence[int]) -> Heads:
    """Earliest start of every op, device d opening at step opens[d]; longest paths.

    On top of paths, an op also waits for all ops of its own device that come before it.
    """
    folded = relations.folded
    chains = folded.chains
    found: Heads = [[opens[chain.device]] * chain.count for chain in chains]
    sweep(relations, found)
    work = _LocalWork(relations)
    for _ in range(work.rounds):
        if not work.raise_heads(found):
            break
        sweep(relations, found)
    return found


def sweep(relations: Relations, found: Heads) -> None:
    """Raise earliest starts along all paths, micro-batch by micro-batch.

    No relation points back to an earlier one.
    """
    chains, into = relations.folded.chains, relations.into
    for number in range(max(chain.count for chain in chains)):
        for index in relations.order:
            if number >= chains[index].count:
                continue
            start = found[index][number]
            for relation in into[index]:
                source = number - relation.shift
                if 0 <= source < chains[relation.before].count:
                    earlier = found[relation.before][source]
                    least = earlier + chains[relation.before].steps + relation.lag
                    if least > start:
                        start = least
            found[index][number] = start


MAX_LOCAL_WORK = 400_000  # pairs of ops; beyond this the local work costs more than it tells


class _LocalWork:
    """Which ops of its own device every op has to wait for, one at a time."""

    def __init__(self, relations: Relations) -> None:
        self.relations = relations
        folded = relations.folded
        per_device = [
            sum(folded.chains[c].count for c in folded.of_device(d))
            for d in range(folded.problem.devices)
        ]
        self.rounds = 3 if sum(n * n for n in per_device) <= MAX_LOCAL_WORK else 0
        self.before = self._predecessors() if self.rounds else []

    def _predecessors(self) -> list[list[dict[int, int]]]:
        """For each op: how many ops of each chain of its device end before it starts."""
        chains = self.relations.folded.chains
        before: list[list[dict[int, int]]] = [[{} for _ in range(c.count)] for c in chains]
        for number in range(max(chain.count for chain in chains)):
            for index in self.relations.order:
                if number >= chains[index].count:
                    continue
                mine = before[index][number]
                for relation in self.relations.into[index]:
                    source = number - relation.shift
                    if not 0 <= source < chains[relation.before].count:
                        continue
                    for chain, count in before[relation.before][source].items():
                        if mine.get(chain, 0) < count:
                            mine[chain] = count
                    mine[relation.before] = max(mine.get(relation.before, 0), source + 1)
        return [
            [
                {c: n for c, n in counts.items() if chains[c].device == chains[index].device}
                for counts in rows
            ]
            for index, rows in enumerate(before)
        ]

    def raise_heads(self, found: Heads) -> bool:
        """Let every op start no earlier than its device can have run what comes before it."""
        chains = self.relations.folded.chains
        moved = False
        for index, rows in enumerate(self.before):
            for number, counts in enumerate(rows):
                ready = sorted(
                    (found[c][i], chains[c].steps) for c, n in counts.items() for i in range(n)
                )
                clock = NEVER
                for head, steps in ready:
                    clock = max(clock, head) + steps
                if clock > found[index][number]:
                    found[index][number] = clock
                    moved = True
        return moved


def tails(relations: Relations, closes: Sequence[int]) -> Heads:
    """Latest end of every op, device d closing at step closes[d]."""
    backward = heads(relations.reversed(), [-close for close in closes])
    return [[-end for end in reversed(row)] for row in backward]


def one_machine(folded: Folded, device: int, first: Heads, last: Heads) -> int:
    """Least time by which a device's latest ends are overrun; 0 or less when they can be met.

    Jackson's preemptive schedule: with heads and tails alone, and ops that may be interrupted, the
    device always runs what has to end first. `first` are earliest starts, `last` latest ends.
    """
    jobs = sorted(
        (first[c][i], last[c][i], folded.chains[c].steps)
        for c in folded.of_device(device)
        for i in range(folded.chains[c].count)
    )
    overrun = NEVER
    clock = jobs[0][0]
    waiting: list[list[int]] = []
    position = 0
    while position < len(jobs) or waiting:
        if not waiting:
            clock = max(clock, jobs[position][0])
        while position < len(jobs) and jobs[position][0] <= clock:
            heapq.heappush(waiting, [jobs[position][1], jobs[position][2]])
            position += 1
        until = jobs[position][0] if position < len(jobs) else clock + waiting[0][1]
        run = min(waiting[0][1], until - clock)
        clock += run
        waiting[0][1] -= run
        if waiting[0][1] == 0:
            overrun = max(overrun, clock - heapq.heappop(waiting)[0])
    return overrun
