"""Messages between ranks: one ordered channel, with a communicator of its own, per direction.

Nothing here decides an order: posts, sends and waits come in the order of the program. A message is
known by its place alone; the k-th send of a channel meets its k-th receive, and the program's
static check has shown that both are the same message.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from runtime.errors import PeerError, PlanError, reason
from runtime.pool import BufferPool
from runtime.session import Session
from runtime.spec import Spec
from runtime.values import Values, tensors
from synth.lower import Channel, Message, Program

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

    Shapes are found out once per signature: the sender writes each message's to the store, and the
    receiver reads it no earlier than in the op that needs the message. From then on receives are
    posted where the program says, into the buffers of a pool per channel.
    """

    def __init__(self, session: Session, program: Program) -> None:
        """Creates and warms every communicator; all ranks must call it alike."""
        self.rank = session.rank
        self.device = session.device
        self._store = session.pipeline_store()
        self._slots = program.slots(self.rank)
        buffers = program.buffers(self.rank)
        self.pools = {channel: BufferPool(n, self.device) for channel, n in buffers.items()}
        self._known: dict[str, dict[Message, Spec]] = {}
        self._specs: dict[Message, Spec] = {}
        self._signature = ""
        self._tag = 0
        """Of the signature, on gloo: turns batches that differ between ranks into no answer."""
        self._tagged = session.backend == "gloo"
        self._incoming: dict[Channel, _Incoming] = {}
        self._outgoing: dict[Message, _Flight] = {}
        patience = timedelta(seconds=session.timeout_s)  # not inherited from the whole job's group
        # One fixed order on all ranks, or communicators that are set up lazily could deadlock.
        channels = program.channels
        self._links: dict[Channel, _Link] = {}
        if self._tagged and channels:
            group = dist.new_group(timeout=patience)
            for number, channel in enumerate(channels):
                tag = (number + 1) << _SIGNATURE_BITS
                self._links[channel] = _Link(group, channel.source, channel.target, tag)
        for channel in channels[: 0 if self._tagged else None]:
            ends = sorted((channel.source, channel.target))
            group = dist.new_group(ends, timeout=patience)
            places = ends.index(channel.source), ends.index(channel.target)
            self._links[channel] = _Link(group, *places, 0)
        self._replicas = {
            ranks: dist.new_group(list(ranks), timeout=patience) for ranks in program.replicas
        }
        self._reductions: list[_Reduction] = []
        for channel, link in self._links.items():
            self._warm(channel, link)
        for ranks, group in self._replicas.items():
            if self.rank in ranks:
                dist.all_reduce(torch.zeros(1, device=self.device), group=group)

    def _warm(self, channel: Channel, link: _Link) -> None:
        token = torch.zeros(1, device=self.device)
        if self.rank == channel.source:
            link.group.send([token], link.target, link.tag).wait()
        elif self.rank == channel.target:
            link.group.recv([token], link.source, link.tag).wait()
            self._incoming[channel] = _Incoming(deque(), {})

    def begin(self, signature: str) -> None:
        """See `Transport`."""
        self._specs = self._known.setdefault(signature, {})
        self._signature = signature
        if self._tagged:
            self._tag = zlib.crc32(signature.encode()) % (1 << _SIGNATURE_BITS)

    def post(self, message: Message) -> None:
        """See `Transport`. Without the shape it is only noted down."""
        incoming = self._incoming[message.channel]
        if incoming.count == self._slots[message.channel]:
            raise PlanError(
                f"rank {self.rank}: channel {message.channel} would hold {incoming.count + 1} "
                f"messages, its plan has room for {self._slots[message.channel]}"
            )
        incoming.noted.append(message)
        while incoming.noted and incoming.noted[0] in self._specs:
            self._start_receive(incoming)

    def _start_receive(self, incoming: _Incoming) -> None:
        message = incoming.noted.popleft()
        channel = message.channel
        buffers = self.pools[channel].take(self._specs[message].tensors)
        link = self._links[channel]
        tag = link.tag | self._tag
        works = [link.group.recv([_on_wire(one)], link.source, tag) for one in buffers]
        incoming.flights[message] = _Flight(works, buffers)

    def wait(self, message: Message) -> Values:
        """See `Transport`."""
        incoming = self._incoming[message.channel]
        try:
            while message not in incoming.flights:
                first = incoming.noted[0]
                self._specs[first] = self._read_spec(first)
                self._start_receive(incoming)
            flight = incoming.flights.pop(message)
            for work in flight.works:
                work.wait()
        except (RuntimeError, ValueError) as error:
            channel = message.channel
            raise PeerError(
                f"rank {self.rank} did not get {message.producer} from rank {channel.source}: "
                f"{reason(error)}"
            ) from error
        spec = self._specs[message]
        for tensor, expected in zip(flight.tensors, spec.tensors, strict=True):
            if expected.requires_grad:
                tensor.requires_grad_()
        if spec.names is None:
            return flight.tensors
        return dict(zip(spec.names, flight.tensors, strict=True))

    def send(self, message: Message, values: Values) -> None:
        """See `Transport`. For a new signature it also publishes the shapes."""
        channel, known = message.channel, self._specs.get(message)
        if known is None:
            self._specs[message] = spec = Spec.of(values)
            self._store.set(self._key(message), spec.written())
        elif not known.fits(values):
            raise PlanError(
                f"rank {self.rank}: {message.producer} gives {Spec.of(values)}, before it gave "
                f"{known} for a batch of the same shape; call forget_shapes() on every rank "
                "when that changes"
            )
        own = tuple(tensor.detach().contiguous() for tensor in tensors(values))
        link = self._links[channel]
        tag = link.tag | self._tag
        try:
            works = [link.group.send([_on_wire(one)], link.target, tag) for one in own]
        except RuntimeError as error:
            raise self._lost(message, error) from error
        self._outgoing[message] = _Flight(works, own)

    def release(self, message: Message) -> None:
        """See `Transport`."""
        flight = self._outgoing.pop(message)
        try:
            for work in flight.works:
                work.wait()
        except RuntimeError as error:
            raise self._lost(message, error) from error

    def reduce(self, ranks: tuple[int, ...], tensors: Sequence[Tensor]) -> None:
        """See `Transport`. One message per dtype."""
        for dtype in sorted({tensor.dtype for tensor in tensors}, key=str):
            parts = [tensor for tensor in tensors if tensor.dtype is dtype]
            bucket = torch.cat([part.flatten() for part in parts])
            work = dist.all_reduce(bucket, group=self._replicas[ranks], async_op=True)
            self._reductions.append(_Reduction(ranks, work, bucket, parts))

    def finish(self) -> None:
        """See `Transport`."""
        for message in list(self._outgoing):
            self.release(message)
        for reduction in self._reductions:
            try:
                reduction.work.wait()
            except RuntimeError as error:
                raise PeerError(
                    f"rank {self.rank} could not reduce gradients over ranks {reduction.ranks}: "
                    f"{reason(error)}"
                ) from error
            sizes = [part.numel() for part in reduction.parts]
            for part, total in zip(
                reduction.parts, torch.split(reduction.bucket, sizes), strict=True
            ):
                part.copy_(total.view_as(part))
        self._reductions.clear()

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

    def _read_spec(self, message: Message) -> Spec:
        """Takes a message's spec from the store, where nobody else needs it."""
        key = self._key(message)
        text = self._store.get(key)
        self._store.delete_key(key)
        return Spec.read(text)

    def _key(self, message: Message) -> str:
        return f"spec/{self._signature}/{message.channel}/{message.producer}"

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


@dataclass(frozen=True, slots=True)
class _Flight:
    """A message under way, with the buffers that have to live as long."""

    works: list[Any]
    tensors: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class _Reduction:
    """A reduction under way."""

    ranks: tuple[int, ...]
    work: Any
    bucket: Tensor
    parts: list[Tensor]
    """Where the totals go."""


@dataclass(frozen=True, slots=True)
class _Incoming:
    """The receiving end of a channel."""

    noted: deque[Message]
    """Posted by the program, but of unknown shape so far."""
    flights: dict[Message, _Flight]

    @property
    def count(self) -> int:
        """Messages posted and not consumed."""
        return len(self.noted) + len(self.flights)


def _on_wire(tensor: Tensor) -> Tensor:
    """The same memory in a type that NCCL knows."""
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor
