"""ZB-V, V-Half and V-Min: closed forms for more devices, and measured costs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from synth import catalog
from synth.op import Kind
from synth.problem import Problem, make_problem
from synth.schedule import Schedule
from synth.simulate import in_flight

Replay = Callable[[str, Problem], Schedule]

# Zero-bubble paper, table 8: P, m; F, B, W per chunk and c in microseconds; bubble rate of ZB-V's
# handcrafted order within the span and the makespan.
ZB_V = """
16  48 14407 14380 9676 1610 .0712 .0829
16  64 14412 14393 9688 1621 .0545 .0636
16 128 14316 14306 9639 1619 .0280 .0329
24  72  6763  6969 5251  755 .0623 .0824
24  96  6783  6984 5259  758 .0476 .0632
24 192  6785  6990 5260  770 .0246 .0328
32  96  9458  9748 7288  879 .0582 .0791
32 128  9469  9744 7306  892 .0444 .0607
32 256  9447  9644 7193  887 .0229 .0313
"""
ROWS = [line.split() for line in ZB_V.split("\n") if line]


def problem_of(row: list[str], objective: str) -> Problem:
    devices, microbatches, *times, comm = map(int, row[:6])
    return make_problem(
        devices,
        microbatches,
        placement="v",
        costs=[2 * time for time in times],
        comm=comm,
        objective=objective,
    )


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, id="-".join(row[:2]), marks=[pytest.mark.slow] if index else [])
        for index, row in enumerate(ROWS)
    ],
)
def test_zb_v_on_measured_costs(row: list[str], replay: Replay) -> None:
    """Both rates are those of the earliest times."""
    schedule = replay("zb-v", problem_of(row, "makespan"))
    work = schedule.problem.work(0)
    rates = [f"{1 - work / time:.4f}" for time in (schedule.span, schedule.makespan)]
    assert [rate.removeprefix("0") for rate in rates] == row[6:]


@pytest.mark.slow
@pytest.mark.parametrize(("index", "half", "least"), [(0, ".1847", ".3300"), (3, ".1823", ".3158")])
def test_controllable_memory_on_measured_costs(
    index: int, half: str, least: str, replay: Replay
) -> None:
    """The published generators' rates: both collapse where F, B and W differ."""
    problem = problem_of(ROWS[index], "makespan")
    for name, rate in (("v-half", half), ("v-min", least)):
        schedule = replay(name, problem)
        assert f"{1 - problem.work(0) / schedule.span:.4f}".removeprefix("0") == rate


@pytest.mark.parametrize(
    ("devices", "rounds"),
    [(p, 2) for p in (3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 15, 16)] + [(p, 3) for p in (3, 4, 6, 7)],
)
def test_controllable_memory_bubbles(devices: int, rounds: int, replay: Replay) -> None:
    """Chunk times of idling and chunks held, at F = B = W."""
    problem = make_problem(devices, rounds * devices, placement="v", costs=(2, 2, 2))
    half, least = (replay(name, problem) for name in ("v-half", "v-min"))
    assert catalog.most_idle(half) == 3 * devices - (4 if devices % 2 else 7)
    assert catalog.most_idle(least) == 4 * devices - (5 if devices % 3 else 7)
    assert max(in_flight(half.devices, Kind.W)) == 2 * ((devices + 2) // 2)
    assert max(in_flight(least.devices, Kind.W)) == 2 * ((devices + 4) // 3)


@pytest.mark.parametrize("devices", [1, 2, 3, 6])
def test_zb_v_has_no_bubble_in_its_span(devices: int, replay: Replay) -> None:
    problem = make_problem(devices, 2 * devices + 1, placement="v", objective="span")
    schedule = replay("zb-v", problem)
    assert schedule.span == problem.work(0)
    assert set(in_flight(schedule.devices, Kind.W)) == {2 * devices}


def test_v_min_by_hand() -> None:
    """P = 1: the block is F0 F1 B1 B0 with W's behind, one micro-batch after another."""
    problem = make_problem(1, 2, placement="v")
    order = catalog.family("v-min").orders(problem)[0]
    assert " ".join(map(str, order)) == (
        "F0@0 F0@1 B0@1 B0@0 W0@1 W0@0 F1@0 F1@1 B1@1 B1@0 W1@1 W1@0"
    )
