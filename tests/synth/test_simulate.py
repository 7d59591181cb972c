"""Timelines worked out on paper, and the least span against an independent search."""

from __future__ import annotations

import random
from dataclasses import astuple, replace
from itertools import count, pairwise

import networkx as nx
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from synth.errors import InvalidScheduleError
from synth.graph import build_graph
from synth.op import Kind, parse_op
from synth.placement import Placement, bidirectional, interleaved, linear
from synth.problem import Objective, Problem, StageCost, Stream, make_problem
from synth.schedule import Certificate, Orders, Schedule, TimedOp, Timeline, spans, value
from synth.simulate import (
    MemoryPoint,
    earliest,
    in_flight,
    memory_change,
    memory_profile,
    messages,
    peaks,
    retime,
)
from synth.verify import verify


def orders_of(*rows: str) -> Orders:
    return tuple(tuple(parse_op(text) for text in row.split()) for row in rows)


def starts(timeline: Timeline) -> list[list[int]]:
    return [[timed.start for timed in ops] for ops in timeline]


GPIPE = orders_of(
    "F0@0 F1@0 B0@0 W0@0 B1@0 W1@0",
    "F0@1 F1@1 B0@1 W0@1 B1@1 W1@1",
)
ONE_F_ONE_B = orders_of("F0@0 F1@0 BW0@0 BW1@0", "F0@1 BW0@1 F1@1 BW1@1")


# Earliest times ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("orders", "options", "expected"),
    [
        (GPIPE, {}, [[0, 1, 4, 5, 6, 7], [1, 2, 3, 4, 5, 6]]),
        # A lag of 2 delays the activation and the gradient.
        (GPIPE, {"comm": 2}, [[0, 1, 8, 9, 10, 11], [3, 4, 5, 6, 7, 8]]),
        # F 2, B 3, W 1: device 1 runs F 2-4 4-6, B 6-9, W 9-10, B 10-13.
        (GPIPE, {"costs": (2, 3, 1)}, [[0, 2, 9, 12, 13, 16], [2, 4, 6, 9, 10, 13]]),
        (ONE_F_ONE_B, {}, [[0, 1, 4, 7], [1, 2, 4, 5]]),
        # The gradient of a BW leaves only when all of it is done.
        (ONE_F_ONE_B, {"costs": (1, 1, 2)}, [[0, 1, 5, 9], [1, 2, 5, 6]]),
        (ONE_F_ONE_B, {"costs": (1, 1, 2), "fused": 2}, [[0, 1, 4, 7], [1, 2, 4, 5]]),
    ],
)
def test_two_devices(orders, options, expected):
    assert starts(earliest(make_problem(2, 2, **options), orders)) == expected


def test_three_devices_with_unequal_stages():
    """Device 1 takes twice as long; device 2 waits for it, device 0 for its gradients."""
    slow = StageCost(2, 2, 2, 4, 6, 1, 1)
    fast = StageCost(1, 1, 1, 2, 3, 1, 1)
    problem = Problem(3, "linear", (fast, slow, fast), (Stream("", 2, (0, 1, 2)),))
    orders = orders_of(
        "F0@0 F1@0 B0@0 W0@0 B1@0 W1@0",
        "F0@1 F1@1 B0@1 B1@1 W0@1 W1@1",
        "F0@2 B0@2 W0@2 F1@2 B1@2 W1@2",
    )
    timeline = earliest(problem, orders)
    assert starts(timeline) == [
        [0, 1, 7, 8, 10, 11],
        [1, 3, 5, 8, 10, 12],
        [3, 4, 5, 6, 7, 8],
    ]
    assert (value(timeline, Objective.MAKESPAN), spans(timeline)) == (14, (12, 13, 6))


def test_two_chunks_per_device():
    """V on two devices, half stages of one tick: device 1 runs stages 1 and 2 back to back."""
    problem = make_problem(2, 1, placement="v")
    orders = orders_of("F0@0 F0@3 B0@3 W0@3 B0@0 W0@0", "F0@1 F0@2 B0@2 B0@1 W0@2 W0@1")
    assert starts(earliest(problem, orders)) == [[0, 3, 4, 5, 7, 8], [1, 2, 5, 6, 7, 8]]


