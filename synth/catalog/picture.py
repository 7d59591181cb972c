"""A schedule as a small static SVG: devices as rows, time to the right."""

from __future__ import annotations

from collections.abc import Iterator

from synth.op import Kind, Op
from synth.problem import Problem
from synth.schedule import Schedule

WIDTH, ROW, MARGIN = 760, 18, 16
_COLOURS = {Kind.F: "#8ecae6", Kind.B: "#90be6d", Kind.W: "#f9c74f", Kind.BW: "#e5989b"}
LEGEND = (
    "Blue is F, green B, yellow W, red BW; a pair is an F above a BW. Numbers are micro-batches."
)


def picture(schedule: Schedule) -> str:
    """The SVG's text; as wide for every schedule, so that pictures compare by density."""
    start = min(ops[0].start for ops in schedule.devices)
    scale = (WIDTH - MARGIN) / schedule.makespan
    height = ROW * len(schedule.devices)
    areas: dict[tuple[str, float], list[str]] = {}
    labels = []
    for device, ops in enumerate(schedule.devices):
        top = ROW * device
        labels.append(f'<text x="{MARGIN / 2:g}" y="{top + 12}">{device}</text>')
        for timed in ops:
            left = MARGIN + (timed.start - start) * scale
            width = (timed.end - timed.start) * scale
            for index, part in enumerate(timed.op.parts):
                tall = (ROW - 2) / len(timed.op.parts)
                y = top + 1 + index * tall
                look = _COLOURS[part.kind], _shade(schedule.problem, part)
                areas.setdefault(look, []).append(_area(left, y, width - 0.6, tall))
                labels += _label(part.microbatch, left + width / 2, y + tall / 2, width, tall)
    paths = (
        f'<path fill="{colour}" fill-opacity="{shade:g}" d="{"".join(shapes)}"/>'
        for (colour, shade), shapes in areas.items()
    )
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="9" '
        'text-anchor="middle">',
        f'<path fill="#fff" d="{_area(0, 0, WIDTH, height)}"/>',
    )
    return "\n".join([*head, *paths, *labels, "</svg>", ""])


def _area(left: float, top: float, width: float, height: float) -> str:
    """A rectangle as a part of a path."""
    return f"M{left:.1f} {top:g}h{width:.1f}v{height:g}h-{width:.1f}z"


def _label(number: int, x: float, y: float, width: float, height: float) -> Iterator[str]:
    """The number in the middle, where there is room for it."""
    text = str(number)
    if width >= 5.5 * len(text):
        small = ' font-size="7"' if height < 9 else ""
        yield f'<text x="{x:.1f}" y="{y + (2.5 if small else 3):g}"{small}>{text}</text>'


def _shade(problem: Problem, part: Op) -> float:
    """1 for the first chunk or direction of a device, paler for the others."""
    held = [(stream.name, stage) for stream, stage in problem.held_stages(problem.device(part))]
    place = held.index((part.stream, part.stage))
    return 1.0 if len(held) == 1 else round(1 - 0.6 * place / (len(held) - 1), 2)
