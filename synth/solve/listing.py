"""List scheduling: a good schedule in milliseconds.

An event-driven simulation in which a free device takes the most urgent op that is ready and fits
its memory. It sees arrivals as soon as they are certain, and may wait for a more urgent op about to
arrive rather than start a less urgent one.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import permutations

from synth.alone import alone
from synth.folding import KINDS, Folded
from synth.heads import Heads, heads, relate, tails
from synth.op import Kind, Op
from synth.problem import Objective, Problem
from synth.schedule import Orders

Starts = list[list[int]]

_FAR = 2**62


@dataclass(frozen=True, slots=True)
class Rule:
    """How free devices choose.

    `urgency[c][i]` of op i of chain c: lower goes first. `patience[d]` is the part of an op's
    duration that device d would rather wait for a more urgent one than start it. `rooms` bounds for
    F chains how many micro-batches' activations their chunk may hold. Behind the first `burst`,
    micro-batches enter the first stage no faster than one every `pace` steps.
    """

    urgency: tuple[tuple[float, ...], ...]
    patience: tuple[float, ...]
    rooms: Mapping[int, int]
    pace: float = 0.0
    burst: int = 0


def latest_starts(folded: Folded, rooms: Mapping[int, int]) -> Heads:
    """When each op must start at the latest, all up to a constant: what makes it urgent."""
    devices = folded.problem.devices
    relations = relate(folded, rooms)
    closes = [0] * devices
    if folded.problem.objective is Objective.SPAN:
        first = heads(relations, closes)
        closes = [min(first[c][0] for c in folded.of_device(d)) for d in range(devices)]
    last = tails(relations, closes)
    return [
        [end - chain.steps for end in ends] for chain, ends in zip(folded.chains, last, strict=True)
    ]


def rules(folded: Folded) -> Iterator[Rule]:
    """Rules worth trying first: by urgency, then by the rank of kinds, with more or less room."""
    devices, chains = folded.problem.devices, folded.chains
    shared = shared_rooms(folded)
    for rooms in ({}, shared) if shared else ({},):
        urgency = tuple(tuple(map(float, row)) for row in latest_starts(folded, rooms))
        for patience in (0.5, 0.7, 0.3, 0.9, 0.1, 0.0):
            yield Rule(urgency, (patience,) * devices, rooms)
    stages = len(folded.problem.stages)
    tight = {
        index: max(1, stages - chain.stage)
        for index, chain in enumerate(chains)
        if chain.kind is Kind.F
    }
    for kinds in permutations((Kind.B, Kind.F, Kind.W)):
        ranked = tuple((_rank(folded, index, kinds),) * c.count for index, c in enumerate(chains))
        for rooms in ({}, tight):
            for patience in (0.0, 0.4, 0.8):
                yield Rule(ranked, (patience,) * devices, rooms)


def shared_rooms(folded: Folded) -> dict[int, int]:
    """Each device's memory shared among its chunks in proportion to how long they hold theirs.

    By Little's law that is what a steady stream of micro-batches needs. Empty where no device has
    both a memory limit and several chunks.
    """
    chains = folded.chains
    first = heads(relate(folded), [0] * folded.problem.devices)
    rooms: dict[int, int] = {}
    for device, limit in enumerate(folded.problem.limits_quanta):
        forward = [c for c in folded.of_device(device) if chains[c].kind is Kind.F]
        costs = {c: folded.problem.cost(chains[c].stream, chains[c].stage) for c in forward}
        if (
            limit is None
            or len(forward) < 2
            or not all(k.activation_quanta for k in costs.values())
        ):
            continue
        lives = {c: first[c + 1][0] + chains[c + 1].steps - first[c][0] for c in forward}
        whole = sum(lives[c] * costs[c].activation_quanta for c in forward)
        left = limit
        for c in sorted(forward, key=lambda c: lives[c]):
            share = lives[c] * limit / whole
            rooms[c] = max(1, min(round(share), left // costs[c].activation_quanta))
            left -= rooms[c] * costs[c].activation_quanta
    return rooms


def _rank(folded: Folded, index: int, kinds: tuple[Kind, ...]) -> float:
    """By kind; the later of a device's chunks first for F, the earlier for B and W."""
    chain = folded.chains[index]
    stages = len(folded.problem.stages)
    later = stages - chain.stage if chain.kind is Kind.F else chain.stage
    return float(kinds.index(chain.kind) * stages * 2 + later)


