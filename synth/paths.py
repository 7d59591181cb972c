"""Longest paths of one micro-batch through the stages and back: what the bounds are made of."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from synth.problem import Problem, StageCost, Stream


@dataclass(frozen=True, slots=True)
class Reach:
    """Ticks to the start of each stage's F and B; None where no path leads."""

    forward: tuple[int | None, ...]
    backward: tuple[int | None, ...]


def from_nothing(problem: Problem, stream: Stream) -> Reach:
    """The earliest starts on devices that have nothing else to do."""
    return _reach(problem, stream, range(len(stream.route)))


def from_stage(problem: Problem, stream: Stream, stage: int) -> Reach:
    """From the start of a stage's F: the least time to what has to follow it."""
    return _reach(problem, stream, (stage,))


def roots(problem: Problem, stream: Stream, device: int) -> list[int]:
    """A device's stages that need none of its others: its first F is that of one of these."""
    ancestors = problem.ancestors()
    here = {stage for stage, holder in enumerate(stream.route) if holder == device}
    return sorted(stage for stage in here if here.isdisjoint(ancestors[stage]))


def turnarounds(problem: Problem, stream: Stream, device: int) -> dict[int, int]:
    """For each stage of a device: least ticks from the device's first F for it to its B.

    That is the longest path to the B from any F of the device that has to come before. The paths
    from its roots suffice, as every other F lies on one of them.
    """
    found: dict[int, int] = {}
    for root in roots(problem, stream, device):
        ticks = from_stage(problem, stream, root).backward
        for stage, holder in enumerate(stream.route):
            path = ticks[stage]
            if holder == device and path is not None:
                found[stage] = max(found.get(stage, 0), path)
    return found


def back(cost: StageCost) -> int:
    """Least ticks of a whole backward."""
    return min(cost.fused_ticks, cost.backward_act_ticks + cost.backward_wgt_ticks)


@lru_cache(maxsize=1024)
def _reach(problem: Problem, stream: Stream, sources: tuple[int, ...] | range) -> Reach:
    """Longest paths from the starts of some F, each of which is taken to start at 0 or later."""
    route, costs = stream.route, problem.costs_of(stream.name)
    forward: list[int | None] = [None] * len(route)
    backward: list[int | None] = [None] * len(route)
    for stage, device in enumerate(route):
        arrivals = [0] if stage in sources else []
        for other in problem.before(stage):
            start = forward[other]
            if start is not None:
                lag = problem.lag(route[other], device)
                arrivals.append(start + costs[other].forward_ticks + lag)
        forward[stage] = max(arrivals, default=None)
    for stage, device in reversed(list(enumerate(route))):
        own = forward[stage]
        arrivals = [] if own is None else [own + costs[stage].forward_ticks]
        for other in problem.behind(stage):
            start = backward[other]
            if start is not None:
                lag = problem.lag(route[other], device)
                arrivals.append(start + costs[other].backward_act_ticks + lag)
        backward[stage] = max(arrivals, default=None)
    return Reach(tuple(forward), tuple(backward))
