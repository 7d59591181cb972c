"""Hill climbing over list-scheduling rules: shift the urgency of chains, the patience of devices.

Starts over from another rule when nothing improves for a while. The same seed takes the same steps.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from synth.folding import Folded
from synth.heads import Heads
from synth.problem import Objective
from synth.solve.listing import Lister, Rule, Starts, latest_starts, shared_rooms

PATIENCES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2)
SHIFTS = (-1.0, -0.5, -0.25, 0.25, 0.5, 1.0)  # of the longest op
STALE = 120  # steps without improvement before starting over


def worth(folded: Folded, starts: Starts) -> int:
    """The objective of start times as they are, in steps; re-timing can only improve on it."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for chain, times in zip(folded.chains, starts, strict=True):
        first[chain.device] = min(first.get(chain.device, times[0]), times[0])
        last[chain.device] = max(last.get(chain.device, 0), times[-1] + chain.steps)
    if folded.problem.objective is Objective.MAKESPAN:
        return max(last.values()) - min(first.values())
    return max(last[device] - first[device] for device in first)


@dataclass(frozen=True, slots=True)
class _Genes:
    """What the climb changes of a rule."""

    shifts: tuple[float, ...]  # of each chain's urgency, in steps
    patience: tuple[float, ...]  # per device
    rooms: tuple[tuple[int, int], ...]  # F chain and its room, where memory is shared out


def climb(folded: Folded, seed: int) -> Iterator[Starts | None]:
    """Start times, each better than the last since starting over; None for a step without one.

    Endless: the caller stops it. Yields after every simulation.
    """
    rng = random.Random(seed)
    lister = Lister(folded)
    urgencies = _Urgencies(folded)
    shared = tuple(sorted(shared_rooms(folded).items()))
    while True:
        patience = (rng.choice((0.2, 0.4, 0.6, 0.8)),) * folded.problem.devices
        rooms = shared if rng.random() < 0.8 else ()
        genes = _Genes((0.0,) * len(folded.chains), patience, rooms)
        best, stale = None, 0
        while stale < STALE:
            candidate = genes if best is None else _mutate(genes, folded, rng)
            starts = lister.run(urgencies.rule(candidate))
            value = None if starts is None else worth(folded, starts)
            stale += 1
            if value is None or (best is not None and value > best):
                yield None
                continue
            if best is None or value < best:
                stale = 0
                yield starts
            else:
                yield None
            genes, best = candidate, value


class _Urgencies:
    """The urgency of all ops for a sharing of memory, worked out once for each."""

    def __init__(self, folded: Folded) -> None:
        self.folded = folded
        self.known: dict[tuple[tuple[int, int], ...], Heads] = {}

    def rule(self, genes: _Genes) -> Rule:
        """The rule that the genes stand for."""
        if genes.rooms not in self.known:
            self.known[genes.rooms] = latest_starts(self.folded, dict(genes.rooms))
        urgency = tuple(
            tuple(start + shift for start in row)
            for row, shift in zip(self.known[genes.rooms], genes.shifts, strict=True)
        )
        return Rule(urgency, genes.patience, dict(genes.rooms))


def _mutate(genes: _Genes, folded: Folded, rng: random.Random) -> _Genes:
    """Change a device's patience, a chain's urgency, or how two chunks share their memory."""
    dice = rng.random()
    if dice < 0.45:
        patience = list(genes.patience)
        patience[rng.randrange(len(patience))] = rng.choice(PATIENCES)
        return replace(genes, patience=tuple(patience))
    if dice < 0.85 or not genes.rooms:
        shifts = list(genes.shifts)
        longest = max(chain.steps for chain in folded.chains)
        shifts[rng.randrange(len(shifts))] += rng.choice(SHIFTS) * longest
        return replace(genes, shifts=tuple(shifts))
    rooms = dict(genes.rooms)
    giver = rng.choice(sorted(rooms))
    device = folded.chains[giver].device
    takers = [c for c in sorted(rooms) if c != giver and folded.chains[c].device == device]
    if rooms[giver] > 1:
        rooms[giver] -= 1
    rooms[rng.choice(takers)] += 1  # the limit itself is kept by the simulation
    return replace(genes, rooms=tuple(sorted(rooms.items())))
