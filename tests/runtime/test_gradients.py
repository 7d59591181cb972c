"""Every schedule gives the gradients of one process, holds what it planned and keeps its times."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from synth import catalog
from synth.errors import ProblemError
from synth.files import save
from synth.graph import all_nodes, dependencies
from synth.op import Op
from synth.problem import Problem, make_problem
from synth.schedule import Certificate, Orders, Schedule, makespan
from synth.simulate import earliest
from synth.solve.portfolio import solve

pytestmark = pytest.mark.dist
DEVICES = (2, 4)  # every schedule on every number of devices runs in test_strict
THINNED = ("gpipe", "1f1b", "zb-h1", "zb-h2", "zb-v", "interleaved:2", "chimera", "dualpipe")
WORKER = Path(__file__).with_name("gradients_worker.py")


def timed(name: str, problem: Problem, orders: Orders) -> Schedule:
    timeline = earliest(problem, orders)
    return Schedule(name, problem, timeline, Certificate(makespan(timeline), 0, "none"))


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


@cache
def schedules(devices: int) -> dict[str, Schedule]:
    """The catalogue, solved schedules, and orders nobody would write over all placements."""
    found: dict[str, Schedule] = {}
    for name in catalog.names() if devices == 2 else THINNED:
        family = catalog.family(name)
        try:
            problem = problem_for(family.placement, devices)
        except ProblemError:
            continue
        if family.refuses(problem) is None:
            found[name] = timed(name, problem, family.orders(problem))
    for placement, memory in (("linear", devices), ("linear", devices - 1), ("v", devices + 1)):
        problem = make_problem(
            devices, 2 * devices, placement=placement, costs=(2, 3, 1), memory=memory
        )
        solved = solve(problem, time_limit_s=2).schedule
        assert solved is not None
        found[f"solved {placement} {memory}"] = solved
    for placement in ("linear", "v", "interleaved:2", "wave:2", "bidirectional"):
        problem = problem_for(placement, devices)
        found[f"shuffled {placement}"] = timed(placement, problem, shuffled(problem, 2))
    few = make_problem(devices, 1)
    found["one micro-batch"] = timed("few", few, shuffled(few, 3))
    return found


def problem_for(placement: str, devices: int) -> Problem:
    return make_problem(devices, 2 * devices, placement=placement, costs=(2, 3, 1), comm=1)


@cache
def results(devices: int, device: str) -> dict[str, list[dict[str, Any]]]:
    """By schedule what each rank found; one launch for all."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        for plan, schedule in schedules(devices).items():
            save(schedule, folder / f"{file_name(plan)}.json")
        subprocess.run(
            [sys.executable, str(WORKER), str(devices), str(folder), device],
            check=True,
            timeout=150,
        )
        found: dict[str, list[dict[str, Any]]] = {}
        for rank in range(devices):
            for line in (folder / "results" / f"{rank}.jsonl").read_text().splitlines():
                result = json.loads(line)
                found.setdefault(result["name"], []).append(result)
        if devices == 2:
            found["two ranks"] = [
                json.loads((folder / "results" / f"{rank}.json").read_text()) for rank in (0, 1)
            ]
    return found


def all_results(devices: int, device: str) -> list[tuple[str, Schedule, list[dict[str, Any]]]]:
    found = results(devices, device)
    return [(n, schedule, found[file_name(n)]) for n, schedule in schedules(devices).items()]


def file_name(name: str) -> str:
    return name.replace(":", "-")


on_each = pytest.mark.parametrize("devices", DEVICES)
on_two = pytest.mark.parametrize("devices", [2])


@on_each
def test_loss_and_gradients_are_those_of_one_process(devices: int, device: str) -> None:
    errors = {
        name: max(result["error"] for result in found)
        for name, _, found in all_results(devices, device)
    }
    assert {name: error for name, error in errors.items() if not error <= 1e-12} == {}
    assert len(errors) >= 12
    if device == "cpu":  # as the reference
        # Where W runs in the order of the micro-batches even the order of every sum is the same.
        assert [errors[name] for name in ("1f1b", "zb-h1", "one micro-batch")] == [0, 0, 0]


@pytest.mark.parametrize("devices", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_a_communicator_per_channel_carries_the_same(devices: int) -> None:
    """As on NCCL, which has no tags."""
    for name, _, found in all_results(devices, "pairs"):
        assert max(result["error"] for result in found) <= 1e-12, name
        assert [r["in_flight"] for r in found] == [r["planned"] for r in found], name
    assert len(schedules(devices)) >= 12


@on_each
def test_what_is_held_is_what_was_planned(devices: int, device: str) -> None:
    for name, schedule, found in all_results(devices, device):
        held = [result["in_flight"] for result in found]
        assert held == [result["planned"] for result in found], name
        assert all(result["left"] == 0 for result in found), name
        losses = sum(result["losses"] for result in found)
        assert losses == schedule.problem.total_microbatches, name


@on_each
def test_ops_run_at_the_times_of_the_simulator(devices: int, device: str) -> None:
    compared = 0
    for name, schedule, found in all_results(devices, device):
        if any(op.partner for order in schedule.orders for op in order):
            continue  # the runtime executes the halves of a pair one after the other
        for result, planned in zip(found, schedule.devices, strict=True):
            wanted = [[str(timed.op), timed.start, timed.end] for timed in planned]
            assert result["ran"] == wanted, name
        compared += 1
    assert compared >= 10


def two_ranks(name: str, device: str) -> list[Any]:
    return [found[name] for found in results(2, device)["two ranks"]]


@on_two
def test_outputs_by_name_of_many_types_and_batches_of_changing_shapes(
    devices: int, device: str
) -> None:
    assert max(two_ranks("named", device)) <= (0 if device == "cpu" else 1e-12)


@on_two
def test_a_stage_behind_a_frozen_one_keeps_its_gradients(devices: int, device: str) -> None:
    assert max(two_ranks("frozen", device)) <= (0 if device == "cpu" else 1e-12)


@on_two
def test_memory_does_not_grow_and_pools_are_as_large_as_planned(devices: int, device: str) -> None:
    for memory in two_ranks("memory", device):
        assert memory["grown"] <= 2**20  # one message lost per step would be three times as much
        assert (memory["unplanned"], memory["over"]) == (0, 0)


@on_two
def test_an_output_that_changes_with_the_same_batch_is_an_error_and_no_wrong_gradient(
    devices: int, device: str
) -> None:
    assert two_ranks("outputs", device)[0] == (
        "rank 0: F0@0 gives torch.float64 of shape (9, 2), before it gave torch.float64 of shape "
        "(6, 2) for a batch of the same shape; call forget_shapes() on every rank when that changes"
    )


def test_batches_that_differ_between_ranks_end_the_step() -> None:
    """On gloo, which has tags; NCCL leaves such a step to its watchdog."""
    first, last = two_ranks("differing", "cpu")
    # In time it gives up itself, or sees that the other one has.
    assert last.startswith("rank 1 did not get F0@0 from rank 0: ")
    assert first
