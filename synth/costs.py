"""Costs files: what a profile measured of a model, and the problem that it makes.

`format` is "pipesynth.costs", `version` 1. Durations are nanoseconds, sizes are bytes, all of them
integers. A slice is a layer or a stage: `layers` are what a cut may go between, `stages` what the
layers become under `cut`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from statistics import median, quantiles
from typing import Any, Literal

import msgspec

from synth import __version__
from synth.errors import FileError
from synth.files import decode
from synth.problem_fields import Count, Line, Positive

FORMAT: Literal["pipesynth.costs"] = "pipesynth.costs"
VERSION: Literal[1] = 1


class _Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of the file's objects: unknown fields are refused."""


class Timing(_Strict, frozen=True):
    """Median of a duration, and the 10th and 90th percentile."""

    median_ns: Positive
    low_ns: Positive
    high_ns: Positive

    @property
    def spread(self) -> float:
        """(90th - 10th percentile) / median."""
        return (self.high_ns - self.low_ns) / self.median_ns


def timing_of(seconds: Sequence[float]) -> Timing:
    """Median and percentiles of samples."""
    ns = [max(1, round(1e9 * one)) for one in seconds]
    if len(ns) == 1:
        return Timing(ns[0], ns[0], ns[0])
    tenths = quantiles(ns, n=10, method="inclusive")
    middle = round(median(ns))
    return Timing(middle, min(middle, round(tenths[0])), max(middle, round(tenths[-1])))


class SliceCost(_Strict, frozen=True):
    """What one micro-batch costs on one slice, and what the slice keeps all the time."""

    name: Line
    layers: Positive
    forward: Timing
    backward_act: Timing
    backward_wgt: Timing
    fused: Timing
    activation_bytes: Count
    """Held from F to B."""
    context_bytes: Count
    """Held from B to W."""
    parameter_bytes: Count
    gradient_bytes: Count
    optimizer_bytes: Count
    output_bytes: Count
    """What the next slice gets, and what comes back as its gradient."""

    @property
    def static_bytes(self) -> int:
        """Parameters, gradients and optimizer state."""
        return self.parameter_bytes + self.gradient_bytes + self.optimizer_bytes

    @property
    def work_ns(self) -> int:
        """The least a micro-batch occupies a device with this slice."""
        apart = self.backward_act.median_ns + self.backward_wgt.median_ns
        return self.forward.median_ns + min(apart, self.fused.median_ns)


class Hop(_Strict, frozen=True):
    """How long a message of a size is on its way to another device."""

    bytes: Count
    one_way: Timing


class Environment(_Strict, frozen=True):
    """Where it was measured; `processes` measured at the same time."""

    device: Line
    device_name: Line
    threads: Positive
    processes: Positive
    cpus: Positive
    torch: Line


class Method(_Strict, frozen=True):
    """How: rounds before and while measuring, and micro-batches in flight in each."""

    warmup: Count
    rounds: Positive
    in_flight: Positive


class Costs(_Strict, frozen=True):
    """A costs file."""

    format: Literal["pipesynth.costs"]
    version: Literal[1]
    tool: Line
    model: dict[str, str | int | float | None]
    environment: Environment
    method: Method
    hops: tuple[Hop, ...]
    """By size; empty where only one device was there to measure."""
    cut: tuple[Positive, ...]
    """Layers per stage."""
    layers: tuple[SliceCost, ...]
    stages: tuple[SliceCost, ...]

    def hop_ns(self, size: int) -> int:
        """The way of a message, from the nearest size measured."""
        if not self.hops:
            return 0
        return min(self.hops, key=lambda hop: abs(hop.bytes - size)).one_way.median_ns


def loads(text: str | bytes, source: str) -> Costs:
    """Read a costs file. Raises FileError with the JSON path of what is wrong."""
    costs = decode(text, Costs, source)
    for field in ("layers", "stages"):
        for index, one in enumerate(getattr(costs, field)):
            for kind in ("forward", "backward_act", "backward_wgt", "fused"):
                _check_timing(getattr(one, kind), f"$.{field}[{index}].{kind}", source)
    for index, hop in enumerate(costs.hops):
        _check_timing(hop.one_way, f"$.hops[{index}].one_way", source)
    if not costs.stages:
        raise FileError(f"{source}: holds no stage - at `$.stages`")
    if costs.cut != tuple(stage.layers for stage in costs.stages):
        raise FileError(f"{source}: is not the number of layers of each stage - at `$.cut`")
    if len(costs.layers) != sum(costs.cut) or any(layer.layers != 1 for layer in costs.layers):
        raise FileError(
            f"{source}: holds {len(costs.layers)} layers, the stages have {sum(costs.cut)} "
            "- at `$.layers`"
        )
    return costs


def _check_timing(timing: Timing, path: str, source: str) -> None:
    if not timing.low_ns <= timing.median_ns <= timing.high_ns:
        raise FileError(f"{source}: percentiles are not in order - at `{path}`")


def dumps(costs: Costs) -> str:
    """The text of a costs file: a line per layer, stage and hop."""
    fields = {name: getattr(costs, name) for name in costs.__struct_fields__}
    return "{\n" + ",\n".join(f'  "{k}": {_pretty(v)}' for k, v in fields.items()) + "\n}\n"


def _pretty(value: object) -> str:
    if isinstance(value, tuple) and value and isinstance(value[0], msgspec.Struct):
        rows = ",\n".join(f"    {json.dumps(msgspec.to_builtins(item))}" for item in value)
        return f"[\n{rows}\n  ]"
    return json.dumps(msgspec.to_builtins(value))


def make_costs(
    *,
    model: dict[str, str | int | float | None],
    environment: Environment,
    method: Method,
    hops: Sequence[Hop],
    layers: Sequence[SliceCost],
    stages: Sequence[SliceCost],
) -> Costs:
    """A costs file of this version."""
    return Costs(
        FORMAT,
        VERSION,
        f"pipesynth {__version__}",
        model,
        environment,
        method,
        tuple(hops),
        tuple(stage.layers for stage in stages),
        tuple(layers),
        tuple(stages),
    )


def schema() -> dict[str, Any]:
    """The JSON Schema of a costs file."""
    return msgspec.json.schema(Costs)
