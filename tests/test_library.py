"""The library of solved schedules: every file is valid, listed, and its bound holds."""

import importlib.util
import json
import shlex
from fractions import Fraction
from functools import cache
from pathlib import Path

import pytest

from synth.bounds import best_bound
from synth.cli.entry import build_parser
from synth.cli.options import read_problem
from synth.files import dumps, load
from synth.verify import verify

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "schedules"
ENTRIES = json.loads((FOLDER / "library.json").read_text())["schedules"]
NAMES = [entry["file"].removesuffix(".json") for entry in ENTRIES]
REFUTED_BY = ("refutation: ", "orders: ", "CP-SAT: ")
MOST_BYTES = 3_000_000


def script():
    """scripts/library.py, which is not in a package."""
    spec = importlib.util.spec_from_file_location("library", ROOT / "scripts" / "library.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def schedule(name):
    return load(FOLDER / f"{name}.json")


@pytest.mark.parametrize("name", NAMES)
def test_schedule_is_valid(name):
    assert verify(schedule(name)) == []


@pytest.mark.parametrize("name", NAMES)
def test_bound_holds(name):
    """Either a bound that needs no solver is as strong, or the certificate names a refutation."""
    certificate = schedule(name).certificate
    bound = best_bound(schedule(name).problem)
    assert bound.value <= certificate.value
    if bound.value < certificate.bound:
        assert certificate.proof.startswith(REFUTED_BY)


@pytest.mark.parametrize("entry", ENTRIES, ids=NAMES)
def test_command_asks_for_the_problem_of_its_file(entry):
    program, *words = shlex.split(entry["command"])
    args = build_parser().parse_args(words)
    assert program == "pipesynth"
    assert args.output == f"schedules/{entry['file']}"
    assert read_problem(args) == schedule(entry["file"].removesuffix(".json")).problem


@pytest.mark.parametrize("entry", ENTRIES, ids=NAMES)
def test_manifest_says_what_is_in_the_file(entry):
    found = schedule(entry["file"].removesuffix(".json"))
    per_unit = found.problem.units.ticks_per_unit
    certificate = found.certificate
    assert entry["objective"] == str(found.problem.objective)
    assert Fraction(str(entry["value"])) == Fraction(certificate.value, per_unit)
    assert Fraction(str(entry["bound"])) == Fraction(certificate.bound, per_unit)
    assert certificate.proof.startswith(f"{entry['proof']}: ")


def test_lists_name_every_file_and_are_up_to_date():
    library = script()
    files = {path.name for path in FOLDER.glob("*.json")} - {"schema.json", "library.json"}
    assert files == {entry["file"] for entry in ENTRIES}
    assert [library.entry(name) for name in NAMES] == ENTRIES
    assert (FOLDER / "library.json").read_text() == library.manifest_text(ENTRIES)
    assert (FOLDER / "README.md").read_text() == library.readme_text(ENTRIES)


def test_library_holds_every_problem_of_the_script():
    assert list(script().PROBLEMS) == NAMES


def test_an_answer_replaces_only_a_worse_one():
    from dataclasses import replace

    library = script()
    found = schedule("unit-p4-m8-k3")
    weaker = replace(found, certificate=replace(found.certificate, bound=30))
    assert library.better(found, weaker)
    assert not library.better(weaker, found)
    assert not library.better(found, found)
    assert library.better(schedule("unit-p4-m8-k4"), found)


@pytest.mark.parametrize("name", NAMES[:3])
def test_files_are_written_as_they_are_read(name):
    assert dumps(schedule(name)) == (FOLDER / f"{name}.json").read_text()


def test_folder_is_small_enough_for_git():
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < MOST_BYTES
