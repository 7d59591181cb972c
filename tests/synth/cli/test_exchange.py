"""`pipesynth export --to torch-csv` and `pipesynth import`."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from synth.cli import main
from synth.files import load


@pytest.fixture
def zb_file(pipesynth, tmp_path):
    path = tmp_path / "zb.json"
    assert pipesynth("baseline", "zb-h1", "-P", 2, "-m", 3, "-o", path).code == 0
    return path


@pytest.mark.parametrize("form", ["compute_only", "compute_comms"])
def test_out_and_in_again(pipesynth, zb_file, tmp_path, form):
    table, back = tmp_path / "zb.csv", tmp_path / "back.json"
    result = pipesynth("export", zb_file, "--to", "torch-csv", "--form", form, "-o", table)
    assert (result.code, result.out, result.err) == (0, "", "")
    code, out, err = pipesynth("import", table, "--from", "torch-csv", "-o", back)
    assert (code, err) == (0, "")
    assert out.startswith("schedule     zb-h1: 2 devices, 3 micro-batches, linear placement")
    old, new = load(zb_file), load(back)
    assert (old.name, old.problem, old.devices) == (new.name, new.problem, new.devices)


def test_without_a_file_it_goes_to_stdout(pipesynth, zb_file):
    out = pipesynth("export", zb_file, "--to", "torch-csv", "--merge").out
    assert out == "0F0,0F1,0B0,0F2,0B1,0B2\n1F0,1I0,1F1,1I1,1W0,1F2,1I2,1W1,1W2\n"


def test_costs_can_be_given(pipesynth, tmp_path):
    table = tmp_path / "plan.csv"
    table.write_text("0F0,0B0\n1F0,1B0\n")
    out = pipesynth("import", table, "--from", "torch-csv", "--costs", "2,3,4", "--json").out
    document = json.loads(out)
    assert (document["name"], document["makespan"], document["schedule"]) == ("plan.csv", 18, None)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["-m", 4], "has 1 microbatches, not 4"),
        (["--placement", "v"], "--placement comes from the CSV itself"),
        (["--sidecar", "nothing.json"], "nothing.json: cannot be read"),
    ],
)
def test_what_does_not_fit_is_one_line(pipesynth, tmp_path, arguments, text):
    table = tmp_path / "plan.csv"
    table.write_text("0F0,0B0\n1F0,1B0\n")
    code, out, err = pipesynth("import", table, "--from", "torch-csv", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert text in err


def test_a_sidecar_of_another_table_is_refused(pipesynth, zb_file, tmp_path):
    table = tmp_path / "zb.csv"
    pipesynth("export", zb_file, "--to", "torch-csv", "-o", table)
    table.write_text("0F0,0B0\n1F0,1B0\n")
    code, _, err = pipesynth("import", table, "--from", "torch-csv")
    assert code == 2
    assert "is for other stages, ranks or micro-batches" in err


def test_bad_bytes_and_orders(pipesynth, tmp_path):
    table = tmp_path / "plan.csv"
    table.write_bytes(b"\xff\xfe0")
    assert "is not UTF-8 text" in pipesynth("import", table, "--from", "torch-csv").err
    table.write_text("0F0,0B0\n1B0,1F0\n")
    assert pipesynth("import", table, "--from", "torch-csv").code == 1


def test_two_streams_have_no_csv(pipesynth, tmp_path):
    path = tmp_path / "chimera.json"
    pipesynth("baseline", "chimera", "-P", 4, "-m", 4, "-o", path)
    code, out, err = pipesynth("export", path, "--to", "torch-csv")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "torch's CSV cannot tell them apart" in err


def test_torchs_own_need_a_size(pipesynth):
    code, _, err = pipesynth("import", "1F1B", "--from", "torch")
    assert code == 2
    assert "needs -P (devices) and -m (micro-batches)" in err


def test_the_form_belongs_to_the_csv(pipesynth, zb_file):
    code, _, err = pipesynth("export", zb_file, "--to", "program", "--form", "compute_only")
    assert code == 2
    assert "--form is for --to torch-csv" in err


CELLS = st.one_of(
    st.sampled_from(
        ["0F0", "1B0", "0I0", "0W0", "1F0", "0SEND_F0", "1RECV_F0", "0REDUCE_GRAD", ""]
    ),
    st.sampled_from(
        ["(0F0;1B1)OVERLAP_F_B", "999999999F0", "0F999999999", "x", "0F0;", '"', "\x00"]
    ),
)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.lists(CELLS, max_size=6), max_size=3))
def test_any_table_is_a_schedule_or_one_line(tmp_path, capsys, rows):
    table = tmp_path / "odd.csv"
    table.write_text("\n".join(map(",".join, rows)))
    code = main(["import", str(table), "--from", "torch-csv"])
    err = capsys.readouterr().err
    assert code in (0, 1, 2)
    assert err.count("\n") == (code != 0)
