"""A scene as SVG, all boxes of one colour in one path, so that large schedules stay small."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from xml.sax.saxutils import escape

from synth.plot.scene import PAPER, Box, Dot, Path, Scene, Shape, Text

_FONT = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"


def svg(scene: Scene) -> str:
    """The text of an SVG file."""
    size = f'width="{_n(scene.width)}pt" height="{_n(scene.height)}pt"'
    box = f'viewBox="0 0 {_n(scene.width)} {_n(scene.height)}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {box} font-family="{_FONT}">',
        f'<path fill="{PAPER}" d="M0 0h{_n(scene.width)}v{_n(scene.height)}H0z"/>',
        *_boxes([shape for shape in scene.shapes if isinstance(shape, Box)]),
        *(_shape(shape) for shape in scene.shapes if not isinstance(shape, Box)),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _n(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _boxes(boxes: list[Box]) -> Iterator[str]:
    ranked = sorted(boxes, key=lambda box: (box.layer, box.fill))
    for (_, colour), group in groupby(ranked, key=lambda box: (box.layer, box.fill)):
        shapes = "".join(
            f"M{_n(b.x)} {_n(b.y)}h{_n(b.width)}v{_n(b.height)}h-{_n(b.width)}z" for b in group
        )
        yield f'<path fill="{colour}" d="{shapes}"/>'


def _shape(shape: Shape) -> str:
    if isinstance(shape, Text):
        weight = ' font-weight="600"' if shape.bold else ""
        return (
            f'<text x="{_n(shape.x)}" y="{_n(shape.y + 0.36 * shape.size)}" '
            f'font-size="{_n(shape.size)}" fill="{shape.colour}" '
            f'text-anchor="{shape.anchor}"{weight}>{escape(shape.text)}</text>'
        )
    if isinstance(shape, Dot):
        inside = shape.colour if shape.filled else PAPER
        return (
            f'<circle cx="{_n(shape.x)}" cy="{_n(shape.y)}" r="2.2" fill="{inside}" '
            f'stroke="{shape.colour}"/>'
        )
    assert isinstance(shape, Path)
    points = " ".join(f"{_n(x)},{_n(y)}" for x, y in shape.points)
    dash = ' stroke-dasharray="2 1.5"' if shape.dashed else ""
    return (
        f'<polyline points="{points}" fill="none" stroke="{shape.colour}" '
        f'stroke-width="{_n(shape.width)}"{dash}/>'
    )
