"""`pipesynth frontier`: table, JSON, pictures and refusals."""

import json
import xml.etree.ElementTree as ElementTree

import pytest

ASKED = "-P 2 -m 4 --placements linear,bidirectional -q"


def test_command_prints_a_row_for_each_point(pipesynth):
    code, out, err = pipesynth("frontier", *ASKED.split())
    assert (code, err) == (0, "")
    rows = [line.split()[:5] for line in out.splitlines()]
    assert rows[0] == ["placement", "parameters", "limit", "makespan", "bound"]
    assert ["linear", "1x", "2", "13", "13"] in rows
    assert {row[0] for row in rows[1:]} == {"linear", "bidirectional"}


def test_command_answers_in_json(pipesynth, tmp_path):
    path = tmp_path / "frontier.json"
    code, out, _ = pipesynth("frontier", *ASKED.split(), "--json", "-o", path)
    found = json.loads(out)
    assert code == 0
    assert json.loads(path.read_text()) == found
    point = next(p for p in found["points"] if p["placement"] == "linear" and p["limit"] == 2)
    assert (point["value"], point["bound"], point["gap"], point["status"]) == (13, 13, 0, "optimal")
    assert point["bubble"] == pytest.approx(1 / 13)
    assert point["least_bubble"] == pytest.approx(1 / 13)
    assert point["proof"]
    assert max(point["peak_memory"]) <= 2


def test_command_draws(pipesynth, tmp_path):
    path = tmp_path / "frontier.svg"
    assert pipesynth("frontier", *ASKED.split(), "-o", path).code == 0
    text = path.read_text()
    ElementTree.fromstring(text)
    assert "bidirectional" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--memory 3", "--limits"),
        ("--placement v", "use one of them"),
        ("--limits 2 --step 1", "use one of them"),
        ("--limits 2,x", "not a number"),
        ("--limits 0", "above 0"),
        ("-o x.gif", ".svg"),
        ("--width 3", "millimetres"),
        ("--time-limit 0", "positive"),
    ],
)
def test_command_refuses(pipesynth, options, message):
    code, out, err = pipesynth("frontier", *ASKED.split(), *options.split())
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert message in err


def test_command_with_limits_that_are_all_too_small(pipesynth, tmp_path):
    path = tmp_path / "frontier.svg"
    options = ("--limits", "0.25,0.5", "-o", path)
    code, out, err = pipesynth("frontier", *ASKED.split(), *options)
    assert (code, out) == (1, "")
    assert err.count("\n") == 1
    assert "needs 1" in err
    assert not path.exists()
    code, out, _ = pipesynth("frontier", *ASKED.split(), *options[:2], "--json")
    assert code == 1
    assert {p["status"] for p in json.loads(out)["points"]} == {"infeasible"}


def test_a_placement_that_does_not_fit_is_left_out_unless_it_was_asked_for(pipesynth):
    found = pipesynth("frontier", "-P", "1", "-m", "1", "--limits", "2")
    assert found.code == 0
    assert "pipesynth: bidirectional: placement bidirectional needs at least 2" in found.err
    assert [line.split()[0] for line in found.out.splitlines()] == ["placement", "linear", "v"]
    refused = pipesynth("frontier", "-P", "1", "-m", "1", "-q", "--placements", "bidirectional")
    assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)


def test_what_fits_no_placement_is_refused(pipesynth):
    refused = pipesynth("frontier", "-P", "0", "-m", "1", "-q")
    assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)
    assert "devices must be at least 1" in refused.err
