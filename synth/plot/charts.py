"""Comparisons: where the time of each schedule goes, and bubble against memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from synth.errors import UsageError
from synth.op import Kind
from synth.plot.scene import (
    ACCENT,
    ALARM,
    COLOURS,
    IDLE,
    INK,
    LINE,
    POINTS_PER_MM,
    SIZE,
    SOFT,
    Box,
    Dot,
    Path,
    Scene,
    Shape,
    Text,
    marks,
    round_top,
    text_width,
)
from synth.schedule import Schedule
from synth.simulate import peaks
from synth.view.idle import Cause, stretches

_BAR, _SPACE = 10.0, 4.0
_CAUSE_COLOURS = {
    Cause.INPUT: "#8a95a5",
    Cause.TRANSFER: "#b9c2cd",
    Cause.MEMORY: ALARM,
    Cause.ORDER: "#5a6472",
    Cause.FILL: "#d5dae1",
    Cause.DRAIN: "#e4e8ec",
}


def bars(schedules: Sequence[Schedule], width_mm: float) -> Scene:
    """A bar per schedule: a device's mean busy time, then its idle time by cause; and the peak."""
    width = width_mm * POINTS_PER_MM
    left = max(text_width(schedule.name, SIZE) for schedule in schedules) + 6
    right = width - 74
    total = max(s.makespan / s.problem.units.ticks_per_unit for s in schedules)
    scale = (right - left) / total
    shapes: list[Shape] = [
        Text(right + 26, 5, "bubble", "end", SOFT),
        Text(width - 2, 5, "peak", "end", SOFT),
    ]
    y = 11.0
    for schedule in schedules:
        shapes += _bar(schedule, left, y, scale)
        middle = y + _BAR / 2
        shapes.append(Text(left - 5, middle, schedule.name, "end"))
        shapes.append(Text(right + 26, middle, f"{schedule.bubble:.1%}", "end"))
        shapes.append(Text(width - 2, middle, _peak_text(schedule), "end"))
        y += _BAR + _SPACE
    shapes.append(Path(((left, y), (right, y)), LINE))
    for time, text in marks(total, max(2, int((right - left) / 40))):
        shapes.append(Text(left + time * scale, y + SIZE, text, "middle", SOFT))
    y += 2 * SIZE
    legend, height = _bar_legend(left, width, y)
    return Scene(width, y + height, (*shapes, *legend))


def _bar(schedule: Schedule, left: float, y: float, scale: float) -> Iterator[Shape]:
    share = len(schedule.devices) * schedule.problem.units.ticks_per_unit
    busy = sum(timed.end - timed.start for ops in schedule.devices for timed in ops)
    sums = dict.fromkeys(_CAUSE_COLOURS, 0)
    for row in stretches(schedule):
        for stretch in row:
            sums[stretch.cause] += stretch.end - stretch.start
    parts = [(busy, COLOURS[Kind.F])]
    parts += [(ticks, _CAUSE_COLOURS[cause]) for cause, ticks in sums.items()]
    x = left
    for ticks, colour in parts:
        if ticks:
            yield Box(x, y, ticks / share * scale, _BAR, colour)
            x += ticks / share * scale


def _peak_text(schedule: Schedule) -> str:
    problem = schedule.problem
    peak = problem.units.quanta(max(peaks(problem, schedule.devices)))
    limits = [limit for limit in problem.limits_quanta if limit is not None]
    if not limits:
        return f"{peak:.4g}"
    return f"{peak:.4g} of {problem.units.quanta(max(limits)):.4g}"


def _bar_legend(left: float, width: float, y: float) -> tuple[list[Shape], float]:
    named = [("busy", COLOURS[Kind.F]), *((str(c), colour) for c, colour in _CAUSE_COLOURS.items())]
    shapes: list[Shape] = []
    x, line = left, y
    for text, colour in named:
        step = 11 + text_width(text, SIZE) + 8
        if x + step > width and x > left:
            x, line = left, line + 1.5 * SIZE
        shapes += [Box(x, line, 8, 6, colour), Text(x + 11, line + 3, text, colour=SOFT)]
        x += step
    return shapes, line - y + 8


def frontier(schedules: Sequence[Schedule], width_mm: float) -> Scene:
    """A point per schedule, and the least bubble that any of them reaches within each memory."""
    memories = {schedule.problem.units.memory for schedule in schedules}
    if len(memories) > 1:
        raise UsageError(
            f"the schedules count memory in {' and '.join(sorted(memories))}; plot them apart"
        )
    width = width_mm * POINTS_PER_MM
    height = 0.62 * width
    points = [(_peak(schedule), 100 * schedule.bubble, schedule) for schedule in schedules]
    plane = _Plane(width, height, max(p[0] for p in points), max(p[1] for p in points))
    shapes = [*plane.axes(memories.pop()), *plane.stairs([(x, y) for x, y, _ in points])]
    taken: list[tuple[float, float, float]] = []
    for x, y, schedule in points:
        shapes += plane.point(x, y, schedule, taken)
    return Scene(width, height, tuple(shapes))


def _peak(schedule: Schedule) -> float:
    return schedule.problem.units.quanta(max(peaks(schedule.problem, schedule.devices)))


class _Plane:
    """Peak memory to the right, bubble upwards."""

    def __init__(self, width: float, height: float, most: float, bubble: float) -> None:
        self.left, self.right, self.top, self.floor = 26.0, width - 6, 6.0, height - 24
        self.most = round_top(1.08 * most, 8)
        self.worst = round_top(max(1.08 * bubble, 1), 6)

    def at(self, x: float, y: float) -> tuple[float, float]:
        """The place of a memory and a bubble in percent."""
        return (
            self.left + (self.right - self.left) * x / self.most,
            self.floor - (self.floor - self.top) * y / self.worst,
        )

    def axes(self, memory: str) -> Iterator[Shape]:
        """Numbers along both, lines across."""
        for value, text in marks(self.worst, 6):
            _, y = self.at(0, value)
            yield Path(((self.left, y), (self.right, y)), LINE if value == 0 else IDLE)
            yield Text(self.left - 4, y, f"{text}%", "end", SOFT)
        for value, text in marks(self.most, 8):
            yield Text(self.at(value, 0)[0], self.floor + SIZE, text, "middle", SOFT)
        name = f"bubble against peak memory, {memory}s"
        yield Text(self.right, self.floor + 2.4 * SIZE, name, "end", SOFT)

    def stairs(self, points: Sequence[tuple[float, float]]) -> Iterator[Shape]:
        """What is reached within each amount of memory."""
        corners: list[tuple[float, float]] = []
        for x, y in sorted(points):
            if corners and y >= corners[-1][1]:
                continue
            corners += [(x, corners[-1][1]), (x, y)] if corners else [(x, y)]
        corners.append((self.most, corners[-1][1]))
        yield Path(tuple(self.at(x, y) for x, y in corners), ACCENT, 0.7)

    def point(
        self, x: float, y: float, schedule: Schedule, taken: list[tuple[float, float, float]]
    ) -> Iterator[Shape]:
        """A dot, filled where the schedule is optimal, with its name where none is yet."""
        px, py = self.at(x, y)
        yield Dot(px, py, INK, filled=schedule.certificate.optimal)
        width = text_width(schedule.name, SIZE)
        start = px + 5 if px + 5 + width <= self.right else px - 5 - width
        line = py - 0.8 * SIZE  # above the stairs
        while any(
            abs(other - line) < SIZE and start < end and begin < start + width
            for begin, end, other in taken
        ):
            line -= SIZE + 0.5
        taken.append((start, start + width, line))
        yield Text(start, line, schedule.name)
