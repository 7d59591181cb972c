"""From typed numbers to ticks and quanta, durations, and what is no sensible problem."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synth.errors import ProblemError
from synth.op import parse_op
from synth.problem import (
    MAX_TOTAL_TICKS,
    Objective,
    Problem,
    StageCost,
    Stream,
    Units,
    make_problem,
)

UNIT = StageCost(1, 1, 1, 2, 3, 1, 1)


# Ticks and quanta ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("costs", "comm", "ticks_per_unit", "stage", "lag"),
    [
        ((1, 1, 1), 0, 1, (1, 1, 1), 0),
        ((1, 2, 3), 4, 1, (1, 2, 3), 4),
        ((0.1, 0.2, 0.3), 0, 10, (1, 2, 3), 0),
        (("18.522", "18.086", "9.337"), "0.601", 1000, (18522, 18086, 9337), 601),
        ((Fraction(1, 3), Decimal("0.5"), 1), 0, 6, (2, 3, 6), 0),
        ((1, 1, 1), "1/3", 3, (3, 3, 3), 1),
        ((2, 4, 6), 0, 1, (2, 4, 6), 0),
        (("1e-3", 1, 1), 0, 1000, (1, 1000, 1000), 0),
    ],
)
def test_every_typed_time_becomes_whole_ticks(costs, comm, ticks_per_unit, stage, lag):
    problem = make_problem(2, 3, costs=costs, comm=comm)
    cost = problem.stages[0]
    assert problem.units.ticks_per_unit == ticks_per_unit
    assert (cost.forward_ticks, cost.backward_act_ticks, cost.backward_wgt_ticks) == stage
    assert problem.comm_ticks == lag


@pytest.mark.parametrize(
    ("placement", "stages", "ticks_per_unit", "quanta_per_unit"),
    [("linear", 3, 1, 1), ("v", 6, 2, 2), ("interleaved:3", 9, 3, 3), ("bidirectional", 3, 1, 1)],
)
def test_chunks_share_the_costs_and_the_memory(placement, stages, ticks_per_unit, quanta_per_unit):
    problem = make_problem(3, 4, placement=placement)
    assert len(problem.stages) == stages
    assert problem.stages[0] == UNIT
    assert problem.units == Units("unit", ticks_per_unit, "activation", quanta_per_unit)


def test_memory_is_counted_in_the_units_of_the_activation():
    problem = make_problem(2, 3, activation=(1, "0.366"), memory="2.5")
    assert problem.units.quanta_per_unit == 500
    assert (problem.stages[0].activation_quanta, problem.stages[0].context_quanta) == (500, 183)
    assert problem.limits_quanta == (1250, 1250)
    assert make_problem(2, 3, memory=[4, None]).limits_quanta == (4, None)
    assert make_problem(2, 3).limits_quanta == (None, None)
    assert make_problem(1, 1, memory=0).limits_quanta == (0,)


@pytest.mark.parametrize(
    ("units", "ticks", "shown"),
    [(Units(), 7, 7), (Units(ticks_per_unit=2), 6, 3), (Units(ticks_per_unit=2), 7, 3.5)],
)
def test_units_show_what_was_typed(units, ticks, shown):
    assert units.ticks(ticks) == shown
    assert type(units.ticks(ticks)) is type(shown)
    assert Units(quanta_per_unit=4).quanta(6) == 1.5


@pytest.mark.parametrize(
    ("units", "ticks", "text"),
    [
        (Units(), 1, "1 unit"),
        (Units(), 15, "15 units"),
        (Units(ticks_per_unit=2), 3, "1.5 units"),
        (Units("ms", 1000), 1200, "1.2 ms"),
        (Units("ms", 3), 1, "0.333333 ms"),
    ],
)
def test_times_read_well(units, ticks, text):
    assert units.time_text(ticks) == text


@pytest.mark.parametrize(
    ("microbatches", "shares"), [(2, (1, 1)), (3, (2, 1)), (8, (4, 4)), (9, (5, 4))]
)
def test_streams_share_the_micro_batches(microbatches, shares):
    problem = make_problem(2, microbatches, placement="bidirectional")
    assert tuple(stream.microbatches for stream in problem.streams) == shares
    assert problem.total_microbatches == microbatches


amounts = st.fractions(min_value=Fraction(1, 50), max_value=100, max_denominator=50)


@given(st.tuples(amounts, amounts, amounts), amounts, st.integers(1, 4))
def test_ticks_are_exact(costs, comm, devices):
    problem = make_problem(devices, 2, costs=costs, comm=comm, placement="v")
    units, stage = problem.units, problem.stages[0]
    assert Fraction(problem.comm_ticks, units.ticks_per_unit) == comm
    assert Fraction(2 * stage.forward_ticks, units.ticks_per_unit) == costs[0]
    assert Fraction(2 * stage.fused_ticks, units.ticks_per_unit) == costs[1] + costs[2]
    assert problem.work(0) == 2 * sum(costs) * units.ticks_per_unit


# Durations -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "ticks"),
    [
        ("F0@0", 4),
        ("B0@0", 5),
        ("W0@0", 3),
        ("BW0@0", 7),
        ("F0@0+BW1@0", 9),  # as given
        ("F0@0+B1@0", 7),  # 4 + 5 less the 2 that a pair gains
        # Stage 1 gains nothing: half of 2 + 0 is left.
        ("F0@0+BW1@1", 4 + 8 - 1),
        ("F0@1+BW1@0", 4 + 7 - 1),
        ("F0@1+B1@1", 4 + 4),
        # Stage 2 gains 7: half of 2 + 7, rounded down, but never below the longer op.
        ("F0@0+BW1@2", 4 + 7 - 4),
        ("F0@2+B1@0", 7 + 5 - 4),
        ("F0@2+BW1@2", 7),
        ("F0@2+B1@2", 7),
    ],
)
def test_durations(op, ticks):
    stages = (
        StageCost(4, 5, 3, 7, 9, 1, 1),
        StageCost(4, 4, 4, 8, 12, 1, 1),
        StageCost(7, 4, 3, 7, 7, 1, 1),
    )
    problem = Problem(1, "list", stages, (Stream("", 2, (0, 0, 0)),))
    assert problem.duration(parse_op(op)) == ticks


@pytest.mark.parametrize(
    ("fused", "pair", "work", "least", "split_is_best"),
    [
        (5, 7, 7, 7, True),
        (6, 8, 7, 7, True),  # a slow fused backward is not worth it
        (4, 6, 7, 6, False),
        (5, 5, 7, 5, False),
        (4, 4, 7, 4, False),
        (6, 7, 7, 6, False),  # a pair that makes up for a slow fused backward
        (5, 9, 7, 7, True),  # a slow pair is not worth it either
    ],
)
def test_least_work(fused, pair, work, least, split_is_best):
    cost = StageCost(2, 3, 2, fused, pair, 1, 1)
    assert (cost.work_ticks, cost.least_work_ticks) == (work, least)
    assert cost.split_is_best == split_is_best


def test_what_a_device_holds():
    problem = make_problem(2, 4, placement="bidirectional", costs=(1, 2, 3), comm=2)
    down, up = problem.streams
    assert problem.held_stages(0) == ((down, 0), (up, 1))
    assert problem.work(0) == 4 * 6
    assert problem.device(parse_op("F0@0/up")) == 1
    assert (problem.lag(0, 1), problem.lag(1, 1)) == (2, 0)
    assert problem.stream("up") is up


def test_fused_and_paired_costs_are_times_too():
    problem = make_problem(2, 2, placement="v", costs=(2, 2, 2), fused=3, pair="4.5")
    cost = problem.stages[0]
    assert (problem.units.ticks_per_unit, cost.fused_ticks, cost.pair_ticks) == (4, 6, 9)


# What is no sensible problem -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"devices": 0}, "devices must be at least 1, got 0"),
        ({"devices": -4}, "devices must be at least 1, got -4"),
        ({"microbatches": 0}, "micro-batches must be at least 1, got 0"),
        ({"microbatches": -3}, "micro-batches must be at least 1, got -3"),
        ({"placement": "u"}, "placement 'u' is not known"),
        (
            {"placement": "bidirectional", "microbatches": 1},
            "placement bidirectional needs at least 2 micro-batches, got 1",
        ),
        ({"costs": (1, 1)}, "costs are three numbers F,B,W, got 2"),
        ({"costs": (1, "x", 1)}, "costs: 'x' is not a finite number"),
        ({"costs": (1, "nan", 1)}, "costs: 'nan' is not a finite number"),
        ({"costs": (1, float("nan"), 1)}, "costs: nan is not a finite number"),
        ({"costs": (1, float("inf"), 1)}, "costs: inf is not a finite number"),
        ({"costs": (1, Decimal("Infinity"), 1)}, "is not a finite number"),
        ({"costs": (1, "1/0", 1)}, "costs: '1/0' is not a finite number"),
        ({"costs": (1, "", 1)}, "costs: '' is not a finite number"),
        ({"costs": (1, -1, 1)}, "costs: -1 is negative"),
        ({"costs": (1, 0, 1)}, "every duration must be positive"),
        ({"costs": (1, 10**16, 1)}, "is too large or has more than 9 decimals"),
        ({"costs": (1, "1e999999999", 1)}, "is too large or has more than 9 decimals"),
        ({"costs": (1, "1e-999999999", 1)}, "is too large or has more than 9 decimals"),
        ({"costs": (1, Decimal("1e999999"), 1)}, "is too large or has more than 9 decimals"),
        ({"costs": (1, "0.0000000001", 1)}, "is too large or has more than 9 decimals"),
        ({"costs": (10**15, 10**15, 10**15)}, "all work together must stay below 2..53 ticks"),
        ({"comm": 10**15}, "all work together must stay below 2..53 ticks"),
        ({"comm": -1}, "comm: -1 is negative"),
        ({"activation": (1,)}, "activation is two numbers A_F,A_W, got 1"),
        ({"activation": (1, -1)}, "activation: -1 is negative"),
        (
            {"activation": (10**12, "0.000000001")},
            "the memory numbers are too large: .* below 2..53 quanta",
        ),
        ({"memory": "lots"}, "memory: 'lots' is not a finite number"),
        ({"memory": -1}, "memory: -1 is negative"),
        ({"memory": [1, 2, 3]}, "3 memory limits for 2 devices; give one number or one per"),
        ({"memory": "1000000.000000001", "activation": (10**8, 1)}, "below 2..53 quanta"),
        ({"objective": "speed"}, "objective 'speed' is not known; use makespan or span"),
        ({"fused": "0.5"}, "a fused backward cannot take less than B alone"),
        ({"pair": 1}, "a pair cannot take less than its longer op"),
        ({"fused": 0}, "every duration must be positive"),
    ],
)
def test_numbers_that_are_refused(options, message):
    with pytest.raises(ProblemError, match=message) as refused:
        make_problem(**{"devices": 2, "microbatches": 3} | options)
    assert "\n" not in str(refused.value)


LINE = Problem(2, "linear", (UNIT, UNIT), (Stream("", 2, (0, 1)),))
TWO = (Stream("down", 1, (0, 1)), Stream("up", 1, (1, 0)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"devices": 0}, "devices must be at least 1, got 0"),
        ({"devices": 3, "limits_quanta": ()}, "device 2 holds no stage; use fewer devices"),
        ({"stages": ()}, "a problem needs at least one stage and one stream"),
        ({"streams": ()}, "a problem needs at least one stage and one stream"),
        ({"comm_ticks": -1}, "comm must not be negative, got -1 ticks"),
        ({"limits_quanta": (1,)}, "1 memory limits for 2 devices"),
        ({"limits_quanta": (1, -1)}, "a memory limit must not be negative"),
        ({"streams": (Stream("a", 1, (0, 1)), Stream("a", 1, (1, 0)))}, "stream names must differ"),
        ({"streams": (Stream("", 1, (0, 1)), Stream("b", 1, (1, 0)))}, "each needs a lower-case"),
        ({"streams": (Stream("Up", 1, (0, 1)), Stream("b", 1, (1, 0)))}, "each needs a lower-case"),
        ({"streams": (Stream("", 1, (0,)),)}, "names devices for 1 stages, the model has 2"),
        ({"streams": (Stream("", 1, (0, 2)),)}, r"names a device outside 0\.\.1"),
        ({"streams": (Stream("", 1, (0, -1)),)}, r"names a device outside 0\.\.1"),
        ({"streams": (Stream("", 1, (0, 0)),)}, "device 1 holds no stage; use fewer devices"),
        ({"comm_ticks": MAX_TOTAL_TICKS // 8}, "all work together must stay below"),
        ({"limits_quanta": (1, MAX_TOTAL_TICKS)}, "below 2..53 quanta"),
        (
            {"units": Units(ticks_per_unit=MAX_TOTAL_TICKS)},
            "a unit must have fewer than 2..53 parts",
        ),
    ],
)
def test_problems_that_break_a_rule(changes, message):
    with pytest.raises(ProblemError, match=message):
        replace(LINE, **changes)


def test_a_single_stream_may_have_a_name():
    assert replace(LINE, streams=(Stream("only", 2, (0, 1)),)).stream("only").microbatches == 2


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Stream("up", 0, (0,)), "at least 1 micro-batch, got 0 for stream 'up'"),
        (lambda: Stream("", -1, (0,)), "at least 1 micro-batch, got -1$"),
        (lambda: Units(ticks_per_unit=0), "at least one tick"),
        (lambda: replace(UNIT, forward_ticks=0), "every duration must be positive"),
        (lambda: replace(UNIT, fused_ticks=0), "every duration must be positive"),
        (lambda: replace(UNIT, pair_ticks=1), "a pair cannot take less than its longer op"),
        (lambda: replace(UNIT, activation_quanta=-1), "held memory must not be negative"),
        (lambda: replace(UNIT, context_quanta=-1), "held memory must not be negative"),
    ],
)
def test_parts_that_break_a_rule(build, message):
    with pytest.raises(ProblemError, match=message):
        build()


def test_problems_are_values():
    assert make_problem(4, 8, memory=4) == make_problem(4, 8, memory="4.0")
    assert hash(make_problem(4, 8)) == hash(make_problem(4, 8))
    assert make_problem(4, 8) != make_problem(4, 8, objective="span")
    assert make_problem(4, 8, objective="span").objective is Objective.SPAN
