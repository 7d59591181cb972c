"""`--problem FILE`: every verb that takes a problem reads it from a file too."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from synth.files import load
from synth.verify import verify

EXAMPLES = Path(__file__).parents[3] / "examples"
JOIN, SLOW, LINKS = (
    EXAMPLES / f"{name}.json" for name in ("vision_text", "slow_device", "two_speeds")
)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (JOIN, 79),  # device 3 works 72 units behind 3 + 0.5 + 3 + 0.5
        (SLOW, 370.4),  # device 2 works 360 ms behind 10 + 0.4
        (LINKS, 52.2),  # device 3 works 48 units behind 1 + 0.1 + 1 + 1 + 1 + 0.1
    ],
)
def test_examples_are_solved(pipesynth, tmp_path, path, value):
    out = tmp_path / "solved.json"
    code, text, _ = pipesynth("solve", "--problem", path, "-o", out, "--json", "-q")
    found = json.loads(text)
    assert (code, found["status"], found["value"], found["bound"]) == (0, "optimal", value, value)
    assert verify(load(out)) == []
    assert pipesynth("verify", out).code == 0
    assert pipesynth("show", out).code == 0
    assert pipesynth("explain", out).code == 0
    assert pipesynth("plot", out, "-o", tmp_path / "plan.svg").code == 0
    assert pipesynth("view", out, "-o", tmp_path / "page.html").code == 0
    for form in ("program", "chrome-trace"):
        assert pipesynth("export", out, "--to", form, "-o", tmp_path / form).code == 0


def test_memory_and_objective_go_before_the_file(pipesynth):
    options = ("--json", "-q", "--memory", "none", "--objective", "span")
    code, text, _ = pipesynth("solve", "--problem", JOIN, *options)
    found = json.loads(text)
    assert (code, found["objective"], found["limit"], found["value"]) == (0, "span", None, 72)


def test_handcrafted_schedules_on_links_of_two_speeds(pipesynth):
    code, text, _ = pipesynth("baseline", "zb-v", "--problem", LINKS, "--json")
    assert (code, json.loads(text)["makespan"]) == (0, 57.8)


def test_compare_on_the_costs_of_a_file(pipesynth):
    code, text, _ = pipesynth("compare", "zb-v", "1f1b", "--problem", LINKS, "--json")
    rows = {row["name"]: row for row in json.loads(text)["rows"]}
    assert code == 0
    assert rows["zb-v"]["makespan"] == 57.8
    assert rows["1f1b"]["makespan"] > 57.8
    assert all(row["bubble_formula"] is None for row in rows.values())
    code, table, _ = pipesynth("compare", "dualpipe", "1f1b", "--problem", SLOW)
    assert code == 0
    assert "F,B,W 10,11,8.5 | 10,12,8 | 15,18,12 | 13,14,11" in table.replace("\n", " ")
    _, table, _ = pipesynth("compare", "1f1b", "--problem", JOIN)
    assert "the problem cannot be cut for placement linear: its stages are not a chain" in table


def test_frontier_over_the_limits_of_a_file(pipesynth, tmp_path):
    """What stages keep all the time counts: 14 GiB on the outer devices."""
    out = tmp_path / "frontier.svg"
    options = ("--limits", "13,15,24", "--json", "-q", "-o", out)
    code, text, _ = pipesynth("frontier", "--problem", SLOW, *options)
    points = json.loads(text)["points"]
    assert code == 0
    assert [point["value"] for point in points] == [None, None, 370.4]
    assert {point["placement"] for point in points} == {"bidirectional"}
    assert "optimizer of device 0 take 14 GiB, its limit is 13" in points[0]["proof"]
    assert "device 0 needs 1.5 GiB for a single micro-batch" in points[1]["proof"]
    assert "GiB" in out.read_text()


def test_graph_of_a_join(pipesynth):
    code, text, _ = pipesynth("graph", "--problem", JOIN, "--json")
    found = json.loads(text)
    # Per micro-batch 5 F-B and 5 B-W pairs, and 4 edges between stages there and back.
    assert (code, found["nodes"], found["edges"]) == (0, 8 * 15, 8 * (10 + 2 * 4))


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (f"solve --problem {JOIN} -P 4", 2, "-P and --problem both describe the problem; edit"),
        (f"solve --problem {JOIN} -m 4", 2, "-m and --problem both describe the problem; edit"),
        (f"solve --problem {JOIN} --costs 1,1,1", 2, "--costs and --problem both describe"),
        (f"solve --problem {JOIN} --fused-cost 2", 2, "--fused-cost and --problem both describe"),
        (f"solve --problem {JOIN} --placement auto", 2, "--placement and --problem both describe"),
        (f"solve --problem {JOIN} --profile x.json", 2, "--profile and --problem both give costs"),
        (f"solve --problem {JOIN} --memory-gib 3", 2, "--memory-gib and --balance need --profile"),
        (f"solve --problem {JOIN} --memory x", 2, "--memory x: 'x' is not a number"),
        (f"solve --problem {JOIN} --memory 1,2", 2, "2 memory limits for 4 devices"),
        (f"solve --problem {JOIN} --objective speed", 2, "objective 'speed' is not known"),
        (f"solve --problem {JOIN} --memory 1", 1, "device 3 needs 1.5 activation units for a"),
        (f"solve --problem {SLOW} --memory 14", 1, "optimizer of device 0 take 14 GiB, its limit"),
        ("solve --problem absent.json", 2, "absent.json: cannot be read: No such file"),
        (f"frontier --problem {JOIN} --placements v", 2, "--placements and --problem both say"),
        (f"frontier --problem {JOIN} --memory 3", 2, "frontier chooses the limits itself"),
        (f"baseline 1f1b --problem {JOIN}", 2, "needs placement linear, the problem has explicit"),
    ],
)
def test_refused(pipesynth, arguments, code, message):
    found = pipesynth(*arguments.split())
    assert found.code == code
    assert found.err.startswith("pipesynth: ")
    assert message in found.err
    assert found.err.count("\n") == 1


@pytest.fixture
def two_losses(tmp_path):
    """A stage whose output two others take, that end in a loss each."""
    stage = {"forward": 1, "backward_act": 1, "backward_wgt": 1}
    problem = {
        "format": "pipesynth.problem",
        "version": 1,
        "devices": 4,
        "microbatches": 2,
        "placement": [0, 1, 2, 3],
        "stages": [stage, stage, {**stage, "needs": [0]}, {**stage, "needs": [1]}],
    }
    path = tmp_path / "two_losses.json"
    path.write_text(json.dumps(problem))
    return path


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (None, "stages 2 and 3 of this schedule end in a loss each"),
        (LINKS, "stages that sleep cannot imitate"),
    ],
)
def test_what_the_runtime_cannot_execute_is_refused_before_it_starts(
    pipesynth, tmp_path, two_losses, path, message
):
    path = path or two_losses
    out = tmp_path / "solved.json"
    assert pipesynth("solve", "--problem", path, "-o", out, "-q").code == 0
    command = [sys.executable, "-m", "runtime", out, "--model", "sleep"]
    job = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (job.returncode, job.stdout, job.stderr.count("\n")) == (2, "", 1)
    assert message in job.stderr
    dry = subprocess.run([*command, "--dry-run"], capture_output=True, text=True, check=True)
    assert "rank 3: " in dry.stdout


def test_the_schema_of_problem_files(pipesynth):
    code, text, _ = pipesynth("schema", "problem")
    assert code == 0
    assert set(json.loads(text)["$defs"]) >= {"ProblemFile", "StageEntry", "LinkEntry"}
