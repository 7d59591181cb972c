"""Comparisons on common costs, with figures worked out by hand."""

from dataclasses import replace

import pytest

from synth.compare import compare, summarize
from synth.op import Kind, Op
from synth.problem import make_problem
from synth.schedule import Certificate, Schedule, TimedOp, value
from synth.simulate import retime


def gpipe(problem, bound=0):
    """All F, then all B with their W."""
    orders = []
    for device in range(problem.devices):
        microbatches = range(problem.total_microbatches)
        order = [Op(Kind.F, index, device) for index in microbatches]
        for index in microbatches:
            order += [Op(Kind.B, index, device), Op(Kind.W, index, device)]
        orders.append(tuple(order))
    timeline = retime(problem, tuple(orders))
    certificate = Certificate(value(timeline, problem.objective), bound, "by hand")
    return Schedule("gpipe", problem, timeline, certificate)


def test_summary_of_a_pipeline_of_two():
    summary = summarize(gpipe(make_problem(2, 2, memory=3), bound=6))
    # device 0: F0 F1 . . B0 W0 B1 W1, device 1: . F0 F1 B0 W0 B1 W1 .
    assert (summary.makespan, summary.span) == (8, 8)
    assert (summary.value, summary.bound, summary.gap) == (8, 6, 0.25)
    assert summary.bubble == 1 - 12 / 16
    assert summary.peak_memory == (2, 2)
    assert summary.limit == 3
    assert summary.messages == 4
    assert not summary.optimal


def test_summary_speaks_the_users_units():
    summary = summarize(
        gpipe(make_problem(1, 2, costs=("1.5", "0.25", "1"), activation=("1", ".5")))
    )
    assert summary.value == 5.5
    assert summary.peak_memory == (2,)


def test_limits_that_differ_are_listed():
    problem = make_problem(2, 2, memory=[2, 3])
    assert summarize(gpipe(problem)).limit == (2, 3)


def test_a_schedule_of_the_same_problem_keeps_its_certificate():
    schedule = gpipe(make_problem(2, 2), bound=6)
    row = compare("it", schedule, schedule.problem)
    assert (row.valid, row.gap) == (True, 0.25)


def test_other_costs_are_timed_anew_and_prove_nothing():
    reference = make_problem(2, 2, costs=(2, 2, 2))
    row = compare("it", gpipe(make_problem(2, 2), bound=6), reference)
    assert row.valid
    assert row.summary is not None
    assert row.summary.makespan == 16
    assert row.gap is None


def test_breaking_only_the_reference_limit_leaves_the_figures():
    row = compare("it", gpipe(make_problem(2, 3)), make_problem(2, 3, memory=2))
    assert row.summary is not None
    assert row.reason == "device 0 holds 3, its limit is 2"


def test_an_invalid_schedule_has_a_reason_and_no_figures():
    schedule = gpipe(make_problem(1, 1))
    shifted = replace(
        schedule, devices=((*schedule.devices[0][:2], TimedOp(Op(Kind.W, 0, 0), 2, 4)),)
    )
    row = compare("it", shifted, schedule.problem)
    assert row.summary is None
    assert row.reason.startswith("duration: W0@0 at tick 2")


@pytest.mark.parametrize(
    ("devices", "microbatches", "reason"),
    [(3, 2, "is for 2 devices, not for 3"), (2, 4, "has 2 micro-batches, not 4")],
)
def test_other_sizes_are_not_comparable(devices, microbatches, reason):
    row = compare("it", gpipe(make_problem(2, 2)), make_problem(devices, microbatches))
    assert (row.summary, row.reason) == (None, reason)


def test_a_finer_cut_of_the_model_costs_its_share():
    reference = make_problem(1, 2, costs=(2, 2, 2))
    row = compare("it", gpipe(make_problem(1, 2)), reference)
    finer = compare("it", v_schedule(make_problem(1, 2, placement="v")), reference)
    assert row.summary is not None
    assert finer.summary is not None
    assert finer.summary.makespan == row.summary.makespan == 12
    assert finer.summary.peak_memory == row.summary.peak_memory == (2,)


def v_schedule(problem):
    """Both chunks of one device, all F first."""
    order = [Op(Kind.F, index, stage) for index in range(2) for stage in range(2)]
    for index in range(2):
        for stage in (1, 0):
            order += [Op(Kind.B, index, stage), Op(Kind.W, index, stage)]
    timeline = retime(problem, (tuple(order),))
    return Schedule("v", problem, timeline, Certificate(timeline[0][-1].end, 0, ""))


def test_streams_of_other_lengths_are_not_comparable():
    problem = make_problem(2, 4, placement="bidirectional")
    down, up = problem.streams
    uneven = replace(problem, streams=(replace(down, microbatches=3), replace(up, microbatches=1)))
    orders = tuple(
        tuple(
            Op(kind, index, stage, stream.name)
            for kind in (Kind.F, Kind.B, Kind.W)
            for stream, stage in uneven.held_stages(device)
            for index in range(stream.microbatches)
        )
        for device in range(2)
    )
    timeline = retime(uneven, orders)
    certificate = Certificate(value(timeline, uneven.objective), 0, "")
    row = compare("it", Schedule("", uneven, timeline, certificate), make_problem(2, 4))
    assert row.reason == "shares its micro-batches among its streams in another way"
