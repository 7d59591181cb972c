"""docs/schedules.md and its pictures are what the command makes."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from synth import catalog
from synth.catalog.page import main, pages
from synth.catalog.picture import picture
from synth.problem import make_problem

DOCS = Path(__file__).resolve().parents[3] / "docs"


def test_the_page_is_up_to_date(tmp_path: Path) -> None:
    assert main([str(tmp_path)]) == 0
    made = {path.relative_to(tmp_path): path for path in tmp_path.rglob("*.*")}
    kept = {path.relative_to(DOCS): path for path in DOCS.glob("schedules*/*.svg")}
    kept[Path("schedules.md")] = DOCS / "schedules.md"
    assert made.keys() == kept.keys(), "run: python -m synth.catalog.page docs"
    for name, path in made.items():
        assert path.read_text() == kept[name].read_text(), "run: python -m synth.catalog.page docs"


def test_every_family_has_its_section_and_picture() -> None:
    files = pages()
    for name in catalog.names():
        assert f"\n## {name}\n" in files["schedules.md"]
        assert f"schedules/{name.replace(':', '-')}.svg" in files
    assert max(len(text) for path, text in files.items() if path.endswith(".svg")) < 30_000


def test_a_picture_has_a_rectangle_per_op_and_a_number_where_it_fits() -> None:
    schedule = catalog.build("dualpipe", make_problem(4, 8, placement="bidirectional"))
    root = ElementTree.fromstring(picture(schedule))
    space = "{http://www.w3.org/2000/svg}"
    shapes = sum(path.get("d", "").count("M") for path in root.iter(f"{space}path"))
    ops = sum(len(op.parts) for order in schedule.orders for op in order)
    assert shapes == ops + 1  # and the background
    assert len(list(root.iter(f"{space}text"))) == ops + 4  # and the devices


def test_usage_and_unwritable_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "usage" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    assert main([str(tmp_path / "file")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
