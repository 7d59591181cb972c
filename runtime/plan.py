"""What one rank has to know to run its part of a program, looked up before the first step."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.supported import require_one_loss
from synth.graph import dependencies
from synth.lower import Compute, Message, Program, Receive, Reduce, Send, sends_done_at, successors
from synth.op import Kind, Op
from synth.problem import Problem
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
class Feed:
    """Something that an op takes from another stage."""

    producer: Op
    """The node whose result it is."""
    message: Message | None
    """What brings it; None where it stays on this rank."""
    released: tuple[Message, ...]
    """Sends that are complete once the message has come."""


@dataclass(frozen=True, slots=True)
class Task:
    """One simple op, with where its inputs come from and where its result goes."""

    op: Op
    node: Op
    """The F, B or W node whose result is handed on."""
    microbatch: int
    """Counted across streams, in the order of the problem."""
    split: bool
    """B and W of this micro-batch and stage come apart."""
    reads: int | None
    """The place in the batch of what it reads; None for all but the F of a first stage."""
    last: bool
    """On the last stage, whose F ends in the loss."""
    feeds: tuple[Feed, ...]
    """Of an F from the stages it needs, in their order; of a B from those that need its stage."""
    consumers: tuple[Op, ...]
    """The nodes on other stages that need the result; none on the way into or out of the model."""


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
    first_stages: tuple[int, ...]
    """Those of the held stages that read the batch, in order."""
    reads_targets: bool
    """A last stage is held."""


def plan_rank(schedule: Schedule, program: Program, rank: int) -> RankPlan:
    """Resolves everything that a rank's instructions refer to.

    Raises:
        UsageError: several stages end in a loss.
    """
    problem = schedule.problem
    require_one_loss(problem)
    instructions = program.ranks[rank]
    feeds = _Feeds(problem, program, rank)
    offsets: dict[str, int] = {}
    total = 0
    for stream in problem.streams:
        offsets[stream.name] = total
        total += stream.microbatches
    parts = [part for order in schedule.orders for op in order for part in op.parts]
    split = {(p.stream, p.microbatch, p.stage) for p in parts if p.kind is Kind.B}
    held = {stage for _, stage in problem.held_stages(rank)}
    last_stages = problem.last_stages
    first_stages = tuple(stage for stage in problem.first_stages if stage in held)

    def task(op: Op) -> Task:
        node = op.sibling(Kind.B) if op.kind is Kind.BW else op
        microbatch = offsets[op.stream] + op.microbatch
        reads = None
        if op.kind is Kind.F and op.stage in first_stages:
            reads = first_stages.index(op.stage) * total + microbatch
        return Task(
            op=op,
            node=node,
            microbatch=microbatch,
            split=(op.stream, op.microbatch, op.stage) in split,
            reads=reads,
            last=op.stage in last_stages,
            feeds=feeds.of(node),
            consumers=tuple(successors(problem, node)),
        )

    steps: list[Step] = []
    for instruction in instructions:
        if isinstance(instruction, Compute):
            steps.extend(task(part) for part in instruction.op.parts)
        else:
            steps.append(instruction)
    most = InFlight(
        in_flight(schedule.devices, Kind.B)[rank], in_flight(schedule.devices, Kind.W)[rank]
    )
    return RankPlan(
        rank,
        tuple(steps),
        total,
        most,
        first_stages,
        reads_targets=not held.isdisjoint(last_stages),
    )


class _Feeds:
    """What the ops of a rank take from other stages."""

    def __init__(self, problem: Problem, program: Program, rank: int) -> None:
        self._problem = problem
        received = (s.message for s in program.ranks[rank] if isinstance(s, Receive))
        self._messages = {(message.producer, message.consumer): message for message in received}
        self._done_at = sends_done_at(program, rank)

    def of(self, node: Op) -> tuple[Feed, ...]:
        """Those of an F, B or W node."""
        before = (n for n, _ in dependencies(self._problem, node) if n.stage != node.stage)
        return tuple(self._feed(producer, node) for producer in before)

    def _feed(self, producer: Op, consumer: Op) -> Feed:
        message = self._messages.get((producer, consumer))
        released = () if message is None else self._done_at.get(message, ())
        return Feed(producer, message, released)
