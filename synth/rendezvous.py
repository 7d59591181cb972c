"""The proof that a program neither mixes up its messages nor deadlocks.

All ranks are replayed under the strictest rules a transport may have: a send completes only when
its receive is posted, and the operations of one communicator run strictly in the order in which
each rank issued them. A program that passes runs on any transport; gloo alone would prove less,
because it buffers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field

from synth.errors import InvalidScheduleError
from synth.lower import Channel, Compute, Instruction, Message, Program, Receive, Reduce, Send
from synth.op import Kind, Op

Communicator = Callable[[Channel], Hashable]
"""Says which channels share a communicator: those that map to equal keys."""


def per_channel(channel: Channel) -> Hashable:
    """Every channel has its own; what the runtime does."""
    return channel


def per_pair(channel: Channel) -> Hashable:
    """One for both directions between two ranks, as NCCL's point-to-point calls make by default."""
    return frozenset((channel.source, channel.target))


def single(channel: Channel) -> Hashable:
    """One for everything, as when a group is set up eagerly."""
    return None


def check_program(program: Program, communicator: Communicator = per_channel) -> None:
    """Proves that a program delivers every message and comes to an end.

    Raises:
        InvalidScheduleError: two ends of a channel disagree, an op runs without its input, or the
            ranks wait for each other; names the ranks and instructions involved.
    """
    _check_channel_order(program)
    _check_own_order(program)
    _check_reductions(program)
    replay = _Replay(program, communicator)
    replay.run()
    if not replay.finished:
        raise InvalidScheduleError(f"the program deadlocks: {replay.explain()}")


def _check_own_order(program: Program) -> None:
    """Every send follows its producer and every receive goes before its consumer."""
    for rank, steps in enumerate(program.ranks):
        done: set[Op] = set()
        for step in steps:
            if isinstance(step, Compute):
                done.update(step.op.nodes)
            elif isinstance(step, Send) and step.message.producer not in done:
                raise InvalidScheduleError(
                    f"rank {rank}: the {step} comes before {step.message.producer} itself"
                )
            elif isinstance(step, Receive) and step.message.consumer in done:
                raise InvalidScheduleError(
                    f"rank {rank}: the {step} comes after {step.message.consumer}, which needs it"
                )


def _check_channel_order(program: Program) -> None:
    """The k-th send of a channel meets the k-th receive; each must be the same message."""
    sends: dict[Channel, list[Message]] = {}
    receives: dict[Channel, list[Message]] = {}
    for rank, steps in enumerate(program.ranks):
        for step in steps:
            if not isinstance(step, Send | Receive):
                continue
            channel = step.message.channel
            end = channel.source if isinstance(step, Send) else channel.target
            if end != rank:
                raise InvalidScheduleError(f"rank {rank}: the {step} belongs to rank {end}")
            side = sends if isinstance(step, Send) else receives
            side.setdefault(channel, []).append(step.message)
    for channel in sorted(sends.keys() | receives.keys()):
        sent, received = sends.get(channel, []), receives.get(channel, [])
        for k, (out, into) in enumerate(zip(sent, received, strict=False)):
            if out != into:
                names = [str(out.producer), str(into.producer)]
                if out.producer == into.producer:
                    names = [f"{m.producer} for {m.consumer}" for m in (out, into)]
                raise InvalidScheduleError(
                    f"channel {channel}: message {k} is {names[0]} where rank {channel.source} "
                    f"sends it and {names[1]} where rank {channel.target} receives it"
                )
        if len(sent) != len(received):
            raise InvalidScheduleError(
                f"channel {channel}: rank {channel.source} sends {len(sent)} messages, "
                f"rank {channel.target} receives {len(received)}"
            )


def _check_reductions(program: Program) -> None:
    """Every group reduces the same stages in the same order, each after all its W."""
    agreed: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for rank, steps in enumerate(program.ranks):
        own: dict[tuple[int, ...], list[tuple[int, ...]]] = {g: [] for g in program.replicas}
        done: set[int] = set()
        for step in steps:
            if isinstance(step, Reduce):
                own[step.ranks].append(step.stages)
                done.update(step.stages)
            elif isinstance(step, Compute):
                for node in step.op.nodes:
                    if node.kind is Kind.W and node.stage in done:
                        raise InvalidScheduleError(
                            f"rank {rank}: {step} comes after the reduction of its stage"
                        )
        for group, stages in own.items():
            if rank in group and agreed.setdefault(group, stages) != stages:
                raise InvalidScheduleError(
                    f"rank {rank} reduces {_stages(stages)} where rank {group[0]} reduces "
                    f"{_stages(agreed[group])}"
                )


