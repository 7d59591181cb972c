"""Gaps: the idle time between two ops of a device, what it waits for, and what could have run.

A gap ends where the input of the next op arrives. It is split by what the device could have run in
it: ops that were ready and had room in memory but come later in the order, ops that were ready but
had no room, and nothing, which is waiting that no other order of this device alone avoids.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from synth.graph import dependencies
from synth.op import Kind, Op
from synth.problem import Problem
from synth.schedule import TimedOp
from synth.simulate import memory_change

Done = dict[Op, TimedOp]
"""The op that executes each node, with its times."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Idle ticks between two ops of a device, and why."""

    device: int
    start: int
    end: int
    before: Op  # the op that waits
    waits_for: Op | None  # what it waits for; None if it could have started earlier
    no_room: tuple[Op, ...]  # ready, but without room in memory
    held_back: tuple[Op, ...]  # ready and with room, but later in the order
    memory: int = 0
    order: int = 0

    @property
    def dependency(self) -> int:
        """Ticks in which nothing was ready that fits into the gap."""
        return self.end - self.start - self.memory - self.order


def arrivals(problem: Problem, op: Op, done: Done) -> Iterator[tuple[int, Op]]:
    """What an op waits for, each with the tick at which it is there."""
    inside = op.nodes
    for node in inside:
        for before, lag in dependencies(problem, node):
            if before not in inside:
                yield done[before].end + lag, done[before].op


def gaps(problem: Problem, device: int, ops: tuple[TimedOp, ...], done: Done) -> Iterator[Gap]:
    """The gaps between the ops of a device, in time."""
    held = 0
    later = _Later(problem, device, ops, done)
    for index, timed in enumerate(ops):
        start = ops[index - 1].end if index > 0 else timed.start
        if timed.start > start:
            arrival, source = max(
                arrivals(problem, timed.op, done), key=lambda pair: pair[0], default=(0, None)
            )
            waits_for = source if arrival == timed.start else None
            yield later.explain(device, start, timed, waits_for, held)
        later.ran(timed.op)
        taken, freed = memory_change(problem, timed.op)
        held += taken - freed


class _Later:
    """What a device still has to run: for each kind, stage and stream the ops in their order."""

    def __init__(self, problem: Problem, device: int, ops: tuple[TimedOp, ...], done: Done) -> None:
        self._problem, self._done = problem, done
        self._limit = problem.limits_quanta[device]
        self._chains: dict[tuple[Kind, int, str], deque[Op]] = {}
        for timed in ops:
            self._chains.setdefault(_chain_of(timed.op), deque()).append(timed.op)

    def ran(self, op: Op) -> None:
        """Take an op off the list: the first of its chain."""
        self._chains[_chain_of(op)].popleft()

    def explain(
        self, device: int, start: int, waiting: TimedOp, waits_for: Op | None, held: int
    ) -> Gap:
        """A gap in front of an op, and what could have run in it."""
        clock, memory, order = start, 0, 0
        no_room, held_back = [], []
        for arrival, op in self._ready(waiting):
            ticks = self._problem.duration(op)
            taken, freed = memory_change(self._problem, op)
            if self._limit is not None and held + taken > self._limit:
                no_room.append(op)
                memory += ticks
            elif max(clock, arrival) + ticks <= waiting.start:
                held_back.append(op)
                order += ticks
                clock = max(clock, arrival) + ticks
                held += taken - freed
        memory = min(memory, waiting.start - start - order)
        return Gap(
            device,
            start,
            waiting.start,
            waiting.op,
            waits_for,
            tuple(no_room),
            tuple(held_back),
            memory,
            order,
        )

    def _ready(self, waiting: TimedOp) -> list[tuple[int, Op]]:
        """The other ops whose input is there in time to run in front of one, by arrival."""
        found = []
        for chain in self._chains.values():
            for op in chain:
                if op == waiting.op:
                    break  # what follows in its chain follows in time
                arrival = max((tick for tick, _ in self._inputs(op)), default=0)
                if arrival + self._problem.duration(op) > waiting.start:
                    break
                found.append((arrival, op))
        return sorted(found, key=lambda pair: pair[0])

    def _inputs(self, op: Op) -> Iterator[tuple[int, Op]]:
        return arrivals(self._problem, op, self._done)


def _chain_of(op: Op) -> tuple[Kind, int, str]:
    return op.kind, op.stage, op.stream
