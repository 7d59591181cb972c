"""Messages between ranks: one ordered channel, with a communicator of its own, per direction.

Nothing here decides an order: posts, sends and waits come in the order of the program. A message is
known by its place alone; the k-th send of a channel meets its k-th receive, and the program's
static check has shown that both are the same message.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from runtime.endpoints import GroupReceiver, GroupSender, Inlet, Outlet
from runtime.pool import BufferPool
from runtime.reductions import Reductions
from runtime.session import Session
from runtime.shapes import Shapes
from runtime.values import Values
from synth.lower import Channel, Message, Program, Receive, Send

# Of a tag; the bits above are the channel's. Batches that differ between ranks get no answer.
_SIGNATURE_BITS = 16


class Receiver(Protocol):
    """The end of a message at the rank that gets it, in every step."""

    def post(self) -> None:
        """Makes ready for the message; does not wait."""

    def wait(self) -> Values:
        """Waits for it, once it is posted. On CUDA it is the current stream that waits."""


class Sender(Protocol):
    """The end of a message at the rank that sends it, in every step."""

    def send(self, values: Values) -> None:
        """Starts sending; does not wait."""

    def release(self) -> None:
        """Lets go of a send that is known to be complete."""


class Transport(Protocol):
    """Carries the messages of one rank."""

    ahead: Mapping[Channel, int]
    """Buffers per channel to this rank, where a receive that waits for its message stands in
    nothing's way, so that it is best posted as soon as one is free. Else empty."""

    def receiver(self, message: Message) -> Receiver:
        """The end of a message to this rank, for all steps."""

    def sender(self, message: Message) -> Sender:
        """The end of a message from this rank, for all steps."""

    def begin(self, signature: str) -> None:
        """Starts a step. Steps of equal signature have messages of equal shapes."""

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
    On gloo they are posted ahead, and a channel has a buffer to spare, so that a message can come
    in while all that the program needs are in use.
    """

    def __init__(self, session: Session, program: Program) -> None:
        """Creates and warms every communicator; all ranks must call it alike."""
        self.rank = session.rank
        self.device = session.device
        self._tagged = session.backend == "gloo"
        buffers = program.buffers(self.rank)
        self.ahead: Mapping[Channel, int] = {}
        if self._tagged:
            self.ahead = buffers = _with_spare(buffers, program, self.rank)
        self.pools = {channel: BufferPool(n, self.device) for channel, n in buffers.items()}
        self._shapes = Shapes(session.rank, session.pipeline_store())
        patience = timedelta(seconds=session.timeout_s)  # not inherited from the whole job's group
        # One fixed order on all ranks, or communicators that are set up lazily could deadlock.
        self._links = self._make_links(program.channels, patience)
        self._replicas = {
            ranks: dist.new_group(list(ranks), timeout=patience) for ranks in program.replicas
        }
        self._reductions = Reductions(f"rank {self.rank}")
        self._signature: str | None = None
        self._inlets: dict[Channel, Inlet] = {}
        self._outlets: dict[Channel, Outlet] = {}
        self._receivers: dict[Message, GroupReceiver] = {}
        self._senders: dict[Message, GroupSender] = {}
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
        """Makes both ends of every message of this rank."""
        slots = self.ahead or program.slots(self.rank)
        for step in program.ranks[self.rank]:
            if not isinstance(step, Receive | Send):
                continue
            message, channel = step.message, step.message.channel
            link = self._links[channel]
            backend = link.group._get_backend(self.device)  # the group would only dispatch to it
            if isinstance(step, Send):
                outlet = Outlet(backend.send, link.target, link.tag)
                outlet = self._outlets.setdefault(channel, outlet)
                self._senders[message] = GroupSender(message, outlet, self._shapes)
            else:
                pool = self.pools[channel]
                inlet = Inlet(backend.recv, link.source, link.tag, slots[channel], pool)
                inlet = self._inlets.setdefault(channel, inlet)
                self._receivers[message] = GroupReceiver(message, inlet, self._shapes)

    def _warm(self, channel: Channel, link: _Link) -> None:
        token = torch.zeros(1, device=self.device)
        if self.rank == channel.source:
            link.group.send([token], link.target, link.tag).wait()
        elif self.rank == channel.target:
            link.group.recv([token], link.source, link.tag).wait()

    def receiver(self, message: Message) -> GroupReceiver:
        """See `Transport`."""
        return self._receivers[message]

    def sender(self, message: Message) -> GroupSender:
        """See `Transport`."""
        return self._senders[message]

    def begin(self, signature: str) -> None:
        """See `Transport`."""
        if signature == self._signature:
            return
        self._signature = signature
        known = self._shapes.begin(signature)
        for message, receiver in self._receivers.items():
            receiver.spec = known.get(message)
        for message, sender in self._senders.items():
            sender.spec = known.get(message)
        if self._tagged:
            number = zlib.crc32(signature.encode()) % (1 << _SIGNATURE_BITS)
            for channel, inlet in self._inlets.items():
                inlet.tag = self._links[channel].tag | number
            for channel, outlet in self._outlets.items():
                outlet.tag = self._links[channel].tag | number

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
        for sender in self._senders.values():
            if sender.works is not None:
                sender.release()
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


def _with_spare(buffers: Mapping[Channel, int], program: Program, rank: int) -> dict[Channel, int]:
    """One more of each, where the channel has as many messages."""
    steps = program.ranks[rank]
    messages = Counter(step.message.channel for step in steps if isinstance(step, Receive))
    return {channel: min(count + 1, messages[channel]) for channel, count in buffers.items()}


@dataclass(frozen=True, slots=True)
class _Link:
    """What carries a channel."""

    group: Any
    source: int
    """The sender's number in the group."""
    target: int
    tag: int
