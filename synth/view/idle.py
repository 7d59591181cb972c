"""A device's idle time cut into stretches, each with one cause to shade it by."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from synth.gaps import Done, Gap, gaps
from synth.op import Op
from synth.schedule import Schedule


class Cause(StrEnum):
    """What a device waits for."""

    FILL = "fill"
    DRAIN = "drain"
    INPUT = "input"  # nothing was ready: the device that makes the input is still at it
    TRANSFER = "transfer"
    MEMORY = "memory"
    ORDER = "order"


@dataclass(frozen=True, slots=True)
class Stretch:
    """Ticks in which a device does nothing for one cause, and the ops that could have run."""

    start: int
    end: int
    cause: Cause
    ops: tuple[Op, ...] = ()


def stretches(schedule: Schedule) -> tuple[tuple[Stretch, ...], ...]:
    """Every device's idle time within the makespan of a valid schedule, in order."""
    done = {node: timed for ops in schedule.devices for timed in ops for node in timed.op.nodes}
    first = min(ops[0].start for ops in schedule.devices)
    last = max(ops[-1].end for ops in schedule.devices)
    found = []
    for device, ops in enumerate(schedule.devices):
        row = [Stretch(first, ops[0].start, Cause.FILL)]
        for gap in gaps(schedule.problem, device, ops, done):
            row += _cut(gap, done)
        row.append(Stretch(ops[-1].end, last, Cause.DRAIN))
        found.append(tuple(stretch for stretch in row if stretch.start < stretch.end))
    return tuple(found)


def _cut(gap: Gap, done: Done) -> Iterator[Stretch]:
    """What could have run comes first in a gap, the latency of the awaited input last."""
    lag = 0
    if gap.waits_for is not None:
        source = done[gap.waits_for.nodes[-1]]
        lag = min(gap.dependency, gap.end - source.end)
    clock = gap.start
    for cause, ticks, ops in (
        (Cause.ORDER, gap.order, gap.held_back),
        (Cause.MEMORY, gap.memory, gap.no_room),
        (Cause.INPUT, gap.dependency - lag, ()),
        (Cause.TRANSFER, lag, ()),
    ):
        yield Stretch(clock, clock + ticks, cause, ops)
        clock += ticks
