"""Pictures hold every op where it belongs, and their SVG is well formed."""

import re
import sys
import xml.etree.ElementTree as ElementTree

import pytest

from synth import catalog
from synth.errors import UsageError
from synth.op import Kind
from synth.plot import bars, frontier, png, svg, timeline
from synth.plot.scene import COLOURS, POINTS_PER_MM, SIZE, Box, Dot, Text, fill, marks, text_on
from synth.problem import make_problem


def baseline(name, devices, microbatches, **costs):
    placement = catalog.family(name).placement
    return catalog.build(name, make_problem(devices, microbatches, placement=placement, **costs))


@pytest.fixture(scope="module")
def schedules():
    return [
        baseline("1f1b", 4, 8, memory=4),
        baseline("zb-v", 4, 8, comm="0.2"),
        baseline("dualpipe", 4, 8),
    ]


def test_cells_lie_where_their_ops_are():
    schedule = baseline("zb-h1", 2, 3)
    scene = timeline([schedule], 100)
    unit = (scene.width - 2 - 14) / schedule.makespan
    for kind, colour in COLOURS.items():
        cells = [
            s for s in scene.shapes if isinstance(s, Box) and s.fill == colour and s.width < 90
        ]
        starts = sorted(
            (round((cell.x - 14) / unit), round(cell.width / unit + 0.05))
            for cell in cells
            if cell.height == 11
        )
        wanted = sorted(
            (timed.start, timed.end - timed.start)
            for ops in schedule.devices
            for timed in ops
            if timed.op.kind is kind
        )
        assert starts == wanted


def test_labels_are_letters_everywhere_or_nowhere(schedules):
    def labels(width):
        scene = timeline(schedules[:1], width)
        return {s.text for s in scene.shapes if isinstance(s, Text) and s.anchor == "middle"}

    assert {"F0", "F7", "BW0"} <= labels(178)
    assert not any(label.startswith(("F", "BW")) for label in labels(86))
    assert {"0", "7"} <= labels(86)


def test_text_stays_legible_in_one_column(schedules):
    scene = timeline(schedules, 86, memory=True)
    sizes = [shape.size for shape in scene.shapes if isinstance(shape, Text)]
    assert max(sizes) == SIZE
    assert min(sizes) >= 5
    assert scene.width == pytest.approx(86 * POINTS_PER_MM)


@pytest.mark.parametrize("draw", [timeline, bars, frontier])
def test_svg_is_well_formed_and_within_its_size(schedules, draw):
    scene = draw(schedules, 120)
    root = ElementTree.fromstring(svg(scene))
    assert root.get("width") == f"{scene.width:.2f}pt"
    for shape in scene.shapes:
        if isinstance(shape, Box):
            assert -0.1 <= shape.x <= shape.x + shape.width <= scene.width + 0.1
            assert -0.1 <= shape.y <= shape.y + shape.height <= scene.height + 0.1
    texts = {"".join(element.itertext()) for element in root.iter() if element.tag.endswith("text")}
    assert {"1f1b", "zb-v", "dualpipe"} <= texts


def test_bars_are_as_long_as_the_makespan(schedules):
    scene = bars(schedules, 120)
    rows = {}
    for shape in scene.shapes:
        if isinstance(shape, Box) and shape.height == 10:
            rows.setdefault(shape.y, []).append(shape)
    ends = [max(box.x + box.width for box in row) for row in rows.values()]
    left = min(box.x for row in rows.values() for box in row)
    lengths = [s.makespan / s.problem.units.ticks_per_unit for s in schedules]
    scale = (ends[0] - left) / lengths[0]
    assert ends == pytest.approx([left + scale * length for length in lengths])


def test_frontier_has_a_point_each(schedules):
    dots = [shape for shape in frontier(schedules, 86).shapes if isinstance(shape, Dot)]
    assert [dot.filled for dot in dots] == [s.certificate.optimal for s in schedules]


def test_chunks_are_paler_and_labels_contrast():
    first, second = fill(Kind.F, 0, 2), fill(Kind.F, 1, 2)
    assert first == COLOURS[Kind.F]
    assert [int(second[i : i + 2], 16) > int(first[i : i + 2], 16) for i in (1, 3, 5)] == [True] * 3
    assert text_on("#ffffff") != text_on("#203040")


def test_marks_are_round():
    assert [text for _, text in marks(33, 8)] == ["0", "5", "10", "15", "20", "25", "30"]
    assert [text for _, text in marks(0.21, 3)] == ["0", "0.1", "0.2"]


def test_a_large_timeline_shares_paths():
    scene = timeline([baseline("1f1b", 8, 200)], 178)
    text = svg(scene)
    assert len(re.findall("<path", text)) < 12


def test_png(schedules, tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    path = tmp_path / "x.png"
    png(timeline(schedules, 86), str(path))
    assert path.read_bytes().startswith(b"\x89PNG")


def test_png_without_matplotlib(schedules, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UsageError, match="needs matplotlib"):
        png(frontier(schedules, 86), str(tmp_path / "x.png"))
    assert not list(tmp_path.iterdir())