def one_by_one(problem: Problem) -> Orders:
    """Every micro-batch alone, which fits whenever anything does."""
    rows: list[list[Op]] = [[] for _ in range(problem.devices)]
    orders = {stream.name: alone(problem, stream).order for stream in problem.streams}
    for microbatch in range(max(stream.microbatches for stream in problem.streams)):
        for stream in problem.streams:
            if microbatch >= stream.microbatches:
                continue
            for kind, stage in orders[stream.name]:
                row = rows[stream.route[stage]]
                row.append(Op(kind, microbatch, stage, stream.name))
                if kind is Kind.B:
                    row.append(Op(Kind.W, microbatch, stage, stream.name))
    return tuple(tuple(row) for row in rows)


class Lister:
    """Runs rules on one folded problem; what does not depend on the rule is prepared once."""

    def __init__(self, folded: Folded) -> None:
        self.folded = folded
        chains = folded.chains
        self.steps = [chain.steps for chain in chains]
        self.counts = [chain.count for chain in chains]
        self.device = [chain.device for chain in chains]
        self.needs = [0] * len(chains)
        self.after: list[list[tuple[int, int]]] = [[] for _ in chains]
        for edge in folded.edges:
            self.needs[edge.after] += 1
            self.after[edge.before].append((edge.after, edge.lag))
        self.taken, self.freed = ([0] * len(chains) for _ in range(2))
        for row in folded.memory:
            for term in row:
                self.taken[term.chain], self.freed[term.chain] = term.taken, term.freed
        self.local = [folded.of_device(d) for d in range(folded.problem.devices)]
        self.forward = self._forward_chains()
        self.entries = [index for index, need in enumerate(self.needs) if not need]
        self.later = [self._later(index) for index in range(len(chains))]
        self.others = [self._others(index) for index in range(len(chains))]

    def _forward_chains(self) -> list[int]:
        """The F chain of every chain's stage and stream."""
        return [index - KINDS.index(chain.kind) for index, chain in enumerate(self.folded.chains)]

    def _later(self, index: int) -> tuple[int, ...]:
        """F chains of later chunks of the same stream on the same device."""
        mine = self.folded.chains[index]
        return tuple(
            c
            for c in self.local[mine.device]
            if self.folded.chains[c].kind is Kind.F
            and self.folded.chains[c].stream == mine.stream
            and self.folded.chains[c].stage > mine.stage
        )

    def _others(self, index: int) -> tuple[tuple[int, ...], ...]:
        """F chains of the other streams on the same device, by stream."""
        mine = self.folded.chains[index]
        found: dict[str, list[int]] = {}
        for c in self.local[mine.device]:
            chain = self.folded.chains[c]
            if chain.kind is Kind.F and chain.stream != mine.stream:
                found.setdefault(chain.stream, []).append(c)
        return tuple(tuple(group) for group in found.values())

    def run(self, rule: Rule) -> Starts | None:
        """Start times of all ops under a rule; None where memory leads it into a dead end."""
        times = _Run(self, rule).run()
        if any(len(row) < count for row, count in zip(times, self.counts, strict=True)):
            return None
        return times