def test_interleaved_chunks_with_lag():
    """Stages 0 and 2 on device 0, 1 and 3 on device 1; every hop takes 2 ticks (one unit)."""
    problem = make_problem(2, 1, placement="interleaved:2", comm=1)
    assert problem.comm_ticks == 2
    orders = orders_of("F0@0 F0@2 B0@2 W0@2 B0@0 W0@0", "F0@1 F0@3 B0@3 W0@3 B0@1 W0@1")
    assert starts(earliest(problem, orders)) == [[0, 6, 13, 14, 19, 20], [3, 9, 10, 11, 16, 17]]


def test_two_streams():
    """Each direction's first F starts at once, and both meet half-way."""
    problem = make_problem(2, 2, placement="bidirectional")
    down = "F0@0/down F0@1/up B0@1/up W0@1/up B0@0/down W0@0/down"
    up = "F0@0/up F0@1/down B0@1/down W0@1/down B0@0/up W0@0/up"
    assert starts(earliest(problem, orders_of(down, up))) == [[0, 1, 2, 3, 4, 5]] * 2


def test_pairs_run_as_one_op():
    """F1@0 and BW0@0 start together once the gradient is there, and both end with the pair."""
    problem = make_problem(2, 2, costs=(2, 2, 2), pair=5)
    orders = orders_of("F0@0 F1@0+BW0@0 BW1@0", "F0@1 BW0@1 F1@1 BW1@1")
    timeline = earliest(problem, orders)
    assert starts(timeline) == [[0, 8, 19], [2, 4, 13, 15]]
    assert [timed.end for timed in timeline[0]] == [2, 13, 23]


def test_releases_hold_devices_back():
    problem = make_problem(2, 2)
    assert starts(earliest(problem, GPIPE, (0, 5))) == [[0, 1, 8, 9, 10, 11], [5, 6, 7, 8, 9, 10]]


@pytest.mark.parametrize(
    ("rows", "stuck"),
    [
        (("F0@0 B0@0 W0@0", "B0@1 F0@1 W0@1"), "device 0 at B0@0, device 1 at B0@1"),
        (("F0@0 W0@0 B0@0", "F0@1 B0@1 W0@1"), "device 0 at W0@0"),
        (("F0@0 B0@0 W0@0", "F0@1 W0@1"), "device 0 at B0@0, device 1 at W0@1"),
    ],
)
def test_orders_that_never_finish(rows, stuck):
    with pytest.raises(InvalidScheduleError, match=f"never finish: {stuck}$"):
        earliest(make_problem(2, 1), orders_of(*rows))


# Best times ----------------------------------------------------------------------------------


LATE_START = Problem(
    2,
    "linear",
    (StageCost(5, 1, 1, 2, 7, 1, 1), StageCost(1, 1, 5, 6, 7, 1, 1)),
    (Stream("", 2, (0, 1)),),
)
LATE_START_ORDERS = orders_of("F0@0 F1@0 B0@0 B1@0 W0@0 W1@0", "F0@1 F1@1 B0@1 B1@1 W0@1 W1@1")


def test_a_later_start_shortens_the_span():
    """Device 0 takes 16 ticks. Device 1 need not start at 5 and then wait for F1@0, which ends at
    10: its other ops end at 23, so it has to start at 7 or later, and 7 is the earliest.
    """
    early = [[0, 5, 12, 13, 14, 15], [5, 10, 11, 12, 13, 18]]
    late = [[0, 5, 12, 13, 14, 15], [7, 10, 11, 12, 13, 18]]
    timeline = earliest(LATE_START, LATE_START_ORDERS)
    assert (starts(timeline), spans(timeline)) == (early, (16, 18))
    timeline = retime(replace(LATE_START, objective=Objective.SPAN), LATE_START_ORDERS)
    assert (starts(timeline), spans(timeline)) == (late, (16, 16))
    assert starts(retime(LATE_START, LATE_START_ORDERS)) == early


