"""From measured costs to a problem: stages joined from layers, byte limits less what is static.

A tick is a microsecond and a quantum a byte; what people read are milliseconds and MiB.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

from synth.costs import Costs, SliceCost, Timing
from synth.errors import InfeasibleError, ProblemError
from synth.placement import Placement, parse_placement
from synth.problem import Objective, Problem, StageCost, Units, share_out

MIB, GIB = 2**20, 2**30
UNITS = Units("ms", 1000, "MiB", MIB)
SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


def tick_seconds(units: Units) -> float | None:
    """The length of a tick; None where time has an abstract unit."""
    unit = SECONDS.get(units.time)
    return None if unit is None else unit / units.ticks_per_unit


def join(layers: Sequence[SliceCost]) -> SliceCost:
    """Neighbouring layers as one stage.

    Times add up. What lies between two of them is held once, though both count it.
    """
    if len(layers) == 1:
        return layers[0]
    shared = sum(layer.output_bytes for layer in layers[:-1])
    held = sum(layer.activation_bytes for layer in layers)

    def timing(kind: str) -> Timing:
        parts = [getattr(layer, kind) for layer in layers]
        names = ("median_ns", "low_ns", "high_ns")
        return Timing(*(sum(getattr(part, name) for part in parts) for name in names))

    def total(name: str) -> int:
        return sum(getattr(layer, name) for layer in layers)

    return SliceCost(
        name=f"{layers[0].name}..{layers[-1].name}",
        layers=total("layers"),
        forward=timing("forward"),
        backward_act=timing("backward_act"),
        backward_wgt=timing("backward_wgt"),
        fused=timing("fused"),
        activation_bytes=max(0, held - shared),
        context_bytes=total("context_bytes"),
        parameter_bytes=total("parameter_bytes"),
        gradient_bytes=total("gradient_bytes"),
        optimizer_bytes=total("optimizer_bytes"),
        output_bytes=layers[-1].output_bytes,
    )


def joined(layers: Sequence[SliceCost], cut: Sequence[int]) -> tuple[SliceCost, ...]:
    """The stages that a cut makes of the layers."""
    stages, first = [], 0
    for count in cut:
        stages.append(join(layers[first : first + count]))
        first += count
    return tuple(stages)


def make_profiled(
    costs: Costs,
    devices: int,
    microbatches: int,
    *,
    placement: str | Placement = "linear",
    limit_bytes: Sequence[int | None] = (),
    objective: str = "makespan",
    stages: Sequence[SliceCost] | None = None,
) -> Problem:
    """The problem of a profiled model.

    `limit_bytes` is what each device has in all; what its stages keep all the time is taken off.
    `stages` replaces those of the file. Raises ProblemError where the file has stages for another
    placement, and InfeasibleError where parameters alone are too much.
    """
    chosen = costs.stages if stages is None else tuple(stages)
    where = parse_placement(placement, devices) if isinstance(placement, str) else placement
    if len(chosen) != where.stages:
        raise ProblemError(
            f"the profile is of {len(chosen)} stages, placement {where.name} on {devices} devices "
            f"needs {where.stages}; add --balance to cut the layers anew, or profile again"
        )
    return Problem(
        devices=devices,
        placement=where.name,
        stages=tuple(_stage_cost(stage) for stage in chosen),
        streams=share_out(where, microbatches),
        comm_ticks=_comm(costs, chosen, where),
        limits_quanta=_room(chosen, where, devices, limit_bytes),
        objective=Objective(objective),
        units=UNITS,
        kept_quanta=tuple(stage.static_bytes for stage in chosen),
    )


def _stage_cost(stage: SliceCost) -> StageCost:
    forward, act, wgt, fused = (
        max(1, round(timing.median_ns / 1000))
        for timing in (stage.forward, stage.backward_act, stage.backward_wgt, stage.fused)
    )
    fused = max(fused, act)  # measured a hair below only by chance
    # The runtime executes the two halves of a pair one after the other.
    return StageCost(
        forward, act, wgt, fused, forward + fused, stage.activation_bytes, stage.context_bytes
    )


def _comm(costs: Costs, stages: Sequence[SliceCost], placement: Placement) -> int:
    """Ticks of the slowest hop between two devices."""
    hops = [
        costs.hop_ns(stages[index].output_bytes)
        for _, route in placement.routes
        for index, (here, there) in enumerate(pairwise(route))
        if here != there
    ]
    return round(max(hops, default=0) / 1000)


def static_bytes(stages: Sequence[SliceCost], placement: Placement, device: int) -> int:
    """What a device keeps all the time: each stage once, whatever streams bring it."""
    held = {s for _, route in placement.routes for s, there in enumerate(route) if there == device}
    return sum(stages[stage].static_bytes for stage in held)


def _room(
    stages: Sequence[SliceCost],
    placement: Placement,
    devices: int,
    limit_bytes: Sequence[int | None],
) -> tuple[int | None, ...]:
    """What is left for activations on every device."""
    room: list[int | None] = []
    for device, limit in zip(range(devices), limit_bytes or (None,) * devices, strict=True):
        static = static_bytes(stages, placement, device)
        if limit is not None and limit < static:
            raise InfeasibleError(
                f"infeasible: parameters, gradients and optimizer of device {device} take "
                f"{static / MIB:.1f} MiB, its limit is {limit / MIB:.1f} MiB"
            )
        room.append(None if limit is None else limit - static)
    return tuple(room)


def gib(text: str) -> int:
    """A number of GiB as bytes."""
    return int(Fraction(text) * GIB)
