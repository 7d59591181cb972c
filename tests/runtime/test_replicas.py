"""Pipelines side by side train as one process does on the data of all of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from synth import catalog
from synth.files import save
from synth.lower import Reduce, lower
from synth.problem import make_problem
from synth.rendezvous import check_program
from synth.schedule import Schedule

WORKER = Path(__file__).with_name("replicas_worker.py")
CASES = {(1, 3): ("1f1b",), (2, 2): ("chimera", "interleaved:2", "zb-h1")}
"""By devices and replicas."""


def schedule(name: str, devices: int) -> Schedule:
    placement = catalog.family(name).placement
    return catalog.build(name, make_problem(devices, 2 * devices, placement=placement))


@cache
def rows(devices: int, replicas: int, device: str) -> list[dict[str, Any]]:
    with TemporaryDirectory() as name:
        folder = Path(name)
        for case in CASES[devices, replicas]:
            save(schedule(case, devices), folder / f"{case}.json")
        subprocess.run(
            [sys.executable, str(WORKER), str(devices), str(replicas), name, device],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            check=True,
            timeout=150,
        )
        ranks = (folder / "results" / f"{rank}.jsonl" for rank in range(devices * replicas))
        return [json.loads(line) for file in ranks for line in file.read_text().splitlines()]


def cases() -> list[Any]:
    return [
        pytest.param(
            *size,
            name,
            id=f"{name} on {size[0]}, {size[1]} times",
            marks=[pytest.mark.slow] if size == (1, 3) else [],
        )
        for size, names in CASES.items()
        for name in names
    ]


@pytest.mark.dist
@pytest.mark.parametrize(("devices", "replicas", "name"), cases())
def test_parameters_are_those_of_one_process(
    devices: int, replicas: int, name: str, device: str
) -> None:
    every = rows(devices, replicas, device)
    found = [row for row in every if row["name"] == name and "error" in row]
    assert len(found) == 2 * devices * replicas  # both optimizers
    assert max(row["error"] for row in found) <= 1e-12


@pytest.mark.dist
@pytest.mark.parametrize(("devices", "replicas", "name"), [(2, 2, name) for name in CASES[2, 2]])
def test_tied_weights_have_one_gradient_everywhere(
    devices: int, replicas: int, name: str, device: str
) -> None:
    found = [row["tied"] for row in rows(2, 2, device) if row["name"] == name and "tied" in row]
    assert len(set(found)) == 1
    assert found[0] > 0


@pytest.mark.dist
def test_a_wrong_number_of_ranks_is_refused() -> None:
    refused = {row["refused"] for row in rows(2, 2, "cpu") if "refused" in row}
    assert refused == {
        "3 replicas of a schedule for 2 devices need 6 ranks, this job has 4; "
        "start it with --nproc-per-node 6"
    }


@pytest.mark.dist
def test_copies_of_a_stage_that_differ_are_refused_on_every_rank() -> None:
    found = [row["said"] for row in rows(2, 2, "cpu") if "said" in row]
    assert len(found) == 4
    assert len(set(found)) == 1
    assert found[0].startswith("stage 0 is not the same on all ranks: rank 0 has ")


def test_a_stage_reduces_as_soon_as_its_last_w_is_done() -> None:
    """Of two chunks one ends early, so that its gradients travel while the other still computes."""
    program = lower(schedule("interleaved:2", 2), replicated=True)
    check_program(program)
    for steps in program.ranks:
        reductions = [index for index, step in enumerate(steps) if isinstance(step, Reduce)]
        assert len(reductions) == 2
        assert reductions[0] + 1 < reductions[1]


def test_without_replicas_nothing_is_reduced() -> None:
    program = lower(schedule("zb-h1", 2))
    assert not program.replicas