def least_window(problem: Problem, orders: Orders) -> int:
    """The smallest common span by trying one after another: with a window of S, last end - S is one
    more thing a device's first start waits for, and S is too small where the waits form a cycle.
    """
    busy = [sum(problem.duration(op) for op in order) for order in orders]
    runs = {node: op for order in orders for op in order for node in op.nodes}
    waits = nx.MultiDiGraph()
    for before, after, lag in build_graph(problem).edges(data="lag"):
        if runs[before] is not runs[after]:
            ticks = problem.duration(runs[before]) + lag
            waits.add_edge(runs[before], runs[after], weight=-ticks)
    for order in orders:
        for before, after in pairwise(order):
            waits.add_edge(before, after, weight=-problem.duration(before))
    for window in count(max(busy)):
        for order in orders:
            back = problem.duration(order[-1])
            waits.add_edge(order[-1], order[0], key="window", weight=window - back)
        if not nx.negative_edge_cycle(waits):
            return window
    raise AssertionError("some window is large enough")


PLACEMENTS = [
    linear(3),
    interleaved(2, 2),
    bidirectional(3),
    Placement("three ways", (("a", (0, 1, 2)), ("b", (2, 1, 0)), ("c", (1, 0, 2)))),
]


def random_case(seed: int, placement: Placement, random_orders) -> tuple[Problem, Orders]:
    chance = random.Random(seed)
    devices = 1 + max(placement.routes[0][1])
    microbatches, comm = 3, chance.randint(0, 2)
    problem = make_problem(devices, microbatches, placement=placement, comm=comm)
    stages = []
    for _ in problem.stages:
        forward, act, wgt = (chance.randint(1, 6) for _ in range(3))
        pair_ticks = chance.choice((max(forward, act + wgt), forward + act + wgt))
        stages.append(StageCost(forward, act, wgt, act + wgt, pair_ticks, 1, 1))
    problem = replace(problem, stages=tuple(stages), objective=Objective.SPAN)
    kinds = {"fused": chance.random() < 0.5, "paired": chance.random() < 0.5}
    return problem, random_orders(problem, chance, eager=chance.random() < 0.3, **kinds)


@pytest.mark.parametrize("placement", PLACEMENTS, ids=lambda placement: placement.name)
def test_span_is_the_least_common_window(placement, random_orders):
    improved = 0
    for seed in range(12):
        problem, orders = random_case(seed, placement, random_orders)
        timeline = retime(problem, orders)
        found = max(spans(timeline))
        assert found == least_window(problem, orders)
        assert verify(Schedule("any", problem, timeline, Certificate(found, 0, "none"))) == []
        improved += found < max(spans(earliest(problem, orders)))
    assert improved or len(placement.routes) == 1


@given(st.integers(0, 10**6))
def test_span_is_the_least_on_graphs_with_uneven_devices_and_links(
    random_graph, random_orders, seed
):
    chance = random.Random(seed)
    problem = replace(random_graph(chance), objective=Objective.SPAN)
    orders = random_orders(problem, chance)
    assume(orders is not None)
    assert max(spans(retime(problem, orders))) == least_window(problem, orders)


@pytest.mark.parametrize("placement", PLACEMENTS, ids=lambda placement: placement.name)
def test_ticks_may_be_fine(placement, random_orders):
    """Measured times make windows of millions of ticks; the least one is not found tick by tick."""
    fine = 10**6
    for seed in range(12):
        problem, orders = random_case(seed, placement, random_orders)
        coarse = max(spans(retime(problem, orders)))
        stages = [
            StageCost(*(fine * ticks for ticks in astuple(stage)[:5]), 1, 1)
            for stage in problem.stages
        ]
        problem = replace(problem, stages=tuple(stages), comm_ticks=fine * problem.comm_ticks)
        assert fine * (coarse - 1) < max(spans(retime(problem, orders))) <= fine * coarse


