"""A transport that forgives nothing: all ranks are threads of one process and meet for real.

A send completes only when its receive is posted, and the operations of one communicator run
strictly in the order in which each rank issued them, as NCCL's do on a stream. What passes here
passes on any transport. When every rank waits for another the job ends at once instead of hanging.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import torch
from torch import Tensor

from runtime.errors import PeerError
from runtime.values import Values, renewed, tensors
from synth.lower import Channel, Message
from synth.rendezvous import Communicator, per_channel


class Rendezvous:
    """Where the ranks of a process meet; each makes its `StrictTransport` on it."""

    def __init__(
        self, ranks: int, communicator: Communicator = per_channel, timeout_s: float = 60.0
    ) -> None:
        self.ranks = ranks
        self._communicator = communicator
        self._timeout_s = timeout_s
        self._changed = threading.Condition()
        self._queues: dict[Hashable, dict[int, deque[_Operation]]] = {}
        self._arrived: dict[Message, Values] = {}
        self._sums: dict[tuple[int, ...], deque[_Sum]] = {}
        self._waiting: dict[int, Callable[[], bool]] = {}
        self._gone: set[int] = set()

    def issue(self, rank: int, operation: _Operation) -> None:
        """Queues an operation on its communicator and completes what can meet now."""
        with self._changed:
            key = self._communicator(operation.message.channel)
            queues = self._queues.setdefault(key, {})
            queues.setdefault(rank, deque()).append(operation)
            self._complete(queues)
            self._changed.notify_all()

    def _complete(self, queues: dict[int, deque[_Operation]]) -> None:
        """Lets heads of queues meet until none do any more."""
        met = True
        while met:
            met = False
            for rank, queue in queues.items():
                if not queue or queue[0].values is None:
                    continue
                facing = queues.get(queue[0].message.channel.target)
                if not facing or not facing[0].receives_from(rank):
                    continue
                send, receive = queue.popleft(), facing.popleft()
                # By place alone: whatever stands opposite gets it.
                self._arrived[receive.message] = send.copies()
                send.done = met = True

    def take(self, rank: int, message: Message) -> Values:
        """Waits for a message."""
        self.wait(rank, lambda: message in self._arrived, f"did not get {message.producer}")
        with self._changed:
            return self._arrived.pop(message)

    def add(self, rank: int, ranks: tuple[int, ...], parts: Sequence[Tensor]) -> _Sum:
        """Hands in one rank's part of a sum; the k-th of each rank belong together."""
        with self._changed:
            sums = self._sums.setdefault(ranks, deque())
            while sums and len(sums[0].parts) == len(ranks):
                sums.popleft()
            mine = next((one for one in sums if rank not in one.parts), None)
            if mine is None:
                mine = _Sum(len(ranks))
                sums.append(mine)
            mine.parts[rank] = [part.detach().clone() for part in parts]
            self._changed.notify_all()
            return mine

    def wait(self, rank: int, reached: Callable[[], bool], what: str) -> None:
        """Waits until something holds.

        Raises:
            PeerError: it will never hold, or does not in time.
        """
        with self._changed:
            self._waiting[rank] = reached
            self._changed.notify_all()
            self._changed.wait_for(lambda: reached() or self._stuck(), self._timeout_s)
            if not reached():
                self._gone.add(rank)
                self._changed.notify_all()
                why = "the ranks wait for each other" if self._stuck() else "no answer in time"
                raise PeerError(f"rank {rank} {what}: {why}")
            del self._waiting[rank]

    def leave(self, rank: int) -> None:
        """Says that a rank will not take part any more."""
        with self._changed:
            self._gone.add(rank)
            self._changed.notify_all()

    def _stuck(self) -> bool:
        """Whether every rank has left or waits for something that only others could bring."""
        return len(self._waiting.keys() | self._gone) == self.ranks and not any(
            reached() for rank, reached in self._waiting.items() if rank not in self._gone
        )


class StrictTransport:
    """See `Transport`: one rank's end of a `Rendezvous`."""

    ahead: Mapping[Channel, int] = MappingProxyType({})

    def __init__(self, rank: int, meeting: Rendezvous) -> None:
        self.rank = rank
        self._meeting = meeting
        self._senders: dict[Message, _StrictSender] = {}
        self._sums: list[tuple[_Sum, Sequence[Tensor]]] = []

    def receiver(self, message: Message) -> _StrictReceiver:
        """See `Transport`."""
        return _StrictReceiver(self.rank, self._meeting, message)

    def sender(self, message: Message) -> _StrictSender:
        """See `Transport`."""
        new = _StrictSender(self.rank, self._meeting, message)
        return self._senders.setdefault(message, new)

    def begin(self, signature: str) -> None:
        """Nothing to do: a message brings its shapes along."""

    def reduce(self, ranks: tuple[int, ...], tensors: Sequence[Tensor]) -> None:
        """See `Transport`."""
        self._sums.append((self._meeting.add(self.rank, ranks, tensors), tensors))

    def finish(self) -> None:
        """See `Transport`."""
        for sender in self._senders.values():
            if sender.under_way is not None:
                sender.release()
        for total, own in self._sums:
            self._meeting.wait(self.rank, total.complete, "could not reduce gradients")
            total.write(own)
        self._sums.clear()

    def close(self) -> None:
        """See `Transport`."""
        self._meeting.leave(self.rank)


@dataclass(frozen=True, slots=True)
class _StrictReceiver:
    """See `runtime.transport.Receiver`."""

    rank: int
    meeting: Rendezvous
    message: Message

    def post(self) -> None:
        """See `Receiver`."""
        self.meeting.issue(self.rank, _Operation(self.message, None))

    def wait(self) -> Values:
        """See `Receiver`."""
        return self.meeting.take(self.rank, self.message)


@dataclass(slots=True)
class _StrictSender:
    """See `runtime.transport.Sender`."""

    rank: int
    meeting: Rendezvous
    message: Message
    under_way: _Operation | None = None

    def send(self, values: Values) -> None:
        """See `Sender`."""
        self.under_way = _Operation(self.message, values)
        self.meeting.issue(self.rank, self.under_way)

    def release(self) -> None:
        """See `Sender`."""
        send, self.under_way = self.under_way, None
        assert send is not None, "a release without a send"
        what = f"could not send {self.message.producer}"
        self.meeting.wait(self.rank, lambda: send.done, what)


@dataclass(slots=True)
class _Operation:
    """A send, or a receive, which has no values yet."""

    message: Message
    values: Values | None
    done: bool = False

    def receives_from(self, rank: int) -> bool:
        """Whether this is a receive from that rank."""
        return self.values is None and self.message.channel.source == rank

    def copies(self) -> Values:
        """What arrives of a send."""
        assert self.values is not None, "only a send has values"
        sent = tensors(self.values)
        arrived = [t.detach().clone().requires_grad_(t.requires_grad) for t in sent]
        return renewed(self.values, arrived)


@dataclass(slots=True)
class _Sum:
    """A reduction that not all ranks may have joined yet."""

    count: int
    parts: dict[int, list[Tensor]] = field(default_factory=dict)

    def complete(self) -> bool:
        """Whether every rank has handed in its part."""
        return len(self.parts) == self.count

    @torch.no_grad()
    def write(self, targets: Sequence[Tensor]) -> None:
        """Writes the totals, added up in the order of the ranks."""
        ordered = [self.parts[rank] for rank in sorted(self.parts)]
        for target, *addends in zip(targets, *ordered, strict=True):
            total = addends[0].clone()
            for addend in addends[1:]:
                total += addend
            target.copy_(total)
