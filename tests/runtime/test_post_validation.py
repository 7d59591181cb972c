"""Early updates that can be taken back leave exactly what waiting for the norm leaves."""

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
from synth.problem import make_problem
from synth.schedule import Schedule

pytestmark = pytest.mark.dist
WORKER = Path(__file__).with_name("optimizer_worker.py")
CASES = {
    1: [("1f1b", 6, False)],
    2: [(n, 8, False) for n in ("chimera", "dualpipe", "gpipe", "interleaved:2", "zb-v")],
    3: [("zb-h2", 100, False), ("zb-h2", 25, True)],
}
"""By number of ranks: schedule, steps, and whether dropout and running means are in the way."""

Row = dict[str, Any]


def schedule(name: str, devices: int) -> Schedule:
    placement = catalog.family(name).placement
    return catalog.build(name, make_problem(devices, 4, placement=placement))


@cache
def rows(devices: int, device: str) -> list[Row]:
    with TemporaryDirectory() as name:
        folder = Path(name)
        for case, _, _ in CASES[devices]:
            save(schedule(case, devices), folder / f"{case}.json")
        (folder / "cases.json").write_text(json.dumps(CASES[devices]))
        subprocess.run(
            [sys.executable, str(WORKER), str(devices), name, device],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            check=True,
            timeout=150,
        )
        files = (folder / "results" / f"{rank}.jsonl" for rank in range(devices))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def cases(*, noisy: bool) -> list[Any]:
    return [
        pytest.param(
            devices,
            *case,
            id=f"{case[0]} on {devices}{' noisy' * case[2]}",
            marks=[pytest.mark.slow] if devices == 1 else [],
        )
        for devices, listed in CASES.items()
        for case in listed
        if noisy or not case[2]
    ]


def of_case(devices: int, name: str, noisy: bool, mode: str, device: str = "cpu") -> list[Row]:
    wanted = (name, noisy, mode)
    return [
        row for row in rows(devices, device) if (row["name"], row["noisy"], row["mode"]) == wanted
    ]


@pytest.mark.parametrize(("devices", "name", "steps", "noisy"), cases(noisy=True))
def test_parameters_and_losses_are_bit_for_bit_those_of_the_synchronous_mode(
    devices: int, name: str, steps: int, noisy: bool, device: str
) -> None:
    waiting = of_case(devices, name, noisy, "synchronous", device)
    early = of_case(devices, name, noisy, "post", device)
    assert len(waiting) == len(early) == devices
    for one, other in zip(waiting, early, strict=True):
        assert len(other["parameters"]) == steps
        for what in ("losses", "parameters", "final"):
            assert one[what] == other[what]
        assert str(one["updates"]) == str(other["updates"])  # some norms are not a number


@pytest.mark.parametrize(("devices", "name", "steps", "noisy"), cases(noisy=False))
def test_clipping_is_that_of_one_process(devices: int, name: str, steps: int, noisy: bool) -> None:
    """Without dropout, whose random numbers are others in one process."""
    (alone,) = of_case(devices, name, noisy, "alone")
    pipeline = of_case(devices, name, noisy, "synchronous")
    if name in ("chimera", "dualpipe"):  # two replicas: gradients are summed in another order
        for row in pipeline:
            found = [value for update in row["updates"] for value in update]
            wanted = [value for update in alone["updates"] for value in update]
            assert found == pytest.approx(wanted, rel=1e-9, nan_ok=True)
        return
    for row in pipeline:
        assert str(row["updates"]) == str(alone["updates"])
        for found, wanted in zip(row["parameters"], alone["parameters"], strict=True):
            assert found.items() <= wanted.items()


def test_the_hundred_steps_saw_everything() -> None:
    early = of_case(3, "zb-h2", False, "post")
    factors = [factor for _, factor in early[0]["updates"]]
    assert factors.count(0.0) == 5
    assert 10 < sum(0 < factor < 1 for factor in factors) < 60
    # The last rank knows the whole norm, the others stepped too early now and then.
    assert [row["taken_back"] > 10 for row in early] == [True, True, False]


def test_gates_leave_room_for_the_verdict() -> None:
    gates = [row["gate"] for row in of_case(3, "zb-h2", False, "post")]
    assert gates[0] > 0
    assert gates == sorted(gates, reverse=True)


def test_the_benchmark_prints_a_row_per_schedule() -> None:
    root = Path(__file__).resolve().parents[2]
    few = ("-P", "2", "-m", "2", "--tick-ms", "1", "--steps", "2", "zb-h2", "1f1b")
    done = subprocess.run(
        [sys.executable, root / "benchmarks" / "post_validation.py", *few],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    assert [line.split()[0] for line in done.stdout.splitlines()[2:]] == ["zb-h2", "1f1b"]
