"""Messages between ranks: one ordered channel, with a communicator of its own, per direction.

Nothing here decides an order: posts, sends and waits come in the order of the program. Messages
carry no tags; the k-th send of a channel meets its k-th receive, and the program's static check has
shown that both are the same message.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from runtime.errors import PeerError, PlanError, reason
from runtime.stage import Values
from synth.lower import Channel, Message, Program


class Store(Protocol):
    """What is used of torch's key-value stores, which all ranks share."""

    def set(self, key: str, value: str, /) -> None:
        """Writes a value."""

    def get(self, key: str, /) -> bytes:
        """Waits for a value and reads it."""


class Transport(Protocol):
    """Carries the messages of one rank."""

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
class TensorSpec:
    """What the receiver has to know before it can post a receive."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    requires_grad: bool


Spec = tuple[TensorSpec, ...]


class GroupTransport:
    """Transport over torch process groups of two ranks, gloo or NCCL.

    Shapes are found out on the first step: the sender writes each message's to the store, and the
    receiver reads it no earlier than in the op that needs the message. From then on receives are
    posted where the program says. A receive gets a fresh buffer, which belongs to whoever consumes
    the message; torch's allocator recycles them, and no more than the planned number per channel
    ever waits for a consumer.
    """

    def __init__(
        self,
        rank: int,
        program: Program,
        store: Store,
        device: torch.device,
    ) -> None:
        """Creates and warms every communicator; all ranks must call it alike."""
        self.rank = rank
        self.device = device
        self._store = store
        self._slots = program.slots(rank)
        self._specs: dict[Message, Spec] = {}
        self._incoming: dict[Channel, _Incoming] = {}
        self._outgoing: dict[Message, _Flight] = {}
        # One fixed order on all ranks, or communicators that are set up lazily could deadlock.
        self._groups = {
            channel: dist.new_group([channel.source, channel.target])
            for channel in program.channels
        }
        self._replicas = {ranks: dist.new_group(list(ranks)) for ranks in program.replicas}
        self._reductions: list[_Reduction] = []
        for channel in program.channels:
            self._warm(channel)
        for ranks, group in self._replicas.items():
            if rank in ranks:
                dist.all_reduce(torch.zeros(1, device=device), group=group)

    def _warm(self, channel: Channel) -> None:
        token = torch.zeros(1, device=self.device)
        if self.rank == channel.source:
            dist.send(token, channel.target, group=self._groups[channel])
        elif self.rank == channel.target:
            dist.recv(token, channel.source, group=self._groups[channel])
            self._incoming[channel] = _Incoming(deque(), {})

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
        spec = self._specs[message]
        tensors = tuple(torch.empty(t.shape, dtype=t.dtype, device=self.device) for t in spec)
        works = [
            dist.irecv(tensor, channel.source, group=self._groups[channel]) for tensor in tensors
        ]
        incoming.flights[message] = _Flight(works, tensors)

    def wait(self, message: Message) -> Values:
        """See `Transport`."""
        incoming = self._incoming[message.channel]
        try:
            while message not in incoming.flights:
                first = incoming.noted[0]
                self._specs[first] = _read_spec(self._store.get(_key(first)))
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
        for tensor, expected in zip(flight.tensors, spec, strict=True):
            tensor.requires_grad_(expected.requires_grad)
        return flight.tensors

    def send(self, message: Message, values: Values) -> None:
        """See `Transport`. The first time it also publishes the shapes."""
        spec = tuple(TensorSpec(tuple(t.shape), t.dtype, t.requires_grad) for t in values)
        known = self._specs.setdefault(message, spec)
        channel = message.channel
        if known is spec:
            self._store.set(_key(message), _write_spec(spec))
        elif known != spec:
            raise PlanError(
                f"rank {self.rank}: {message.producer} gives {_shapes(spec)}, in the first step it "
                f"gave {_shapes(known)}; shapes must not change between steps"
            )
        tensors = tuple(tensor.detach().contiguous() for tensor in values)
        try:
            works = [
                dist.isend(tensor, channel.target, group=self._groups[channel])
                for tensor in tensors
            ]
        except RuntimeError as error:
            raise self._lost(message, error) from error
        self._outgoing[message] = _Flight(works, tensors)

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

    def _lost(self, message: Message, error: Exception) -> PeerError:
        return PeerError(
            f"rank {self.rank} could not send {message.producer} to rank "
            f"{message.channel.target}: {reason(error)}"
        )


@dataclass(frozen=True, slots=True)
class _Flight:
    """A message under way, with the buffers that have to live as long."""

    works: list[Any]
    tensors: Values


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


def _key(message: Message) -> str:
    return f"spec/{message.channel}/{message.producer}"


def _write_spec(spec: Spec) -> str:
    names = [str(t.dtype).removeprefix("torch.") for t in spec]
    return json.dumps(
        [[t.shape, name, t.requires_grad] for t, name in zip(spec, names, strict=True)]
    )


def _read_spec(text: bytes) -> Spec:
    return tuple(
        TensorSpec(tuple(shape), getattr(torch, dtype), requires_grad)
        for shape, dtype, requires_grad in json.loads(text)
    )


def _shapes(spec: Spec) -> str:
    return " and ".join(f"{t.dtype} of shape {t.shape}" for t in spec) or "nothing"