# Memory --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("activation", "op", "change"),
    [
        ((3, 1), "F0@0", (3, 0)),
        ((3, 1), "B0@0", (0, 2)),
        ((3, 1), "W0@0", (0, 1)),
        ((3, 1), "BW0@0", (0, 3)),
        ((3, 1), "F1@0+B0@0", (3, 2)),
        ((3, 1), "F1@0+BW0@0", (3, 3)),
        # A context larger than the activation grows when B starts.
        ((1, 4), "B0@0", (3, 0)),
        ((1, 4), "W0@0", (0, 4)),
        ((1, 4), "BW0@0", (3, 4)),
        ((1, 4), "F1@0+B0@0", (4, 0)),
        ((1, 0), "B0@0", (0, 1)),
        ((1, 0), "W0@0", (0, 0)),
    ],
)
def test_what_ops_take_and_give_back(activation, op, change):
    assert memory_change(make_problem(1, 2, activation=activation), parse_op(op)) == change


@pytest.mark.parametrize(
    ("activation", "expected"),
    [
        ((1, 1), [(0, 1), (1, 2), (5, 1), (8, 0)]),
        ((3, 1), [(0, 3), (1, 6), (4, 4), (5, 3), (7, 1), (8, 0)]),
        # B0 starts at 2 and grows to 4, its W ends at 5; B1 starts at 5 while W0's room is freed.
        ((1, 4), [(0, 1), (1, 2), (2, 5), (5, 4), (8, 0)]),
        ((1, 0), [(0, 1), (1, 2), (4, 1), (7, 0)]),
        ((0, 0), []),
    ],
)
def test_memory_over_time(activation, expected):
    """One device, F0 0-1, F1 1-2, B0 2-4, W0 4-5, B1 5-7, W1 7-8."""
    problem = make_problem(1, 2, activation=activation, costs=(1, 2, 1))
    (row,) = timeline = earliest(problem, orders_of("F0@0 F1@0 B0@0 W0@0 B1@0 W1@0"))
    assert memory_profile(problem, row) == tuple(MemoryPoint(*point) for point in expected)
    assert peaks(problem, timeline) == (max((held for _, held in expected), default=0),)


def test_room_is_free_for_what_starts_when_another_ends():
    problem = make_problem(1, 2)
    timeline = earliest(problem, orders_of("F0@0 BW0@0 F1@0 BW1@0"))
    assert memory_profile(problem, timeline[0]) == (
        MemoryPoint(0, 1),
        MemoryPoint(3, 1),
        MemoryPoint(6, 0),
    )


def test_micro_batches_in_flight():
    problem = make_problem(2, 2)
    timeline = earliest(
        problem, orders_of("F0@0 F1@0 B0@0 B1@0 W0@0 W1@0", "F0@1 BW0@1 F1@1 BW1@1")
    )
    assert in_flight(timeline, Kind.B) == (2, 1)
    assert in_flight(timeline, Kind.W) == (2, 1)
    early = earliest(
        problem, orders_of("F0@0 B0@0 F1@0 W0@0 B1@0 W1@0", "F0@1 B0@1 W0@1 F1@1 B1@1 W1@1")
    )
    assert in_flight(early, Kind.B) == (1, 1)
    assert in_flight(early, Kind.W) == (2, 1)
    paired = earliest(problem, orders_of("F0@0 F1@0+BW0@0 BW1@0", "F0@1 BW0@1 F1@1 BW1@1"))
    assert in_flight(paired, Kind.B) == (2, 1)


# Communication -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("devices", "placement", "expected"),
    [
        (1, "linear", 0),
        (4, "linear", 3 * 2 * 8),
        (4, "v", 6 * 2 * 8),  # stages 3 and 4 share device 3
        (4, "interleaved:2", 7 * 2 * 8),
        (4, "bidirectional", 3 * 2 * 8),
    ],
)
def test_messages(devices, placement, expected):
    assert messages(make_problem(devices, 8, placement=placement)) == expected


def test_timed_ops_carry_the_op():
    ((first, *_),) = earliest(make_problem(1, 1), orders_of("F0@0 B0@0 W0@0"))
    assert first == TimedOp(parse_op("F0@0"), 0, 1)
