"""From a family's name and a problem to a timed schedule with its certificate."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from synth.bounds import Bound, best_bound
from synth.catalog.registry import family
from synth.errors import InfeasibleError, UsageError
from synth.problem import Problem
from synth.schedule import Certificate, Schedule, Timeline, value
from synth.simulate import peaks, retime


def build(name: str, problem: Problem, *, ignore_limits: bool = False) -> Schedule:
    """The handcrafted schedule of that name for a problem on the family's placement.

    Handcrafted orders know no memory limit. With `ignore_limits` the schedule answers the same
    problem without limits; otherwise one that exceeds them is refused.

    Raises UsageError with the constraint's text when the family does not fit the problem, and
    InfeasibleError with the numbers when a device would hold more than its limit.
    """
    chosen = family(name)
    if ignore_limits:
        problem = replace(problem, limits_quanta=())
    reason = chosen.refuses(problem)
    if reason is not None:
        raise UsageError(
            f"{name} does not fit P={problem.devices} m={problem.total_microbatches}: {reason}"
        )
    timeline = retime(problem, chosen.orders(problem))
    _check_limits(name, problem, timeline)
    bound = _bound(problem)
    reached = value(timeline, problem.objective)
    certificate = Certificate(reached, bound.value, f"{bound.name}: {bound.text}")
    return Schedule(name, problem, timeline, certificate)


@lru_cache(maxsize=16)
def _bound(problem: Problem) -> Bound:
    """The bound of a problem, looked for once though many families answer it."""
    return best_bound(problem)


def _check_limits(name: str, problem: Problem, timeline: Timeline) -> None:
    for device, (peak, limit) in enumerate(
        zip(peaks(problem, timeline), problem.limits_quanta, strict=True)
    ):
        if limit is not None and peak > limit:
            units = problem.units
            raise InfeasibleError(
                f"{name} holds {units.memory_text(peak)} on device {device}, "
                f"its limit is {units.quanta(limit)}; raise the limit or choose another schedule"
            )
