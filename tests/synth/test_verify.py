"""Every rule of the verifier: a valid schedule, one thing broken, the finding that must follow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from synth.op import Op, pair, parse_op
from synth.problem import Objective, Problem, make_problem
from synth.schedule import Certificate, Schedule, TimedOp, value
from synth.simulate import earliest, peaks
from synth.verify import Violation, verify

Rows = list[list[TimedOp]]


def plan(problem: Problem, *rows: str) -> Schedule:
    """The schedule of these orders with the earliest times."""
    timeline = earliest(problem, tuple(tuple(map(parse_op, row.split())) for row in rows))
    reached = value(timeline, problem.objective)
    return Schedule("by hand", problem, timeline, Certificate(reached, 0, "none"))


def changed(schedule: Schedule, change: Callable[[Rows], object]) -> Schedule:
    """The schedule after an edit of its ops, with the certificate that its new times need."""
    rows = [list(ops) for ops in schedule.devices]
    change(rows)
    timeline = tuple(map(tuple, rows))
    reached = schedule.certificate.value
    if all(rows):
        reached = value(timeline, schedule.problem.objective)
    return replace(schedule, devices=timeline, certificate=Certificate(max(reached, 0), 0, "none"))


def found(schedule: Schedule) -> list[str]:
    return list(map(str, verify(schedule)))


def shift(timed: TimedOp, ticks: int) -> TimedOp:
    return TimedOp(timed.op, timed.start + ticks, timed.end + ticks)


def move(rows: Rows, device: int, index: int, ticks: int) -> None:
    rows[device][index] = shift(rows[device][index], ticks)


def rename(rows: Rows, device: int, index: int, text: str) -> None:
    rows[device][index] = replace(rows[device][index], op=parse_op(text))


# Device 0: F0 0, F1 1, B0 4, W0 5, B1 6, W1 7-8; device 1: F0 1, F1 2, B0 3, W0 4, B1 5, W1 6-7.
LINE = plan(
    make_problem(2, 2, memory=2),
    "F0@0 F1@0 B0@0 W0@0 B1@0 W1@0",
    "F0@1 F1@1 B0@1 W0@1 B1@1 W1@1",
)
# Device 0: F0 0-2, F1 2-4, BW0 8-12, BW1 14-18; device 1: F0 2-4, BW0 4-8, F1 8-10, BW1 10-14.
FUSED = plan(make_problem(2, 2, costs=(2, 2, 2)), "F0@0 F1@0 BW0@0 BW1@0", "F0@1 BW0@1 F1@1 BW1@1")
# Device 0: F0 0-2, the pair 8-13, BW1 19-23; device 1: F0 2-4, BW0 4-8, F1 13-15, BW1 15-19.
PAIRED = plan(
    make_problem(2, 2, costs=(2, 2, 2), pair=5),
    "F0@0 F1@0+BW0@0 BW1@0",
    "F0@1 BW0@1 F1@1 BW1@1",
)
# In half units: F0@0 0, F0@1 1, F0@2 2, F0@3 3, B0@3 4, B0@2 5, B0@1 6, B0@0 7, each W behind.
CHUNKS = plan(
    make_problem(2, 1, placement="v", memory=1),
    "F0@0 F0@3 B0@3 W0@3 B0@0 W0@0",
    "F0@1 F0@2 B0@2 B0@1 W0@2 W0@1",
)
STREAMS = plan(
    make_problem(2, 2, placement="bidirectional", comm=1),
    "F0@0/down F0@1/up B0@1/up W0@1/up B0@0/down W0@0/down",
    "F0@0/up F0@1/down B0@1/down W0@1/down B0@0/up W0@0/up",
)


@pytest.mark.parametrize(
    "schedule", [LINE, FUSED, PAIRED, CHUNKS, STREAMS], ids=["line", "fused", "pair", "v", "two"]
)
def test_valid(schedule: Schedule) -> None:
    assert found(schedule) == []


def test_a_pair_counts_for_both_of_its_ops() -> None:
    paired: Op = pair(parse_op("F1@0"), parse_op("BW0@0"))
    assert [timed.op for timed in PAIRED.devices[0]][1] == paired
    assert (PAIRED.devices[0][1].start, PAIRED.devices[0][1].end) == (8, 13)


# One thing broken ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schedule", "change", "expected"),
    [
        # Drop an op.
        (LINE, lambda rows: rows[1].pop(5), ["count: W1@1 at tick 0: never runs"]),
        (LINE, lambda rows: rows[0].pop(0), ["count: F0@0 at tick 0: never runs"]),
        (
            FUSED,
            lambda rows: rows[0].pop(2),
            ["count: B0@0 at tick 0: never runs", "count: W0@0 at tick 0: never runs"],
        ),
        (
            STREAMS,
            lambda rows: rows[0].pop(),
            ["count: W0@0/down at tick 0: never runs"],
        ),
        (
            LINE,
            lambda rows: rows[1].clear(),
            [
                f"count: {kind}{index}@1 at tick 0: never runs"
                for index in range(2)
                for kind in "FBW"
            ],
        ),
        # Run it twice: once more, in the other way, or in a pair as well.
        (
            LINE,
            lambda rows: rows[1].append(shift(rows[1][5], 1)),
            ["count: W1@1 at tick 7: W1@1 runs more than once"],
        ),
        (
            FUSED,
            lambda rows: rows[0].append(TimedOp(parse_op("W1@0"), 18, 20)),
            ["count: W1@0 at tick 18: W1@0 runs more than once"],
        ),
        (
            PAIRED,
            lambda rows: rows[0].insert(1, TimedOp(parse_op("F1@0"), 2, 4)),
            ["count: F1@0+BW0@0 at tick 8: F1@0 runs more than once"],
        ),
        # Start before what it needs has ended, or arrived.
        (
            LINE,
            lambda rows: move(rows, 0, 2, -1),
            ["dependency: B0@0 at tick 3: needs B0@1, which is there at 4"],
        ),
        (
            CHUNKS,
            lambda rows: move(rows, 0, 1, -1),
            ["dependency: F0@3 at tick 2: needs F0@2, which is there at 3"],
        ),
        (
            STREAMS,
            lambda rows: move(rows, 0, 1, -1),
            ["dependency: F0@1/up at tick 1: needs F0@0/up, which is there at 2"],
        ),
        (
            PAIRED,
            lambda rows: move(rows, 0, 1, -1),
            ["dependency: B0@0 at tick 7: needs B0@1, which is there at 8"],
        ),
        (
            PAIRED,
            lambda rows: move(rows, 1, 2, -1),
            ["dependency: F1@1 at tick 12: needs F1@0, which is there at 13"],
        ),
        # Swap an order: the times say the same, or the names are the wrong way round.
        (
            LINE,
            lambda rows: rows[0].insert(1, rows[0].pop(0)),
            ["order: F0@0 at tick 0: listed after F1@0, which starts later, on device 0"],
        ),
        (
            LINE,
            lambda rows: rename(rows, 1, 4, "W1@1") or rename(rows, 1, 5, "B1@1"),
            [
                "dependency: B1@0 at tick 6: needs B1@1, which is there at 7",
                "dependency: W1@1 at tick 5: needs B1@1, which is there at 7",
            ],
        ),
        (
            LINE,
            lambda rows: rename(rows, 0, 3, "B1@0") or rename(rows, 0, 4, "W0@0"),
            ["dependency: B1@0 at tick 5: needs B1@1, which is there at 6"],
        ),
        # Overlap.
        (
            FUSED,
            lambda rows: move(rows, 0, 1, -1),
            [
                "overlap: F1@0 at tick 1: overlaps F0@0, which ends at 2, on device 0",
            ],
        ),
        (
            PAIRED,
            lambda rows: move(rows, 0, 0, 7),
            [
                "overlap: F1@0+BW0@0 at tick 8: overlaps F0@0, which ends at 9, on device 0",
                "dependency: B0@0 at tick 8: needs F0@0, which is there at 9",
                "dependency: F0@1 at tick 2: needs F0@0, which is there at 9",
            ],
        ),
        # On another device than its stage.
        (
            LINE,
            lambda rows: rows[0].append(shift(rows[1].pop(), 2)),
            [
                "placement: W1@1 at tick 8: runs on device 0, its stage is on device 1",
            ],
        ),
        (
            STREAMS,
            lambda rows: rename(rows, 0, 5, "W0@0/up") or rename(rows, 1, 5, "W0@0/down"),
            [
                "placement: W0@0/up at tick 6: runs on device 0, its stage is on device 1",
                "placement: W0@0/down at tick 6: runs on device 1, its stage is on device 0",
                "dependency: W0@0/up at tick 6: needs B0@0/up, which is there at 7",
                "dependency: W0@0/down at tick 6: needs B0@0/down, which is there at 7",
            ],
        ),
        # Longer or shorter than it costs.
        (
            LINE,
            lambda rows: rows[0].append(replace(rows[0].pop(), end=9)),
            ["duration: W1@0 at tick 7: takes 2 ticks, its cost is 1"],
        ),
        (
            FUSED,
            lambda rows: rows[0].append(replace(rows[0].pop(), end=17)),
            ["duration: BW1@0 at tick 14: takes 3 ticks, its cost is 4"],
        ),
        (
            LINE,
            lambda rows: rows[0].append(replace(rows[0].pop(), end=7)),
            ["duration: W1@0 at tick 7: takes 0 ticks, its cost is 1"],
        ),
        # Before the beginning.
        (
            LINE,
            lambda rows: move(rows, 0, 0, -1),
            ["start: F0@0 at tick -1: starts before tick 0"],
        ),
        # What the problem does not have.
        (
            LINE,
            lambda rows: rows[1].append(TimedOp(parse_op("F2@1"), 8, 9)),
            ["identity: F2@1 at tick 8: the problem has no such op"],
        ),
        (
            LINE,
            lambda rows: rows[1].append(TimedOp(parse_op("W0@2"), 8, 9)),
            ["identity: W0@2 at tick 8: the problem has no such op"],
        ),
        (
            LINE,
            lambda rows: rows[1].append(TimedOp(parse_op("W0@1/up"), 8, 9)),
            ["identity: W0@1/up at tick 8: the problem has no such op"],
        ),
        (
            PAIRED,
            lambda rows: rename(rows, 0, 1, "F1@0+BW2@0"),
            [
                "identity: F1@0+BW2@0 at tick 8: the problem has no such op",
                "count: B0@0 at tick 0: never runs",
                "count: W0@0 at tick 0: never runs",
                "count: F1@0 at tick 0: never runs",
            ],
        ),
    ],
)
def test_one_change(
    schedule: Schedule, change: Callable[[Rows], object], expected: list[str]
) -> None:
    assert found(changed(schedule, change)) == expected


def test_more_or_fewer_devices_than_the_problem() -> None:
    one = replace(LINE, devices=LINE.devices[:1])
    assert [violation.rule for violation in verify(one)] == ["devices"] + ["count"] * 6
    three = replace(LINE, devices=(*LINE.devices, (TimedOp(parse_op("F0@0"), 9, 10),)))
    assert found(three)[0] == "devices: schedule at tick 0: has 3 devices, its problem 2"


# Memory --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("activation", "peak", "first"),
    [
        # One device, F0 0-1, F1 1-2, B0 2-4, W0 4-5, B1 5-7, W1 7-8.
        ((4, 4), 8, "memory: F1@0 at tick 1: device 0 holds 8, its limit is 7"),
        ((4, 0), 8, "memory: F1@0 at tick 1: device 0 holds 8, its limit is 7"),
        ((4, 1), 8, "memory: F1@0 at tick 1: device 0 holds 8, its limit is 7"),
        # The context grows at the start of B.
        ((1, 4), 5, "memory: B0@0 at tick 2: device 0 holds 5, its limit is 4"),
    ],
)
def test_memory_by_one_quantum(activation: tuple[int, int], peak: int, first: str) -> None:
    problem = make_problem(1, 2, costs=(1, 2, 1), activation=activation, memory=peak)
    schedule = plan(problem, "F0@0 F1@0 B0@0 W0@0 B1@0 W1@0")
    assert peaks(problem, schedule.devices) == (peak,)
    assert found(schedule) == []
    tight = replace(schedule, problem=replace(problem, limits_quanta=(peak - 1,)))
    assert found(tight)[0] == first
    assert {violation.rule for violation in verify(tight)} == {"memory"}


@pytest.mark.parametrize(
    ("activation", "order", "peak"),
    [
        # A fused backward keeps its larger context to the end, a pair takes its F on top.
        ((1, 4), "F0@0 BW0@0 F1@0 BW1@0", 4),
        ((1, 4), "F0@0 F1@0 BW0@0 BW1@0", 5),
        ((1, 4), "F0@0 F1@0+BW0@0 BW1@0", 5),
        ((4, 1), "F0@0 F1@0+BW0@0 BW1@0", 8),
        ((4, 1), "F0@0 B0@0 F1@0 W0@0 B1@0 W1@0", 5),
        ((4, 1), "F0@0 F1@0+B0@0 W0@0 B1@0 W1@0", 8),
        ((1, 4), "F0@0 F1@0+B0@0 W0@0 B1@0 W1@0", 5),
        ((1, 4), "F0@0 F1@0 B0@0 B1@0 W0@0 W1@0", 8),
    ],
)
def test_memory_of_fused_and_paired_ops(activation: tuple[int, int], order: str, peak: int) -> None:
    problem = make_problem(1, 2, activation=activation, memory=peak)
    schedule = plan(problem, order)
    assert found(schedule) == []
    tight = replace(schedule, problem=replace(problem, limits_quanta=(peak - 1,)))
    assert [violation.rule for violation in verify(tight)][:1] == ["memory"]


def test_limits_are_per_device() -> None:
    """Device 0 of LINE holds 2, device 1 as well."""
    tight = replace(LINE, problem=replace(LINE.problem, limits_quanta=(2, 1)))
    assert found(tight) == ["memory: F1@1 at tick 2: device 1 holds 2, its limit is 1"]
    half = replace(CHUNKS, problem=replace(CHUNKS.problem, limits_quanta=(None, 1)))
    assert found(half) == ["memory: F0@2 at tick 2: device 1 holds 1, its limit is 0.5"]


# Certificate ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("objective", "reached"), [("makespan", 8), ("span", 8)])
@pytest.mark.parametrize("claimed", [7, 9])
def test_the_certificate_says_what_the_ops_take(objective: str, reached: int, claimed: int) -> None:
    problem = make_problem(2, 2, objective=objective)
    schedule = replace(LINE, problem=problem)
    assert found(schedule) == []
    wrong = replace(schedule, certificate=Certificate(claimed, 0, "none"))
    assert found(wrong) == [
        f"certificate: schedule at tick {reached}: the certificate says {claimed} ticks, "
        f"the ops take {reached}"
    ]


def test_the_two_objectives_count_differently() -> None:
    """With W1@1 put off to 11, device 1 runs from 1 to 12 and device 0 from 0 to 8."""
    late = changed(LINE, lambda rows: move(rows, 1, 5, 5))
    assert (late.certificate.value, found(late)) == (12, [])
    problem = replace(LINE.problem, objective=Objective.SPAN)
    assert found(replace(late, problem=problem, certificate=Certificate(11, 0, "none"))) == []
    assert [violation.tick for violation in verify(replace(late, problem=problem))] == [11]


def test_violations_read_well() -> None:
    violation = Violation("overlap", "F1@0", 3, "overlaps F0@0, which ends at 4, on device 0")
    assert str(violation) == (
        "overlap: F1@0 at tick 3: overlaps F0@0, which ends at 4, on device 0"
    )
