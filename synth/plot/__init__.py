"""Pictures for papers: a scene of plain shapes, written as SVG by hand or as PNG by matplotlib."""

from synth.plot.charts import bars, frontier
from synth.plot.png import png
from synth.plot.svg import svg
from synth.plot.timeline import timeline

__all__ = ["bars", "frontier", "png", "svg", "timeline"]
