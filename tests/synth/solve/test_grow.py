"""Growing: what repeats itself makes a valid schedule of any number, with the same idle time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from synth.bounds import best_bound
from synth.folding import Folded, fold
from synth.op import Op
from synth.problem import Problem, make_problem
from synth.schedule import Certificate, Schedule, TimedOp, spans, value
from synth.solve.backends import Backend
from synth.solve.deadline import Deadline
from synth.solve.grow import Repeat, best_repeat, grow, small
from synth.solve.growing import Growth, grow_quickly
from synth.solve.incumbent import Incumbent
from synth.solve.listing import Lister, Starts, rules
from synth.solve.periodic import find_kernel, least_period
from synth.verify import verify

problems = st.builds(
    make_problem,
    st.integers(2, 4),
    st.integers(14, 20).map(lambda half: 2 * half),
    placement=st.sampled_from(["linear", "v", "interleaved:2", "bidirectional"]),
    costs=st.tuples(*[st.integers(1, 6)] * 3),
    comm=st.sampled_from([0, 0, 1, 3]),
    activation=st.tuples(st.integers(1, 3), st.integers(0, 3)),
    memory=st.sampled_from([None, 6, 9, 12, 20]),
    objective=st.sampled_from(["makespan", "span"]),
)


def more(problem: Problem, extra: int) -> Problem:
    """The problem with so many more micro-batches of every stream."""
    streams = tuple(
        replace(stream, microbatches=stream.microbatches + extra) for stream in problem.streams
    )
    return replace(problem, streams=streams)


def schedule(folded: Folded, starts: Starts) -> Schedule:
    """The schedule with exactly these start times."""
    rows: list[list[TimedOp]] = [[] for _ in range(folded.problem.devices)]
    for chain, times in zip(folded.chains, starts, strict=True):
        for number, start in enumerate(times):
            op = Op(chain.kind, number, chain.stage, chain.stream)
            rows[chain.device].append(TimedOp(op, start, start + chain.steps))
    timeline = tuple(tuple(sorted(row, key=lambda timed: timed.start)) for row in rows)
    ticks = value(timeline, folded.problem.objective)
    return Schedule("grown", folded.problem, timeline, Certificate(ticks, 0, ""))


def idle(found: Schedule) -> list[int]:
    """What every device waits between its first start and its last end."""
    work = [sum(timed.end - timed.start for timed in row) for row in found.devices]
    return [span - busy for span, busy in zip(spans(found.devices), work, strict=True)]


@given(problems, st.integers(0, 40), st.integers(1, 3))
@settings(max_examples=30)
def test_what_repeats_grows_to_any_number(problem: Problem, rule: int, times: int) -> None:
    """Valid as it is, every device waiting as much more as it waits in the piece inserted."""
    folded = fold(problem, 1)
    choices = list(rules(folded))
    starts = Lister(folded).run(choices[rule % len(choices)])
    assume(starts is not None)
    assert starts is not None
    repeat = best_repeat(folded, starts)
    assume(repeat is not None)
    assert repeat is not None
    small_one = schedule(folded, starts)
    assert verify(small_one) == []
    large = fold(more(problem, times * repeat.count), 1)
    grown = schedule(large, grow(starts, repeat, times))
    assert verify(grown) == []
    longer = grown.certificate.value - small_one.certificate.value
    assert longer == times * repeat.period
    for device, (before, after) in enumerate(zip(idle(small_one), idle(grown), strict=True)):
        work = sum(folded.chains[c].steps for c in folded.of_device(device))
        assert after - before == times * (repeat.period - repeat.count * work)


def test_a_kernel_without_idle_time_keeps_the_bubble_for_any_number() -> None:
    """Unit costs and 1F1B's memory: 7 ticks of idle time, whatever the number."""
    problem = make_problem(8, 40, memory=8, objective="span", activation=(1, 0))
    folded = fold(problem, 1)
    found = [s for rule in rules(folded) if (s := Lister(folded).run(rule)) is not None]
    starts, repeat = next(
        (starts, repeat)
        for starts in found
        if (repeat := best_repeat(folded, starts)) and repeat.period == 3 * repeat.count
    )
    waits = idle(schedule(folded, starts))
    for times in (1, 5, 100):
        large = fold(more(problem, times * repeat.count), 1)
        assert idle(schedule(large, grow(starts, repeat, times))) == waits


