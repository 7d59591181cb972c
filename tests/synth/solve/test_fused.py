"""Where a fused backward is cheaper: what is proved is true, and fused ops are used."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from synth.bounds import all_bounds
from synth.errors import InfeasibleError
from synth.fusing import fuse
from synth.op import Kind
from synth.problem import DeviceCost, Problem, make_problem
from synth.schedule import value
from synth.separate import separated
from synth.simulate import retime
from synth.solve import Status, solve
from synth.verify import verify

cp_model = pytest.importorskip("ortools.sat.python.cp_model")


def fused_problem(seed: int) -> Problem:
    """A tiny problem of one stream in which BW takes less than B and W."""
    rng = random.Random(seed)
    act, wgt = rng.randint(2, 5), rng.randint(1, 5)
    placement = rng.choice(["linear", "linear", "v"])
    return make_problem(
        rng.randint(1, 2 if placement == "v" else 3),
        rng.randint(1, 3),
        placement=placement,
        costs=(rng.randint(1, 5), act, wgt),
        fused=rng.randint(act, act + wgt - 1),
        comm=rng.choice([0, 0, 1, 3]),
        memory=rng.choice([None, 1, 2, 3]),
    )


def optimum(problem: Problem) -> int:
    """The least makespan with BW or B and W for every micro-batch and stage: one interval each.

    Memory is held from F to the end of W or BW, as both of its parts weigh the same here.
    """
    model = cp_model.CpModel()
    (stream,) = problem.streams
    stages, numbers = range(len(stream.route)), range(stream.microbatches)
    most = sum(problem.work(d) for d in range(problem.devices))
    most += sum(cost.work_ticks for cost in problem.stages) * stream.microbatches
    horizon = most + 2 * problem.comm_ticks * len(stream.route) * stream.microbatches
    busy: list[list] = [[] for _ in range(problem.devices)]
    held: list[list] = [[] for _ in range(problem.devices)]
    ends: dict[tuple[Kind, int, int], object] = {}
    starts: dict[tuple[Kind, int, int], object] = {}
    last = model.new_int_var(0, horizon, "last")
    for stage, number in product(stages, numbers):
        cost, device = problem.stages[stage], stream.route[stage]
        for kind in (Kind.F, Kind.B, Kind.W):
            starts[kind, stage, number] = model.new_int_var(0, horizon, "")
            ends[kind, stage, number] = model.new_int_var(0, horizon, "")
        fused = model.new_bool_var("")
        for kind, ticks, present in (
            (Kind.F, cost.forward_ticks, None),
            (Kind.B, cost.backward_act_ticks, fused.negated()),
            (Kind.W, cost.backward_wgt_ticks, fused.negated()),
            (Kind.B, cost.fused_ticks, fused),
        ):
            span = starts[kind, stage, number], ticks, ends[kind, stage, number]
            busy[device].append(
                model.new_interval_var(*span, "")
                if present is None
                else model.new_optional_interval_var(*span, present, "")
            )
        done = ends[Kind.W, stage, number]
        model.add(done == ends[Kind.B, stage, number]).only_enforce_if(fused)
        model.add(starts[Kind.W, stage, number] >= ends[Kind.B, stage, number]).only_enforce_if(
            fused.negated()
        )
        model.add(last >= done)
        size = model.new_int_var(0, horizon, "")
        held[device].append(model.new_interval_var(starts[Kind.F, stage, number], size, done, ""))
        model.add(starts[Kind.B, stage, number] >= ends[Kind.F, stage, number])
    for stage, number in product(stages[1:], numbers):
        lag = problem.lag(stream.route[stage - 1], stream.route[stage])
        model.add(starts[Kind.F, stage, number] >= ends[Kind.F, stage - 1, number] + lag)
        model.add(starts[Kind.B, stage - 1, number] >= ends[Kind.B, stage, number] + lag)
    each = problem.stages[0].activation_quanta
    for device, limit in enumerate(problem.limits_quanta):
        model.add_no_overlap(busy[device])
        if limit is not None:
            model.add_cumulative(held[device], [each] * len(held[device]), limit)
    model.minimize(last)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    assert solver.solve(model) == cp_model.OPTIMAL
    return int(solver.objective_value)


def check(seed: int) -> bool:
    """What is found is valid, what is proved true. Returns whether the optimum was proved."""
    problem = fused_problem(seed)
    result = solve(problem, time_limit_s=1)
    if result.status is Status.INFEASIBLE:
        return True
    assert result.schedule is not None
    found = fuse(result.schedule)
    assert verify(found) == []
    best = optimum(problem)
    assert found.certificate.bound <= best <= found.certificate.value
    return found.certificate.optimal


def test_fused_backwards_by_hand() -> None:
    """One device: three times F and BW."""
    result = solve(make_problem(1, 3, costs=(2, 2, 2), fused=3))
    assert result.status is Status.OPTIMAL
    assert result.schedule is not None
    assert result.schedule.makespan == 15


def test_many_optima_are_proved() -> None:
    proved = [check(seed) for seed in range(12)]
    assert sum(proved) >= 6


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12, 200))
def test_what_is_proved_is_true(seed: int) -> None:
    check(seed)


@given(st.integers(0, 10**6))
@settings(max_examples=60)
def test_bounds_hold_for_fused_ops(random_orders, seed: int) -> None:
    problem = fused_problem(seed)
    orders = random_orders(problem, random.Random(seed), fused=True)
    assume(orders is not None)
    try:
        bounds = all_bounds(problem)
    except InfeasibleError:
        return
    assert bounds[0].value <= value(retime(problem, orders), problem.objective)


def test_a_cost_that_no_device_has_need_not_be_divided() -> None:
    problem = make_problem(1, 2, costs=(2, 1, 1), fused=1)
    assert separated(problem) is None
    own = replace(problem.stages[0], backward_act_ticks=3, fused_ticks=3, pair_ticks=5)
    found = separated(replace(problem, device_costs=(DeviceCost(0, 0, own),)))
    assert found is not None
    assert {(c.backward_act_ticks, c.backward_wgt_ticks) for c in found.costs} == {(2, 1)}


def test_what_bounds_a_problem_with_fused_ops() -> None:
    problem = make_problem(2, 4, costs=(2, 3, 4), fused=5)
    found = separated(problem)
    assert found is not None
    assert {(c.backward_act_ticks, c.backward_wgt_ticks) for c in found.costs} == {(3, 2)}
    assert found.split_is_best
    plain = make_problem(2, 4)
    assert separated(plain) is plain
    assert separated(make_problem(2, 4, pair=2)) is None
    whole = separated(make_problem(2, 4, costs=(2, 3, 4), fused=3))
    assert whole is not None
    assert {(c.backward_act_ticks, c.backward_wgt_ticks) for c in whole.costs} == {(2, 1)}
