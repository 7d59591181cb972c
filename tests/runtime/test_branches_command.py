"""Stages that are not a chain, from the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from synth.files import save
from synth.problem import Problem, StageCost, Stream
from synth.solve import solve

MODEL = """
import torch
from torch import nn


class Meet(nn.Module):
    def __init__(self):
        super().__init__()
        self.images, self.words = nn.Linear(6, 4), nn.Linear(4, 4)

    def forward(self, words, images):
        return torch.relu(self.images(images) + self.words(words.mean(1)))


def make():
    layers = [nn.Linear(3, 6), nn.Tanh(), nn.Embedding(9, 4), Meet(), nn.Linear(4, 2)]
    return layers, nn.functional.mse_loss, draw


def draw(step, samples):
    images, words = torch.randn(samples, 3), torch.randint(9, (samples, 5))
    return {0: images, 1: words}, torch.randn(samples, 2)
"""
UNIT = StageCost(2, 3, 1, 4, 6, 1, 1)
MEETING = Problem(
    2, "explicit", (UNIT,) * 3, (Stream("", 2, (0, 1, 1)),), 1, needs=((), (), (1, 0))
)


def runtime(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != "RANK"}
    root = str(Path(__file__).parents[2])
    return subprocess.run(
        [sys.executable, "-m", "runtime", *map(str, arguments)],
        cwd=folder,
        env={**environment, "OMP_NUM_THREADS": "1", "PYTHONPATH": root},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a schedule and a model for it."""
    schedule = solve(MEETING, time_limit_s=0.5).schedule
    assert schedule is not None
    save(schedule, tmp_path / "plan.json")
    (tmp_path / "mine.py").write_text(MODEL)
    return tmp_path


@pytest.mark.dist
def test_a_factory_of_layers_stage_after_stage(folder: Path) -> None:
    options = ("plan.json", "--model", "mine:make", "--cut", "2,1,2", "--steps", 3, "--json")
    ran = runtime(folder, *options, "--check", "--run-file", "run.json")
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert found["largest_error"] < 1e-5
    assert all(rank["in_flight"] == rank["planned_in_flight"] for rank in found["ranks"])
    trained = runtime(folder, "train", *options)
    assert trained.returncode == 0, trained.stderr
    assert json.loads(trained.stdout)["losses"] == pytest.approx(found["losses"], rel=1e-6)


@pytest.mark.dist
def test_sleeping_stages_join(folder: Path) -> None:
    ran = runtime(folder, "plan.json", "--model", "sleep", "--tick-ms", 10, "--steps", 2, "--json")
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    planned, measured = found["planned"]["makespan_s"], found["measured"]["makespan_min_s"]
    assert planned <= measured < 2 * planned
