"""Idle time by cause: what the pages and the bars are shaded by."""

from itertools import pairwise

import pytest

from synth import catalog
from synth.op import Kind, Op
from synth.problem import make_problem
from synth.schedule import Certificate, Schedule
from synth.simulate import earliest
from synth.view.idle import Cause, Stretch, stretches


def by_hand(problem, *orders):
    timeline = earliest(problem, orders)
    return Schedule("by hand", problem, timeline, Certificate(0, 0, "none"))


def test_fill_input_and_drain():
    problem = make_problem(2, 1)
    orders = [[Op(kind, 0, stage) for kind in (Kind.F, Kind.BW)] for stage in range(2)]
    # device 0: F at 0, BW at 4..6; device 1: F at 1, BW at 2..4
    assert stretches(by_hand(problem, *orders)) == (
        (Stretch(1, 4, Cause.INPUT),),
        (Stretch(0, 1, Cause.FILL), Stretch(4, 6, Cause.DRAIN)),
    )


def test_the_latency_of_a_hop_comes_last():
    problem = make_problem(2, 1, comm=2)
    orders = [[Op(kind, 0, stage) for kind in (Kind.F, Kind.BW)] for stage in range(2)]
    # F0@1 at 3, BW0@1 at 4..6, BW0@0 at 8
    assert stretches(by_hand(problem, *orders))[0] == (
        Stretch(1, 6, Cause.INPUT),
        Stretch(6, 8, Cause.TRANSFER),
    )


def test_what_memory_and_order_keep_from_running():
    limited = make_problem(2, 4, memory=2)
    orders = [
        [Op(kind, i, stage) for kind, i in program]
        for stage, program in enumerate(
            [
                [(Kind.F, 0), (Kind.F, 1)]
                + [(k, i) for i in (0, 1) for k in (Kind.B, Kind.W)]
                + [(k, i) for i in (2, 3) for k in (Kind.F, Kind.B, Kind.W)],
                [(k, i) for i in range(4) for k in (Kind.F, Kind.B, Kind.W)],
            ]
        )
    ]
    causes = {s.cause for row in stretches(by_hand(limited, *orders)) for s in row}
    assert Cause.MEMORY in causes
    free = make_problem(2, 4)
    found = [s for row in stretches(by_hand(free, *orders)) for s in row]
    assert Cause.MEMORY not in {s.cause for s in found}
    held_back = next(s for s in found if s.cause is Cause.ORDER)
    assert held_back.ops[0] == Op(Kind.F, 2, 0)


@pytest.mark.parametrize("name", ["1f1b", "zb-h2", "zb-v", "interleaved:2", "dualpipe", "gems"])
@pytest.mark.parametrize("objective", ["makespan", "span"])
def test_busy_and_idle_fill_the_makespan(name, objective):
    placement = catalog.family(name).placement
    problem = make_problem(4, 8, placement=placement, comm="0.5", objective=objective)
    schedule = catalog.build(name, problem)
    first = min(ops[0].start for ops in schedule.devices)
    for ops, row in zip(schedule.devices, stretches(schedule), strict=True):
        pieces = sorted([(t.start, t.end) for t in ops] + [(s.start, s.end) for s in row])
        assert pieces[0][0] == first
        assert pieces[-1][1] == first + schedule.makespan
        assert all(a[1] == b[0] for a, b in pairwise(pieces))
