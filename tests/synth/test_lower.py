"""Lowering by hand on small cases, and what the rendezvous check refuses."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth.errors import InvalidScheduleError
from synth.graph import all_nodes, dependencies
from synth.lower import (
    Channel,
    Compute,
    Direction,
    Instruction,
    Program,
    Receive,
    Reduce,
    Send,
    lower,
    program_json,
    sends_done_at,
)
from synth.op import Kind, Op, pair, parse_op
from synth.problem import Problem, make_problem
from synth.rendezvous import check_program, per_channel, per_pair, single
from synth.schedule import Certificate, Orders, Schedule, makespan
from synth.simulate import messages, retime


def schedule(problem: Problem, orders: Orders) -> Schedule:
    timeline = retime(problem, orders)
    return Schedule("by hand", problem, timeline, Certificate(makespan(timeline), 0, "none"))


def orders_of(*rows: str) -> Orders:
    return tuple(tuple(parse_op(text) for text in row.split()) for row in rows)


def text(program: Program) -> list[list[str]]:
    def short(step: Instruction) -> str:
        if isinstance(step, Compute):
            return str(step.op)
        if isinstance(step, Reduce):
            return "+" + "+".join(map(str, step.stages))
        return ("<" if isinstance(step, Receive) else ">") + str(step.message.producer)

    return [[short(step) for step in steps] for steps in program.ranks]


GPIPE_2_2 = orders_of(
    "F0@0 F1@0 B0@0 W0@0 B1@0 W1@0",
    "F0@1 F1@1 B0@1 W0@1 B1@1 W1@1",
)


def test_each_receive_is_posted_when_its_message_is_sent() -> None:
    program = lower(schedule(make_problem(2, 2), GPIPE_2_2))
    assert text(program) == [
        ["F0@0", ">F0@0", "F1@0", ">F1@0", "<B0@1", "B0@0", "W0@0", "<B1@1", "B1@0", "W1@0"],
        ["<F0@0", "F0@1", "<F1@0", "F1@1", "B0@1", ">B0@1", "W0@1", "B1@1", ">B1@1", "W1@1"],
    ]
    forward = Channel(0, 1, "", Direction.ACTIVATIONS)
    backward = Channel(1, 0, "", Direction.GRADIENTS)
    assert program.channels == (forward, backward)
    assert program.slots(0) == {backward: 1}
    assert program.slots(1) == {forward: 1}
    check_program(program)


def test_slots_count_what_is_posted_and_not_yet_consumed() -> None:
    orders = orders_of("F0@0 F1@0 F2@0 B0@0 W0@0 B1@0 W1@0 B2@0 W2@0", "F0@1 B0@1 W0@1")
    problem = make_problem(2, 3)
    rest = orders_of("F0@1 B0@1 W0@1 F1@1 B1@1 W1@1 F2@1 B2@1 W2@1")
    program = lower(schedule(problem, (orders[0], rest[0])))
    # Both F1 and F2 are sent while rank 1 works on micro-batch 0.
    assert program.slots(1) == {Channel(0, 1, "", Direction.ACTIVATIONS): 2}


def test_send_buffers_are_let_go_when_an_answer_shows_that_they_were_read() -> None:
    program = lower(schedule(make_problem(2, 2), GPIPE_2_2))
    done = sends_done_at(program, 0)
    named = {str(m.producer): [str(sent.producer) for sent in done[m]] for m in done}
    # Rank 1 reads both activations before it sends the first gradient.
    assert named == {"B0@1": ["F0@0", "F1@0"]}
    assert sends_done_at(program, 1) == {}  # nothing comes back for a gradient


def test_stages_on_one_device_hand_over_without_a_message() -> None:
    problem = make_problem(2, 1, placement="v")
    orders = orders_of("F0@0 F0@3 B0@3 B0@0 W0@3 W0@0", "F0@1 F0@2 B0@2 B0@1 W0@2 W0@1")
    program = lower(schedule(problem, orders))
    sent = [name for steps in text(program) for name in steps if name.startswith(">")]
    assert sorted(sent) == [">B0@1", ">B0@3", ">F0@0", ">F0@2"]
    assert len(sent) == messages(problem)
    check_program(program)


def test_wrapped_stages_on_two_ranks_keep_activations_and_gradients_apart() -> None:
    problem = make_problem(2, 1, placement="interleaved:2")
    orders = orders_of("F0@0 F0@2 BW0@2 BW0@0", "F0@1 F0@3 BW0@3 BW0@1")
    program = lower(schedule(problem, orders))
    assert [str(channel) for channel in program.channels] == [
        "0->1 act",
        "0->1 grad",
        "1->0 act",
        "1->0 grad",
    ]
    check_program(program)


def test_two_streams_have_channels_of_their_own_and_pairs_send_after_both_parts() -> None:
    problem = make_problem(2, 2, placement="bidirectional")
    orders = orders_of(
        "F0@0/down F0@1/up BW0@1/up BW0@0/down", "F0@0/up F0@1/down BW0@1/down BW0@0/up"
    )
    program = lower(schedule(problem, orders))
    assert {channel.stream for channel in program.channels} == {"down", "up"}
    check_program(program)
    # Both ranks hold both stages: each is reduced once its last replica is through.
    assert program.replicas == ((0, 1),)
    reductions = [[name for name in steps if name.startswith("+")] for steps in text(program)]
    assert reductions == [["+1", "+0"], ["+1", "+0"]]
    ranks = [list(steps) for steps in program.ranks]
    ranks[0].insert(0, ranks[0].pop())
    with pytest.raises(InvalidScheduleError, match=r"rank 0: \S+ comes after the reduction of its"):
        check_program(Program(tuple(map(tuple, ranks))))
    swapped = list(program.ranks)
    reduces = [step for step in swapped[1] if isinstance(step, Reduce)]
    others = [step for step in swapped[1] if not isinstance(step, Reduce)]
    swapped[1] = (*others, *reversed(reduces))
    with pytest.raises(InvalidScheduleError, match=r"rank 1 reduces stages .* where rank 0"):
        check_program(Program(tuple(swapped)))

    two = make_problem(1, 2)
    one_pair = pair(Op(Kind.F, 1, 0), Op(Kind.BW, 0, 0))
    alone = lower(schedule(two, ((Op(Kind.F, 0, 0), one_pair, Op(Kind.BW, 1, 0)),)))
    assert text(alone) == [["F0@0", "F1@0+BW0@0", "BW1@0"]]
    check_program(alone)


def test_programs_as_json() -> None:
    program = lower(schedule(make_problem(2, 1), orders_of("F0@0 BW0@0", "F0@1 BW0@1")))
    assert program_json(program) == {
        "format": "pipesynth.program",
        "version": 1,
        "ranks": [
            [
                {"compute": "F0@0"},
                {"send": "F0@0", "to": 1},
                {"receive": "B0@1", "from": 1},
                {"compute": "BW0@0"},
            ],
            [
                {"receive": "F0@0", "from": 0},
                {"compute": "F0@1"},
                {"compute": "BW0@1"},
                {"send": "B0@1", "to": 0},
            ],
        ],
    }


# What must be refused ------------------------------------------------------------------------


def edited(edit: Callable[[list[list[Compute | Send | Receive]]], None]) -> Program:
    program = lower(schedule(make_problem(2, 2), GPIPE_2_2))
    ranks = [list(steps) for steps in program.ranks]
    edit(ranks)
    return Program(tuple(tuple(steps) for steps in ranks))


def move(steps: list[Compute | Send | Receive], source: int, target: int) -> None:
    steps.insert(target, steps.pop(source))


def swap_receives(ranks: list[list[Compute | Send | Receive]]) -> None:
    steps = ranks[1]
    steps[0], steps[2] = steps[2], steps[0]
    move(steps, 2, 1)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (
            swap_receives,
            r"channel 0->1 act: message 0 is F0@0 where rank 0 sends it and F1@0 where rank 1",
        ),
        (
            lambda ranks: ranks[1].pop(2),
            r"channel 0->1 act: rank 0 sends 2 messages, rank 1 rec.* 1",
        ),
        (
            lambda ranks: move(ranks[0], 1, 0),
            r"rank 0: the send of F0@0 to rank 1 comes before F0@0 itself",
        ),
        (
            lambda ranks: move(ranks[1], 0, 1),
            r"rank 1: the receive of F0@0 from rank 0 comes after F0@1, which needs it",
        ),
        (
            lambda ranks: ranks[1].append(ranks[0][1]),
            r"rank 1: the send of F0@0 to rank 1 belongs to rank 0",
        ),
        (
            lambda ranks: move(ranks[0], 4, 0) or move(ranks[0], 5, 1),
            r"rank 0 B0@0 waits for rank 0 receive of B0@1 from rank 1 waits for rank 1 F0@1 "
            r"waits for rank 1 receive of F0@0 from rank 0 waits for rank 0 B0@0",
        ),
    ],
    ids=["swapped", "missing", "early send", "late receive", "foreign", "compute cycle"],
)
def test_broken_programs_are_refused(
    edit: Callable[[list[list[Compute | Send | Receive]]], None], message: str
) -> None:
    with pytest.raises(InvalidScheduleError, match=message):
        check_program(edited(edit))


def late_receives(ranks: list[list[Compute | Send | Receive]]) -> None:
    """Puts every receive right before its consumer, where a careless lowering would."""
    for steps in ranks:
        for step in [step for step in steps if isinstance(step, Receive)]:
            steps.remove(step)
            needed = step.message.consumer
            at = next(
                index
                for index, other in enumerate(steps)
                if isinstance(other, Compute) and needed in other.op.nodes
            )
            steps.insert(at, step)


def test_late_receives_run_on_our_channels_and_deadlock_on_shared_communicators() -> None:
    orders = orders_of(
        "F0@0 F1@0 B0@0 W0@0 F2@0 B1@0 W1@0 B2@0 W2@0",
        "F0@1 B0@1 W0@1 F1@1 B1@1 W1@1 F2@1 B2@1 W2@1",
    )
    program = lower(schedule(make_problem(2, 3), orders))
    ranks = [list(steps) for steps in program.ranks]
    late_receives(ranks)
    late = Program(tuple(tuple(steps) for steps in ranks))
    check_program(late, per_channel)
    for shared in (per_pair, single):
        check_program(program, shared)
        with pytest.raises(InvalidScheduleError, match=r"deadlocks: rank \d .* waits for"):
            check_program(late, shared)


# The rule holds for any order ----------------------------------------------------------------


@st.composite
def random_schedules(draw: st.DrawFn) -> Schedule:
    devices = draw(st.integers(1, 4))
    placement = draw(st.sampled_from(["linear", "v", "interleaved:2", "bidirectional"]))
    costs = [draw(st.integers(1, 5)) for _ in range(3)]
    problem = make_problem(
        devices,
        draw(st.integers(2, 5)),
        placement=placement,
        costs=costs,
        comm=draw(st.integers(0, 3)),
    )
    random = draw(st.randoms(use_true_random=False))
    return schedule(problem, random_orders(problem, random.choice))


def random_orders(problem: Problem, choose: Callable[[list[Op]], Op]) -> Orders:
    """Runs ready nodes one after another in any order; every such order is valid."""
    left = set(all_nodes(problem))
    orders: list[list[Op]] = [[] for _ in range(problem.devices)]
    while left:
        ready = [n for n in left if all(b not in left for b, _ in dependencies(problem, n))]
        node = choose(sorted(ready, key=str))
        orders[problem.device(node)].append(node)
        left.remove(node)
    return tuple(map(tuple, orders))


@settings(max_examples=60, deadline=None)
@given(random_schedules())
def test_lowered_programs_pass_on_every_kind_of_communicator(plan: Schedule) -> None:
    program = lower(plan)
    for communicator in (per_channel, per_pair, single):
        check_program(program, communicator)
    computed = [[s.op for s in steps if isinstance(s, Compute)] for steps in program.ranks]
    assert computed == [list(order) for order in plan.orders]
    sent = sum(isinstance(step, Send) for steps in program.ranks for step in steps)
    assert sent == messages(plan.problem)
