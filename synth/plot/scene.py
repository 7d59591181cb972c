"""Scene: plain shapes in points, y downwards, and the colours that schedules are drawn in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, floor, log10

from synth.op import Kind
from synth.problem import Problem

POINTS_PER_MM = 72 / 25.4
SIZE = 7.0  # of text, legible where a picture is set in one column
INK, SOFT, LINE, IDLE, PAPER = "#1b2026", "#667080", "#c9ced6", "#eef0f3", "#ffffff"
ALARM, ACCENT = "#b3261e", "#b0127b"
COLOURS = {Kind.F: "#3d7ab8", Kind.B: "#e39a36", Kind.W: "#2e9c80"}
NAMES = {
    Kind.F: "forward",
    Kind.B: "input gradient",
    Kind.W: "weight gradient",
    Kind.BW: "full backward",
    Kind.FB: "overlapped pair",
}


@dataclass(frozen=True, slots=True)
class Box:
    """A filled rectangle; higher layers cover lower ones."""

    x: float
    y: float
    width: float
    height: float
    fill: str
    layer: int = 1


@dataclass(frozen=True, slots=True)
class Path:
    """A line through points."""

    points: tuple[tuple[float, float], ...]
    colour: str
    width: float = 0.5
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Text:
    """Text whose middle is at y; `anchor` is start, middle or end."""

    x: float
    y: float
    text: str
    anchor: str = "start"
    colour: str = INK
    size: float = SIZE
    bold: bool = False

    @property
    def width(self) -> float:
        """About how wide it is."""
        return text_width(self.text, self.size)


@dataclass(frozen=True, slots=True)
class Dot:
    """A circle with a white middle, or a filled one."""

    x: float
    y: float
    colour: str
    filled: bool


Shape = Box | Path | Text | Dot


@dataclass(frozen=True, slots=True)
class Scene:
    """A picture, in points."""

    width: float
    height: float
    shapes: tuple[Shape, ...]


def text_width(text: str, size: float) -> float:
    """About how wide text is in a sans-serif face."""
    return 0.58 * size * len(text)


def fill(kind: Kind, chunk: int, chunks: int) -> str:
    """The colour of an F, B or W of a chunk: later chunks are paler."""
    share = 0.52 * chunk / (chunks - 1) if chunks > 1 else 0.0
    colour = COLOURS[kind]
    parts = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return "#" + "".join(f"{round(part + (255 - part) * share):02x}" for part in parts)


def text_on(colour: str) -> str:
    """Dark or white, whichever reads better on a colour."""
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    light = 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2
    return INK if light > 0.26 else PAPER


def chunk_of(problem: Problem, stream: str, stage: int) -> tuple[int, int]:
    """Which of its device's chunks a stage is, and how many there are."""
    route = problem.stream(stream).route
    held = [other for other, device in enumerate(route) if device == route[stage]]
    return held.index(stage), len(held)


def round_step(total: float, most: int) -> float:
    """The smallest step of 1, 2 or 5 times a power of ten that cuts a total in at most `most`."""
    least = total / most
    power = 10.0 ** floor(log10(least))
    return next(n * power for n in (1, 2, 5, 10) if n * power >= least * (1 - 1e-9))


def marks(total: float, most: int) -> Iterator[tuple[float, str]]:
    """Round numbers from 0 up to a total, with their text."""
    step = round_step(total, most)
    for number in range(floor(total / step + 1e-9) + 1):
        yield number * step, f"{number * step:.6g}"


def round_top(most: float, steps: int) -> float:
    """A round number above the most there is."""
    step = round_step(most, steps)
    return ceil(most / step - 1e-9) * step
