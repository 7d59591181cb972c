"""Messages between ranks: one ordered channel, with a communicator of its own, per direction.

Nothing here decides an order: posts, sends and waits come in the order of the program. A message is
known by its place alone; the k-th send of a channel meets its k-th receive, and the program's
static check has shown that both are the same message.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from runtime.errors import PeerError, PlanError, reason
from runtime.pool import BufferPool
from runtime.reductions import Reductions
from runtime.session import Session
from runtime.shapes import Shapes
from runtime.spec import Spec
from runtime.values import Values, tensors
from synth.lower import Channel, Message, Program, Receive, Send

_SIGNATURE_BITS = 16  # of a tag; the bits above are the channel's


class Transport(Protocol):
    """Carries the messages of one rank."""

    def begin(self, signature: str) -> None:
        """Starts a step. Steps of equal signature have messages of equal shapes."""

    def post(self, message: Message) -> None:
        """Makes ready for a message that comes from another rank; does not wait."""

    def wait(self, message: Message) -> Values:
        """Waits for a posted message. On CUDA it is the current stream that waits."""

    def send(self, message: Message, values: Values) -> None:
        """Starts sending; does not wait."""

    def release(self, message: Message) -> None:
        """Lets go of a send that is known to be complete."""

    def reduce(self, ranks: tuple[int, ...], tensors: Sequence[Tensor]) -> None:
        """Starts to add tensors up over ranks, in place; does not wait."""

    def finish(self) -> None:
        """Waits for every send and reduction; ends a step."""

    def close(self) -> None:
        """Gives the communicators back; all ranks have to."""


class GroupTransport:
    """Transport over torch process groups, gloo or NCCL.

    On NCCL a channel has a communicator of two ranks. On gloo it is a tag in one group of all
    ranks: gloo keeps tags apart and each in order, and more groups would cost threads and sockets.

    Shapes are found out once per signature, no earlier than in the op that needs the message. From
    then on receives are posted where the program says, into the buffers of a pool per channel.
    """

    def __init__(self, session: Session, program: Program) -> None:
        """Creates and warms every communicator; all ranks must call it alike."""
        self.rank = session.rank
        self.device = session.device
        buffers = program.buffers(self.rank)
        self.pools = {channel: BufferPool(n, self.device) for channel, n in buffers.items()}
        self._shapes = Shapes(session.rank, session.pipeline_store())
        self._tag = 0
        """Of the signature, on gloo: turns batches that differ between ranks into no answer."""
        self._tagged = session.backend == "gloo"
        patience = timedelta(seconds=session.timeout_s)  # not inherited from the whole job's group
        # One fixed order on all ranks, or communicators that are set up lazily could deadlock.
        self._links = self._make_links(program.channels, patience)
        self._replicas = {
            ranks: dist.new_group(list(ranks), timeout=patience) for ranks in program.replicas
        }
        self._reductions = Reductions(f"rank {self.rank}")
        self._incoming: dict[Message, _Incoming] = {}
        self._outgoing: dict[Message, _Outgoing] = {}
        self._sent: dict[Message, _Flight] = {}
        self._prepare(program)
        for channel, link in self._links.items():
            self._warm(channel, link)
        for ranks, group in self._replicas.items():
            if self.rank in ranks:
                dist.all_reduce(torch.zeros(1, device=self.device), group=group)

    def _make_links(self, channels: Sequence[Channel], patience: timedelta) -> dict[Channel, _Link]:
        links: dict[Channel, _Link] = {}
        if self._tagged and channels:
            group = dist.new_group(timeout=patience)
            for number, channel in enumerate(channels):
                tag = (number + 1) << _SIGNATURE_BITS
                links[channel] = _Link(group, channel.source, channel.target, tag)
        for channel in channels[: 0 if self._tagged else None]:
            ends = sorted((channel.source, channel.target))
            group = dist.new_group(ends, timeout=patience)
            places = ends.index(channel.source), ends.index(channel.target)
            links[channel] = _Link(group, *places, 0)
        return links

    def _prepare(self, program: Program) -> None:
        """Looks up by message what does not change from step to step."""
        slots = program.slots(self.rank)
        into: dict[Channel, _Incoming] = {}
        out_of: dict[Channel, _Outgoing] = {}
        for step in program.ranks[self.rank]:
            if not isinstance(step, Receive | Send):
                continue
            message, channel = step.message, step.message.channel
            link = self._links[channel]
            backend = link.group._get_backend(self.device)  # the group would only dispatch to it
            if isinstance(step, Send):
                end = out_of.setdefault(channel, _Outgoing(backend.send, link.target, link.tag))
                self._outgoing[message] = end
            elif channel not in into:
                pool = self.pools[channel]
                into[channel] = _Incoming(backend.recv, link.source, link.tag, slots[channel], pool)
            if isinstance(step, Receive):
                self._incoming[message] = into[channel]

    def _warm(self, channel: Channel, link: _Link) -> None:
        token = torch.zeros(1, device=self.device)
        if self.rank == channel.source:
            link.group.send([token], link.target, link.tag).wait()
        elif self.rank == channel.target:
            link.group.recv([token], link.source, link.tag).wait()

    def begin(self, signature: str) -> None:
        """See `Transport`."""
        self._shapes.begin(signature)
        if self._tagged:
            self._tag = zlib.crc32(signature.encode()) % (1 << _SIGNATURE_BITS)

    def post(self, message: Message) -> None:
        """See `Transport`. Without the shape it is only noted down."""
        incoming = self._incoming[message]
        noted, flights = incoming.noted, incoming.flights
        if len(noted) + len(flights) == incoming.slots:
            raise PlanError(
                f"rank {self.rank}: channel {message.channel} would hold {incoming.slots + 1} "
                f"messages, its plan has room for {incoming.slots}"
            )
        spec = self._shapes.known.get(message)
        if spec is None or noted:
            noted.append(message)
        else:
            self._start_receive(incoming, message, spec)

    def _start_receive(self, incoming: _Incoming, message: Message, spec: Spec) -> None:
        buffers = incoming.pool.take(spec.tensors)
        receive, source, tag = incoming.receive, incoming.source, incoming.tag | self._tag
        try:
            works = [receive([_on_wire(one)], source, tag) for one in buffers]
        except RuntimeError as error:  # gloo says so at once where it knows that the peer is gone
            raise self._missing(message, error) from error
        incoming.flights[message] = _Flight(works, buffers, spec)

    def wait(self, message: Message) -> Values:
        """See `Transport`."""
        incoming = self._incoming[message]
        try:
            while (flight := incoming.flights.pop(message, None)) is None:
                first = incoming.noted[0]
                spec = self._shapes.learn(first)
                self._start_receive(incoming, incoming.noted.popleft(), spec)
            for work in flight.works:
                work.wait()
        except (RuntimeError, ValueError) as error:
            raise self._missing(message, error) from error
        received, spec = flight.tensors, flight.spec
        for tensor, expected in zip(received, spec.tensors, strict=True):
            if expected.requires_grad:
                tensor.requires_grad_()
        return received if spec.names is None else dict(zip(spec.names, received, strict=True))

    def send(self, message: Message, values: Values) -> None:
        """See `Transport`. For a new signature it also publishes the shapes."""
        spec = self._shapes.known.get(message)
        if spec is None:
            spec = self._shapes.publish(message, values)
        else:
            self._shapes.check(message, spec, values)
        own = tuple([tensor.contiguous() for tensor in tensors(values)])
        outgoing = self._outgoing[message]
        send, target, tag = outgoing.send, outgoing.target, outgoing.tag | self._tag
        try:
            works = [send([_on_wire(one)], target, tag) for one in own]
        except RuntimeError as error:
            raise self._lost(message, error) from error
        self._sent[message] = _Flight(works, own, spec)

    def release(self, message: Message) -> None:
        """See `Transport`."""
        try:
            for work in self._sent.pop(message).works:
                work.wait()
        except RuntimeError as error:
            raise self._lost(message, error) from error

    def reduce(self, ranks: tuple[int, ...], tensors: Sequence[Tensor]) -> None:
        """See `Transport`."""
        group = self._replicas[ranks]
        self._reductions.start(
            tensors,
            lambda bucket: dist.all_reduce(bucket, group=group, async_op=True),
            f"ranks {ranks}",
        )

    def finish(self) -> None:
        """See `Transport`."""
        for message in list(self._sent):
            self.release(message)
        self._reductions.finish()

    def close(self) -> None:
        """See `Transport`."""
        own = [
            link.group
            for ends, link in self._links.items()
            if self._tagged or self.rank in (ends.source, ends.target)
        ]
        own += [group for ranks, group in self._replicas.items() if self.rank in ranks]
        for group in dict.fromkeys(own):
            dist.destroy_process_group(group)

    def _missing(self, message: Message, error: Exception) -> PeerError:
        return PeerError(
            f"rank {self.rank} did not get {message.producer} from rank "
            f"{message.channel.source}: {reason(error)}"
        )

    def _lost(self, message: Message, error: Exception) -> PeerError:
        return PeerError(
            f"rank {self.rank} could not send {message.producer} to rank "
            f"{message.channel.target}: {reason(error)}"
        )


@dataclass(frozen=True, slots=True)
class _Link:
    """What carries a channel."""

    group: Any
    source: int
    """The sender's number in the group."""
    target: int
    tag: int


@dataclass(slots=True)  # not frozen, as one is made per message
class _Flight:
    """A message under way, with the buffers that have to live as long."""

    works: list[Any]
    tensors: tuple[Tensor, ...]
    spec: Spec


@dataclass(frozen=True, slots=True)
class _Outgoing:
    """The sending end of a channel."""

    send: Callable[[list[Tensor], int, int], Any]
    target: int
    tag: int


@dataclass(frozen=True, slots=True)
class _Incoming:
    """The receiving end of a channel."""

    receive: Callable[[list[Tensor], int, int], Any]
    source: int
    tag: int
    slots: int
    """The most messages that may be posted and not consumed."""
    pool: BufferPool
    noted: deque[Message] = field(default_factory=deque)
    """Posted by the program, but of unknown shape so far."""
    flights: dict[Message, _Flight] = field(default_factory=dict)


def _on_wire(tensor: Tensor) -> Tensor:
    """The same memory in a type that NCCL knows."""
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor
