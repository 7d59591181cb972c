"""A schedule as text: devices as rows, time as columns.

    0 F0F1F2F3....B0W0F4
    1 ..F0F1F2..B0F3W0B1

F, B and W are told apart by their letter, by what fills an op that is wider than its label, and,
if wanted, by colour. Further streams are written in lower case.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor, log10

from synth.op import Kind
from synth.problem import Problem
from synth.schedule import Schedule, TimedOp

IDLE = "."
MAX_PANELS = 4  # a timeline that needs more lines than this per device is scaled down
_FILL = {Kind.F: "-", Kind.B: "=", Kind.W: "~", Kind.BW: "#", Kind.FB: "+"}
_COLOURS = {
    Kind.F: "30;44",
    Kind.B: "30;42",
    Kind.W: "30;43",
    Kind.BW: "30;46",
    Kind.FB: "30;45",
}
_NAMES = {
    Kind.F: "F forward",
    Kind.B: "B input gradient",
    Kind.W: "W weight gradient",
    Kind.BW: "BW full backward",
    Kind.FB: "F+B overlapped pair",
}


@dataclass(frozen=True, slots=True)
class _Cell:
    """One column of a row: its character and the kind of the op it belongs to, None when idle."""

    text: str
    kind: Kind | None


_EMPTY = _Cell(IDLE, None)


def render(schedule: Schedule, *, width: int = 80, colour: bool = False) -> str:
    """The timeline in lines of at most `width` columns.

    The shortest op is made as wide as the longest label and rows wrap into panels; where that
    needs more than MAX_PANELS of them, time is scaled down and narrow ops lose their label.
    """
    start = min(ops[0].start for ops in schedule.devices)
    total = max(1, max(timed.end for ops in schedule.devices for timed in ops) - start)
    margin = len(str(len(schedule.devices) - 1)) + 1
    room = max(8, width - margin)
    scale = min(_wanted_scale(schedule), Fraction(room * MAX_PANELS, total))
    columns = max(1, int(total * scale))
    rows = [_row(schedule.problem, ops, start, scale, columns) for ops in schedule.devices]
    lines: list[str] = []
    for first in range(0, columns, room):
        last = min(first + room, columns)
        lines.append(" " * margin + _axis(schedule.problem, start, scale, first, last))
        for device, row in enumerate(rows):
            cells = "".join(_paint(row[first:last], colour))
            lines.append(f"{device:>{margin - 1}} {cells}")
    lines.append(_legend(schedule, colour))
    return "\n".join(lines)


def _wanted_scale(schedule: Schedule) -> Fraction:
    """Columns per tick that give the shortest op room for its label."""
    return max(
        Fraction(len(_label(schedule.problem, timed)), max(1, timed.end - timed.start))
        for ops in schedule.devices
        for timed in ops
    )


def _label(problem: Problem, timed: TimedOp) -> str:
    op = timed.op
    letter = str(op.kind) if op.kind is not Kind.FB else "F"
    if op.stream != problem.streams[0].name:
        letter = letter.lower()
    partner = f"+{op.partner.kind}{op.partner.microbatch}" if op.partner is not None else ""
    return f"{letter}{op.microbatch}{partner}"


def _row(
    problem: Problem, ops: Sequence[TimedOp], start: int, scale: Fraction, columns: int
) -> list[_Cell]:
    row = [_EMPTY] * columns
    for timed in ops:
        first = int((timed.start - start) * scale)
        last = max(int((timed.end - start) * scale), first + 1)
        label = _label(problem, timed)
        room = last - first
        text = label if len(label) <= room else label[:1] if room else ""
        text = text.ljust(room, _FILL[timed.op.kind])
        for column, character in zip(range(first, min(last, columns)), text, strict=False):
            row[column] = _Cell(character, timed.op.kind)
    return row


def _axis(problem: Problem, start: int, scale: Fraction, first: int, last: int) -> str:
    """Marks at round times in the user's units, as many as have room and none cut off."""
    step = _mark_step(problem, scale) * problem.units.ticks_per_unit
    line = ""
    number = ceil(Fraction(start * scale + first) / scale / step)
    while (column := int((number * step - start) * scale) - first) < last - first:
        mark = f"|{float(number * step / problem.units.ticks_per_unit):.6g}"
        if column + len(mark) <= last - first:
            line = line.ljust(column) + mark
        number += 1
    return line


def _mark_step(problem: Problem, scale: Fraction) -> Fraction:
    """The smallest step of 1, 2 or 5 times a power of ten units that is ten columns wide."""
    columns_per_unit = scale * problem.units.ticks_per_unit
    power = Fraction(10) ** floor(log10(10 / columns_per_unit))
    return next(n * power for n in (1, 2, 5, 10, 20) if n * power * columns_per_unit >= 10)


def _paint(cells: Sequence[_Cell], colour: bool) -> Iterator[str]:
    """The cells' characters, each run of one kind between one pair of escape codes."""
    if not colour:
        yield from (cell.text for cell in cells)
        return
    current: Kind | None = None
    for cell in cells:
        if cell.kind is not current:
            if current is not None:
                yield "\x1b[0m"
            if cell.kind is not None:
                yield f"\x1b[{_COLOURS[cell.kind]}m"
            current = cell.kind
        yield cell.text
    if current is not None:
        yield "\x1b[0m"


def _legend(schedule: Schedule, colour: bool) -> str:
    used = {timed.op.kind for ops in schedule.devices for timed in ops}
    names = [
        f"\x1b[{_COLOURS[kind]}m{_NAMES[kind]}\x1b[0m" if colour else _NAMES[kind]
        for kind in Kind
        if kind in used
    ]
    return f"{', '.join(names)}, {IDLE} idle"
