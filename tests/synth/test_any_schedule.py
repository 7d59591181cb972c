"""What holds for every valid schedule, and for every change of one."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from synth.files import dumps, loads
from synth.op import Kind
from synth.problem import make_problem
from synth.schedule import Certificate, Schedule, TimedOp, value
from synth.simulate import earliest, in_flight, peaks, retime
from synth.verify import verify

Rows = list[list[TimedOp]]

seeds = st.integers(0, 10**6)


def any_schedule(random_orders: Callable[..., object], seed: int) -> Schedule:
    chance = random.Random(seed)
    problem = make_problem(
        chance.randint(1, 3),
        chance.randint(2, 3),
        placement=chance.choice(["linear", "v", "interleaved:2", "bidirectional"]),
        costs=[chance.randint(1, 4) for _ in range(3)],
        comm=chance.randint(0, 2),
        activation=chance.choice([(1, 1), (1, 0), (2, 1), (1, 3)]),
        memory=chance.choice([None, 6, 9]),
        objective=chance.choice(["makespan", "span"]),
    )
    kinds = {"fused": chance.random() < 0.5, "paired": chance.random() < 0.3}
    orders = random_orders(problem, chance, cap=2, **kinds) or random_orders(
        problem, chance, cap=1, **kinds
    )
    timeline = retime(problem, orders)
    return Schedule(
        "any", problem, timeline, Certificate(value(timeline, problem.objective), 0, "")
    )


def changed(schedule: Schedule, change: Callable[[Rows], object]) -> Schedule:
    """The schedule after an edit of its ops, with the certificate that its new times need."""
    rows = [list(ops) for ops in schedule.devices]
    change(rows)
    timeline = tuple(map(tuple, rows))
    reached = value(timeline, schedule.problem.objective) if all(rows) else 0
    return replace(schedule, devices=timeline, certificate=Certificate(max(reached, 0), 0, "none"))


def moved(timed: TimedOp, ticks: int) -> TimedOp:
    return TimedOp(timed.op, timed.start + ticks, timed.end + ticks)


@given(seeds, st.data())
def test_every_change_is_found(random_orders, seed, data):
    schedule = any_schedule(random_orders, seed)
    assert verify(schedule) == []
    device = data.draw(st.integers(0, len(schedule.devices) - 1))
    index = data.draw(st.integers(0, len(schedule.devices[device]) - 1))
    timed = schedule.devices[device][index]

    def drop(rows):
        rows[device].pop(index)

    def repeat(rows):
        end = rows[device][-1].end
        rows[device].append(TimedOp(timed.op, end, end + timed.end - timed.start))

    def stretch(rows):
        last = rows[device].pop()
        rows[device].append(replace(last, end=last.end + 1))

    def swap(rows):
        other = (index + 1) % len(rows[device])
        if other:
            rows[device][index], rows[device][other] = rows[device][other], rows[device][index]
        else:
            drop(rows)

    def early(rows):
        rows[device][0] = moved(rows[device][0], -1 - rows[device][0].start)

    def elsewhere(rows):
        if len(rows) == 1:
            drop(rows)
            return
        rows[device].pop(index)
        target = rows[(device + 1) % len(rows)]
        target.append(TimedOp(timed.op, target[-1].end, target[-1].end + timed.end - timed.start))

    for change in (drop, repeat, stretch, swap, early, elsewhere):
        assert verify(changed(schedule, change)), f"{change.__name__} {timed.op} of device {device}"


@given(seeds)
def test_no_op_can_start_a_tick_earlier(random_orders, seed):
    """Earliest times are tight: any op that is moved ahead breaks a rule."""
    plan = any_schedule(random_orders, seed)
    timeline = earliest(plan.problem, plan.orders)
    tight = replace(plan, devices=timeline)
    for device, ops in enumerate(timeline):
        for index, timed in enumerate(ops):

            def ahead(rows, device=device, index=index, timed=timed):
                rows[device][index] = moved(timed, -1)

            assert verify(changed(tight, ahead)), f"{timed.op} of device {device}"


@given(seeds)
def test_peaks_are_the_least_limits(random_orders, seed):
    plan = any_schedule(random_orders, seed)
    held = peaks(plan.problem, plan.devices)
    assert verify(replace(plan, problem=replace(plan.problem, limits_quanta=held))) == []
    for device, peak in enumerate(held):
        if peak:
            limits = tuple(peak - 1 if other == device else None for other in range(len(held)))
            tight = replace(plan, problem=replace(plan.problem, limits_quanta=limits))
            assert {violation.rule for violation in verify(tight)} == {"memory"}


@given(seeds)
def test_files_keep_everything(random_orders, seed):
    plan = any_schedule(random_orders, seed)
    text = dumps(plan)
    assert loads(text) == loads(text.encode()) == plan
    assert dumps(loads(text)) == text


@given(seeds)
def test_in_flight_counts_what_memory_counts(random_orders, seed):
    """With one quantum per stage from F to B, or to W, the peak is the number in flight."""
    plan = any_schedule(random_orders, seed)
    for context, released_by in ((0, Kind.B), (1, Kind.W)):
        stages = tuple(
            replace(stage, activation_quanta=1, context_quanta=context)
            for stage in plan.problem.stages
        )
        problem = replace(plan.problem, stages=stages)
        assert peaks(problem, plan.devices) == in_flight(plan.devices, released_by)
