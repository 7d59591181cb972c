"""Little's law where several stages share a device's memory."""

from __future__ import annotations

import random

import pytest

from synth.bounds import all_bounds
from synth.problem import Objective, Problem, StageCost, Stream, make_problem
from synth.room import shared_ticks, weights


def test_chunks_of_a_v_add_up() -> None:
    """A micro-batch holds half a unit of device 0 for 8 F, 8 B and W, and half for F, B and W.

    That is 17 + 3 half steps of half a unit, for each of 8; the limit is two halves.
    """
    problem = make_problem(4, 8, placement="v", memory=1)
    assert shared_ticks(problem, 0) == 8 * (17 + 3) // 2
    assert shared_ticks(make_problem(4, 8, placement="v"), 0) == 0


@pytest.mark.parametrize(("limit", "ticks"), [(3, 60), (5, 31), (6, 25)])
def test_stages_that_do_not_fit_beside_each_other(limit: int, ticks: int) -> None:
    """Device 0 holds 2 units for 3 times 13 ticks and 3 units for 3 times 7 ticks.

    With room for 3 units, one of them at a time: 3 x (13 + 7). With room for 5, two at a time: 2.5
    units each, and the ends waste 1 and 3. With room for 6 the area is 141 and the ends waste 2 and
    6: beside an op of 3 units, at most 2 units a tick are taken at first, 3/4 given back at last.
    """
    long, middle, short = (
        StageCost(forward, act, wgt, act + wgt, forward + act + wgt, size, size)
        for forward, act, wgt, size in ((1, 3, 3, 2), (3, 3, 3, 1), (2, 1, 4, 3))
    )
    problem = Problem(
        devices=2,
        placement="explicit",
        stages=(long, middle, short),
        streams=(Stream("", 3, (0, 1, 0)),),
        comm_ticks=0,
        limits_quanta=(limit, None),
        objective=Objective.MAKESPAN,
        needs=((), (0,), ()),
    )
    assert shared_ticks(problem, 0) == ticks


def test_it_is_the_strongest_bound_where_little_memory_is_shared() -> None:
    problem = make_problem(8, 64, placement="v", costs=(10, 12, 8), comm=3, memory=2)
    first, *others = all_bounds(problem)
    assert first.name == "little"
    assert first.value > 1.03 * max(bound.value for bound in others if bound.name != "little")


@pytest.mark.parametrize("seed", range(20))
def test_weights_keep_sums_within_the_limit(seed: int) -> None:
    rng = random.Random(seed)
    limit = rng.randint(1, 20)
    sizes = [rng.randint(1, limit) for _ in range(4)]
    for weigh in weights(limit, sizes):
        assert weigh(0) == 0
        assert all(weigh(size) <= weigh(size + 1) for size in range(limit))
        for _ in range(200):
            left, total = limit, weigh(0)
            while left and rng.random() < 0.9:
                size = rng.randint(1, left)
                left, total = left - size, total + weigh(size)
            assert total <= limit
