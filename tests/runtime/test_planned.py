"""Planned seconds of sleeping stages, measured steps put together, and the measured ratio."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.planned import planned_times, stage_times
from runtime.runfile import RankRecord, merge_steps
from synth.catalog.build import build
from synth.files import save
from synth.problem import make_problem


def test_ticks_and_given_times_become_seconds() -> None:
    schedule = build("1f1b", make_problem(4, 8))
    assert schedule.makespan == 33
    ticks = stage_times(schedule.problem, None, 20.0)
    assert planned_times(schedule, ticks) == pytest.approx((0.66, 0.66))
    given = stage_times(schedule.problem, (10.0, 10.0, 10.0), 20.0)
    assert planned_times(schedule, given) == pytest.approx((0.33, 0.33))


def test_steps_are_put_on_one_axis() -> None:
    records = [
        RankRecord(0, [[("F0@0", 10.0, 11.0), ("BW0@0", 14.0, 15.5)]], [{}], [1, 1], []),
        RankRecord(1, [[("F0@1", 11.0, 12.0), ("BW0@1", 12.0, 14.0)]], [{"0": 3.0}], [1, 1], []),
    ]
    (step,) = merge_steps(records, with_loss=True)
    assert (step.loss, step.makespan_s, step.span_s) == (3.0, 5.5, 5.5)
    assert step.ranks[1] == [("F0@1", 1.0, 2.0), ("BW0@1", 2.0, 4.0)]
    assert merge_steps(records, with_loss=False)[0].loss is None


@pytest.mark.dist
@pytest.mark.slow
def test_measured_step_times_keep_to_the_plan(tmp_path: Path) -> None:
    """A loose limit, as other work on the machine counts too; benchmarks state the real one."""
    ratios = {}
    for name in ("1f1b", "zb-h1"):
        save(build(name, make_problem(4, 8)), tmp_path / f"{name}.json")
        done = subprocess.run(
            [
                *(sys.executable, "-m", "runtime", tmp_path / f"{name}.json", "--json"),
                *("--model", "sleep", "--tick-ms", "20", "--steps", "13", "--warmup", "3"),
            ],
            check=True,
            capture_output=True,
            text=True,
            timeout=120,
        )
        run = json.loads(done.stdout)
        ratios[name] = run["measured"]["makespan_s"] / run["planned"]["makespan_s"]
    assert all(1 <= ratio <= 1.10 for ratio in ratios.values()), ratios
