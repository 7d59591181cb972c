"""Messages that take their time, for stages that sleep."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch
from torch import Tensor

from models.sleep import wait_until
from runtime.transport import Receiver, Sender, Transport
from runtime.values import Values, tensors
from synth.lower import Message


class SlowTransport:
    """Another transport whose messages arrive a fixed time after they were sent.

    A message carries the moment at which it was sent, on the clock that all processes of a machine
    share; who waits for it waits until the latency has passed as well.
    """

    def __init__(self, inner: Transport, latency_s: float) -> None:
        self._inner = inner
        self._latency_s = latency_s
        self.ahead = inner.ahead
        self.begin = inner.begin
        self.finish = inner.finish
        self.close = inner.close

    def receiver(self, message: Message) -> Receiver:
        """See `Transport`."""
        return _SlowReceiver(self._inner.receiver(message), self._latency_s)

    def sender(self, message: Message) -> Sender:
        """See `Transport`."""
        return _StampingSender(self._inner.sender(message))

    def reduce(self, ranks: tuple[int, ...], tensors: Sequence[Tensor]) -> None:
        """See `Transport`."""
        self._inner.reduce(ranks, tensors)


class _SlowReceiver:
    """See `Receiver`."""

    def __init__(self, inner: Receiver, latency_s: float) -> None:
        self._inner = inner
        self._latency_s = latency_s
        self.post = inner.post

    def wait(self) -> Values:
        """See `Receiver`."""
        *values, stamp = tensors(self._inner.wait())
        wait_until(stamp.item() + self._latency_s)
        return tuple(values)


class _StampingSender:
    """See `Sender`."""

    def __init__(self, inner: Sender) -> None:
        self._inner = inner
        self.release = inner.release

    def send(self, values: Values) -> None:
        """See `Sender`."""
        stamp = torch.tensor(time.monotonic(), dtype=torch.float64)
        self._inner.send((*tensors(values), stamp))
