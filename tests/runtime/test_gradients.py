"""Every schedule gives the gradients of one process, holds what it planned and keeps its times."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from synth.files import save
from synth.graph import all_nodes, dependencies
from synth.op import Kind, Op
from synth.problem import Problem, make_problem
from synth.schedule import Certificate, Orders, Schedule, makespan
from synth.simulate import earliest

pytestmark = pytest.mark.dist
WORKER = Path(__file__).with_name("gradients_worker.py")


def timed(name: str, problem: Problem, orders: Orders) -> Schedule:
    timeline = earliest(problem, orders)
    return Schedule(name, problem, timeline, Certificate(makespan(timeline), 0, "none"))


def one_forward_one_backward(problem: Problem, depth: int, *, fused: bool) -> Orders:
    """1F1B, or with W split off and `depth` times the warm-up the zero-bubble schedules."""
    devices, microbatches = problem.devices, problem.total_microbatches
    orders = []
    for stage in range(devices):
        warmup = min((devices - 1 - stage) * depth + 1, microbatches)
        order = [Op(Kind.F, index, stage) for index in range(warmup)]
        owed: list[Op] = []
        for index in range(microbatches):
            order.append(Op(Kind.BW if fused else Kind.B, index, stage))
            if not fused:
                owed.append(Op(Kind.W, index, stage))
                if len(owed) > stage * depth:
                    order.append(owed.pop(0))
            if warmup + index < microbatches:
                order.append(Op(Kind.F, warmup + index, stage))
        orders.append((*order, *owed))
    return tuple(orders)


def gpipe(problem: Problem) -> Orders:
    count = range(problem.total_microbatches)
    return tuple(
        (*(Op(Kind.F, i, d) for i in count), *(Op(Kind.BW, i, d) for i in reversed(count)))
        for d in range(problem.devices)
    )


def shuffled(problem: Problem, seed: int) -> Orders:
    """Some valid order: any ready node next, whatever its kind and micro-batch."""
    choose = random.Random(seed)
    left = dict.fromkeys(all_nodes(problem))
    orders: list[list[Op]] = [[] for _ in range(problem.devices)]
    while left:
        ready = [n for n in left if all(b not in left for b, _ in dependencies(problem, n))]
        node = choose.choice(ready)
        orders[problem.device(node)].append(node)
        del left[node]
    return tuple(map(tuple, orders))


def schedules(devices: int) -> dict[str, Schedule]:
    """Handcrafted orders, and orders nobody would write, over all placements."""
    linear = make_problem(devices, 2 * devices, costs=(2, 3, 1), comm=1)
    plans: dict[str, Callable[[], Orders]] = {
        "gpipe": lambda: gpipe(linear),
        "1f1b": lambda: one_forward_one_backward(linear, 1, fused=True),
        "zb-h1": lambda: one_forward_one_backward(linear, 1, fused=False),
        "zb-h2": lambda: one_forward_one_backward(linear, 2, fused=False),
        "shuffled": lambda: shuffled(linear, 1),
    }
    found = {name: timed(name, linear, orders()) for name, orders in plans.items()}
    for placement in ("v", "interleaved:2", "wave:2"):
        problem = make_problem(devices, 3, placement=placement, costs=(1, 2, 1), comm=1)
        found[placement.replace(":", "-")] = timed(placement, problem, shuffled(problem, 2))
    few = make_problem(devices, 1)
    found["one micro-batch"] = timed("few", few, shuffled(few, 3))
    return found


@cache
def results(devices: int) -> dict[str, list[dict[str, Any]]]:
    """By schedule what each rank found; one launch for all."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        for plan, schedule in schedules(devices).items():
            save(schedule, folder / f"{plan}.json")
        subprocess.run(
            [sys.executable, str(WORKER), str(devices), str(folder)], check=True, timeout=150
        )
        found: dict[str, list[dict[str, Any]]] = {}
        for rank in range(devices):
            for line in (folder / "results" / f"{rank}.jsonl").read_text().splitlines():
                result = json.loads(line)
                found.setdefault(result["name"], []).append(result)
    return found


NAMES = list(schedules(1))
IN_ORDER = ("1f1b", "zb-h1", "zb-h2", "one micro-batch")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("devices", [1, 2, 4])
def test_loss_and_gradients_are_those_of_one_process(devices: int, name: str) -> None:
    errors = [result["error"] for result in results(devices)[name]]
    assert max(errors) <= 1e-12
    if name in IN_ORDER:  # then even the order of every sum is the same
        assert max(errors) == 0


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("devices", [1, 2, 4])
def test_what_is_held_is_what_was_planned(devices: int, name: str) -> None:
    schedule = schedules(devices)[name]
    found = results(devices)[name]
    assert [result["in_flight"] for result in found] == [result["planned"] for result in found]
    assert all(result["left"] == 0 for result in found)
    assert sum(result["losses"] for result in found) == schedule.problem.total_microbatches


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("devices", [1, 2, 4])
def test_ops_run_at_the_times_of_the_simulator(devices: int, name: str) -> None:
    schedule = schedules(devices)[name]
    for result, planned in zip(results(devices)[name], schedule.devices, strict=True):
        assert [tuple(ran) for ran in result["ran"]] == [
            (str(t.op), t.start, t.end) for t in planned
        ]
