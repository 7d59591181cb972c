"""Somebody's own model, from its profile to its run and back, and the options that go along."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec
import pytest

from runtime import options, train_options
from runtime.options import JobOptions
from runtime.profiled_model import require_profile_of
from synth import catalog
from synth.costs import Environment, Method, SliceCost, Timing, dumps, loads, make_costs
from synth.errors import FileError, UsageError
from synth.problem import make_problem
from synth.profiled import joined, make_profiled

MODEL = """
import torch
from torch import nn

WORDS, WIDTH = 11, 6


class Embedding(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(WORDS, WIDTH)

    def forward(self, words):
        return self.table(words)


def make():
    first, last = Embedding(), nn.Linear(WIDTH, WORDS, bias=False)
    last.weight = first.table.weight
    return [first, nn.Linear(WIDTH, WIDTH), nn.Tanh(), last], loss, draw


def loss(output, target):
    return nn.functional.cross_entropy(output.flatten(0, 1), target.flatten())


def draw(step, samples):
    words = torch.randint(WORDS, (samples, 5))
    return words[:, :-1], words[:, 1:]
"""


def pipesynth(folder: Path, *arguments: object) -> str:
    """The output of a command that has to succeed."""
    environment = {key: value for key, value in os.environ.items() if key != "RANK"}
    done = subprocess.run(
        [sys.executable, "-m", "synth", *map(str, arguments)],
        cwd=folder,
        env={
            **environment,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
        },
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), (arguments, done.stderr)
    return done.stdout


@pytest.mark.dist
def test_profile_solve_run_compare_calibrate(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MODEL)
    quick = ("--rounds", 2, "--warmup", 0, "--in-flight", 2, "--batch", 2, "--seed", 3)
    measured = ("profile", "--model", "mine:make", "-P", 2, "--cut", "1,3", "-o", "costs.json")
    pipesynth(tmp_path, *measured, *quick)
    costs = loads((tmp_path / "costs.json").read_bytes(), "costs.json")
    assert costs.model == {"name": "mine:make", "batch": 2, "seed": 3, "input_shape": None}

    solve = ("solve", "-P", 2, "-m", 3, "-q", "--time-limit", 0.5)
    pipesynth(tmp_path, *solve, "--profile", "costs.json", "-o", "plan.json")
    steps = ("--steps", 4, "--lr", 0.05)
    ran = ("run", "plan.json", "--profile", "costs.json", *steps, "--warmup", 1)
    printed = pipesynth(tmp_path, *ran, "--check", "--run-file", "run.json")
    assert "gradients  equal to one process" in printed
    run = json.loads((tmp_path / "run.json").read_text())
    facts = {"name": "mine:make", "stages": 2, "seed": 3, "batch": 2, "cut": [1, 3], "lr": 0.05}
    assert run["model"] == facts

    # Two stages that share a parameter, on two ranks, lose what one stage on one rank loses.
    pipesynth(tmp_path, "baseline", "1f1b", "-P", 1, "-m", 3, "-o", "alone.json")
    alone = ("run", "alone.json", "--model", "mine:make", "--batch", 2, "--seed", 3, *steps)
    losses = json.loads(pipesynth(tmp_path, *alone, "--json"))["losses"]
    assert run["losses"] == pytest.approx(losses, rel=1e-5)
    assert len(set(losses)) == 4

    compared = pipesynth(tmp_path, "compare", "plan.json", "--run", "run.json")
    assert "run.json: solved, 3 steps" in compared
    pipesynth(tmp_path, "calibrate", "costs.json", "run.json", "-o", "new.json")
    new = loads((tmp_path / "new.json").read_bytes(), "new.json")
    assert (new.model, new.cut) == (costs.model, costs.cut)
    assert new.stages != costs.stages
    pipesynth(tmp_path, *solve, "--profile", "new.json", "-o", "again.json")


# Options, without ranks --------------------------------------------------------------------------


def costs_file(folder: Path, **model: Any) -> Path:
    """A profile of three layers in two stages, said to be of a model."""
    timing = Timing(1000, 1000, 1000)
    layer = SliceCost("layer", 1, timing, timing, timing, timing, 1, 1, 1, 1, 1, 1)
    layers = [
        msgspec.structs.replace(layer, name=f"layer{number}", activation_bytes=10 + number)
        for number in range(3)
    ]
    costs = make_costs(
        model=model,
        environment=Environment("cpu", "none", 1, 1, 1, "0"),
        method=Method(0, 1, 1),
        hops=[],
        layers=layers,
        stages=joined(layers, (1, 2)),
    )
    path = folder / "costs.json"
    path.write_text(dumps(costs))
    return path


GPT = {"name": "gpt", "batch": 2, "layers": 1, "width": 8, "heads": 2, "seq_len": 16, "seed": 5}


@pytest.mark.parametrize("parse", [options.parse, train_options.parse])
def test_a_profile_says_which_model_it_is_of(tmp_path: Path, parse: Any) -> None:
    path = costs_file(tmp_path, **GPT, dtype="float64")
    found = parse(["plan.json", "--profile", str(path)])
    assert (found.model, found.cut, found.dtype) == ("gpt", (1, 2), "float64")
    assert (found.batch, found.layers, found.width, found.heads) == (2, 1, 8, 2)
    assert (found.seq_len, found.seed) == (16, 5)
    given = parse(["plan.json", "--profile", str(path), "--batch", "7", "--cut", "2,1"])
    assert (given.batch, given.cut, given.width) == (7, (2, 1), 8)


def test_a_profile_of_a_factory_says_what_its_data_is(tmp_path: Path) -> None:
    path = costs_file(tmp_path, name="mine:make", batch=2, input_shape="3,4")
    found = options.parse(["plan.json", "--profile", str(path)])
    assert (found.model, found.input_shape) == ("mine:make", (3, 4))


def test_a_profile_of_another_model_is_refused(tmp_path: Path) -> None:
    path = costs_file(tmp_path, **GPT)
    with pytest.raises(UsageError, match="is of model gpt, not of sleep"):
        options.parse(["plan.json", "--profile", str(path), "--model", "sleep"])


@pytest.mark.parametrize(
    "model",
    [{}, {**GPT, "layers": "many"}, {**GPT, "dtype": "int3"}, {**GPT, "input_shape": "1,0"}],
)
def test_a_profile_of_no_model_is_refused(tmp_path: Path, model: dict[str, Any]) -> None:
    path = costs_file(tmp_path, **model)
    with pytest.raises((FileError, UsageError), match=r"does not say which model|--model None"):
        options.parse(["plan.json", "--profile", str(path)])


def test_a_schedule_for_another_cut_or_profile_is_refused(tmp_path: Path) -> None:
    path = costs_file(tmp_path, **GPT)
    costs = loads(path.read_bytes(), str(path))
    stages = joined(costs.layers, (2, 1))
    for given in (costs.stages, stages):
        problem = make_profiled(costs, 2, 2, stages=given)
        schedule = catalog.build("1f1b", problem)
        cut = tuple(stage.layers for stage in given)
        require_profile_of(schedule, path, cut)
        with pytest.raises(UsageError, match="give the --cut that"):
            require_profile_of(schedule, path, cut[::-1])
    require_profile_of(catalog.build("1f1b", make_problem(2, 2)), path, (1, 2))  # of no profile


def test_runs_and_trainings_read_what_they_share_alike() -> None:
    line = ["plan.json", "--model", "a:b", "--input-shape", "3", "--seed", "4", "--steps", "9"]
    run, training = options.parse(line), train_options.parse(line)
    for field in fields(JobOptions):
        assert getattr(run, field.name) == getattr(training, field.name), field.name
