"""A folded problem as arrays: its ops numbered through, chain by chain, and what joins them."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from synth.folding import Folded
from synth.problem import Objective
from synth.solve.listing import Starts

Integers: TypeAlias = NDArray[np.int64]

_UNLIMITED = 2**62


class Network(NamedTuple):
    """What does not change while device orders are searched.

    Arcs lead from an op to those that wait for it: those into op i are at `before_at[i]` to
    `before_at[i + 1]`, those out of it likewise; their weights are steps from start to start.
    """

    steps: Integers
    device: Integers
    before_at: Integers
    before: Integers
    before_weight: Integers
    after_at: Integers
    after: Integers
    after_weight: Integers
    taken: Integers
    freed: Integers
    limits: Integers  # by device
    counts: Integers  # ops by device
    spans: bool  # whether the longest of the devices' spans counts, not the makespan


class Numbering:
    """The network of a folded problem, and the way from its numbers to chains and back."""

    def __init__(self, folded: Folded) -> None:
        chains = folded.chains
        counts = [chain.count for chain in chains]
        self._first = [sum(counts[:index]) for index in range(len(chains))]
        self._counts = counts
        steps = np.repeat([chain.steps for chain in chains], counts)
        device = np.repeat([chain.device for chain in chains], counts)
        taken, freed = np.zeros_like(steps), np.zeros_like(steps)
        for term in (term for row in folded.memory for term in row):
            ops = slice(self._first[term.chain], self._first[term.chain] + counts[term.chain])
            taken[ops], freed[ops] = term.taken, term.freed
        arcs = [
            (self._first[edge.before] + i, self._first[edge.after] + i, edge.lag)
            for edge in folded.edges
            for i in range(counts[edge.after])
        ]
        source, target, lag = np.array(arcs, dtype=np.int64).reshape(-1, 3).T
        limits = folded.problem.limits_quanta
        self.network = Network(
            steps,
            device,
            *_listed(target, source, steps[source] + lag, len(steps)),
            *_listed(source, target, steps[source] + lag, len(steps)),
            taken,
            freed,
            np.array([_UNLIMITED if limit is None else limit for limit in limits]),
            np.bincount(device, minlength=len(limits)),
            folded.problem.objective is Objective.SPAN,
        )

    def rows(self, starts: Starts) -> Integers:
        """Each device's ops by start, ties in the order of the numbers; -1 behind the last."""
        network = self.network
        times = np.concatenate([np.asarray(row, dtype=np.int64) for row in starts])
        rows = np.full((len(network.counts), int(network.counts.max())), -1)
        for device, count in enumerate(network.counts):
            ops = np.flatnonzero(network.device == device)
            rows[device, :count] = ops[np.argsort(times[ops], kind="stable")]
        return rows

    def starts(self, times: Integers) -> Starts:
        """Times of all ops, by chain."""
        listed = times.tolist()
        return [
            sorted(listed[base : base + count])
            for base, count in zip(self._first, self._counts, strict=True)
        ]

    def op(self, chain: int, number: int) -> int:
        """The number of an op of a chain."""
        return self._first[chain] + number


def _listed(
    key: Integers, other: Integers, weight: Integers, count: int
) -> tuple[Integers, Integers, Integers]:
    """Arcs by their end `key`: where those of each op begin, the other ends, the weights."""
    order = np.argsort(key, kind="stable")
    at = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(np.bincount(key, minlength=count), out=at[1:])
    return at, other[order], weight[order]
