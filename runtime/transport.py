"""Messages between ranks: one ordered channel, with a communicator of its own, per direction.

Nothing here decides an order: posts, sends and waits come in the order of the program. A message is
known by its place alone; the k-th send of a channel meets its k-th receive, and the program's
static check has shown that both are the same message.
"""

from __future__ import annotations

import json
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
from runtime.pool import BufferPool, TensorSpec
from runtime.session import Session
from runtime.values import Values, tensors
from synth.lower import Channel, Message, Program


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


@dataclass(frozen=True, slots=True)
class Spec:
    """What a message holds: tensors in order, with names where the stage gives them names."""

    tensors: tuple[TensorSpec, ...]
    names: tuple[str, ...] | None

    @staticmethod
    def of(values: Values) -> Spec:
        """The spec of what is sent."""
        return Spec(
            tuple(TensorSpec(tuple(t.shape), t.dtype, t.requires_grad) for t in tensors(values)),
            tuple(values) if isinstance(values, dict) else None,
        )

    def __str__(self) -> str:
        named = [""] * len(self.tensors) if self.names is None else [f"{n}: " for n in self.names]
        parts = (f"{name}{one}" for name, one in zip(named, self.tensors, strict=True))
        return " and ".join(parts) or "nothing"


class GroupTransport:
    """Transport over torch process groups of two ranks, gloo or NCCL.

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
        self._tag = 0
        # gloo keeps messages of different tags apart, which turns batches that differ between
        # ranks into a missing answer; NCCL has no tags.
        self._tagged = session.backend == "gloo"
        self._incoming: dict[Channel, _Incoming] = {}
        self._outgoing: dict[Message, _Flight] = {}
        # One fixed order on all ranks, or communicators that are set up lazily could deadlock.
        patience = timedelta(seconds=session.timeout_s)  # not inherited from the whole job's group
        self._groups = {
            channel: dist.new_group([channel.source, channel.target], timeout=patience)
            for channel in program.channels
        }
        self._replicas = {
            ranks: dist.new_group(list(ranks), timeout=patience) for ranks in program.replicas
        }
        self._reductions: list[_Reduction] = []
        for channel in program.channels:
            self._warm(channel)
        for ranks, group in self._replicas.items():
            if self.rank in ranks:
                dist.all_reduce(torch.zeros(1, device=self.device), group=group)

    def _warm(self, channel: Channel) -> None:
        token = torch.zeros(1, device=self.device)
        if self.rank == channel.source:
            dist.send(token, channel.target, group=self._groups[channel])
        elif self.rank == channel.target:
            dist.recv(token, channel.source, group=self._groups[channel])
            self._incoming[channel] = _Incoming(deque(), {})

    def begin(self, signature: str) -> None:
        """See `Transport`."""
        self._specs = self._known.setdefault(signature, {})
        self._tag = zlib.crc32(signature.encode()) & 0x7FFF_FFFF

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
        group, tag = self._groups[channel], self._tag if self._tagged else 0
        source = _place(channel.source, channel)
        works = [group.recv([_on_wire(tensor)], source, tag) for tensor in buffers]
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
        spec, channel = Spec.of(values), message.channel
        known = self._specs.get(message)
        if known is None:
            self._specs[message] = spec
            self._store.set(self._key(message), _write_spec(spec))
        elif known != spec:
            raise PlanError(
                f"rank {self.rank}: {message.producer} gives {spec}, before it gave {known} for a "
                "batch of the same shape; call forget_shapes() on every rank when that changes"
            )
        own = tuple(tensor.detach().contiguous() for tensor in tensors(values))
        group, tag = self._groups[channel], self._tag if self._tagged else 0
        target = _place(channel.target, channel)
        try:
            works = [group.send([_on_wire(tensor)], target, tag) for tensor in own]
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
        for channel, group in self._groups.items():
            if self.rank in (channel.source, channel.target):
                dist.destroy_process_group(group)
        for ranks, group in self._replicas.items():
            if self.rank in ranks:
                dist.destroy_process_group(group)

    def _read_spec(self, message: Message) -> Spec:
        """Takes a message's spec from the store, where nobody else needs it."""
        key = self._key(message)
        given, names = json.loads(self._store.get(key))
        self._store.delete_key(key)
        specs = tuple(TensorSpec(tuple(s), getattr(torch, dtype), grad) for s, dtype, grad in given)
        return Spec(specs, None if names is None else tuple(names))

    def _key(self, message: Message) -> str:
        return f"spec/{self._tag}/{message.channel}/{message.producer}"

    def _lost(self, message: Message, error: Exception) -> PeerError:
        return PeerError(
            f"rank {self.rank} could not send {message.producer} to rank "
            f"{message.channel.target}: {reason(error)}"
        )


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


def _place(rank: int, channel: Channel) -> int:
    """A rank's number inside its channel's group, which lists its ranks in ascending order."""
    return int(rank == max(channel.source, channel.target))


def _on_wire(tensor: Tensor) -> Tensor:
    """The same memory in a type that NCCL knows."""
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def _write_spec(spec: Spec) -> str:
    names = [str(t.dtype).removeprefix("torch.") for t in spec.tensors]
    given = [[t.shape, name, t.requires_grad] for t, name in zip(spec.tensors, names, strict=True)]
    return json.dumps([given, spec.names])
