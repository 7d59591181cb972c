"""Limits: the bubble within each memory limit, a line for each placement."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from synth.op import Kind
from synth.plot.scene import (
    ACCENT,
    COLOURS,
    IDLE,
    INK,
    LINE,
    POINTS_PER_MM,
    SIZE,
    SOFT,
    Dot,
    Path,
    Scene,
    Shape,
    Text,
    marks,
    round_top,
    text_width,
)

_LINES = (COLOURS[Kind.F], COLOURS[Kind.B], COLOURS[Kind.W], ACCENT, INK, SOFT)


@dataclass(frozen=True, slots=True)
class Level:
    """What is reached within a limit, and what nothing can beat; both are shares idle."""

    limit: float
    bubble: float
    least: float

    @property
    def proved(self) -> bool:
        """Whether nothing better exists."""
        return self.bubble <= self.least


@dataclass(frozen=True, slots=True)
class _Plane:
    left: float
    right: float
    top: float
    floor: float
    first: float
    most: float
    worst: float

    def at(self, limit: float, bubble: float) -> tuple[float, float]:
        """The place of a limit and a share idle."""
        along = (limit - self.first) / (self.most - self.first)
        return (
            self.left + (self.right - self.left) * along,
            self.floor - (self.floor - self.top) * 100 * bubble / self.worst,
        )


def limits(lines: Mapping[str, Sequence[Level]], memory: str, width_mm: float) -> Scene:
    """A line of stairs for each name: full where reached, dashed where the bound lies below it.

    A dot is filled where its bubble is proved to be the least.
    """
    width = width_mm * POINTS_PER_MM
    height = 0.62 * width
    levels = [level for line in lines.values() for level in line]
    most = round_top(1.04 * max(level.limit for level in levels), 8)
    worst = round_top(max(108 * max(level.bubble for level in levels), 1), 6)
    room = max(text_width(name, SIZE) for name in lines) + 16
    plane = _Plane(26, width - 6, 8, height - 24, 0, most, worst)
    shapes = [*_axes(plane, memory)]
    for place, (name, line) in enumerate(lines.items()):
        colour = _LINES[place % len(_LINES)]
        shapes += _stairs(plane, line, colour)
        y = plane.top + 4 + place * 1.5 * SIZE
        shapes.append(Path(((plane.right - room, y), (plane.right - room + 10, y)), colour, 1.0))
        shapes.append(Text(plane.right - room + 14, y, name))
    return Scene(width, height, tuple(shapes))


def _axes(plane: _Plane, memory: str) -> Iterator[Shape]:
    for value, text in marks(plane.worst, 6):
        _, y = plane.at(plane.first, value / 100)
        yield Path(((plane.left, y), (plane.right, y)), LINE if value == 0 else IDLE)
        yield Text(plane.left - 4, y, f"{text}%", "end", SOFT)
    for value, text in marks(plane.most, 8):
        x, y = plane.at(value, 0)
        yield Text(x, y + SIZE, text, "middle", SOFT)
    name = f"bubble against memory limit, {memory}"
    yield Text(plane.right, plane.floor + 2.4 * SIZE, name, "end", SOFT)


def _stairs(plane: _Plane, line: Sequence[Level], colour: str) -> Iterator[Shape]:
    reached = [(level.limit, level.bubble) for level in line]
    least = [(level.limit, level.least) for level in line]
    if least != reached:
        yield Path(_steps(plane, least), colour, 0.5, dashed=True)
    yield Path(_steps(plane, reached), colour, 1.0)
    for level in line:
        yield Dot(*plane.at(level.limit, level.bubble), colour, filled=level.proved)


def _steps(plane: _Plane, points: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    corners: list[tuple[float, float]] = []
    for limit, bubble in points:
        if corners:
            corners.append(plane.at(limit, 0)[:1] + corners[-1][1:])
        corners.append(plane.at(limit, bubble))
    corners.append((plane.right, corners[-1][1]))
    return tuple(corners)
