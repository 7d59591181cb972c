"""Folding: micro-batches of a stream are interchangeable, so only counts per chain remain.

A chain is (stream, stage, kind). Sorting the starts of a chain keeps every dependency and every
memory row intact, so some optimal schedule runs every chain in micro-batch order, and a schedule is
the same as one non-decreasing counter per chain: how many of its ops have started by each step.
Unfolding gives the i-th start of a chain to micro-batch i.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import gcd

from synth.op import Kind, Op
from synth.problem import Problem
from synth.schedule import Orders, Timeline

KINDS = (Kind.F, Kind.B, Kind.W)


@dataclass(frozen=True, slots=True)
class Chain:
    """All ops of one kind of one stage of one stream. Times are grid steps."""

    stream: str
    stage: int
    kind: Kind
    device: int
    count: int
    steps: int


@dataclass(frozen=True, slots=True)
class Edge:
    """The i-th op of `after` starts at least `lag` steps behind the end of the i-th of `before`."""

    before: int
    after: int
    lag: int


@dataclass(frozen=True, slots=True)
class MemoryTerm:
    """A chain's share in a device's memory row: `taken` from each start, `freed` from each end."""

    chain: int
    taken: int
    freed: int


@dataclass(frozen=True, slots=True)
class Folded:
    """A problem on a grid of `step_ticks`, one chain per (stream, stage, kind)."""

    problem: Problem
    step_ticks: int
    chains: tuple[Chain, ...]
    edges: tuple[Edge, ...]
    memory: tuple[tuple[MemoryTerm, ...], ...]  # per device; empty where there is no limit

    def of_device(self, device: int) -> tuple[int, ...]:
        """Indices of a device's chains."""
        return tuple(i for i, chain in enumerate(self.chains) if chain.device == device)

    def unfold(self, starts: list[list[int]]) -> Orders:
        """The orders that the sorted starts of every chain stand for."""
        rows: list[list[tuple[int, int, Op]]] = [[] for _ in range(self.problem.devices)]
        for chain, times in zip(self.chains, starts, strict=True):
            for microbatch, start in enumerate(times):
                op = Op(chain.kind, microbatch, chain.stage, chain.stream)
                rows[chain.device].append((start, microbatch, op))
        return tuple(
            tuple(op for *_, op in sorted(row, key=lambda entry: entry[:2])) for row in rows
        )

    def starts(self, timeline: Timeline) -> list[list[int]]:
        """A timeline's start steps, sorted, of every chain; fused and paired ops start together."""
        index = {(c.stream, c.stage, c.kind): i for i, c in enumerate(self.chains)}
        found: list[list[int]] = [[] for _ in self.chains]
        for timed in (timed for ops in timeline for timed in ops):
            for node in timed.op.nodes:
                chain = index[node.stream, node.stage, node.kind]
                found[chain].append(timed.start // self.step_ticks)
        return [sorted(row) for row in found]


def exact_step(problem: Problem) -> int:
    """The largest step, in ticks, of which every duration and lag is a multiple."""
    durations = (
        (cost.forward_ticks, cost.backward_act_ticks, cost.backward_wgt_ticks)
        for cost in problem.costs
    )
    lags = (problem.comm_ticks, *(link.lag_ticks for link in problem.links))
    return gcd(*lags, *(ticks for stage in durations for ticks in stage))


def fold(problem: Problem, step_ticks: int, *, round_up: bool = True) -> Folded:
    """Fold a problem on a grid.

    Rounding durations up keeps every folded schedule valid for the problem; rounding them down
    keeps every schedule of the problem valid for the folded one (take floor(start / step)), so that
    a horizon refuted there is refuted for the problem.
    """

    def steps(ticks: int) -> int:
        return -(-ticks // step_ticks) if round_up else ticks // step_ticks

    chains: list[Chain] = []
    index: dict[tuple[str, int, Kind], int] = {}
    for stream in problem.streams:
        for stage, device in enumerate(stream.route):
            for kind in KINDS:
                index[stream.name, stage, kind] = len(chains)
                ticks = problem.duration(Op(kind, 0, stage, stream.name))
                chains.append(
                    Chain(stream.name, stage, kind, device, stream.microbatches, steps(ticks))
                )
    return Folded(
        problem, step_ticks, tuple(chains), _edges(problem, index, steps), _memory(problem, chains)
    )


def _edges(
    problem: Problem, index: dict[tuple[str, int, Kind], int], steps: Callable[[int], int]
) -> tuple[Edge, ...]:
    edges: list[Edge] = []
    for stream in problem.streams:
        name, route = stream.name, stream.route
        for stage in range(len(route)):
            forward, act, wgt = (index[name, stage, kind] for kind in KINDS)
            edges += [Edge(forward, act, 0), Edge(act, wgt, 0)]
            for other in problem.before(stage):
                there, back = route[other], route[stage]
                lag = steps(problem.lag(there, back))
                edges.append(Edge(index[name, other, Kind.F], forward, lag))
                lag = steps(problem.lag(back, there))
                edges.append(Edge(act, index[name, other, Kind.B], lag))
    return tuple(edges)


def _memory(problem: Problem, chains: list[Chain]) -> tuple[tuple[MemoryTerm, ...], ...]:
    rows: list[tuple[MemoryTerm, ...]] = []
    for device, limit in enumerate(problem.limits_quanta):
        terms: list[MemoryTerm] = []
        for number, chain in enumerate(chains):
            if limit is None or chain.device != device:
                continue
            cost = problem.cost(chain.stream, chain.stage)
            growth = cost.context_quanta - cost.activation_quanta
            if chain.kind is Kind.F:
                terms.append(MemoryTerm(number, cost.activation_quanta, 0))
            elif chain.kind is Kind.B:
                terms.append(MemoryTerm(number, max(0, growth), max(0, -growth)))
            else:
                terms.append(MemoryTerm(number, 0, cost.context_quanta))
        rows.append(tuple(terms))
    return tuple(rows)
