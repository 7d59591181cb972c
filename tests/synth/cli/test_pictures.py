"""`view`, `playground`, `plot` and `export --to chrome-trace`."""

import json
from dataclasses import replace

import pytest

from synth import __version__
from synth.files import load, save
from synth.schedule import TimedOp


@pytest.fixture
def run_file(schedule_file, tmp_path):
    """A run of the schedule in which a tick takes 10 ms, and each op a millisecond less."""
    schedule = load(schedule_file)
    ranks = [
        [{"op": str(t.op), "start_s": 0.01 * t.start, "end_s": 0.01 * t.end - 0.001} for t in ops]
        for ops in schedule.devices
    ]
    run = {
        "format": "pipesynth.run",
        "version": 1,
        "tool": f"pipesynth {__version__}",
        "schedule": {
            "name": "gpipe",
            "sha256": "0" * 64,
            "devices": 2,
            "microbatches": 2,
            "placement": "linear",
        },
        "planned": {"makespan_s": 0.08, "span_s": 0.08},
        "measured": {"warmup": 1, "makespan_s": 0.079, "span_s": 0.079},
        "steps": [{"makespan_s": time, "ranks": ranks} for time in (0.5, 0.079, 0.08, 0.078)],
    }
    path = tmp_path / "run.json"
    path.write_text(json.dumps(run))
    return path


def embedded(path):
    """The data inside a page."""
    text = path.read_text().partition('id="data">')[2].partition("</script>")[0]
    return json.loads(text)


def test_view(pipesynth, schedule_file, tmp_path):
    page = tmp_path / "page.html"
    code, out, err = pipesynth("view", schedule_file, "-o", page)
    assert (code, out, err) == (0, f"written to   {page}\n", "")
    assert page.read_text().startswith("<!DOCTYPE html>")
    (shown,) = embedded(page)["schedules"]
    assert (shown["label"], shown["figures"]["makespan"]) == (str(schedule_file), 8)
    assert "http" not in page.read_text().replace("http://www.w3.org/", "")


def test_view_with_a_run(pipesynth, schedule_file, run_file, tmp_path):
    page = tmp_path / "page.html"
    assert pipesynth("view", schedule_file, "--run", run_file, "-o", page).code == 0
    measured = embedded(page)["schedules"][0]["measured"]
    assert (measured["step"], measured["steps"], measured["makespan"]) == (1, 4, 0.079)
    assert measured["ticksPerPlanTick"] == pytest.approx(0.01 / 1e-7)
    assert measured["devices"][0][:6] == [0, 0, 0, 0, 0, 90_000]


def test_a_run_of_another_schedule_is_refused(pipesynth, run_file, tmp_path):
    other = tmp_path / "other.json"
    pipesynth("baseline", "1f1b", "-P", 2, "-m", 2, "-o", other)
    code, out, err = pipesynth("view", other, "--run", run_file, "-o", tmp_path / "x.html")
    assert (code, out) == (2, "")
    assert "is a run of 'gpipe'" in err


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"steps": []}, "holds no step after the warm-up"),
        ({"steps": [{"makespan_s": 1, "ranks": [[{"op": "X", "start_s": 0, "end_s": 1}]]}]}, "'X'"),
        ({"steps": 3}, "$.steps"),
    ],
)
def test_damaged_runs(pipesynth, schedule_file, run_file, tmp_path, change, text):
    run = json.loads(run_file.read_text()) | {"measured": {"makespan_s": 1, "span_s": 1}} | change
    run_file.write_text(json.dumps(run))
    code, _, err = pipesynth("view", schedule_file, "--run", run_file, "-o", tmp_path / "x.html")
    assert code == 2
    assert text in err
    assert err.count("\n") == 1


def test_view_of_an_invalid_schedule(pipesynth, schedule_file, tmp_path):
    schedule = load(schedule_file)
    first, *rest = schedule.devices
    late = replace(schedule, devices=((TimedOp(first[0].op, 3, 4), *first[1:]), *rest))
    save(late, schedule_file)
    page = tmp_path / "page.html"
    code, _, err = pipesynth("view", schedule_file, "-o", page)
    assert code == 1
    assert "invalid" in err
    assert embedded(page)["schedules"][0]["invalid"] > 0


def test_playground(pipesynth, schedule_file, tmp_path):
    page = tmp_path / "out" / "page.html"
    page.parent.mkdir()
    (tmp_path / "other.json").write_text('{"format": "pipesynth.run"}')
    code, out, _ = pipesynth("playground", "--schedules", tmp_path, "-o", page)
    assert code == 0
    assert out.endswith("with 1 solved schedules\n")
    assert [entry["label"] for entry in embedded(page)["library"]] == [schedule_file.stem]
    assert pipesynth("playground", "-o", page).code == 0
    assert pipesynth("playground", "--schedules", tmp_path / "no", "-o", page).code == 2


@pytest.mark.parametrize("what", ["timeline", "bars", "frontier"])
def test_plot(pipesynth, schedule_file, tmp_path, what):
    path = tmp_path / "x.svg"
    code, out, _ = pipesynth("plot", schedule_file, "--what", what, "-o", path)
    assert (code, out) == (0, f"written to   {path}\n")
    assert path.read_text().startswith("<svg")


@pytest.mark.parametrize(
    "arguments", [["-o", "x.pdf"], ["-o", "x.svg", "--width", "1"], ["-o", "no/x.svg"]]
)
def test_plot_refuses(pipesynth, schedule_file, arguments):
    code, out, err = pipesynth("plot", schedule_file, *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)


def test_chrome_trace(pipesynth, schedule_file, run_file, tmp_path):
    planned = json.loads(pipesynth("export", schedule_file, "--to", "chrome-trace").out)
    assert planned["otherData"]["us_per_unit"] == 1000
    path = tmp_path / "trace.json"
    arguments = ["--to", "chrome-trace", "--run", run_file, "-o", path]
    assert pipesynth("export", schedule_file, *arguments).code == 0
    both = json.loads(path.read_text())
    assert both["otherData"]["us_per_unit"] == 10_000
    slices = [e for e in both["traceEvents"] if e["ph"] == "X"]
    assert [(e["ts"], e["dur"]) for e in slices if e["args"]["op"] == "F1@0"] == [
        (10_000, 10_000),
        (10_000, 9_000),
    ]


def test_runs_are_for_traces(pipesynth, schedule_file, run_file):
    code, _, err = pipesynth("export", schedule_file, "--to", "program", "--run", run_file)
    assert code == 2
    assert "--run is for" in err
