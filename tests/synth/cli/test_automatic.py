"""`--placement auto` on the command line."""

import json

import pytest

from synth.auto import PLACEMENTS

ASKED = "-P 4 -m 8 --placement auto"


def test_command_tells_what_it_tried(pipesynth, tmp_path):
    path = tmp_path / "best.json"
    code, out, err = pipesynth("solve", *ASKED.split(), "--memory", 4, "-o", path)
    assert code == 0
    assert "wave:2 placement" in out
    row = next(line for line in err.splitlines() if line.startswith("wave:2 "))
    assert row.split()[:4] == ["wave:2", "1x", "24.75", "24.75"]
    assert row.endswith("best")
    row = next(line for line in err.splitlines() if line.startswith("bidirectional"))
    assert row.split()[1] == "2x"
    assert pipesynth("verify", path).code == 0


def test_command_answers_in_json(pipesynth):
    code, out, err = pipesynth("solve", *ASKED.split(), "--memory", 4, "--json", "-q")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert (found["placement"], found["value"], found["status"]) == ("wave:2", 24.75, "optimal")
    assert [entry["placement"] for entry in found["tried"]] == list(PLACEMENTS)
    assert {entry["status"] for entry in found["tried"]} == {"optimal", "not searched"}
    assert found["tried"][-1]["parameters"] == 2


def test_command_says_that_nothing_fits(pipesynth):
    code, out, err = pipesynth("solve", *ASKED.split(), "--memory", "0.5", "-q")
    assert (code, out) == (1, "")
    assert err.count("\n") == 1
    assert err.count("device 0 needs 1") == 1
    code, out, _ = pipesynth("solve", *ASKED.split(), "--memory", "0.5", "-q", "--json")
    assert code == 1
    assert json.loads(out)["status"] == "infeasible"


def test_command_refuses_auto_where_no_problem_can_be_made(pipesynth):
    code, _, err = pipesynth("solve", "-P", 4, "-m", 0, "--placement", "auto", "-q")
    assert code == 2
    assert err.count("\n") == 1
    assert pipesynth("baseline", "1f1b", "-P", 4, "-m", 8, "--placement", "auto").code == 2


@pytest.mark.parametrize(
    ("placement", "room"),
    [("linear", 2.5), ("v", 2.5), ("wave:2", 2.5), ("bidirectional", 1)],
)
def test_parameters_are_taken_off_the_limit(pipesynth, placement, room):
    options = f"-P 2 -m 4 --memory 4 --parameters 1.5 --placement {placement} --time-limit 1"
    code, out, _ = pipesynth("solve", *options.split(), "--json", "-q")
    found = json.loads(out)
    assert (code, found["limit"]) == (0, room)
    assert max(found["peak_memory"]) <= room


def test_two_replicas_may_not_fit(pipesynth):
    options = "-P 2 -m 4 --memory 4 --parameters 2.5 --placement auto"
    code, out, _ = pipesynth("solve", *options.split(), "--json", "-q")
    found = json.loads(out)
    last = found["tried"][-1]
    assert code == 0
    assert (last["placement"], last["status"]) == ("bidirectional", "infeasible")
    assert last["reason"].startswith("parameters, gradients and optimizer of device 0 take 5 ")


@pytest.mark.parametrize("parameters", ["x", "-1", "1,2", "nan"])
def test_parameters_that_are_no_number(pipesynth, parameters):
    options = f"-P 2 -m 4 --memory 4 --parameters={parameters}"
    code, _, err = pipesynth("solve", *options.split(), "-q")
    assert code == 2
    assert "--parameters" in err
    assert err.count("\n") == 1
