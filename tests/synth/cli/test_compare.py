"""`pipesynth compare`: tables, references, baselines and runs."""

import csv
import json
from hashlib import sha256

import pytest

from synth.cli import columns
from synth.cli.compare import SORTS
from synth.costs import dumps as dumps_costs
from synth.files import dumps, load


def rows(out):
    """The table's rows below the title and the header, up to the notes."""
    table = out.split("\n\n")[1]
    return [line.replace(" =", "=").split() for line in table.splitlines()[1:]]


def test_baselines_on_given_costs(pipesynth):
    code, out, err = pipesynth(
        "compare", "1f1b", "zb-h1", "-P", 4, "-m", 8, "--memory", 4, "--objective", "makespan"
    )
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == (
        "4 devices, 8 micro-batches, F,B,W 1,1,1, hop 0, limit 4, objective makespan"
    )
    assert rows(out) == [
        ["1f1b", "33", "33", "27.3%", "27.3%=", "4", "1x", "48", "18.2%", "yes"],
        ["zb-h1", "27", "27", "11.1%", "11.1%=", "4", "1x", "48", "0.0%", "yes"],
    ]


def test_a_schedule_beyond_the_limit_says_so(pipesynth):
    out = pipesynth("compare", "zb-h2", "-P", 4, "-m", 8, "--memory", 4).out
    assert rows(out)[0][-1] == "no"
    assert "zb-h2: device 0 holds 7, its limit is 4" in out.splitlines()


def test_costs_come_from_the_first_file(pipesynth, schedule_file):
    out = pipesynth("compare", schedule_file, "1f1b").out
    assert out.startswith("2 devices, 2 micro-batches, F,B,W 1,1,1, hop 0, no limit")
    own, baseline = (row[0] for row in rows(out))
    assert own.startswith("...")
    assert str(schedule_file).endswith(own[3:])
    assert baseline == "1f1b"


def test_options_override_the_files_costs(pipesynth, schedule_file):
    out = pipesynth("compare", schedule_file, "-P", 2, "-m", 2, "--costs", "2,2,2").out
    assert rows(out)[0][1] == "16"
    assert rows(out)[0][8] == "-"


def test_all_baselines_that_fit(pipesynth, schedule_file):
    out = pipesynth("compare", schedule_file, "--baselines", "all").out
    names = {row[0] for row in rows(out)}
    assert names >= {"gpipe", "1f1b", "zb-h1", "zb-h2"}
    assert "zb-v" not in names
    left_out = "left out, as they do not fit: zb-v, dualpipe, dualpipev; --all shows why"
    assert left_out in out.splitlines()


def test_all_baselines_and_why_they_do_not_fit(pipesynth, schedule_file):
    out = pipesynth("compare", schedule_file, "--baselines", "all", "--all").out
    assert ["zb-v", *"-" * 8, "no", "yes"] in rows(out)
    assert "zb-v: does not fit P=2 m=2: needs m >= 2P-1 = 3" in out
    assert "left out" not in out


def test_one_named_beside_all_is_shown_though_it_does_not_fit(pipesynth):
    out = pipesynth("compare", "zb-v", "--baselines", "all", "-P", 2, "-m", 2, "--json").out
    document = json.loads(out)
    assert document["rows"][0]["name"] == "zb-v"
    assert document["left_out"] == ["dualpipe", "dualpipev"]


def test_streams_need_a_micro_batch_each(pipesynth):
    out = pipesynth("compare", "--baselines", "all", "-P", 2, "-m", 1, "--json").out
    assert "chimera" in json.loads(out)["left_out"]


def test_asynchronous_families_are_marked(pipesynth):
    out = pipesynth("compare", "1f1b", "pipedream", "-P", 4, "-m", 8).out
    assert [row[-1] for row in rows(out)] == ["yes", "no"]
    note = " ".join(" ".join(out.splitlines()[5:]).split())
    assert note.startswith("pipedream: sync: no, not equivalent to synchronous training")
    assert "24 per step once full; up to 4 versions of the weights" in note


def test_markdown(pipesynth, schedule_file):
    out = pipesynth("compare", schedule_file, "1f1b", "--markdown").out
    header, rule, row, _, _, legend = out.splitlines()[2:]
    assert header.count("|") == rule.count("|") == row.count("|") == 11
    assert set(rule) == set("| -:")
    assert legend.startswith("- formula: ")


def test_csv(pipesynth):
    out = pipesynth("compare", "1f1b", "zb-v", "-P", 4, "-m", 4, "--csv").out
    fitting, refused = csv.DictReader(out.splitlines())
    assert (fitting["name"], fitting["makespan"], fitting["valid"]) == ("1f1b", "21", "true")
    assert (fitting["peak_memory"], fitting["idle_formula"]) == ("4 3 2 1", "9")
    assert refused["valid"] == "false"
    assert refused["makespan"] == ""
    assert refused["reason"] == "does not fit P=4 m=4: needs m >= 2P-1 = 7"


