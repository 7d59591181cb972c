"""List scheduling: a first schedule in milliseconds, by several priorities.

An event-driven simulation in which a free device takes the best op that is ready and fits its
memory. It sees arrivals as soon as they are certain, and may wait for a B about to arrive rather
than start something long.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from synth.op import Kind, Op
from synth.problem import Problem
from synth.schedule import Orders
from synth.solve.folding import Folded, fold

_FAR = 2**62


@dataclass(frozen=True, slots=True)
class Policy:
    """How a free device chooses.

    `kinds` ranks F, B and W; `patience` is the part of an op's duration a device would rather wait
    for a B than start that op; `deep` prefers the later of its chunks; `cap` bounds the
    micro-batches in flight on device d by the number of stages below it (as 1F1B does).
    """

    kinds: tuple[Kind, Kind, Kind]
    patience: float = 0.0
    deep: bool = True
    cap: bool = False


def policies() -> Iterator[Policy]:
    """All policies worth trying."""
    ranks = (
        (Kind.B, Kind.F, Kind.W),
        (Kind.F, Kind.B, Kind.W),
        (Kind.B, Kind.W, Kind.F),
    )
    for kinds, patience, deep, cap in product(ranks, (0.0, 0.4, 0.8), (True, False), (False, True)):
        yield Policy(kinds, patience, deep, cap)


def one_by_one(problem: Problem) -> Orders:
    """Every micro-batch alone, all its F, then its B and W: fits whenever anything does."""
    rows: list[list[Op]] = [[] for _ in range(problem.devices)]
    for microbatch in range(max(stream.microbatches for stream in problem.streams)):
        for stream in problem.streams:
            if microbatch >= stream.microbatches:
                continue
            for stage, device in enumerate(stream.route):
                rows[device].append(Op(Kind.F, microbatch, stage, stream.name))
            for stage, device in reversed(list(enumerate(stream.route))):
                rows[device].append(Op(Kind.B, microbatch, stage, stream.name))
                rows[device].append(Op(Kind.W, microbatch, stage, stream.name))
    return tuple(tuple(row) for row in rows)


def list_schedule(problem: Problem, policy: Policy) -> Orders | None:
    """Orders found by one policy, or None where it runs into a dead end of memory."""
    return _Listing(fold(problem, 1), policy).run()


class _Listing:
    """One simulation; knows per chain how many ops have started and what each still lacks."""

    def __init__(self, folded: Folded, policy: Policy) -> None:
        self.folded = folded
        self.policy = policy
        chains = folded.chains
        self.started = [0] * len(chains)
        needs = [0] * len(chains)
        self.after: list[list[tuple[int, int]]] = [[] for _ in chains]
        for edge in folded.edges:
            needs[edge.after] += 1
            self.after[edge.before].append((edge.after, edge.lag))
        self.missing = [[needs[c]] * chain.count for c, chain in enumerate(chains)]
        self.arrived = [[0] * chain.count for chain in chains]
        self.times: list[list[int]] = [[] for _ in chains]
        self.ranked = [self._rank(d) for d in range(folded.problem.devices)]
        self.held = [0] * folded.problem.devices
        self.free_at = [0] * folded.problem.devices
        self.releases: list[list[tuple[int, int, str]]] = [
            [] for _ in range(folded.problem.devices)
        ]
        self.held_by: list[dict[str, int]] = [{} for _ in range(folded.problem.devices)]
        self.taken, self.freed = self._memory()
        self.events: list[tuple[int, int]] = [(0, d) for d in range(folded.problem.devices)]

    def _rank(self, device: int) -> list[int]:
        """A device's chains, most wanted first."""
        sign = -1 if self.policy.deep else 1

        def key(index: int) -> tuple[int, int]:
            chain = self.folded.chains[index]
            later_first = sign * chain.stage if chain.kind is Kind.F else chain.stage
            return self.policy.kinds.index(chain.kind), later_first

        return sorted(self.folded.of_device(device), key=key)

    def _memory(self) -> tuple[list[int], list[int]]:
        """Per chain: memory taken at the start and freed at the end of an op."""
        taken, freed = ([0] * len(self.folded.chains) for _ in range(2))
        for row in self.folded.memory:
            for term in row:
                taken[term.chain], freed[term.chain] = term.taken, term.freed
        return taken, freed

    def run(self) -> Orders | None:
        while self.events:
            now, device = heapq.heappop(self.events)
            if self.free_at[device] <= now:
                self._dispatch(device, now)
        if any(n < chain.count for n, chain in zip(self.started, self.folded.chains, strict=True)):
            return None
        return self.folded.unfold(self.times)

    def _dispatch(self, device: int, now: int) -> None:
        """Start the best op that can start now, if any."""
        releases = self.releases[device]
        while releases and releases[0][0] <= now:
            _, freed, stream = heapq.heappop(releases)
            self._hold(device, stream, -freed)
        soonest_act = self._next_act(device)
        for index in self.ranked[device]:
            chain = self.folded.chains[index]
            if self._ready(index) > now or not self._fits(device, index):
                continue
            wait = soonest_act - now
            if chain.kind is not Kind.B and 0 < wait <= self.policy.patience * chain.steps:
                heapq.heappush(self.events, (soonest_act, device))
                return
            self._start(device, index, now)
            return

    def _next_act(self, device: int) -> int:
        soonest = _FAR
        for index in self.ranked[device]:
            if self.folded.chains[index].kind is Kind.B:
                soonest = min(soonest, self._ready(index))
        return soonest

    def _ready(self, index: int) -> int:
        """When the next op of a chain has all it needs; far away while that is not certain."""
        number = self.started[index]
        if number >= self.folded.chains[index].count or self.missing[index][number]:
            return _FAR
        return self.arrived[index][number]

    def _fits(self, device: int, index: int) -> bool:
        chain = self.folded.chains[index]
        limit = self.folded.problem.limits_quanta[device]
        if limit is not None and self.taken[index]:
            need = self.held[device] + self.taken[index]
            if chain.kind is Kind.F:
                need += self._reserve(index)
            if need > limit:
                return False
        if self.policy.cap and chain.kind is Kind.F:
            in_flight = self.started[index] - self.started[index + 1]
            stages = len(self.folded.problem.stages)
            return in_flight < max(1, stages - chain.stage)
        return True

    def _reserve(self, index: int) -> int:
        """What an F must leave free so that the oldest micro-batch of every stream can go on.

        That is room for the later chunks of its own stream, and for one micro-batch of every other
        stream that holds nothing yet; none for chunks whose F have all started.
        """
        chain = self.folded.chains[index]
        own = 0
        others: dict[str, int] = {}
        for other in self.folded.of_device(chain.device):
            candidate = self.folded.chains[other]
            if candidate.kind is not Kind.F or self.started[other] >= candidate.count:
                continue
            if candidate.stream != chain.stream:
                others[candidate.stream] = others.get(candidate.stream, 0) + self.taken[other]
            elif candidate.stage > chain.stage:
                own += self.taken[other]
        holds = self.held_by[chain.device]
        return own + sum(max(0, need - holds.get(name, 0)) for name, need in others.items())

    def _hold(self, device: int, stream: str, change: int) -> None:
        self.held[device] += change
        holds = self.held_by[device]
        holds[stream] = holds.get(stream, 0) + change

    def _start(self, device: int, index: int, now: int) -> None:
        chain, number = self.folded.chains[index], self.started[index]
        end = now + chain.steps
        self.started[index] += 1
        self.times[index].append(now)
        self._hold(device, chain.stream, self.taken[index])
        if self.freed[index]:
            heapq.heappush(self.releases[device], (end, self.freed[index], chain.stream))
        self.free_at[device] = end
        heapq.heappush(self.events, (end, device))
        for other, lag in self.after[index]:
            self.missing[other][number] -= 1
            self.arrived[other][number] = max(self.arrived[other][number], end + lag)
            if not self.missing[other][number]:
                device_after = self.folded.chains[other].device
                heapq.heappush(self.events, (self.arrived[other][number], device_after))
