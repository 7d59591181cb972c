"""Messages that take their time, for stages that sleep."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch
from torch import Tensor

from models.sleep import wait_until
from runtime.transport import Transport
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
        self.begin = inner.begin
        self.post = inner.post
        self.release = inner.release
        self.finish = inner.finish
        self.close = inner.close

    def wait(self, message: Message) -> Values:
        """See `Transport`."""
        *values, stamp = tensors(self._inner.wait(message))
        wait_until(stamp.item() + self._latency_s)
        return tuple(values)

    def send(self, message: Message, values: Values) -> None:
        """See `Transport`."""
        stamp = torch.tensor(time.monotonic(), dtype=torch.float64)
        self._inner.send(message, (*tensors(values), stamp))

    def reduce(self, ranks: tuple[int, ...], tensors: Sequence[Tensor]) -> None:
        """See `Transport`."""
        self._inner.reduce(ranks, tensors)
