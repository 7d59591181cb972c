"""`pipesynth explain`: idle time by cause, for people and for programs."""

import json

import pytest

from synth.files import load, save


def test_where_the_time_goes(pipesynth, schedule_file):
    """Device 0 runs F0 F1 . . B0 W0 B1 W1, device 1 . F0 F1 B0 W0 B1 W1 . of 8 ticks."""
    code, out, err = pipesynth("explain", schedule_file)
    assert (code, err) == (0, "")
    lines = [line.split() for line in out.splitlines()]
    assert lines[2:4] == [
        ["0", "6", "0", "0", "2", "0", "0", "25.0%"],
        ["1", "6", "1", "1", "0", "0", "0", "25.0%"],
    ]
    assert "  device 0, 2 to 4: B0@0 waits for B0@1" in out.splitlines()
    assert max(map(len, out.splitlines())) <= 100


def test_json(pipesynth, schedule_file):
    document = json.loads(pipesynth("explain", schedule_file, "--json").out)
    assert (document["name"], document["objective"], document["time"]) == ("gpipe", "makespan", 8)
    first, second = document["devices"]
    assert (first["busy"], first["dependency"], first["idle"]) == (6, 2, 0.25)
    assert (second["fill"], second["drain"]) == (1, 1)
    (wait,) = document["waits"]
    assert (wait["start"], wait["end"], wait["op"], wait["waits_for"]) == (2, 4, "B0@0", "B0@1")
    assert [link["op"] for link in document["chain"]][:3] == ["F0@0", "F0@1", "F1@1"]
    assert document["chain"][-1]["end"] == 8
    assert document["hints"]


def test_times_are_in_the_users_units(pipesynth, tmp_path):
    path = tmp_path / "1f1b.json"
    pipesynth("baseline", "1f1b", "-P", 2, "-m", 2, "--costs", "1.5,1.5,0.5,0.25", "-o", path)
    document = json.loads(pipesynth("explain", path, "--json").out)
    assert document["devices"][0]["busy"] == 7
    assert {link["latency"] for link in document["chain"]} == {0, 0.25}


def test_an_invalid_schedule_is_refused(pipesynth, schedule_file):
    schedule = load(schedule_file)
    text = schedule_file.read_text().replace('"op": "F0@0"', '"op": "F0@1"', 1)
    schedule_file.write_text(text)
    code, out, err = pipesynth("explain", schedule_file)
    assert (code in (1, 2), out, err.count("\n")) == (True, "", 1)
    save(schedule, schedule_file)
    assert pipesynth("explain", schedule_file).code == 0


@pytest.mark.parametrize("text", ["", "{", "[]"])
def test_unreadable_files(pipesynth, tmp_path, text):
    path = tmp_path / "damaged.json"
    path.write_text(text)
    code, out, err = pipesynth("explain", path)
    assert (code, out, err.count("\n")) == (2, "", 1)
