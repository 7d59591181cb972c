"""Timelines: devices as rows, time to the right, several schedules on one axis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from synth.op import Kind, Op
from synth.plot.scene import (
    IDLE,
    INK,
    LINE,
    NAMES,
    PAPER,
    POINTS_PER_MM,
    SIZE,
    SOFT,
    Box,
    Path,
    Scene,
    Shape,
    Text,
    chunk_of,
    fill,
    marks,
    text_on,
    text_width,
)
from synth.schedule import Schedule, TimedOp
from synth.simulate import memory_profile, peaks

_ROW, _SPACE, _MEMORY, _TITLE, _GUTTER = 11.0, 1.5, 9.0, 13.0, 14.0
_LABEL = 6.5


class _Axis:
    """Where ticks of a schedule lie on the time axis that all share."""

    def __init__(self, schedules: Sequence[Schedule], width: float) -> None:
        self.total = max(s.makespan / s.problem.units.ticks_per_unit for s in schedules)
        self.left, self.right = _GUTTER, width - 2
        self.scale = (self.right - self.left) / self.total

    def at(self, schedule: Schedule, tick: int) -> float:
        """The x of a tick."""
        origin = min(ops[0].start for ops in schedule.devices)
        return self.left + (tick - origin) / schedule.problem.units.ticks_per_unit * self.scale


def timeline(schedules: Sequence[Schedule], width_mm: float, *, memory: bool = False) -> Scene:
    """The schedules below each other, with an axis and a legend."""
    width = width_mm * POINTS_PER_MM
    axis = _Axis(schedules, width)
    shapes: list[Shape] = []
    y = 0.0
    for schedule in schedules:
        y += _TITLE
        shapes += _title(schedule, axis, y - _TITLE / 2)
        lettered = _has_room_for_letters(schedule, axis)
        for device in range(len(schedule.devices)):
            shapes += _row(schedule, device, axis, y, lettered)
            y += _ROW + _SPACE
            if memory:
                shapes += _held(schedule, device, axis, y)
                y += _MEMORY + _SPACE
    shapes += _axis_marks(axis, y, schedules[0].problem.units.time)
    y += 2.3 * SIZE
    legend, height = _legend(schedules, axis, y)
    return Scene(width, y + height, (*shapes, *legend))


def _title(schedule: Schedule, axis: _Axis, y: float) -> Iterator[Shape]:
    problem = schedule.problem
    value = problem.units.ticks(schedule.certificate.value)
    name = Text(axis.left, y, schedule.name, bold=True)
    yield name
    text = f"{problem.objective} {value:.6g}, bubble {schedule.bubble:.1%}"
    yield Text(axis.left + 1.08 * name.width + 6, y, text, colour=SOFT)


def _row(schedule: Schedule, device: int, axis: _Axis, y: float, lettered: bool) -> Iterator[Shape]:
    yield Text(axis.left - 4, y + _ROW / 2, str(device), "end", SOFT)
    end = axis.left + axis.scale * schedule.makespan / schedule.problem.units.ticks_per_unit
    yield Box(axis.left, y, end - axis.left, _ROW, IDLE, layer=0)
    for timed in schedule.devices[device]:
        yield from _cell(schedule, timed, axis, y, lettered)


def _cell(
    schedule: Schedule, timed: TimedOp, axis: _Axis, y: float, lettered: bool
) -> Iterator[Shape]:
    x, end = axis.at(schedule, timed.start), axis.at(schedule, timed.end)
    width = end - x - (0.4 if end - x > 1.6 else 0)
    parts = timed.op.parts
    height = _ROW / len(parts)
    for index, part in enumerate(parts):
        yield from _part(schedule, part, Box(x, y + index * height, width, height, IDLE), lettered)


def _part(schedule: Schedule, part: Op, box: Box, lettered: bool) -> Iterator[Shape]:
    """F, B and W are plain; BW is a B standing on a W; later streams wear a stripe."""
    problem = schedule.problem
    chunk = chunk_of(problem, part.stream, part.stage)
    fused = part.kind is Kind.BW
    colour = fill(Kind.B if fused else part.kind, *chunk)
    yield Box(box.x, box.y, box.width, box.height, colour)
    if fused:
        foot = 0.24 * box.height
        yield Box(box.x, box.y + box.height - foot, box.width, foot, fill(Kind.W, *chunk), 2)
    later = part.stream != problem.streams[0].name
    if later and box.width > 3:
        yield Box(box.x + 0.6, box.y + 1, box.width - 1.2, 0.7, PAPER, 3)
    size = min(_LABEL, box.height - 0.5)
    label = _label(part, later, lettered)
    if text_width(label, size) <= box.width:
        lift = 0.1 * box.height if fused else -0.6 if later else 0
        middle = box.y + box.height / 2 - lift
        yield Text(box.x + box.width / 2, middle, label, "middle", text_on(colour), size)


def _label(part: Op, later: bool, lettered: bool) -> str:
    letter = part.kind.lower() if later else str(part.kind)
    return f"{letter if lettered else ''}{part.microbatch}"


def _has_room_for_letters(schedule: Schedule, axis: _Axis) -> bool:
    """Whether every op of the schedule can carry its letter: all do, or none."""
    scale = axis.scale / schedule.problem.units.ticks_per_unit
    return all(
        text_width(_label(timed.op.parts[0], False, True), _LABEL) + 3
        <= (timed.end - timed.start) * scale
        for ops in schedule.devices
        for timed in ops
    )


def _held(schedule: Schedule, device: int, axis: _Axis, y: float) -> Iterator[Shape]:
    """What a device holds, under its limit."""
    problem = schedule.problem
    limits = [limit for limit in problem.limits_quanta if limit is not None]
    top = max(1, *peaks(problem, schedule.devices), *limits)
    points = memory_profile(problem, schedule.devices[device])
    last = max(timed.end for ops in schedule.devices for timed in ops)
    ends = [point.tick for point in points[1:]] + [last]
    for point, end in zip(points, ends, strict=True):
        height = _MEMORY * point.held / top
        x = axis.at(schedule, point.tick)
        if height:
            box = Box(x, y + _MEMORY - height, axis.at(schedule, end) - x, height, "#aeb9c8")
            yield box
    limit = problem.limits_quanta[device]
    if limit is not None:
        level = y + _MEMORY * (1 - limit / top)
        yield Path(((axis.left, level), (axis.at(schedule, last), level)), SOFT, 0.4, dashed=True)


def _axis_marks(axis: _Axis, y: float, unit: str) -> Iterator[Shape]:
    yield Path(((axis.left, y), (axis.right, y)), LINE)
    for time, text in marks(axis.total, max(2, int((axis.right - axis.left) / 30))):
        x = axis.left + time * axis.scale
        yield Path(((x, y), (x, y + 2)), INK, 0.4)
        if x + text_width(text, SIZE) / 2 <= axis.right + 2:
            yield Text(x, y + 2 + SIZE / 1.6, text, "middle", SOFT)
    if unit != "unit":
        yield Text(axis.left - 4, y + 2 + SIZE / 1.6, unit, "end", SOFT)


def _legend(schedules: Sequence[Schedule], axis: _Axis, y: float) -> tuple[list[Shape], float]:
    """A swatch for every kind in use, in as many lines as it takes, and their height."""
    used = {t.op.kind for schedule in schedules for ops in schedule.devices for t in ops}
    shapes: list[Shape] = []
    x, line = axis.left, y
    for kind in (kind for kind in Kind if kind in used):
        text = f"{'F+B' if kind is Kind.FB else kind} {NAMES[kind]}"
        width = 13 + text_width(text, SIZE) + 9
        if x + width > axis.right and x > axis.left:
            x, line = axis.left, line + 1.5 * SIZE
        shapes += _swatch(kind, x, line)
        shapes.append(Text(x + 13, line + 3, text, colour=SOFT))
        x += width
    return shapes, line - y + 8


def _swatch(kind: Kind, x: float, y: float) -> Iterator[Shape]:
    over, under, share = {
        Kind.BW: (Kind.B, Kind.W, 0.7),
        Kind.FB: (Kind.F, Kind.B, 0.5),
    }.get(kind, (kind, kind, 1.0))
    yield Box(x, y, 10, 6, fill(under, 0, 1))
    yield Box(x, y, 10, 6 * share, fill(over, 0, 1), 2)
