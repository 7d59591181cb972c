"""Calibrate: the costs of a profile, brought to what a run has shown.

A profile runs every stage alone; in a pipeline memory, clocks and cores are shared. Ops that the
run had take their measured times, the others change as those of their stage did, and so do the
layers, so that a new balance starts from the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from synth.costs import Costs, Hop, SliceCost, Timing, timing_of
from synth.errors import UsageError
from synth.measured import MeasuredStep
from synth.op import Kind, Op

FIELDS = {
    Kind.F: "forward",
    Kind.B: "backward_act",
    Kind.W: "backward_wgt",
    Kind.BW: "fused",
}

_Durations = dict[tuple[int, Kind], list[float]]


def calibrate(costs: Costs, steps: Sequence[MeasuredStep]) -> Costs:
    """The costs with the run's times. Raises UsageError for a run of another number of stages."""
    durations = _durations(steps)
    stages = 1 + max(stage for stage, _ in durations)
    if stages != len(costs.stages):
        raise UsageError(
            f"{steps[0].source}: is a run of {stages} stages, the profile is of "
            f"{len(costs.stages)}; calibrate the profile that its schedule was made from"
        )
    changed = [_stage(costs.stages[index], index, durations) for index in range(stages)]
    layers: list[SliceCost] = []
    for old, new in zip(costs.stages, changed, strict=True):
        first = len(layers)
        layers += [_scaled(layer, old, new) for layer in costs.layers[first : first + old.layers]]
    return msgspec.structs.replace(
        costs, stages=tuple(changed), layers=tuple(layers), hops=_hops(costs, steps)
    )


def _durations(steps: Sequence[MeasuredStep]) -> _Durations:
    found: _Durations = {}
    for step in steps:
        for ops in step.devices:
            for ran in ops:
                found.setdefault((ran.op.stage, ran.op.kind), []).append(ran.end_s - ran.start_s)
    return found


def _stage(stage: SliceCost, index: int, durations: _Durations) -> SliceCost:
    seen = {
        name: timing_of(durations[index, kind])
        for kind, name in FIELDS.items()
        if (index, kind) in durations
    }
    before = sum(getattr(stage, name).median_ns for name in seen)
    after = sum(timing.median_ns for timing in seen.values())
    unseen = {
        name: _times(getattr(stage, name), after / before)
        for name in FIELDS.values()
        if name not in seen
    }
    return msgspec.structs.replace(stage, **seen, **unseen)


def _scaled(layer: SliceCost, old: SliceCost, new: SliceCost) -> SliceCost:
    """A layer whose times change as those of its stage."""
    changes = {
        name: getattr(new, name).median_ns / getattr(old, name).median_ns
        for name in FIELDS.values()
    }
    times = {name: _times(getattr(layer, name), change) for name, change in changes.items()}
    return msgspec.structs.replace(layer, **times)


def _times(timing: Timing, factor: float) -> Timing:
    values = (timing.median_ns, timing.low_ns, timing.high_ns)
    return Timing(*(max(1, round(factor * value)) for value in values))


def _hops(costs: Costs, steps: Sequence[MeasuredStep]) -> tuple[Hop, ...]:
    """The way of messages that a device was waiting for; the profile's where it never did."""
    waits = [wait for step in steps for wait in _waits(step)]
    if not waits:
        return costs.hops
    size = max((stage.output_bytes for stage in costs.stages[:-1]), default=0)
    return (Hop(size, timing_of(waits)),)


def _waits(step: MeasuredStep) -> Iterator[float]:
    """From the end of an op on one device to the start of the op on another that waited for it."""
    ends = {
        node: (device, ran.end_s)
        for device, ops in enumerate(step.devices)
        for ran in ops
        for node in ran.op.nodes
    }
    for device, ops in enumerate(step.devices):
        free_s = 0.0
        for ran in ops:
            source, end_s = ends.get(_producer(ran.op), (device, 0.0))
            if source != device and end_s > free_s:
                yield max(0.0, ran.start_s - end_s)
            free_s = ran.end_s


def _producer(op: Op) -> Op:
    """The node on a neighbouring stage that an F or a backward needs; itself for a W."""
    if op.kind is Kind.F:
        return Op(Kind.F, op.microbatch, op.stage - 1, op.stream)
    if op.kind in (Kind.B, Kind.BW):
        return Op(Kind.B, op.microbatch, op.stage + 1, op.stream)
    return op
