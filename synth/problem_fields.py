"""The problem inside the files that hold one: a schedule file, and the sidecar of a torch CSV."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from synth.errors import FileError, ProblemError
from synth.line import PATTERN
from synth.problem import (
    MAX_TOTAL_TICKS,
    DeviceCost,
    Link,
    Objective,
    Problem,
    StageCost,
    Stream,
    Units,
)

Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_TOTAL_TICKS)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=MAX_TOTAL_TICKS)]

Line = Annotated[str, msgspec.Meta(pattern=PATTERN)]


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    """Base of the file's objects: unknown fields are refused."""


class UnitsField(Strict):
    """How many ticks and quanta make one unit."""

    time: Line
    ticks_per_unit: Positive
    memory: Line
    quanta_per_unit: Positive


class StageField(Strict):
    """Costs of one stage, in ticks and quanta."""

    forward_ticks: Positive
    backward_act_ticks: Positive
    backward_wgt_ticks: Positive
    fused_ticks: Positive
    pair_ticks: Positive
    activation_quanta: Count
    context_quanta: Count


class DeviceCostField(StageField):
    """What a stage costs on one device instead."""

    device: Count
    stage: Count


class LinkField(Strict):
    """The latency of hops from one device to another."""

    source: Count
    target: Count
    lag_ticks: Count


class StreamField(Strict):
    """A stream: its name, micro-batches and the device of each stage."""

    name: Line
    microbatches: Positive
    route: list[Count]


class ProblemField(Strict):
    """The problem that the schedule answers.

    The last four are left out where they say nothing: a chain of stages, which cost the same on
    every device, hops that all take the same time, and nothing that stages keep all the time.
    """

    devices: Positive
    placement: Line
    objective: Literal["makespan", "span"]
    units: UnitsField
    comm_ticks: Count
    limits_quanta: list[Count | None]
    streams: list[StreamField]
    stages: list[StageField]
    needs: list[list[Count]] = []
    device_costs: list[DeviceCostField] = []
    links: list[LinkField] = []
    kept_quanta: list[Count] = []


def problem_json(problem: Problem) -> dict[str, Any]:
    """A problem as plain JSON values."""
    fields = {
        "devices": problem.devices,
        "placement": problem.placement,
        "objective": str(problem.objective),
        "units": _fields(problem.units),
        "comm_ticks": problem.comm_ticks,
        "limits_quanta": list(problem.limits_quanta),
        "streams": [_fields(stream) for stream in problem.streams],
        "stages": [_fields(stage) for stage in problem.stages],
    }
    if problem.needs:
        fields["needs"] = problem.needs
    if problem.device_costs:
        fields["device_costs"] = [
            {"device": own.device, "stage": own.stage, **_fields(own.cost)}
            for own in problem.device_costs
        ]
    if problem.links:
        fields["links"] = [_fields(link) for link in problem.links]
    if problem.kept_quanta:
        fields["kept_quanta"] = list(problem.kept_quanta)
    return fields


def _fields(value: Units | Stream | StageCost | Link) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__slots__}


def read_problem(data: ProblemField, source: str) -> Problem:
    """The problem that a file states. Raises FileError when it breaks a rule."""
    if len(data.limits_quanta) != data.devices:
        raise FileError(
            f"{source}: {len(data.limits_quanta)} memory limits for {data.devices} devices "
            "- at `$.problem.limits_quanta`"
        )
    try:
        return Problem(
            devices=data.devices,
            placement=data.placement,
            stages=tuple(map(_stage_cost, data.stages)),
            streams=tuple(
                Stream(stream.name, stream.microbatches, tuple(stream.route))
                for stream in data.streams
            ),
            comm_ticks=data.comm_ticks,
            limits_quanta=tuple(data.limits_quanta),
            objective=Objective(data.objective),
            units=Units(
                data.units.time,
                data.units.ticks_per_unit,
                data.units.memory,
                data.units.quanta_per_unit,
            ),
            needs=tuple(map(tuple, data.needs)),
            device_costs=tuple(
                DeviceCost(own.device, own.stage, _stage_cost(own)) for own in data.device_costs
            ),
            links=tuple(Link(link.source, link.target, link.lag_ticks) for link in data.links),
            kept_quanta=tuple(data.kept_quanta),
        )
    except ProblemError as error:
        raise FileError(f"{source}: {error} - at `$.problem`") from None


def _stage_cost(field: StageField) -> StageCost:
    return StageCost(**{name: getattr(field, name) for name in StageCost.__slots__})