def test_sorting(pipesynth):
    arguments = ("compare", "gpipe", "1f1b", "zb-v", "zb-h1", "-P", 4, "-m", 4)
    by_peak = [row[0] for row in rows(pipesynth(*arguments, "--sort", "peak").out)]
    assert by_peak == ["gpipe", "1f1b", "zb-h1", "zb-v"]
    by_time = [row[0] for row in rows(pipesynth(*arguments, "--sort", "makespan").out)]
    assert by_time == ["zb-h1", "gpipe", "1f1b", "zb-v"]


def test_every_column_sorts(pipesynth):
    assert tuple(column.key for column in columns.COLUMNS) == SORTS
    for key in SORTS:
        result = pipesynth("compare", "1f1b", "zb-v", "-P", 4, "-m", 4, "--sort", key)
        assert result.code == 0


def test_an_unknown_column_is_refused(pipesynth):
    code, out, err = pipesynth("compare", "1f1b", "-P", 4, "-m", 4, "--sort", "beauty")
    assert (code, out, err.count("\n")) == (2, "", 1)


def test_one_shape_at_a_time(pipesynth):
    assert pipesynth("compare", "1f1b", "-P", 4, "-m", 4, "--json", "--csv").code == 2


@pytest.mark.parametrize(("devices", "microbatches"), [(8, 16), (4, 1), (16, 100)])
def test_a_hundred_columns_are_enough(pipesynth, devices, microbatches):
    names = "1f1b,pipedream,interleaved:4,dualpipe,zb-v"
    costs = "123.4567,234.5678,345.6789,0.1234"
    out = pipesynth(
        *("compare", "--baselines", names, "-P", devices, "-m", microbatches),
        *("--costs", costs, "--memory", "7.123"),
    ).out
    assert max(map(len, out.splitlines())) <= 100
    assert len(rows(out)) == 5


def test_long_paths_lose_their_beginning(pipesynth, schedule_file):
    folder = schedule_file.parent / ("long " * 20)
    folder.mkdir()
    copy = schedule_file.rename(folder / "solved.json")
    out = pipesynth("compare", copy).out
    assert max(map(len, out.splitlines())) <= 100
    assert "/solved.json " in out


@pytest.fixture
def costs_file(tmp_path, costs):
    """The small profile: two stages, whose hop sends a KiB."""
    path = tmp_path / "costs.json"
    path.write_text(dumps_costs(costs))
    return path


def test_a_profile_knows_the_bytes_of_messages(pipesynth, schedule_file, costs_file):
    arguments = ("compare", schedule_file, "--baselines", "zb-v,interleaved:2")
    out = pipesynth(*arguments, "--profile", costs_file, "--json").out
    document = json.loads(out)
    assert document["reference"]["costs"] == [[1, 1, 1]] * 2
    found = {row["name"]: row.get("bytes") for row in document["rows"]}
    assert found == {str(schedule_file): 4096, "zb-v": None, "interleaved:2": 3 * 4096}


def test_a_profile_gives_the_times_where_the_size_is_typed(pipesynth, costs_file):
    out = pipesynth("compare", "1f1b", "-P", 2, "-m", 64, "--profile", costs_file).out
    assert out.startswith("2 devices, 64 micro-batches, F,B,W 3,3,1.5 | 2,2,1, hop 0.2")
    assert "MiB" in out
    assert rows(out)[0][8] == "0.125"


def test_a_profile_and_costs_contradict(pipesynth, costs_file):
    arguments = ("-P", 2, "-m", 2, "--costs", "1,1,1", "--profile", costs_file)
    assert pipesynth("compare", "1f1b", *arguments).code == 2


def test_json(pipesynth, schedule_file):
    out = pipesynth("compare", schedule_file, "--baselines", "1f1b", "--json").out
    document = json.loads(out)
    assert document["reference"]["costs"] == [[1, 1, 1]] * 2
    own, baseline = document["rows"]
    assert (own["makespan"], own["gap"], own["valid"]) == (8, 0.125, True)
    assert (baseline["name"], baseline["measured_s"]) == ("1f1b", None)
    assert (baseline["peak"], baseline["peak_memory"]) == (2, [2, 1])
    assert (baseline["parameters"], baseline["messages"], baseline["bytes"]) == (1, 4, None)
    assert (baseline["idle_formula"], baseline["idle"], baseline["formula_agrees"]) == (3, 3, True)
    assert baseline["bubble_formula"] == pytest.approx(baseline["bubble"])
    assert (baseline["synchronous"], baseline["note"]) == (True, None)
    assert (own["bubble_formula"], own["formula_agrees"]) == (None, None)


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
    assert "step ms  of plan" in out
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