class _Run:
    """One simulation; knows per chain how many ops have started and what each still lacks."""

    def __init__(self, lister: Lister, rule: Rule) -> None:
        devices = lister.folded.problem.devices
        self.lister = lister
        self.rule = rule
        self.limits = lister.folded.problem.limits_quanta
        self.missing = [
            [need] * count for need, count in zip(lister.needs, lister.counts, strict=True)
        ]
        self.arrived = [[0] * count for count in lister.counts]
        for index in lister.entries:
            self.arrived[index] = [
                max(0, round((number - rule.burst) * rule.pace))
                for number in range(lister.counts[index])
            ]
        self.times: Starts = [[] for _ in lister.counts]
        self.held = [0] * devices
        self.holds = [0] * len(lister.counts)  # per F chain: what its chunk holds
        self.free_at = [0] * devices
        self.releases: list[list[tuple[int, int, int]]] = [[] for _ in range(devices)]
        self.events: list[tuple[int, int]] = sorted(
            {(0, device) for device in range(devices)}
            | {(at, lister.device[c]) for c in lister.entries for at in self.arrived[c]}
        )

    def run(self) -> Starts:
        events = self.events
        while events:
            now, device = heapq.heappop(events)
            if self.free_at[device] <= now:
                self._dispatch(device, now)
        return self.times

    def _dispatch(self, device: int, now: int) -> None:
        """Start the most urgent op that can start, unless a more urgent one is worth the wait."""
        releases = self.releases[device]
        while releases and releases[0][0] <= now:
            _, freed, index = heapq.heappop(releases)
            self._hold(device, index, -freed)
        soonest = _FAR
        for _, index in self._waiting(device):
            ready = self.arrived[index][len(self.times[index])]
            if ready > now:
                soonest = min(soonest, ready)
            elif self._fits(device, index):
                most = self.rule.patience[device] * self.lister.steps[index]
                if soonest - now <= most:
                    heapq.heappush(self.events, (soonest, device))
                else:
                    self._start(device, index, now)
                return

    def _waiting(self, device: int) -> list[tuple[float, int]]:
        """The device's next ops that have all they need, or are certain to get it, urgent first."""
        found = []
        for index in self.lister.local[device]:
            number = len(self.times[index])
            if number < self.lister.counts[index] and not self.missing[index][number]:
                found.append((self.rule.urgency[index][number], index))
        found.sort()
        return found

    def _fits(self, device: int, index: int) -> bool:
        taken = self.lister.taken[index]
        if not taken:
            return True
        room = self.rule.rooms.get(index)
        if room is not None and self.holds[index] + taken > room * taken:
            return False
        limit = self.limits[device]
        if limit is None:
            return True
        is_forward = self.lister.forward[index] == index
        reserve = self._reserve(device, index) if is_forward and room is None else 0
        return self.held[device] + taken + reserve <= limit

    def _reserve(self, device: int, index: int) -> int:
        """What an F must leave free so that the oldest micro-batch of every stream can go on.

        That is room for the later chunks of its own stream, and for one micro-batch of every other
        stream that holds nothing yet; none for chunks whose F have all started.
        """
        room = self._outstanding(self.lister.later[index])
        for group in self.lister.others[index]:
            held = sum(self.holds[c] for c in group)
            room += max(0, self._outstanding(group) - held)
        return room

    def _outstanding(self, group: tuple[int, ...]) -> int:
        lister = self.lister
        return sum(lister.taken[c] for c in group if len(self.times[c]) < lister.counts[c])

    def _hold(self, device: int, index: int, change: int) -> None:
        self.held[device] += change
        self.holds[self.lister.forward[index]] += change

    def _start(self, device: int, index: int, now: int) -> None:
        lister, number = self.lister, len(self.times[index])
        end = now + lister.steps[index]
        self.times[index].append(now)
        if lister.taken[index]:
            self._hold(device, index, lister.taken[index])
        if lister.freed[index]:
            heapq.heappush(self.releases[device], (end, lister.freed[index], index))
        self.free_at[device] = end
        heapq.heappush(self.events, (end, device))
        for other, lag in lister.after[index]:
            arrived, missing = self.arrived[other], self.missing[other]
            arrived[number] = max(arrived[number], end + lag)
            missing[number] -= 1
            if not missing[number]:
                heapq.heappush(self.events, (arrived[number], lister.device[other]))
