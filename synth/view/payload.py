"""What a page needs of a schedule, in few bytes: numbers in the order in which the page reads them.

An op is the numbers kind, micro-batch, stage, stream, the ticks since the op before it ended and
its duration; a pair is followed by kind, micro-batch, stage and stream of its backward.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from synth.compare import summarize
from synth.measured import MeasuredStep
from synth.op import Kind, Op
from synth.problem import Problem, StageCost
from synth.schedule import Schedule
from synth.verify import verify
from synth.view.idle import Cause, Stretch, stretches

_KINDS = {kind: index for index, kind in enumerate(Kind)}
_CAUSES = {cause: index for index, cause in enumerate(Cause)}
_MEASURED_TICK_S = 1e-7  # as fine as run files are
_SHOWN_VIOLATIONS = 20
_SHOWN_OPS = 3


def payload(schedule: Schedule, label: str, measured: MeasuredStep | None = None) -> dict[str, Any]:
    """A schedule, its figures, its idle times by cause and, if given, a measured step of it."""
    problem = schedule.problem
    streams = {stream.name: index for index, stream in enumerate(problem.streams)}
    violations = verify(schedule)
    return {
        "label": label,
        "name": schedule.name,
        "problem": problem_fields(problem),
        "figures": figures(schedule),
        "violations": [str(violation) for violation in violations[:_SHOWN_VIOLATIONS]],
        "invalid": len(violations),
        "devices": [
            _flat(
                (
                    (timed.op, timed.start, timed.end)
                    for timed in sorted(ops, key=lambda timed: timed.start)
                ),
                streams,
            )
            for ops in schedule.devices
        ],
        "causes": list(Cause),
        "idle": [] if violations else [_idle(row) for row in stretches(schedule)],
        "measured": None if measured is None else _measured(measured, schedule, streams),
    }


def problem_fields(problem: Problem) -> dict[str, Any]:
    """A problem as pages know it."""
    fields: dict[str, Any] = {
        "devices": problem.devices,
        "placement": problem.placement,
        "objective": str(problem.objective),
        "time": problem.units.time,
        "ticksPerUnit": problem.units.ticks_per_unit,
        "memory": problem.units.memory,
        "quantaPerUnit": problem.units.quanta_per_unit,
        "comm": problem.comm_ticks,
        "limits": list(problem.limits_quanta),
        "streams": [
            {"name": s.name, "microbatches": s.microbatches, "route": list(s.route)}
            for s in problem.streams
        ],
        "stages": [_cost(cost) for cost in problem.stages],
    }
    if problem.needs:
        fields["needs"] = problem.needs
    if problem.device_costs:
        fields["deviceCosts"] = [
            [own.device, own.stage, *_cost(own.cost)] for own in problem.device_costs
        ]
    if problem.links:
        fields["links"] = [[link.source, link.target, link.lag_ticks] for link in problem.links]
    return fields


def _cost(cost: StageCost) -> list[int]:
    return [getattr(cost, name) for name in cost.__slots__]


def figures(schedule: Schedule) -> dict[str, Any]:
    """What the schedule achieves, in the user's units."""
    summary = summarize(schedule)
    return {
        "makespan": summary.makespan,
        "span": summary.span,
        "bound": summary.bound,
        "gap": summary.gap,
        "optimal": summary.optimal,
        "proof": summary.proof,
        "bubble": summary.bubble,
        "messages": summary.messages,
    }


def _flat(ops: Iterable[tuple[Op, int, int]], streams: dict[str, int]) -> list[int]:
    numbers: list[int] = []
    clock = 0
    for op, start, end in ops:
        numbers += (*_identity(op, streams), start - clock, end - start)
        if op.partner is not None:
            numbers += _identity(op.partner, streams)
        clock = end
    return numbers


def _idle(row: Sequence[Stretch]) -> list[list[int | str]]:
    """Start, end, cause and, where ops could have run, the first of them."""
    return [
        [stretch.start, stretch.end, _CAUSES[stretch.cause]]
        + ([" ".join(map(str, stretch.ops[:_SHOWN_OPS]))] if stretch.ops else [])
        for stretch in row
    ]


def _identity(op: Op, streams: dict[str, int]) -> Sequence[int]:
    return _KINDS[op.kind], op.microbatch, op.stage, streams[op.stream]


def _measured(step: MeasuredStep, schedule: Schedule, streams: dict[str, int]) -> dict[str, Any]:
    """A measured step on the plan's axis: true to scale where the plan is known in seconds."""
    planned = step.planned_makespan_s
    return {
        "label": step.source,
        "step": step.number,
        "steps": step.steps,
        "makespan": step.makespan_s,
        "planned": planned,
        "ticksPerPlanTick": (planned or step.makespan_s) / schedule.makespan / _MEASURED_TICK_S,
        "devices": [
            _flat(
                (
                    (m.op, round(m.start_s / _MEASURED_TICK_S), round(m.end_s / _MEASURED_TICK_S))
                    for m in ops
                ),
                streams,
            )
            for ops in step.devices
        ],
    }
