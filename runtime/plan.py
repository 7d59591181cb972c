"""What one rank has to know to run its part of a program, looked up before the first step."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.supported import require_chain
from synth.graph import dependencies
from synth.lower import Compute, Message, Program, Receive, Reduce, Send, sends_done_at
from synth.op import Kind, Op
from synth.schedule import Schedule
from synth.simulate import in_flight


@dataclass(frozen=True, slots=True)
class InFlight:
    """The most (micro-batch, stage) pairs a rank holds at once."""

    until_backward: int
    """From F until the end of B."""
    until_weights: int
    """From F until the end of W."""


@dataclass(frozen=True, slots=True)
class Task:
    """One simple op, with where its input comes from and where its result goes."""

    op: Op
    microbatch: int
    """Counted across streams, in the order of the problem."""
    split: bool
    """B and W of this micro-batch and stage come apart."""
    first: bool
    """On the first stage, whose F reads the batch and whose B has nobody to send to."""
    last: bool
    """On the last stage, whose F ends in the loss."""
    feed: Message | None
    """The input, if another rank sends it."""
    producer: Op | None
    """The node whose result is the input, if it stays on this rank."""
    result: Op
    """The node under which the result is handed on."""
    released: tuple[Message, ...]
    """Sends that are complete once the feed has come."""


Step = Task | Send | Receive | Reduce


@dataclass(frozen=True, slots=True)
class RankPlan:
    """One rank's program, ready to run."""

    rank: int
    steps: tuple[Step, ...]
    microbatches: int
    """Of all streams together."""
    in_flight: InFlight
    """What the schedule allows; a promise that the run checks."""
    reads_inputs: bool
    """A first stage is held."""
    reads_targets: bool
    """A last stage is held."""


def plan_rank(schedule: Schedule, program: Program, rank: int) -> RankPlan:
    """Resolves everything that a rank's instructions refer to.

    Raises:
        UsageError: the stages are not a chain.
    """
    problem = schedule.problem
    require_chain(problem)
    instructions = program.ranks[rank]
    feeds = {s.message.consumer: s.message for s in instructions if isinstance(s, Receive)}
    done_at = sends_done_at(program, rank)
    offsets: dict[str, int] = {}
    total = 0
    for stream in problem.streams:
        offsets[stream.name] = total
        total += stream.microbatches
    parts = [part for order in schedule.orders for op in order for part in op.parts]
    split = {(p.stream, p.microbatch, p.stage) for p in parts if p.kind is Kind.B}

    def task(op: Op) -> Task:
        node = op.sibling(Kind.B) if op.kind is Kind.BW else op
        feed = feeds.get(node)
        before = (n for n, _ in dependencies(problem, node) if n.stage != op.stage)
        return Task(
            op=op,
            microbatch=offsets[op.stream] + op.microbatch,
            split=(op.stream, op.microbatch, op.stage) in split,
            first=op.stage == 0,
            last=op.stage + 1 == len(problem.stages),
            feed=feed,
            producer=next(before, None) if feed is None else None,
            result=node,
            released=done_at.get(feed, ()) if feed is not None else (),
        )

    steps: list[Step] = []
    for instruction in instructions:
        if isinstance(instruction, Compute):
            steps.extend(task(part) for part in instruction.op.parts)
        else:
            steps.append(instruction)
    held = InFlight(
        in_flight(schedule.devices, Kind.B)[rank], in_flight(schedule.devices, Kind.W)[rank]
    )
    tasks = [step for step in steps if isinstance(step, Task)]
    return RankPlan(
        rank,
        tuple(steps),
        total,
        held,
        reads_inputs=any(one.first for one in tasks),
        reads_targets=any(one.last for one in tasks),
    )
