"""Receives that are posted early: by hand, and what holds for every plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

import pytest

from runtime.ahead import post_ahead
from runtime.plan import RankPlan, Step, Task, plan_rank
from synth import catalog
from synth.errors import UsageError
from synth.lower import Channel, Compute, Instruction, Program, Receive, Reduce, lower
from synth.op import Kind, Op
from synth.problem import make_problem
from synth.rendezvous import check_program
from synth.schedule import Schedule


def built(name: str, devices: int, microbatches: int) -> Schedule:
    placement = catalog.family(name).placement
    return catalog.build(name, make_problem(devices, microbatches, placement=placement))


def handcrafted() -> Iterator[Schedule]:
    for name in catalog.names():
        for devices, microbatches in ((2, 8), (4, 8), (3, 2), (4, 1)):
            with suppress(UsageError):  # not all fit
                yield built(name, devices, microbatches)


CASES = [
    pytest.param(
        found, id=f"{found.name} {found.problem.devices}x{found.problem.total_microbatches}"
    )
    for found in handcrafted()
]


def plans(schedule: Schedule, program: Program) -> list[RankPlan]:
    return [plan_rank(schedule, program, rank) for rank in range(len(program.ranks))]


def text(steps: tuple[Step, ...]) -> str:
    def short(step: Step) -> str:
        if isinstance(step, Task):
            return str(step.op)
        assert not isinstance(step, Reduce)
        return ("<" if isinstance(step, Receive) else ">") + str(step.message.producer)

    return " ".join(map(short, steps))


def test_each_receive_is_posted_when_its_buffer_is_free() -> None:
    schedule = built("1f1b", 2, 3)
    program = lower(schedule)
    first, last = plans(schedule, program)
    assert text(last.steps) == (
        "<F0@0 F0@1 <F1@0 BW0@1 >B0@1 F1@1 BW1@1 <F2@0 >B1@1 F2@1 BW2@1 >B2@1"
    )
    (channel,) = program.buffers(1)
    assert program.buffers(1) == {channel: 2}
    assert text(post_ahead(last, {channel: 2}).steps) == (
        "<F0@0 <F1@0 F0@1 BW0@1 >B0@1 <F2@0 F1@1 BW1@1 >B1@1 F2@1 BW2@1 >B2@1"
    )
    assert text(post_ahead(last, {channel: 2}, start=3).steps) == (
        "<F0@0 F0@1 <F1@0 BW0@1 >B0@1 <F2@0 F1@1 BW1@1 >B1@1 F2@1 BW2@1 >B2@1"
    )
    assert text(post_ahead(first, program.buffers(0)).steps).startswith("<B0@1 F0@0")


def in_use(steps: tuple[Step, ...]) -> list[Counter[Channel]]:
    """Buffers per channel before each step, counted by hand: from the post to the end of the W."""
    now: Counter[Channel] = Counter()
    freed_by: dict[Op, list[Channel]] = {}
    found = []
    for step in steps:
        found.append(Counter(now))
        if isinstance(step, Receive):
            now[step.message.channel] += 1
            last_use = step.message.consumer.sibling(Kind.W)
            freed_by.setdefault(last_use, []).append(step.message.channel)
        elif isinstance(step, Task):
            for node in step.op.nodes:
                now.subtract(freed_by.pop(node, ()))
    return found


def others(steps: tuple[Step, ...]) -> list[Step]:
    return [step for step in steps if not isinstance(step, Receive)]


def ops(steps: tuple[Step, ...]) -> int:
    return sum(isinstance(step, Task) for step in steps)


def of_channel(steps: tuple[Step, ...], channel: Channel) -> list[int]:
    return [
        index
        for index, step in enumerate(steps)
        if isinstance(step, Receive) and step.message.channel == channel
    ]


@pytest.mark.parametrize("schedule", CASES)
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_early_receives_keep_to_buffers_and_order(schedule: Schedule, share: float) -> None:
    program = lower(schedule)
    for plan in plans(schedule, program):
        buffers = program.buffers(plan.rank)
        start = int(share * len(plan.steps))
        early = post_ahead(plan, buffers, start).steps
        assert early[:start] == plan.steps[:start]
        assert others(early) == others(plan.steps)
        used = in_use(early)
        for channel, count in buffers.items():
            before, now = of_channel(plan.steps, channel), of_channel(early, channel)
            assert [early[i] for i in now] == [plan.steps[i] for i in before]
            for old, new in zip(before, now, strict=True):
                assert ops(early[:new]) <= ops(plan.steps[:old])  # no later
                assert used[new][channel] < count
                # No earlier would do: at the op before, every buffer was in use.
                tasks = [i for i in range(start, new) if isinstance(early[i], Task)]
                assert not tasks or used[tasks[-1]][channel] == count


@pytest.mark.parametrize("schedule", CASES)
def test_early_receives_cannot_deadlock(schedule: Schedule) -> None:
    program = lower(schedule)
    ranks: list[tuple[Instruction, ...]] = []
    for plan in plans(schedule, program):
        steps = post_ahead(plan, program.buffers(plan.rank)).steps
        ranks.append(tuple(Compute(s.op) if isinstance(s, Task) else s for s in steps))
    check_program(Program(tuple(ranks)))
