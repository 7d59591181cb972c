"""Fusing B and W: every neighbour pair, or what pays."""

import random

import pytest

from synth import catalog
from synth.fusing import fuse, merge
from synth.op import parse_op
from synth.problem import make_problem
from synth.schedule import Certificate, Schedule, value
from synth.simulate import retime
from synth.verify import verify


def test_neighbours_become_one():
    schedule = merge(catalog.build("zb-h1", make_problem(2, 3)))
    first, second = (" ".join(map(str, order)) for order in schedule.orders)
    assert first == "F0@0 F1@0 BW0@0 F2@0 BW1@0 BW2@0"
    assert second == "F0@1 B0@1 F1@1 B1@1 W0@1 F2@1 B2@1 W1@1 W2@1"
    assert verify(schedule) == []


def test_nothing_to_merge():
    schedule = catalog.build("1f1b", make_problem(2, 3))
    assert merge(schedule) is schedule


def test_where_splitting_is_free_nothing_changes():
    schedule = catalog.build("zb-h1", make_problem(4, 8))
    assert fuse(schedule) is schedule


def test_a_cheap_fused_backward_is_used():
    problem = make_problem(2, 4, costs=(2, 2, 2), fused=3)
    split = catalog.build("zb-h1", problem)
    better = fuse(split)
    assert better.makespan < split.makespan
    assert verify(better) == []
    assert parse_op("BW3@0") in better.orders[0]
    assert better.certificate.bound <= better.makespan


@pytest.mark.parametrize("seed", range(6))
def test_never_worse_and_always_valid(random_orders, seed):
    chance = random.Random(seed)
    problem = make_problem(2, 3, costs=(2, 3, 2), fused=4, memory=2, comm=1)
    orders = random_orders(problem, chance, fused=True)
    if orders is None:
        return
    timeline = retime(problem, orders)
    ticks = value(timeline, problem.objective)
    schedule = Schedule("random", problem, timeline, Certificate(ticks, 0, "none"))
    better = fuse(schedule)
    assert better.certificate.value <= ticks
    assert verify(better) == []
