"""`profile`, `solve --profile`, `calibrate`, and what `compare --run` says of kinds."""

import json
import sys
from hashlib import sha256

import pytest

from synth.costs import dumps, loads
from synth.files import dumps as schedule_text
from synth.files import load


@pytest.fixture
def costs_file(costs, tmp_path):
    path = tmp_path / "costs.json"
    path.write_text(dumps(costs))
    return path


SOLVE = ("solve", "-P", 2, "-q", "--time-limit", 1)


def test_solve_for_measured_costs(pipesynth, costs_file, tmp_path):
    out = tmp_path / "out.json"
    result = pipesynth(*SOLVE, "--profile", costs_file, "-m", 4, "-o", out, "--json")
    assert (result.code, result.err) == (0, "")
    document = json.loads(result.out)
    assert document["cut"] is None
    assert document["limit"] is None
    problem = load(out).problem
    assert (problem.units.time, problem.units.memory) == ("ms", "MiB")
    assert document["makespan"] == load(out).makespan / 1000


def test_a_limit_in_bytes_includes_what_is_static(pipesynth, costs_file):
    arguments = (*SOLVE, "--profile", costs_file, "-m", 2, "--json")
    gib = 40 * 1024 / 2**30
    document = json.loads(pipesynth(*arguments, "--memory-gib", f"{gib:.12f}").out)
    assert document["limit"] == [pytest.approx(28 / 1024), pytest.approx(36 / 1024)]
    code, _, err = pipesynth(*arguments[:-1], "--memory-gib", "0")
    assert (code, err.count("\n")) == (1, 1)
    assert "parameters, gradients and optimizer of device 0" in err


def test_balance_prints_the_cut(pipesynth, large_head, tmp_path):
    path = tmp_path / "costs.json"
    path.write_text(dumps(large_head))
    arguments = (*SOLVE, "--profile", path, "-m", 3)
    out = pipesynth(*arguments, "--balance").out
    assert "cut          5,1: layers per stage; run it with --cut" in out
    assert "cut" not in pipesynth(*arguments).out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--memory-gib", "1"], "--memory-gib and --balance need --profile"),
        (["--balance"], "--memory-gib and --balance need --profile"),
        (["--profile", "x", "--costs", "1,1,1"], "--costs and --profile both give costs"),
        (["--profile", "x", "--memory", "1"], "--memory and --profile both give costs"),
        (["--profile", "nothing.json"], "nothing.json: cannot be read"),
        (["--profile", "costs.json", "--memory-gib", "1,2,3"], "needs 1 or 2 numbers, got 3"),
        (["--profile", "costs.json", "--memory-gib", "x"], "not a number"),
        (["--profile", "costs.json", "--memory-gib", "-1"], "negative"),
        (["--profile", "costs.json", "--placement", "v"], "placement v on 2 devices needs 4"),
    ],
)
def test_wrong_usage_is_one_line(pipesynth, costs_file, monkeypatch, arguments, text):
    monkeypatch.chdir(costs_file.parent)
    code, out, err = pipesynth("solve", "-P", 2, "-m", 4, *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert text in err


def test_what_profile_turns_into(turned_into, tmp_path):
    program, arguments, _ = turned_into(
        "profile", "--model", "gpt", "-P", 2, "-o", tmp_path / "c.json", "--cut", "1,2"
    )
    assert program == sys.executable
    assert arguments[1:3] == ["-m", "runtime.profile_command"]
    options = json.loads(arguments[3])
    assert (options["model"], options["devices"], options["cut"]) == ("gpt", 2, [1, 2])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--rounds", "0"], "--rounds must be at least 1"),
        (["--model", "bert"], "--model bert: use gpt, or package:factory"),
        (["--cut", "1,2", "--balance"], "use one of them"),
        (["--cut", "0,2"], "holds a number below 1"),
        (["--memory-gib", "-1"], "is negative"),
    ],
)
def test_profiles_that_make_no_sense(pipesynth, tmp_path, arguments, text):
    code, out, err = pipesynth("profile", "-P", 2, "-o", tmp_path / "c.json", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert text in err


@pytest.fixture
def run_of(pipesynth, costs_file, tmp_path):
    """A schedule for the profile, and a run of it in which everything takes twice as long."""
    plan, path = tmp_path / "plan.json", tmp_path / "run.json"
    pipesynth(*SOLVE, "--profile", costs_file, "-m", 4, "-o", plan)
    schedule = load(plan)
    ranks = [
        [
            {"op": str(timed.op), "start_s": 2e-6 * timed.start, "end_s": 2e-6 * timed.end}
            for timed in ops
        ]
        for ops in schedule.devices
    ]
    seconds = {"makespan_s": 2e-6 * schedule.makespan, "span_s": 2e-6 * schedule.span}
    document = {
        "format": "pipesynth.run",
        "version": 1,
        "schedule": {
            "name": "solved",
            "sha256": sha256(schedule_text(schedule).encode()).hexdigest(),
            "devices": 2,
            "microbatches": 4,
            "placement": "linear",
        },
        "planned": {"makespan_s": seconds["makespan_s"] / 2, "span_s": seconds["span_s"] / 2},
        "measured": {**seconds, "warmup": 0},
        "steps": [{"loss": None, **seconds, "ranks": ranks}],
    }
    path.write_text(json.dumps(document))
    return plan, path


def test_calibrate(pipesynth, costs_file, run_of, tmp_path):
    new = tmp_path / "new.json"
    code, out, err = pipesynth("calibrate", costs_file, run_of[1], "-o", new)
    assert (code, err) == (0, "")
    assert out.splitlines()[0].split() == ["stage", "op", "before", "ms", "after", "ms", "ratio"]
    assert loads(new.read_bytes(), "new").stages[0].forward.median_ns == 6_000_000
    document = json.loads(pipesynth("calibrate", costs_file, run_of[1], "--json").out)
    assert {row["ratio"] for row in document["changes"]} == {2.0}


@pytest.mark.parametrize(
    ("model", "text"),
    [
        ({"name": "sleep"}, "is a run of model sleep"),
        ({"name": "made up", "cut": [1, 2]}, "is of the cut 1,2"),
    ],
)
def test_calibrate_refuses_a_run_of_something_else(pipesynth, costs_file, run_of, model, text):
    run = run_of[1]
    run.write_text(json.dumps(json.loads(run.read_text()) | {"model": model}))
    code, out, err = pipesynth("calibrate", costs_file, run)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert text in err
    assert f"run with --profile {costs_file}" in err


def test_calibrate_takes_a_run_of_its_model_and_cut(pipesynth, costs_file, run_of):
    run = run_of[1]
    model = {"name": "made up", "cut": [2, 1]}
    run.write_text(json.dumps(json.loads(run.read_text()) | {"model": model}))
    assert pipesynth("calibrate", costs_file, run).code == 0


def test_compare_says_where_plan_and_run_part(pipesynth, run_of):
    plan, run = run_of
    out = pipesynth("compare", plan, "--run", run).out
    section = out.split("\n\n")[-1].splitlines()
    assert section[0] == f"{run}: solved, 1 steps"
    assert section[1].split() == ["kind", "ops", "planned", "ms", "measured", "ms", "ratio"]
    assert all(line.split()[-1] == "2" for line in section[2:-1])
    assert section[-1].startswith("they part at F0@0 on device 0: planned 0.0 to 3.0 ms")


def test_the_schema_of_costs(pipesynth):
    assert "SliceCost" in json.loads(pipesynth("schema", "costs").out)["$defs"]
