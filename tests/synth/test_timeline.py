"""The terminal timeline, drawn for schedules small enough to check by eye."""

import re

import pytest

from synth.op import Kind, Op, pair
from synth.problem import make_problem
from synth.schedule import Certificate, Schedule, TimedOp
from synth.simulate import earliest
from synth.timeline import render

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def one_f_one_b(devices, microbatches, **problem):
    """1F1B with W right behind its B."""
    problem = make_problem(devices, microbatches, **problem)
    orders = []
    for device in range(devices):
        warmup = min(devices - device, microbatches)
        order = [Op(Kind.F, index, device) for index in range(warmup)]
        for index in range(microbatches):
            order += [Op(Kind.B, index, device), Op(Kind.W, index, device)]
            if index + warmup < microbatches:
                order.append(Op(Kind.F, index + warmup, device))
        orders.append(tuple(order))
    timeline = earliest(problem, tuple(orders))
    return Schedule("1f1b", problem, timeline, Certificate(10**9, 0, ""))


def test_unit_costs_take_one_label_per_op():
    assert render(one_f_one_b(2, 2)).splitlines() == [
        "  |0        |5",
        "0 F0F1..B0W0..B1W1",
        "1 ..F0B0W0F1B1W1..",
        "F forward, B input gradient, W weight gradient, . idle",
    ]


def test_wide_ops_are_filled_by_kind():
    rows = render(one_f_one_b(1, 1, costs=(2, 3, 1))).splitlines()
    assert rows[1] == "0 F0--B0====W0"


def test_a_fused_backward_and_a_pair_have_looks_of_their_own():
    problem = make_problem(1, 2)
    ops = (
        TimedOp(Op(Kind.F, 0, 0), 0, 1),
        TimedOp(pair(Op(Kind.F, 1, 0), Op(Kind.BW, 0, 0)), 1, 4),
        TimedOp(Op(Kind.BW, 1, 0), 4, 6),
    )
    rows = render(Schedule("", problem, (ops,), Certificate(6, 0, ""))).splitlines()
    assert rows[1] == "0 F0F1+BW0BW1#"
    assert rows[-1] == "F forward, BW full backward, F+B overlapped pair, . idle"


def test_a_second_stream_is_written_in_lower_case():
    problem = make_problem(2, 2, placement="bidirectional")
    ops = [
        tuple(
            TimedOp(Op(Kind.F, 0, stage, stream), start, start + 1)
            for stream, stage, start in sorted(calls, key=lambda call: call[2])
        )
        for calls in ([("down", 0, 0), ("up", 1, 1)], [("up", 0, 0), ("down", 1, 1)])
    ]
    rows = render(Schedule("", problem, tuple(ops), Certificate(2, 0, ""))).splitlines()
    assert rows[1:3] == ["0 F0f0", "1 f0F0"]


@pytest.mark.parametrize("width", [20, 40, 80, 200])
@pytest.mark.parametrize("colour", [False, True])
@pytest.mark.parametrize(
    ("devices", "microbatches", "costs"),
    [(2, 2, (1, 1, 1)), (4, 8, (10, 12, 8)), (12, 30, ("18.522", "20.1", "0.001"))],
)
def test_no_row_is_wider_than_asked(devices, microbatches, costs, width, colour):
    text = render(one_f_one_b(devices, microbatches, costs=costs), width=width, colour=colour)
    *rows, _legend = ESCAPE.sub("", text).splitlines()
    assert max(map(len, rows)) <= width


def test_a_long_schedule_wraps_then_scales_down():
    wrapped = render(one_f_one_b(4, 16), width=80).splitlines()
    assert [row[0] for row in wrapped[:-1]] == [" ", "0", "1", "2", "3"] * 3
    scaled = render(one_f_one_b(4, 1000), width=80).splitlines()
    assert len(scaled) == 4 * 5 + 1


def test_colour_changes_no_character():
    schedule = one_f_one_b(4, 8)
    assert ESCAPE.sub("", render(schedule, colour=True)) == render(schedule)


def test_marks_are_at_round_times():
    first = render(one_f_one_b(4, 8, costs=("1.3", "1.7", "0.9"))).splitlines()[0]
    assert re.findall(r"\|(\S+)", first) == ["0", "5", "10", "15", "20", "25", "30"]
