"""Calibration and deviation on steps made up from plans."""

import pytest

from synth import catalog
from synth.calibrate import calibrate
from synth.deviation import by_kind, parting
from synth.errors import UsageError
from synth.measured import MeasuredOp, MeasuredStep
from synth.op import Kind, parse_op
from synth.problem import make_problem
from synth.profiled import make_profiled

TICK_S = 1e-6


def step(schedule, factor=1.0, late=None, by_s=0.0):
    """The plan as a measured step, every op `factor` times as long; one op ends later still."""
    devices = []
    for ops in schedule.devices:
        own = []
        for timed in ops:
            start, end = (factor * at * TICK_S for at in (timed.start, timed.end))
            own.append(MeasuredOp(timed.op, start, end + by_s * (str(timed.op) == late)))
        devices.append(tuple(own))
    makespan_s = max(op.end_s for own in devices for op in own)
    return MeasuredStep("run.json", 0, 1, makespan_s, None, tuple(devices))


@pytest.fixture
def schedule(costs):
    return catalog.build("zb-h1", make_profiled(costs, 2, 4))


def test_a_run_by_the_plan_changes_nothing_but_rounding(costs, schedule):
    again = calibrate(costs, [step(schedule)])
    for old, new in zip(
        (*costs.stages, *costs.layers), (*again.stages, *again.layers), strict=True
    ):
        for name in ("forward", "backward_act", "backward_wgt", "fused"):
            assert getattr(new, name).median_ns == pytest.approx(getattr(old, name).median_ns)
    assert again.hop_ns(1024) == pytest.approx(200_000)


def test_ops_that_did_not_run_change_as_their_stage(costs, schedule):
    doubled = calibrate(costs, [step(schedule, 2.0)] * 3)
    assert doubled.stages[1].backward_act.median_ns == pytest.approx(4_000_000)
    assert doubled.stages[1].fused.median_ns == pytest.approx(5_000_000)  # zb-h1 has none
    assert doubled.layers[0].forward.median_ns == pytest.approx(2_000_000)
    assert doubled.cut == costs.cut


def test_a_run_of_another_size_is_refused(costs):
    other = catalog.build("1f1b", make_problem(3, 3))
    with pytest.raises(UsageError, match="is a run of 3 stages, the profile is of 2"):
        calibrate(costs, [step(other)])


def test_kinds_side_by_side(schedule):
    rows = by_kind(schedule, [step(schedule), step(schedule, 1.5), step(schedule, 3.0)], TICK_S)
    assert [row.kind for row in rows] == [Kind.F, Kind.B, Kind.W]
    assert rows[0].ops == 8
    assert rows[0].planned_s == pytest.approx(2.5e-3)
    assert [row.ratio for row in rows] == pytest.approx([1.5] * 3)


def test_where_they_part(schedule):
    assert parting(schedule, step(schedule), TICK_S) is None
    text = parting(schedule, step(schedule, late="B1@1", by_s=0.003), TICK_S)
    assert text is not None
    assert text.startswith("B1@1 on device 1: planned ")
    assert text.endswith("it took 3.0 ms longer")


def test_the_halves_of_a_pair_are_counted_apart():
    problem = make_problem(2, 4, placement="v")
    schedule = catalog.build("dualpipev", problem)
    ran = []
    for ops in schedule.devices:
        own = []
        for timed in ops:
            at = timed.start * TICK_S
            for part in timed.op.parts:
                length = problem.duration(part) * TICK_S
                own.append(MeasuredOp(part, at, at + length))
                at += length
        ran.append(tuple(own))
    rows = by_kind(schedule, [MeasuredStep("r", 0, 1, 1.0, None, tuple(ran))], TICK_S)
    assert all(row.ratio == pytest.approx(1.0) for row in rows)
    assert Kind.FB not in {row.kind for row in rows}
    assert parse_op("F0@0") in {op.op for own in ran for op in own}
