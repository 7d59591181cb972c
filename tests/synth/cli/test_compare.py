"""`pipesynth compare`: tables, references, baselines and runs."""

import json
from hashlib import sha256

import pytest

from synth.files import dumps, load


def rows(out):
    """The table's rows below the title and the header."""
    return [line.split(maxsplit=7) for line in out.splitlines()[3:]]


def test_baselines_on_given_costs(pipesynth):
    code, out, err = pipesynth(
        "compare", "1f1b", "zb-h1", "-P", 4, "-m", 8, "--memory", 4, "--objective", "makespan"
    )
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == (
        "4 devices, 8 micro-batches, F,B,W 1,1,1, hop 0, limit 4, objective makespan"
    )
    assert [row[:2] for row in rows(out)] == [["1f1b", "33"], ["zb-h1", "27"]]
    assert [row[-1] for row in rows(out)] == ["yes", "yes"]


def test_a_schedule_beyond_the_limit_says_so(pipesynth):
    out = pipesynth("compare", "zb-h2", "-P", 4, "-m", 8, "--memory", 4).out
    assert "no: device 0 holds 7, its limit is 4" in out


def test_costs_come_from_the_first_file(pipesynth, schedule_file):
    out = pipesynth("compare", schedule_file, "1f1b").out
    assert out.startswith("2 devices, 2 micro-batches, F,B,W 1,1,1, hop 0, no limit")
    assert [row[0] for row in rows(out)] == [str(schedule_file), "1f1b"]


def test_options_override_the_files_costs(pipesynth, schedule_file):
    out = pipesynth("compare", schedule_file, "-P", 2, "-m", 2, "--costs", "2,2,2").out
    assert rows(out)[0][1] == "16"
    assert rows(out)[0][6] == "-"


def test_all_baselines(pipesynth, schedule_file):
    out = pipesynth("compare", schedule_file, "--baselines", "all").out
    names = {row[0] for row in rows(out)}
    assert names >= {"gpipe", "1f1b", "zb-h1", "zb-h2"}


def test_markdown(pipesynth, schedule_file):
    out = pipesynth("compare", schedule_file, "--markdown").out
    header, rule, row = out.splitlines()[2:]
    assert header.count("|") == rule.count("|") == row.count("|") == 9
    assert set(rule) == set("| -:")


def test_json(pipesynth, schedule_file):
    out = pipesynth("compare", schedule_file, "--baselines", "1f1b", "--json").out
    document = json.loads(out)
    assert document["reference"]["costs"] == [[1, 1, 1]] * 2
    own, baseline = document["rows"]
    assert (own["makespan"], own["gap"], own["valid"]) == (8, 0.125, True)
    assert (baseline["name"], baseline["measured_s"]) == ("1f1b", None)


@pytest.fixture
def run_file(tmp_path, schedule_file):
    """Write the head of a run file of `schedule_file`, changed as asked for."""

    def write(**changes):
        ran = {
            "name": "gpipe",
            "sha256": sha256(dumps(load(schedule_file)).encode()).hexdigest(),
            "devices": 2,
            "microbatches": 2,
            "placement": "linear",
        }
        document = {
            "format": "pipesynth.run",
            "version": 1,
            "schedule": ran,
            "planned": {"makespan_s": 0.08, "span_s": None},
            "measured": {"makespan_s": 0.1, "span_s": 0.09},
            "steps": [],
        }
        path = tmp_path / "run.json"
        path.write_text(json.dumps(document | changes))
        return path

    return write


def test_a_run_joins_the_row_of_its_schedule(pipesynth, schedule_file, run_file):
    out = pipesynth("compare", schedule_file, "1f1b", "--run", run_file(), "--json").out
    measured, other = json.loads(out)["rows"]
    assert (measured["measured_s"], measured["of_plan"]) == (0.1, 1.25)
    assert (other["measured_s"], other["of_plan"]) == (None, None)
    out = pipesynth("compare", schedule_file, "--run", run_file()).out
    assert "measured ms  of plan" in out
    assert "100.0     1.25" in out


def test_a_run_finds_its_baseline_by_name(pipesynth, run_file):
    out = pipesynth("compare", "gpipe", "-P", 2, "-m", 2, "--run", run_file(), "--json").out
    assert json.loads(out)["rows"][0]["measured_s"] == 0.1


def test_a_run_of_something_else_is_refused(pipesynth, run_file):
    result = pipesynth("compare", "1f1b", "-P", 2, "-m", 2, "--run", run_file())
    assert result.code == 2
    assert "is a run of 'gpipe', which is not among the schedules" in result.err


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"format": "pipesynth.schedule"}, "`$.format`"),
        ({"version": 2}, "`$.version`"),
        ({"measured": {"makespan_s": 0, "span_s": 1}}, "`$.measured.makespan_s`"),
        ({"measured": {}}, "missing required field `makespan_s`"),
        ({"schedule": None}, "`$.schedule`"),
    ],
)
def test_damaged_runs(pipesynth, schedule_file, run_file, changes, text):
    code, out, err = pipesynth("compare", schedule_file, "--run", run_file(**changes))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert text in err
