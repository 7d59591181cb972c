"""What a profile prints at its end."""

from __future__ import annotations

from synth.cli.output import percent, table
from synth.costs import Costs, SliceCost
from synth.profiled import MIB

_HEADERS = [
    *("stage", "layers", "F ms", "B ms", "W ms", "BW ms", "spread"),
    *("held MiB", "for W MiB", "static MiB", "sends KiB"),
]


def as_table(costs: Costs, path: str) -> str:
    """The stages, where they were measured, and the way of a message."""
    where = costs.environment
    lines = [
        f"{costs.model['name']} on {where.device} ({where.device_name}), "
        f"{where.processes} processes at once, {where.threads} thread each, "
        f"{costs.method.rounds} rounds of {costs.method.in_flight}",
        "",
        table(_HEADERS, [_row(stage) for stage in costs.stages]),
        "",
        *(
            f"{'message':<12} {hop.bytes / 1024:g} KiB in {hop.one_way.median_ns / 1e6:.3f} ms"
            for hop in costs.hops
        ),
        f"{'cut':<12} {','.join(map(str, costs.cut))}",
        f"{'written to':<12} {path}",
    ]
    return "\n".join(lines)


def _row(stage: SliceCost) -> list[str]:
    times = (stage.forward, stage.backward_act, stage.backward_wgt, stage.fused)
    sizes = (stage.activation_bytes, stage.context_bytes, stage.static_bytes)
    return [
        stage.name,
        str(stage.layers),
        *(f"{timing.median_ns / 1e6:.3f}" for timing in times),
        percent(max(timing.spread for timing in times)),
        *(f"{size / MIB:.2f}" for size in sizes),
        f"{stage.output_bytes / 1024:g}",
    ]
