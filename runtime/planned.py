"""What a schedule promises when every op takes a prescribed or a measured time."""

from __future__ import annotations

from dataclasses import replace

from models.sleep import StageTimes
from runtime.supported import require_even
from synth.problem import Problem
from synth.profiled import tick_seconds
from synth.schedule import Schedule, makespan, spans
from synth.simulate import retime

_TICKS_PER_MS = 1000


def stage_times(
    problem: Problem, sleep_ms: tuple[float, float, float] | None, tick_ms: float
) -> list[StageTimes]:
    """Times of every stage: those given for all, or the problem's costs with ticks of `tick_ms`.

    Raises:
        UsageError: the problem's devices or links differ, and no times are given.
    """
    if sleep_ms is not None:
        forward, act, wgt = sleep_ms
        return [StageTimes(forward, act, wgt, act + wgt)] * len(problem.stages)
    require_even(problem)
    return [
        StageTimes(
            cost.forward_ticks * tick_ms,
            cost.backward_act_ticks * tick_ms,
            cost.backward_wgt_ticks * tick_ms,
            cost.fused_ticks * tick_ms,
        )
        for cost in problem.stages
    ]


def latency_ms(problem: Problem, tick_ms: float) -> float:
    """How long a message to another rank takes."""
    return problem.comm_ticks * tick_ms


def planned_times(
    schedule: Schedule, times: list[StageTimes], message_ms: float = 0.0
) -> tuple[float, float]:
    """Makespan and span in seconds when ops and messages take exactly these times.

    A pair takes as long as its halves: the runtime executes one after the other. It may end sooner,
    as its F need not wait for what its backward needs.
    """
    stages = tuple(
        replace(
            cost,
            forward_ticks=_ticks(own.forward_ms),
            backward_act_ticks=_ticks(own.backward_act_ms),
            backward_wgt_ticks=_ticks(own.backward_wgt_ms),
            fused_ticks=_ticks(own.fused_ms),
            pair_ticks=_ticks(own.forward_ms + own.fused_ms),
        )
        for cost, own in zip(schedule.problem.stages, times, strict=True)
    )
    problem = replace(
        schedule.problem,
        stages=stages,
        comm_ticks=round(message_ms * _TICKS_PER_MS),
        device_costs=(),
        links=(),
    )
    timeline = retime(problem, schedule.orders)
    seconds = 1e-3 / _TICKS_PER_MS
    return makespan(timeline) * seconds, max(spans(timeline)) * seconds


def measured_times(schedule: Schedule) -> tuple[float, float] | None:
    """Makespan and span in seconds where the costs were measured, None where they are abstract."""
    seconds = tick_seconds(schedule.problem.units)
    return None if seconds is None else (schedule.makespan * seconds, schedule.span * seconds)


def _ticks(ms: float) -> int:
    return max(1, round(ms * _TICKS_PER_MS))
