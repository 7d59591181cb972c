"""A scene as PNG, through matplotlib."""

from __future__ import annotations

from collections import defaultdict
from io import BytesIO
from typing import Any

from synth.errors import UsageError
from synth.outputs import write_output
from synth.plot.scene import PAPER, Box, Dot, Path, Scene, Shape, Text

_DPI = 300
_ANCHORS = {"start": "left", "middle": "center", "end": "right"}


def png(scene: Scene, path: str) -> None:
    """Write a PNG file. Raises UsageError where there is no matplotlib."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise UsageError(
            f"{path}: PNG needs matplotlib; install pipesynth[plot] or write an .svg"
        ) from None
    figure = Figure(figsize=(scene.width / 72, scene.height / 72), dpi=_DPI, facecolor=PAPER)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, scene.width), ylim=(scene.height, 0))
    axes.axis("off")
    _draw_boxes(axes, [shape for shape in scene.shapes if isinstance(shape, Box)])
    for shape in scene.shapes:
        _draw(axes, shape)
    data = BytesIO()
    figure.savefig(data, format="png", metadata={"Software": None})
    write_output(path, data.getvalue())


def _draw_boxes(axes: Any, boxes: list[Box]) -> None:
    from matplotlib.collections import PolyCollection

    groups: dict[tuple[int, str], list[Box]] = defaultdict(list)
    for box in boxes:
        groups[box.layer, box.fill].append(box)
    for (layer, colour), group in groups.items():
        corners = [
            (
                (b.x, b.y),
                (b.x + b.width, b.y),
                (b.x + b.width, b.y + b.height),
                (b.x, b.y + b.height),
            )
            for b in group
        ]
        axes.add_collection(
            PolyCollection(corners, facecolors=colour, linewidths=0, zorder=layer, antialiased=True)
        )


def _draw(axes: Any, shape: Shape) -> None:
    if isinstance(shape, Text):
        axes.text(
            shape.x,
            shape.y,
            shape.text,
            ha=_ANCHORS[shape.anchor],
            va="center_baseline",
            color=shape.colour,
            fontsize=0.9 * shape.size,  # its face is wider than those an SVG is shown in
            fontweight="bold" if shape.bold else "normal",
            parse_math=False,
            zorder=9,
        )
    elif isinstance(shape, Path):
        axes.plot(
            *zip(*shape.points, strict=True),
            color=shape.colour,
            linewidth=shape.width,
            linestyle=(0, (4, 3)) if shape.dashed else "-",
            zorder=8,
        )
    elif isinstance(shape, Dot):
        inside = shape.colour if shape.filled else PAPER
        axes.plot(
            shape.x, shape.y, "o", markersize=4.4, mec=shape.colour, mfc=inside, mew=1, zorder=8
        )
