"""Hill climbing over list-scheduling rules: shift the urgency of chains, the patience of devices.

Starts over from another rule when nothing improves for a while. The same seed takes the same steps.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from synth.folding import Folded
from synth.heads import Heads, heads, relate
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
    pace: float  # steps between micro-batches that enter
    burst: int  # micro-batches that enter at once
    even: bool  # urgency that grows by the pace from one micro-batch to the next


def climb(folded: Folded, seed: int) -> Iterator[Starts | None]:
    """Start times, each better than the last since starting over; None for a step without one.

    Endless: the caller stops it. Yields after every simulation.
    """
    rng = random.Random(seed)
    lister = Lister(folded)
    pool = _Pool(folded)
    while True:
        genes, best, stale = pool.fresh(rng), None, 0
        while stale < STALE:
            candidate = genes if best is None else pool.mutate(genes, rng)
            starts = lister.run(pool.rule(candidate))
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


class _Pool:
    """Makes and changes genes, and works out the urgencies for each sharing of memory once."""

    def __init__(self, folded: Folded) -> None:
        self.folded = folded
        self.shared = tuple(sorted(shared_rooms(folded).items()))
        self.known: dict[tuple[tuple[int, int], ...], Heads] = {}
        self.longest = max(chain.steps for chain in folded.chains)
        devices = range(folded.problem.devices)
        self.entry = [row[0] for row in heads(relate(folded), [0 for _ in devices])]
        self.period = max(
            sum(folded.chains[c].steps for c in folded.of_device(device)) for device in devices
        )

    def fresh(self, rng: random.Random) -> _Genes:
        """Genes to start from: with or without memory shared out, with or without a pace."""
        paced = rng.random() < 0.4
        return _Genes(
            shifts=(0.0,) * len(self.folded.chains),
            patience=(rng.choice((0.0, 0.2, 0.4, 0.6, 0.8)),) * self.folded.problem.devices,
            rooms=self.shared if rng.random() < 0.7 else (),
            pace=self.period * rng.choice((0.8, 0.9, 1.0, 1.1)) if paced else 0.0,
            burst=rng.choice((1, 2, 3, 4)),
            even=paced and rng.random() < 0.5,
        )

    def rule(self, genes: _Genes) -> Rule:
        """The rule that the genes stand for."""
        urgency = tuple(
            tuple(start + shift for start in row)
            for row, shift in zip(self._base(genes), genes.shifts, strict=True)
        )
        return Rule(urgency, genes.patience, dict(genes.rooms), genes.pace, genes.burst)

    def _base(self, genes: _Genes) -> Sequence[Sequence[float]]:
        if genes.even:
            return [
                [entry + number * genes.pace for number in range(chain.count)]
                for chain, entry in zip(self.folded.chains, self.entry, strict=True)
            ]
        if genes.rooms not in self.known:
            self.known[genes.rooms] = latest_starts(self.folded, dict(genes.rooms))
        return self.known[genes.rooms]

    def mutate(self, genes: _Genes, rng: random.Random) -> _Genes:
        """Change a device's patience, a chain's urgency, the pace, or how chunks share memory."""
        dice = rng.random()
        if dice < 0.4:
            patience = list(genes.patience)
            patience[rng.randrange(len(patience))] = rng.choice(PATIENCES)
            return replace(genes, patience=tuple(patience))
        if dice < 0.8:
            shifts = list(genes.shifts)
            shifts[rng.randrange(len(shifts))] += rng.choice(SHIFTS) * self.longest
            return replace(genes, shifts=tuple(shifts))
        if dice < 0.9 and genes.rooms:
            return replace(genes, rooms=self._moved(dict(genes.rooms), rng))
        if dice < 0.95 and genes.pace:
            return replace(genes, pace=genes.pace * rng.uniform(0.95, 1.05))
        return replace(genes, burst=max(0, genes.burst + rng.choice((-1, 1))))

    def _moved(self, rooms: dict[int, int], rng: random.Random) -> tuple[tuple[int, int], ...]:
        """Give one chunk's room to another of its device; the simulation keeps the limit itself."""
        device = {c: self.folded.chains[c].device for c in rooms}
        giver = rng.choice(sorted(rooms))
        takers = [c for c in sorted(rooms) if c != giver and device[c] == device[giver]]
        if rooms[giver] > 1:
            rooms[giver] -= 1
        rooms[rng.choice(takers)] += 1
        return tuple(sorted(rooms.items()))
