"""`pipesynth baseline`: generating by name, and the list."""

import json

import pytest

from synth import catalog


@pytest.mark.parametrize(
    ("name", "makespan", "peak"), [("gpipe", 33, 8), ("1f1b", 33, 4), ("zb-h1", 27, 4)]
)
def test_unit_costs(pipesynth, tmp_path, name, makespan, peak):
    path = tmp_path / "out.json"
    code, out, _ = pipesynth("baseline", name, "-P", 4, "-m", 8, "-o", path, "--json")
    found = json.loads(out)
    assert code == 0
    assert (found["name"], found["makespan"], max(found["peak_memory"])) == (name, makespan, peak)
    assert found["schedule"] == str(path)
    assert pipesynth("verify", path).code == 0


def test_a_limit_that_is_too_small(pipesynth, tmp_path):
    path = tmp_path / "out.json"
    code, out, err = pipesynth("baseline", "zb-h2", "-P", 4, "-m", 8, "--memory", 5, "-o", path)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "zb-h2 holds 7" in err
    assert not path.exists()


def test_the_list_names_every_family(pipesynth):
    lines = pipesynth("baseline", "--list").out.splitlines()[1:]
    assert [line.split()[0] for line in lines] == list(catalog.names())
    listed = json.loads(pipesynth("baseline", "--list", "--json").out)["baselines"]
    assert [family["name"] for family in listed] == list(catalog.names())
    assert all(family["source"] for family in listed)


@pytest.mark.parametrize(("gain", "makespan"), [("0", 26), ("0.15", 24.2)])
def test_overlapped_pairs(pipesynth, gain, makespan):
    """DualPipe on 4 devices with F = B = W = 1: pairs of 3 and of 2.55 units."""
    options = ("dualpipe", "-P", 4, "-m", 8, "--overlap-gain", gain, "--json")
    assert json.loads(pipesynth("baseline", *options).out)["makespan"] == makespan


def test_a_fused_backward(pipesynth):
    """1F1B with F = 1 and BW = 1.5: (m + P - 1) * (F + BW)."""
    options = ("1f1b", "-P", 4, "-m", 8, "--fused-cost", "1.5", "--json")
    assert json.loads(pipesynth("baseline", *options).out)["makespan"] == 11 * 2.5


@pytest.mark.parametrize(("option", "amount"), [("--overlap-gain", "0.9"), ("--fused-cost", "0.5")])
def test_pairs_and_fused_ops_that_cannot_be(pipesynth, option, amount):
    code, out, err = pipesynth("baseline", "dualpipe", "-P", 4, "-m", 8, option, amount)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "--fused-cost must not be below B" in err
