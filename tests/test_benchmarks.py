"""The benchmarks that compare with torch run, and memory, which no clock blurs, is as claimed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def output(name: str, *options: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, f"benchmarks/{name}.py", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def figures(line: str, count: int) -> list[float]:
    """The last numbers of a row."""
    return [float(word) for word in line.split()[-count:]]


def test_b_frees_what_w_does_not_need() -> None:
    *_, blocks, layers = output("split_backward", "--only", "width 64", "--rounds", "1")
    our_f, our_b, their_f, their_b = figures(blocks, 4)
    assert our_b <= our_f == their_f < their_b
    assert len(figures(layers, 12)) == 12


@pytest.mark.dist
@pytest.mark.slow
def test_a_step_holds_less_than_in_torch() -> None:
    rows = output(
        "held_bytes", "--devices", "2", "--microbatches", "6", "--schedules", "1f1b,zb-h1"
    )
    for row in rows[-2:]:
        our_most, their_most, _, our_sum, their_sum, _ = figures(row, 6)
        assert 0 < our_most < their_most
        assert 0 < our_sum < their_sum


@pytest.mark.dist
@pytest.mark.slow
def test_both_runtimes_take_turns() -> None:
    sizes = ("--devices", "2", "--microbatches", "4", "--tick-ms", "2", "--steps", "2")
    rows = output("runtime_overhead", *sizes, "--cpu-steps", "5", "--json")
    found = [json.loads(row) for row in rows]
    assert [one["schedule"] for one in found] == [
        "1f1b",
        "zb-h1",
        "zb-v",
        "interleaved:2",
        "solved",
    ]
    for one in found:
        assert set(one["makespan_s"]) == {"floor", "ours", "torch"}
        assert all(makespan_s > one["ideal_s"] for makespan_s in one["makespan_s"].values())
        assert all(cpu_s > 0 for cpu_s in one["cpu_per_op_s"].values())