def _stages(reductions: list[tuple[int, ...]]) -> str:
    return "stages " + ", ".join("+".join(map(str, stages)) for stages in reductions)


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A point where a rank or one of its communicators stands still."""

    rank: int
    step: Instruction

    def __str__(self) -> str:
        return f"rank {self.rank} {self.step}"


@dataclass
class _Replay:
    """All ranks, advanced as far as the rules let them."""

    program: Program
    communicator: Communicator
    position: list[int] = field(init=False)
    queues: dict[Hashable, dict[int, deque[Send | Receive]]] = field(init=False)
    """What each rank has issued on each communicator and is not yet complete."""
    arrived: set[Message] = field(init=False)
    """The messages that have come."""
    expected: list[dict[Op, list[Message]]] = field(init=False)
    """Per rank and consumer the messages that it needs."""

    def __post_init__(self) -> None:
        self.position = [0] * len(self.program.ranks)
        self.queues = {}
        self.arrived = set()
        self.expected = []
        for steps in self.program.ranks:
            needed: dict[Op, list[Message]] = {}
            for step in steps:
                if isinstance(step, Receive):
                    needed.setdefault(step.message.consumer, []).append(step.message)
            self.expected.append(needed)

    @property
    def finished(self) -> bool:
        """Every rank is through and no message is under way."""
        ends = [len(steps) for steps in self.program.ranks]
        return self.position == ends and not any(
            queue for queues in self.queues.values() for queue in queues.values()
        )

    def run(self) -> None:
        """Advances until nothing moves any more. Linear in the number of instructions."""
        ready = set(range(len(self.program.ranks)))
        while ready:
            rank = ready.pop()
            for key in self._advance(rank):
                ready.update(self._deliver(rank, key))

    def _advance(self, rank: int) -> Iterator[Hashable]:
        """Runs a rank up to a compute that lacks input; yields the communicators it used."""
        steps = self.program.ranks[rank]
        while self.position[rank] < len(steps):
            step = steps[self.position[rank]]
            if isinstance(step, Compute):
                if next(self._missing(rank, step), None) is not None:
                    return
                self.position[rank] += 1
            elif isinstance(step, Reduce):
                # Not waited for before the end, and alone on its communicator with its like.
                self.position[rank] += 1
            else:
                self.position[rank] += 1
                key = self.communicator(step.message.channel)
                self.queues.setdefault(key, {}).setdefault(rank, deque()).append(step)
                yield key

    def _missing(self, rank: int, step: Compute) -> Iterator[Message]:
        return (
            message
            for node in step.op.nodes
            for message in self.expected[rank].get(node, ())
            if message not in self.arrived
        )

    def _deliver(self, rank: int, key: Hashable) -> Iterator[int]:
        """Completes what stands at the head on both ends; yields the ranks that got something."""
        queues = self.queues[key]
        changed = [rank]
        while changed:
            rank = changed.pop()
            queue = queues[rank]
            if not queue:
                continue
            peer = _peer(queue[0])
            facing = queues.get(peer)
            if facing and _peer(facing[0]) == rank and facing[0].message == queue[0].message:
                self.arrived.add(queue[0].message)
                yield queue[0].message.channel.target
                queue.popleft()
                facing.popleft()
                changed += [rank, peer]

    def explain(self) -> str:
        """The cycle of things that wait for each other, each named by rank and instruction."""
        at = self._anything_stuck()
        path: list[_Waiting] = []
        while at not in path:
            path.append(at)
            at = self._waits_for(at)
        cycle = [*path[path.index(at) :], at]
        return " waits for ".join(map(str, cycle))

    def _anything_stuck(self) -> _Waiting:
        """A compute if one is stuck; a stuck message always leads to one, or to a full cycle."""
        for rank, steps in enumerate(self.program.ranks):
            if self.position[rank] < len(steps):
                return _Waiting(rank, steps[self.position[rank]])
        return next(
            _Waiting(rank, queue[0])
            for queues in self.queues.values()
            for rank, queue in queues.items()
            if queue
        )

    def _waits_for(self, at: _Waiting) -> _Waiting:
        step = at.step
        assert not isinstance(step, Reduce), "nothing waits for a reduction"
        if isinstance(step, Compute):
            message = next(self._missing(at.rank, step))
            return _Waiting(at.rank, self._receive_of(at.rank, message))
        queues = self.queues[self.communicator(step.message.channel)]
        head = queues[at.rank][0]
        if head is not step:
            return _Waiting(at.rank, head)
        peer = _peer(step)
        facing = queues.get(peer)
        if facing and any(waiting.message == step.message for waiting in facing):
            return _Waiting(peer, facing[0])
        return _Waiting(peer, self.program.ranks[peer][self.position[peer]])

    def _receive_of(self, rank: int, message: Message) -> Receive:
        """The receive of a message; it goes before its consumer, so it has been issued."""
        return next(
            step
            for queues in self.queues.values()
            for step in queues.get(rank, ())
            if isinstance(step, Receive) and step.message == message
        )


def _peer(step: Send | Receive) -> int:
    channel = step.message.channel
    return channel.target if isinstance(step, Send) else channel.source
