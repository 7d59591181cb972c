"""Lowering: a schedule becomes one program per rank, with every send and receive in its place.

A message belongs to an ordered channel; it has no other identity, so both ends must order a
channel's messages alike. The rule: a message takes place at the end of the op that produces it, and
every rank lines its ops up by their end and its messages by their time. Ties go by the sender's
rank, then by position in the sender's order. So all ranks agree on one order of all messages, and
a receive is posted neither later than the send nor while an op runs that ends before it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from synth.op import Kind, Op
from synth.problem import Problem
from synth.schedule import Schedule


class Direction(StrEnum):
    """What a channel carries."""

    ACTIVATIONS = "act"
    GRADIENTS = "grad"


@dataclass(frozen=True, slots=True, order=True)
class Channel:
    """One ordered way from rank to rank."""

    source: int
    target: int
    stream: str
    direction: Direction

    def __str__(self) -> str:
        of_stream = f" of {self.stream}" if self.stream else ""
        return f"{self.source}->{self.target} {self.direction}{of_stream}"


@dataclass(frozen=True, slots=True)
class Message:
    """The output of an F or the input gradient of a B, on its way to another rank."""

    channel: Channel
    producer: Op
    """The F or B node that makes it."""
    consumer: Op
    """The F or B node that needs it."""
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Looked up several times in every step of a run.
        object.__setattr__(self, "_hash", hash((self.channel, self.producer)))

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True, slots=True)
class Compute:
    """Run an op; waits for the receives that feed it."""

    op: Op

    def __str__(self) -> str:
        return str(self.op)


@dataclass(frozen=True, slots=True)
class Send:
    """Hand a message to its channel; does not wait."""

    message: Message

    def __str__(self) -> str:
        return f"send of {self.message.producer} to rank {self.message.channel.target}"


@dataclass(frozen=True, slots=True)
class Receive:
    """Post the receive of a message; does not wait."""

    message: Message

    def __str__(self) -> str:
        return f"receive of {self.message.producer} from rank {self.message.channel.source}"


@dataclass(frozen=True, slots=True)
class Reduce:
    """Start to add up weight gradients that several ranks hold; does not wait.

    Those of a stage with replicas, or those of the parameters that several stages share.
    """

    stages: tuple[int, ...]
    ranks: tuple[int, ...]
    """All holders, in order; they share a communicator of their own."""

    def __str__(self) -> str:
        what = f"stage {self.stages[0]}"
        if len(self.stages) > 1:
            what = f"what stages {', '.join(map(str, self.stages))} share"
        return f"reduce of {what} on ranks {', '.join(map(str, self.ranks))}"


Instruction = Compute | Send | Receive | Reduce


@dataclass(frozen=True, slots=True)
class Program:
    """What every rank does, in order."""

    ranks: tuple[tuple[Instruction, ...], ...]

    @property
    def channels(self) -> tuple[Channel, ...]:
        """Every channel in use, in the one order in which all ranks set them up."""
        return tuple(
            sorted(
                {
                    step.message.channel
                    for steps in self.ranks
                    for step in steps
                    if isinstance(step, Send)
                }
            )
        )

    @property
    def replicas(self) -> tuple[tuple[int, ...], ...]:
        """The groups of ranks that reduce gradients, in the order in which all set them up."""
        steps = (step for steps in self.ranks for step in steps)
        return tuple(sorted({step.ranks for step in steps if isinstance(step, Reduce)}))

    def slots(self, rank: int) -> dict[Channel, int]:
        """Per channel the most messages that a rank has posted and not yet consumed."""
        return self._most(rank, lambda consumer: consumer)

    def buffers(self, rank: int) -> dict[Channel, int]:
        """Receive buffers a rank needs per channel: the most in use from the post until the W."""
        return self._most(rank, lambda consumer: consumer.sibling(Kind.W))

    def _most(self, rank: int, until: Callable[[Op], Op]) -> dict[Channel, int]:
        """The most messages per channel between their post and the end of a node."""
        held: Counter[Channel] = Counter()
        most: dict[Channel, int] = {}
        freed_by: dict[Op, list[Channel]] = {}
        for step in self.ranks[rank]:
            if isinstance(step, Receive):
                channel = step.message.channel
                freed_by.setdefault(until(step.message.consumer), []).append(channel)
                held[channel] += 1
                most[channel] = max(most.get(channel, 0), held[channel])
            elif isinstance(step, Compute):
                for node in step.op.nodes:
                    held.subtract(freed_by.pop(node, ()))
        return most


def lower(
    schedule: Schedule, shared: Iterable[tuple[int, ...]] = (), *, replicated: bool = False
) -> Program:
    """Places every send, receive and reduction of a valid schedule.

    Args:
        schedule: the schedule.
        shared: sets of stages that have parameters in common, such as embedding and head.
        replicated: other ranks run the same program beside this one, so that every gradient is
            reduced, even where the program itself has a single holder of it.
    """
    # Sorted by (time, computes before messages before reductions, sender, position, node, stage).
    placed: list[list[tuple[tuple[int, ...], Instruction]]] = [[] for _ in schedule.devices]
    for rank, timed_ops in enumerate(schedule.devices):
        for position, timed in enumerate(timed_ops):
            placed[rank].append(((timed.end, 0, rank, position, 0), Compute(timed.op)))
            for index, node in enumerate(timed.op.nodes):
                for message in messages_of(schedule.problem, node):
                    key = (timed.end, 1, rank, position, index, message.consumer.stage)
                    placed[rank].append((key, Send(message)))
                    placed[message.channel.target].append((key, Receive(message)))
    for end, reduce in _reductions(schedule, shared, replicated=replicated):
        for rank in reduce.ranks:
            placed[rank].append(((end, 2, *reduce.stages), reduce))
    return Program(
        tuple(
            tuple(step for _, step in sorted(steps, key=lambda entry: entry[0])) for steps in placed
        )
    )


def _reductions(
    schedule: Schedule, shared: Iterable[tuple[int, ...]], *, replicated: bool
) -> Iterator[tuple[int, Reduce]]:
    """For gradients with several holders, when the last of these has all that it adds."""
    last: dict[int, int] = {}
    for timed in (timed for ops in schedule.devices for timed in ops):
        for node in timed.op.nodes:
            if node.kind is Kind.W:
                last[node.stage] = max(last.get(node.stage, 0), timed.end)
    alone = ((stage,) for stage in range(len(schedule.problem.stages)))
    for stages in (*alone, *sorted(set(shared))):
        holders = {s.route[stage] for s in schedule.problem.streams for stage in stages}
        if len(holders) > 1 or replicated:
            end = max(last[stage] for stage in stages)
            yield end, Reduce(stages, tuple(sorted(holders)))


def successors(problem: Problem, node: Op) -> Iterator[Op]:
    """The F or B nodes on other stages that need the result of this node."""
    if node.kind is Kind.F:
        stages = problem.behind(node.stage)
    elif node.kind is Kind.B:
        stages = problem.before(node.stage)
    else:
        return
    for stage in stages:
        yield Op(node.kind, node.microbatch, stage, node.stream)


def messages_of(problem: Problem, node: Op) -> Iterator[Message]:
    """The messages that a node's result travels in: one to each stage on another device."""
    direction = Direction.ACTIVATIONS if node.kind is Kind.F else Direction.GRADIENTS
    for consumer in successors(problem, node):
        source, target = problem.device(node), problem.device(consumer)
        if source != target:
            yield Message(Channel(source, target, node.stream, direction), node, consumer)


