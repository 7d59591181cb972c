"""`pipesynth solve`: what it prints, writes and answers."""

import json
import subprocess
import sys

import pytest

ILP_NEEDED = "-P 4 -m 8 --memory 2 --objective span"
"""No list schedule and no closed form meets its bound."""
FIELDS = {
    "status",
    "objective",
    "value",
    "bound",
    "gap",
    "makespan",
    "span",
    "bubble",
    "peak_memory",
    "limit",
    "placement",
    "proof",
    "seconds",
    "schedule",
}


def solve(pipesynth, arguments):
    code, out, _ = pipesynth("solve", *arguments.split(), "--json", "-q")
    return code, json.loads(out)


@pytest.mark.parametrize(("memory", "span"), [(4, 27), (7, 24)])
def test_four_devices_eight_micro_batches(pipesynth, memory, span):
    code, found = solve(pipesynth, f"-P 4 -m 8 --memory {memory} --objective span")
    assert code == 0
    assert found.keys() >= FIELDS
    assert (found["status"], found["value"], found["bound"], found["gap"]) == (
        "optimal",
        span,
        span,
        0,
    )
    assert found["span"] == span
    assert max(found["peak_memory"]) <= found["limit"] == memory
    assert found["bubble"] == pytest.approx(1 - 24 / span)
    assert found["schedule"] is None


@pytest.mark.parametrize("solver", ["auto", "highs", "cbc"])
def test_every_solver_by_name(pipesynth, solver):
    code, found = solve(pipesynth, f"-P 2 -m 3 --memory 2 --solver {solver}")
    assert (code, found["status"], found["makespan"]) == (0, "optimal", 10)


def test_what_is_written_verifies_and_shows(pipesynth, tmp_path):
    path = tmp_path / "out.json"
    code, out, err = pipesynth("solve", "-P", 2, "-m", 3, "--memory", 2, "-o", path)
    assert code == 0
    assert f"written to   {path}" in out
    assert "optimal" in out
    assert err == "" or err.startswith("pipesynth: ")
    assert pipesynth("verify", path).out.startswith(f"{path}: valid, 18 ops on 2 devices")
    assert "F forward" in pipesynth("show", path).out


def test_an_output_file_is_replaced_when_named(pipesynth, tmp_path):
    path = tmp_path / "out.json"
    path.write_text("old")
    assert pipesynth("solve", "-P", 2, "-m", 2, "-o", path).code == 0
    assert pipesynth("verify", path).code == 0
    assert [file.name for file in tmp_path.iterdir()] == ["out.json"]


def test_costs_are_answered_in_the_units_typed(pipesynth):
    _, found = solve(pipesynth, "-P 1 -m 2 --costs 1.5,2.25,.25 --activation 1,.5 --memory 1")
    assert (found["makespan"], found["bound"]) == (8, 8)
    assert found["peak_memory"] == [1]


@pytest.mark.parametrize(("limits", "limit"), [("2,2", 2), ("2,1", [2, 1]), ("2.5", 2.5)])
def test_limits_for_all_or_each(pipesynth, limits, limit):
    _, found = solve(pipesynth, f"-P 2 -m 3 --memory {limits}")
    assert found["limit"] == limit


def test_infeasible_is_one_line(pipesynth, tmp_path):
    path = tmp_path / "out.json"
    code, out, err = pipesynth("solve", "-P", 4, "-m", 8, "--memory", "0.5", "-o", path)
    assert (code, out) == (1, "")
    assert err.count("\n") == 1
    assert "limit is 0.5; raise the limit" in err
    assert not path.exists()


def test_infeasible_as_json(pipesynth, tmp_path):
    path = tmp_path / "out.json"
    code, found = solve(pipesynth, f"-P 4 -m 8 --memory 0.5 -o {path}")
    assert code == 1
    assert found.keys() >= FIELDS
    assert (found["status"], found["value"], found["schedule"]) == ("infeasible", None, None)
    assert not path.exists()


def test_nothing_but_the_answer_on_stdout():
    """Solvers are compiled code that writes past Python."""
    done = subprocess.run(
        [sys.executable, "-m", "synth", "solve", *ILP_NEEDED.split(), "--json", "-q"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    found = json.loads(done.stdout)
    assert (found["status"], found["span"]) == ("optimal", 41)
    assert done.stderr == ""
