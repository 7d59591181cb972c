"""`show`, `verify`, `graph`, `export` and `schema`."""

import json
import os
import re
import stat
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest

TIMELINE = """\
  |0        |5
0 F0F1....B0W0B1W1
1 ..F0F1B0W0B1W1..
F forward, B input gradient, W weight gradient, . idle
"""


def test_show(pipesynth, schedule_file):
    code, out, _ = pipesynth("show", schedule_file, "--width", 80)
    figures, timeline = out.split("\n\n")
    assert code == 0
    assert figures.splitlines() == [
        "schedule     gpipe: 2 devices, 2 micro-batches, linear placement",
        "makespan     8, bound 7, gap 12.5% (work: by hand)",
        "span         8",
        "bubble       25.0%",
        "peak memory  2 2 per device, no limit",
    ]
    assert timeline == TIMELINE


def test_colour_only_when_wanted(pipesynth, schedule_file, monkeypatch):
    assert "\x1b" not in pipesynth("show", schedule_file).out
    assert "\x1b[30;44mF0" in pipesynth("show", schedule_file, "--color", "always").out
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in pipesynth("show", schedule_file).out


def test_show_keeps_to_the_width_of_the_terminal(pipesynth, schedule_file, monkeypatch):
    monkeypatch.setenv("COLUMNS", "24")
    timeline = pipesynth("show", schedule_file).out.split("\n\n")[1]
    assert max(map(len, timeline.splitlines()[:-1])) <= 24


def test_verify_a_valid_file(pipesynth, schedule_file):
    code, out, _ = pipesynth("verify", schedule_file)
    assert code == 0
    assert out == f"{schedule_file}: valid, 12 ops on 2 devices, makespan 8, bound 7\n"
    document = json.loads(pipesynth("verify", schedule_file, "--json").out)
    assert document == {"file": str(schedule_file), "valid": True, "violations": []}


def test_graph_sizes(pipesynth):
    out = pipesynth("graph", "-P", 4, "-m", 8, "--costs", "1,2,3,.5").out
    # 4*8 of F, B and W each; an edge into every F but the first stage's, two into every B but the
    # last stage's, one into every W. Longest: 4 F, 4 B, 1 W and 6 hops.
    assert re.findall(r"\d+(?:\.\d+)?", out)[:3] == ["96", "112", "18"]


def test_graph_as_dot(pipesynth, tmp_path):
    path = tmp_path / "graph.dot"
    found = json.loads(pipesynth("graph", "-P", 2, "-m", 1, "-o", path, "--json").out)
    assert found["longest_path_ops"] == ["F0@0", "F0@1", "B0@1", "B0@0", "W0@0"]
    text = path.read_text()
    assert text.startswith("digraph pipeline {\n")
    assert '  "F0@0" [kind=F, device=0, duration=1];\n' in text
    assert '  "F0@0" -> "F0@1" [lag=0];\n' in text
    assert text.count("->") == found["edges"]


def test_graph_as_graphml(pipesynth, tmp_path):
    path = tmp_path / "graph.graphml"
    assert pipesynth("graph", "-P", 2, "-m", 2, "-o", path).code == 0
    nodes = ElementTree.fromstring(path.read_text()).findall(".//{*}node")
    assert {node.get("id") for node in nodes} >= {"F0@0", "B1@1", "W1@0"}


@pytest.mark.parametrize("to_file", [True, False])
def test_export_a_program(pipesynth, schedule_file, tmp_path, to_file):
    path = tmp_path / "program.json"
    target = ["-o", path] if to_file else []
    out = pipesynth("export", schedule_file, "--to", "program", *target).out
    program = json.loads(path.read_text() if to_file else out)
    assert program["format"] == "pipesynth.program"
    first, second = program["ranks"]
    assert first[:2] == [{"compute": "F0@0"}, {"send": "F0@0", "to": 1}]
    assert second[:2] == [{"receive": "F0@0", "from": 0}, {"compute": "F0@1"}]


def test_schema(pipesynth, tmp_path):
    printed = pipesynth("schema").out
    path = tmp_path / "schema.json"
    assert pipesynth("schema", "-o", path).code == 0
    assert path.read_text() == printed
    assert "ScheduleFile" in json.loads(printed)["$defs"]


def test_a_link_keeps_pointing_where_it_did(pipesynth, tmp_path):
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    link.symlink_to(real)
    assert pipesynth("schema", "-o", link).code == 0
    assert link.is_symlink()
    assert real.read_text() == pipesynth("schema").out


def test_pipes_and_devices_are_written_to_and_not_replaced():
    command = [sys.executable, "-m", "synth", "schema", "-o"]
    done = subprocess.run([*command, "/dev/stdout"], check=True, capture_output=True, text=True)
    assert json.loads(done.stdout)
    subprocess.run([*command, os.devnull], check=True)
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)
