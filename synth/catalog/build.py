"""From a family's name and a problem to a timed schedule with its certificate."""

from __future__ import annotations

from dataclasses import replace

from synth.bounds import best_bound
from synth.catalog.registry import family
from synth.errors import InfeasibleError, UsageError
from synth.problem import Problem, StageCost
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
    bound = best_bound(_without_overlap(problem))
    certificate = Certificate(value(timeline, problem.objective), bound.value, bound.text)
    return Schedule(name, problem, timeline, certificate)


def _check_limits(name: str, problem: Problem, timeline: Timeline) -> None:
    for device, (peak, limit) in enumerate(
        zip(peaks(problem, timeline), problem.limits_quanta, strict=True)
    ):
        if limit is not None and peak > limit:
            units = problem.units
            raise InfeasibleError(
                f"{name} holds {units.quanta(peak)} {units.memory} units on device {device}, "
                f"its limit is {units.quanta(limit)}; raise the limit or choose another schedule"
            )


def _without_overlap(problem: Problem) -> Problem:
    """A problem whose F, B and W together take no longer than any fused or overlapped op.

    Its bounds hold for schedules with BW and FB ops too: each such op has room for its parts in
    sequence. W is shortened first, as it lies on no chain of dependencies.
    """
    return replace(problem, stages=tuple(map(_cheapest, problem.stages)))


def _cheapest(cost: StageCost) -> StageCost:
    """The stage's cost with F, B and W shortened to what fusing and overlapping can save."""
    forward, act, wgt = cost.forward_ticks, cost.backward_act_ticks, cost.backward_wgt_ticks
    room = min(cost.fused_ticks, cost.pair_ticks - forward)
    wgt = max(1, min(wgt, room - act))
    act = max(1, min(act, room - wgt))
    forward = max(1, min(forward, cost.pair_ticks - act - wgt))
    return replace(cost, forward_ticks=forward, backward_act_ticks=act, backward_wgt_ticks=wgt)
