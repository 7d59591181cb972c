"""Stage graphs, uneven devices and uneven links: by hand, and what holds for every schedule."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synth.alone import alone
from synth.bounds import all_bounds, check_memory
from synth.catalog import family, names
from synth.chrome_trace import dumps as trace
from synth.errors import InfeasibleError, ProblemError, UsageError
from synth.exchange.torch_csv import dumps as torch_csv
from synth.explain import explain
from synth.files import dumps, loads
from synth.folding import fold
from synth.graph import dependencies
from synth.heads import heads, relate, tails
from synth.lower import lower, program_json
from synth.op import parse_op
from synth.placement import parse_placement
from synth.problem import DeviceCost, Link, Objective, Problem, StageCost, Stream, make_problem
from synth.recut import recut
from synth.rendezvous import check_program
from synth.schedule import Certificate, Schedule, TimedOp, value
from synth.simulate import earliest, memory_change, messages, retime
from synth.solve.meeting import meeting, rooted
from synth.timeline import render
from synth.verify import verify

UNIT = StageCost(1, 1, 1, 2, 3, 1, 1)
SLOW = StageCost(2, 2, 2, 4, 6, 1, 1)

# Two stages that need nothing, on devices 0 and 1, and one on device 2 that needs both. Device 1
# takes twice as long; a hop takes a tick, from 2 to 0 five.
JOIN = Problem(
    devices=3,
    placement="explicit",
    stages=(UNIT,) * 3,
    streams=(Stream("", 2, (0, 1, 2)),),
    comm_ticks=1,
    needs=((), (), (0, 1)),
    device_costs=(DeviceCost(1, 1, SLOW),),
    links=(Link(2, 0, 5),),
)
# One stage whose output two others need, all on one device.
FORK = Problem(1, "explicit", (UNIT,) * 3, (Stream("", 1, (0, 0, 0)),), needs=((), (0,), (0,)))


def orders(*rows: str):
    return tuple(tuple(map(parse_op, row.split())) for row in rows)


JOIN_ORDERS = orders(
    "F0@0 F1@0 B0@0 W0@0 B1@0 W1@0",
    "F0@1 F1@1 B0@1 W0@1 B1@1 W1@1",
    "F0@2 B0@2 W0@2 F1@2 B1@2 W1@2",
)


def plan(problem: Problem, timeline) -> Schedule:
    return Schedule(
        "any", problem, timeline, Certificate(value(timeline, problem.objective), 0, "none")
    )


# By hand -------------------------------------------------------------------------------------


def test_what_a_join_waits_for():
    found = {
        text: {str(before): lag for before, lag in dependencies(JOIN, parse_op(text))}
        for text in ("F0@0", "F0@1", "F0@2", "B0@2", "B0@0", "B0@1", "W0@1")
    }
    assert found == {
        "F0@0": {},
        "F0@1": {},
        "F0@2": {"F0@0": 1, "F0@1": 1},
        "B0@2": {"F0@2": 0},
        "B0@0": {"F0@0": 0, "B0@2": 5},
        "B0@1": {"F0@1": 0, "B0@2": 1},
        "W0@1": {"B0@1": 0},
    }


def test_a_join_by_hand():
    """Device 1 is behind from the start; device 0 waits for the slow link on the way back."""
    timeline = earliest(JOIN, JOIN_ORDERS)
    assert [[(t.start, t.end) for t in ops] for ops in timeline] == [
        [(0, 1), (1, 2), (10, 11), (11, 12), (13, 14), (14, 15)],
        [(0, 2), (2, 4), (6, 8), (8, 10), (10, 12), (12, 14)],
        [(3, 4), (4, 5), (5, 6), (6, 7), (7, 8), (8, 9)],
    ]
    assert verify(plan(JOIN, timeline)) == []
    assert messages(JOIN) == 8


def test_the_verifier_names_the_input_that_is_missing():
    timeline = earliest(JOIN, JOIN_ORDERS)
    rows = [list(ops) for ops in timeline]
    rows[2][0] = TimedOp(rows[2][0].op, 2, 3)  # the fast input is there, the slow one is not
    rows[0][2] = TimedOp(rows[0][2].op, 9, 10)  # a tick before the slow link delivers
    found = [str(violation) for violation in verify(plan(JOIN, tuple(map(tuple, rows))))]
    assert found == [
        "dependency: B0@0 at tick 9: needs B0@2, which is there at 10",
        "dependency: F0@2 at tick 2: needs F0@1, which is there at 3",
    ]


@pytest.mark.parametrize(
    ("objective", "expected"),
    [
        # Down through device 1: 2 + 1 + 1; B@2 and five ticks back to device 0, and its B and W.
        # Device 1 works 12 from the start and waits 2 in front of its first B.
        ("makespan", {"path": 12, "work": 12, "fill": 14}),
        # Device 0 from its F to its B: 1 + 1 + 1 + 1 + 5, then B and W; device 1: 2 + 1 + 1 + 1 + 1
        # and 4 more; in front of its first B it can run both F, 4 of the 6 ticks.
        ("span", {"path": 11, "work": 12, "fill": 14}),
    ],
)
def test_bounds_of_a_join_by_hand(objective, expected):
    found: dict[str, int] = {}
    for bound in all_bounds(replace(JOIN, objective=Objective(objective))):
        found[bound.name] = max(found.get(bound.name, 0), bound.value)
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("needs", "least"),
    [
        ((), 3),  # a chain: all F come before the first B
        (((), (0,), (0,)), 2),  # a fork: one branch is through before the other begins
        (((), (), (0, 1)), 3),  # a join: both inputs are held when it runs
        (((), (), ()), 1),  # three models side by side
    ],
)
def test_least_memory_of_a_single_micro_batch(needs, least):
    problem = replace(FORK, needs=needs)
    check_memory(replace(problem, limits_quanta=(least,)))
    with pytest.raises(InfeasibleError, match=f"device 0 needs {least} activation units"):
        check_memory(replace(problem, limits_quanta=(least - 1,)))
    held = most = 0
    found = alone(replace(problem, limits_quanta=(least,)), problem.streams[0])
    assert found.fits
    for kind, stage in found.order:
        taken, freed = memory_change(problem, parse_op(f"{kind}0@{stage}"))
        held += taken - freed
        most = max(most, held)
        if kind == "B":
            held -= memory_change(problem, parse_op(f"W0@{stage}"))[1]
    assert most == least


GROWS, SHRINKS, NOTHING = (StageCost(1, 1, 1, 2, 3, *held) for held in ((1, 3), (3, 0), (0, 0)))


@pytest.mark.parametrize(
    ("costs", "limit", "fits"),
    [
        # The branch that grows when it goes back has to wait until the other one is gone.
        ((GROWS, SHRINKS, NOTHING), 4, True),
        ((GROWS, SHRINKS, NOTHING), 3, False),
        # Each fits alone, but the first B comes while the other branch is still held.
        ((GROWS, GROWS, NOTHING), 4, True),
        ((GROWS, GROWS, NOTHING), 3, False),
    ],
)
def test_the_order_of_branches_matters(costs, limit, fits):
    problem = replace(FORK, stages=costs, needs=((), (), (0, 1)), limits_quanta=(limit,))
    if not fits:
        with pytest.raises(InfeasibleError):
            check_memory(problem)
        return
    timeline = retime(problem, one_by_one(problem))
    assert verify(plan(problem, timeline)) == []


def test_no_order_of_branches_fits():
    """Both hold 1 when the join goes back, and the first of them needs 3."""
    problem = replace(
        FORK, stages=(GROWS, GROWS, NOTHING), needs=((), (), (0, 1)), limits_quanta=(3,)
    )
    with pytest.raises(InfeasibleError, match="no order of its stages keeps a single micro-batch"):
        check_memory(problem)


@given(st.integers(0, 10**6))
def test_one_after_another_fits_or_nothing_does(random_graph, seed):
    problem = random_graph(random.Random(seed))
    try:
        check_memory(problem)
    except InfeasibleError:
        return
    assert verify(plan(problem, retime(problem, one_by_one(problem)))) == []


def test_branches_do_not_hold_each_other():
    """With room for two, a chain cannot have two micro-batches begun in its second chunk."""
    relations = {
        needs: {
            (r.before, r.after, r.shift)
            for group in relate(
                fold(
                    replace(
                        FORK, streams=(Stream("", 4, (0, 0, 0)),), needs=needs, limits_quanta=(5,)
                    ),
                    1,
                )
            ).into
            for r in group
            if r.shift > 1 or r.lag or r.before == r.after + 1
        }
        for needs in ((), ((), (), (0, 1)))
    }
    second = {key: [r for r in found if r[1] == 3] for key, found in relations.items()}
    assert (4, 3, 2) in second[()]  # B of the second chunk, room for 5 // 2
    assert not any(r[2] == 2 for r in second[((), (), (0, 1))])  # it holds one alone: 5 // 1


@pytest.mark.parametrize(
    ("change", "anchor", "distance", "starts_first"),
    [
        ({}, 2, (1, 1, 0), False),  # the two entries meet at the join only
        ({"needs": ()}, 0, (0, 1, 1), True),  # a chain
        ({"needs": ((), (), ())}, 0, (0, 0, 0), False),  # three that have nothing in common
        ({"needs": ((), (0,), (0,))}, 0, (0, 1, 1), True),
    ],
)
def test_which_windows_meet(change, anchor, distance, starts_first):
    problem = replace(JOIN, **change)
    assert (meeting(problem).anchor, meeting(problem).distance) == (anchor, distance)
    assert rooted(problem) is starts_first


def test_what_says_nothing_new_is_left_out():
    problem = replace(
        JOIN,
        needs=((), (0,), (1,)),
        device_costs=(DeviceCost(1, 1, UNIT),),
        links=(Link(2, 0, 1), Link(0, 1, 3), Link(0, 2, 2)),
    )
    assert (problem.needs, problem.device_costs) == ((), ())
    assert problem.links == (Link(0, 1, 3), Link(0, 2, 2))
    assert replace(problem, links=problem.links[::-1]) == problem
    assert problem.is_chain


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"needs": ((), (0,))}, "needs are given for 2 stages, the model has 3"),
        ({"needs": ((), (2,), ())}, "stage 1 needs stage 2; number the stages so that"),
        ({"needs": ((0,), (), ())}, "stage 0 needs stage 0"),
        ({"needs": ((), (-1,), ())}, "stage 1 needs stage -1"),
        ({"needs": ((), (0,), (1, 1))}, "stage 2 needs a stage twice"),
        ({"device_costs": (DeviceCost(0, 1, SLOW),)}, "stage 1, which it does not hold"),
        ({"device_costs": (DeviceCost(7, 1, SLOW),)}, "stage 1, which it does not hold"),
        ({"device_costs": (DeviceCost(1, 1, SLOW),) * 2}, "own costs for stage 1 twice"),
        ({"links": (Link(0, 3, 1),)}, "the link 0 -> 3 names a device outside 0..2"),
        ({"links": (Link(1, 1, 1),)}, "the link 1 -> 1 joins a device to itself"),
        ({"links": (Link(0, 1, -1),)}, "the link 0 -> 1 has a negative lag, -1"),
        ({"links": (Link(0, 1, 1), Link(0, 1, 2))}, "the link 0 -> 1 is given twice"),
        ({"links": (Link(0, 1, 2**53),)}, "the costs are too large"),
        ({"kept_quanta": (1, 2)}, "kept memory is given for 2 stages, the model has 3"),
        ({"kept_quanta": (1, 2, -1)}, "kept memory must not be negative"),
        ({"kept_quanta": (1, 2, 2**53)}, "the memory numbers are too large"),
    ],
)
def test_refused(change, message):
    with pytest.raises(ProblemError) as refused:
        replace(JOIN, **change)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


# What refuses graphs -------------------------------------------------------------------------


@pytest.mark.parametrize("name", names())
def test_handcrafted_schedules_are_for_chains(name):
    wanted = parse_placement(family(name).placement, 4)
    problem = make_problem(4, 16, placement=wanted)
    graph = replace(problem, needs=((), (), *((s - 2, s - 1) for s in range(2, wanted.stages))))
    assert family(name).refuses(graph) == "needs stages that are a chain, the problem's are not"


@pytest.mark.parametrize(
    "change",
    [{"links": (Link(0, 1, 2),)}, {"device_costs": (DeviceCost(1, 1, SLOW),)}],
)
@pytest.mark.parametrize("name", names())
def test_no_formula_is_claimed_on_uneven_devices_or_links(name, change):
    chosen = family(name)
    wanted = parse_placement(chosen.placement, 4)
    problem = make_problem(4, 16, placement=wanted)
    if chosen.refuses(problem) is not None:
        pytest.skip("needs other numbers")
    uneven = replace(problem, **change)
    if chosen.bubble is not None:
        assert chosen.bubble.value(uneven) is None
    timeline = retime(uneven, chosen.orders(uneven))
    assert verify(plan(uneven, timeline)) == []


def test_what_cannot_be_cut_anew():
    with pytest.raises(ProblemError, match="its stages are not a chain"):
        recut(JOIN, "v")
    for cost in (StageCost(2, 2, 3, 5, 7, 1, 1), StageCost(1, 1, 1, 2, 3, 2, 1)):
        own = replace(JOIN, needs=(), device_costs=(DeviceCost(1, 1, cost),))
        with pytest.raises(ProblemError, match="some devices have costs of their own"):
            recut(own, "v")


def test_slow_devices_and_links_stay_slow():
    """Device 1 takes twice as long; halves of stages make two ticks a unit."""
    again = recut(replace(JOIN, needs=()), "v")
    assert (again.links, again.comm_ticks) == ((Link(2, 0, 10),), 2)
    assert [cost.forward_ticks for cost in again.stages] == [1] * 6
    half = StageCost(2, 2, 2, 4, 6, 1, 1)
    assert again.device_costs == (DeviceCost(1, 1, half), DeviceCost(1, 4, half))
    assert recut(again, "linear") == replace(JOIN, needs=(), placement="linear")


def test_the_same_routes_need_no_cut():
    assert recut(JOIN, "linear") == replace(JOIN, placement="linear")


def test_torch_csv_has_no_word_for_a_join():
    with pytest.raises(UsageError, match="are not a chain, and torch's CSV knows no others"):
        torch_csv(plan(JOIN, retime(JOIN, one_by_one(JOIN))))


def one_by_one(problem: Problem):
    from synth.solve.listing import one_by_one as listed

    return listed(problem)


# Lowering ------------------------------------------------------------------------------------


def test_a_join_waits_for_both_messages():
    schedule = plan(JOIN, retime(JOIN, one_by_one(JOIN)))
    program = lower(schedule)
    check_program(program)
    steps = program_json(program)["ranks"][2]
    assert steps[:3] == [
        {"receive": "F0@0", "from": 0, "for": "F0@2"},
        {"receive": "F0@1", "from": 1, "for": "F0@2"},
        {"compute": "F0@2"},
    ]


def test_two_results_of_one_op_on_one_channel_keep_their_order():
    problem = Problem(
        2, "explicit", (UNIT,) * 3, (Stream("", 1, (0, 1, 1)),), needs=((), (0,), (0,))
    )
    program = lower(plan(problem, retime(problem, one_by_one(problem))))
    check_program(program)
    sends = [step for step in program_json(program)["ranks"][0] if "send" in step]
    assert sends == [
        {"send": "F0@0", "to": 1, "for": "F0@1"},
        {"send": "F0@0", "to": 1, "for": "F0@2"},
    ]


# Every schedule ------------------------------------------------------------------------------

seeds = st.integers(0, 10**6)


def any_schedule(random_graph, random_orders, seed: int) -> Schedule:
    """A valid schedule; without limits where the random orders do not keep within them."""
    chance = random.Random(seed)
    problem = random_graph(chance, cheap=chance.random() < 0.5)
    kinds = {"fused": chance.random() < 0.5, "paired": chance.random() < 0.3}
    found = random_orders(problem, chance, cap=2, **kinds)
    if found is None:
        problem = replace(problem, limits_quanta=())
        found = random_orders(problem, chance, cap=10, **kinds)
    schedule = plan(problem, retime(problem, found))
    assert verify(schedule) == []
    return schedule


@given(seeds)
def test_no_bound_is_above_a_valid_schedule(random_graph, random_orders, seed):
    schedule = any_schedule(random_graph, random_orders, seed)
    for bound in all_bounds(schedule.problem):
        assert bound.value <= schedule.certificate.value, f"{bound} of {schedule.problem}"


@given(seeds)
def test_no_op_starts_before_its_head_or_ends_behind_its_tail(random_graph, random_orders, seed):
    """In every folded schedule: the i-th start of a chain is that of its i-th micro-batch."""
    chance = random.Random(seed)
    problem = random_graph(chance)
    found = random_orders(problem, chance, cap=2)
    if found is None:
        return
    timeline = retime(problem, found)
    folded = fold(problem, 1)
    relations = relate(folded)
    last_end = max(ops[-1].end for ops in timeline)
    first = heads(relations, [0] * problem.devices)
    last = tails(relations, [last_end] * problem.devices)
    for index, chain in enumerate(folded.chains):
        times = sorted(
            timed.start
            for timed in timeline[chain.device]
            if (timed.op.stream, timed.op.stage, timed.op.kind)
            == (chain.stream, chain.stage, chain.kind)
        )
        assert all(map(int.__le__, first[index], times))
        assert all(
            start + chain.steps <= end for start, end in zip(times, last[index], strict=True)
        )


@given(seeds)
def test_no_op_can_start_a_tick_earlier(random_graph, random_orders, seed):
    """Earliest times are tight: the verifier finds any op that is moved ahead."""
    schedule = any_schedule(random_graph, random_orders, seed)
    timeline = earliest(schedule.problem, schedule.orders)
    for device, ops in enumerate(timeline):
        for index, timed in enumerate(ops):
            rows = [list(row) for row in timeline]
            rows[device][index] = TimedOp(timed.op, timed.start - 1, timed.end - 1)
            ahead = tuple(map(tuple, rows))
            assert verify(plan(schedule.problem, ahead)), f"{timed.op} of {schedule.problem}"


@given(seeds)
def test_everything_reads_a_graph(random_graph, random_orders, seed):
    schedule = any_schedule(random_graph, random_orders, seed)
    assert loads(dumps(schedule)) == schedule
    check_program(lower(schedule))
    assert trace(schedule)
    assert render(schedule)
    found = explain(schedule)
    for idle in found.devices:
        parts = idle.fill + idle.drain + idle.dependency + idle.memory + idle.order
        assert idle.busy + parts == schedule.makespan