def sends_done_at(program: Program, rank: int) -> dict[Message, tuple[Message, ...]]:
    """Which sends of a rank are certainly complete when a message has come in.

    A send is complete once its consumer has run, and a message shows that everything its sender did
    before has happened. So send buffers can be let go of without asking the transport.
    """
    places = [_places(steps) for steps in program.ranks]
    waiting: dict[int, deque[Message]] = {}
    for step in program.ranks[rank]:
        if isinstance(step, Send):
            waiting.setdefault(step.message.channel.target, deque()).append(step.message)
    for peer, sent in waiting.items():
        waiting[peer] = deque(sorted(sent, key=lambda m: places[peer][m.consumer]))
    done: dict[Message, tuple[Message, ...]] = {}
    answers = [step.message for step in program.ranks[rank] if isinstance(step, Receive)]
    for answer in sorted(answers, key=lambda message: places[rank][message.consumer]):
        peer = answer.channel.source
        sent, complete = waiting.get(peer, deque()), []
        while sent and places[peer][sent[0].consumer] < places[peer][answer]:
            complete.append(sent.popleft())
        if complete:
            done[answer] = tuple(complete)
    return done


def _places(steps: tuple[Instruction, ...]) -> dict[Op | Message, int]:
    """Where a rank computes each node and sends each message."""
    places: dict[Op | Message, int] = {}
    for index, step in enumerate(steps):
        if isinstance(step, Compute):
            places.update(dict.fromkeys(step.op.nodes, index))
        elif isinstance(step, Send):
            places[step.message] = index
    return places


def program_json(program: Program) -> dict[str, Any]:
    """The program as plain JSON values, one object per instruction.

    Where results go anywhere but to the neighbouring stage, every message also names its consumer.
    """
    messages = [step.message for steps in program.ranks for step in steps if isinstance(step, Send)]
    branches = any(abs(m.producer.stage - m.consumer.stage) != 1 for m in messages)
    return {
        "format": "pipesynth.program",
        "version": 1,
        "ranks": [[_step_json(step, branches) for step in steps] for steps in program.ranks],
    }


def _step_json(step: Instruction, branches: bool) -> dict[str, Any]:
    if isinstance(step, Compute):
        return {"compute": str(step.op)}
    if isinstance(step, Reduce):
        return {"reduce": list(step.stages), "ranks": list(step.ranks)}
    message = step.message
    consumer = {"for": str(message.consumer)} if branches else {}
    if isinstance(step, Send):
        return {"send": str(message.producer), "to": message.channel.target, **consumer}
    return {"receive": str(message.producer), "from": message.channel.source, **consumer}