def test_nothing_repeats_where_the_windows_differ() -> None:
    folded = fold(make_problem(1, 4, costs=(1, 1, 1)), 1)
    assert best_repeat(folded, [[0, 3], [1, 4], [2, 5]]) is None  # nothing runs before the first
    even = [[0, 3, 6, 9], [1, 4, 7, 10], [2, 5, 8, 11]]
    assert best_repeat(folded, even) == Repeat(3, 3, 1)


@pytest.mark.parametrize(
    ("devices", "microbatches", "placement", "left"),
    [(8, 1000, "v", (40,)), (8, 1001, "v", (41,)), (4, 1001, "bidirectional", (20, 21))],
)
def test_the_small_problem(devices, microbatches, placement, left) -> None:
    """What it lacks is a multiple of all numbers of micro-batches per period."""
    found = small(make_problem(devices, microbatches, placement=placement))
    assert found is not None
    numbers = tuple(stream.microbatches for stream in found.streams)
    assert sorted(numbers) == sorted(left)


def test_few_micro_batches_are_not_made_fewer() -> None:
    assert small(make_problem(8, 40)) is None


@pytest.mark.parametrize(
    ("memory", "activation", "count", "exists"),
    [
        (8, (1, 0), 1, True),
        (6, (1, 0), 1, False),  # here one micro-batch per period does not reach the bound
        (6, (1, 0), 2, True),
        (6, (1, 1), 1, False),
    ],
)
def test_kernels_of_eight_devices(memory, activation, count, exists) -> None:
    folded = fold(make_problem(8, 24, memory=memory, activation=activation), 1)
    period = least_period(folded, count)
    kernel = find_kernel(folded, count, period, Backend(), 120)
    assert (kernel is not None) is exists
    for microbatches in (1, 2, 7, 24) if kernel else ():
        few = fold(make_problem(8, microbatches, memory=memory, activation=activation), 1)
        assert verify(schedule(few, kernel.repeated(few))) == []


@given(problems, st.integers(1, 2), st.integers(0, 3))
@settings(max_examples=12)
def test_kernels_are_valid_for_any_number(problem: Problem, count: int, longer: int) -> None:
    folded = fold(problem, 1)
    period = least_period(folded, count) + longer
    assume(len(folded.chains) * count * period <= 330)  # offsets; more take seconds
    kernel = find_kernel(folded, count, period, Backend(), 2)
    assume(kernel is not None)
    assert kernel is not None
    for extra in (0, 1, 5):
        large = fold(more(problem, extra), 1)
        assert verify(schedule(large, kernel.repeated(large))) == []


def test_kernels_are_followed_by_list_schedules() -> None:
    """Without any other source: from a kernel to the problem asked for."""
    problem = make_problem(4, 200, memory=3)
    incumbent = Incumbent(problem, best_bound(problem), lambda _: None)
    growth = Growth.of(problem, 0)
    assert growth is not None
    growth.take_kernels(incumbent, Backend(), Deadline.after(30))
    growth.offer(incumbent, "kernel, grown")
    assert incumbent.value is not None
    assert incumbent.value <= 4 * 200 + 20


def test_a_large_v_with_little_memory() -> None:
    """Growing finds better schedules than the same rules on the whole problem."""
    problem = make_problem(4, 120, placement="v", costs=(10, 12, 8), comm=3, memory=2)
    incumbent = Incumbent(problem, best_bound(problem), lambda _: None)
    grow_quickly(incumbent, Deadline.after(3000), seed=0)
    folded = fold(problem, 1)
    found = [s for rule in rules(folded) if (s := Lister(folded).run(rule)) is not None]
    assert incumbent.value is not None
    assert incumbent.value < min(schedule(folded, s).certificate.value for s in found)
