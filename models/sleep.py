"""A stage that computes nothing and takes exactly as long as it is told.

With sleeping stages a schedule can be timed on a machine with fewer cores than ranks: what is
measured beyond the prescribed times is what the runtime adds.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

PAYLOAD_BYTES = 4096
"""What one message carries; small enough for its copying not to show."""

Payload = tuple[Tensor, ...] | dict[str, Tensor]

_SPIN_S = 1e-4  # a sleeping thread wakes up late by less than this


@dataclass(frozen=True, slots=True)
class StageTimes:
    """How long each op of a stage takes, in ms.

    Raises:
        ValueError: a time is negative or not a number.
    """

    forward_ms: float
    backward_act_ms: float
    backward_wgt_ms: float
    fused_ms: float
    """Of the full backward in one op."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name} is {getattr(self, name)}, it must be 0 or more")


class SleepStage:
    """Fills every op up to an absolute deadline: its entry plus the prescribed time.

    It has the methods the runtime asks of a stage, but no weights and no autograd. The payload is
    passed on unchanged in both directions, the first of several forwards and the same to each of
    several backwards; the last stage returns a loss of zero.
    """

    def __init__(self, times: StageTimes, *, last: bool, inputs: int = 1) -> None:
        """`inputs` is how many other stages a stage needs, if it is more than one."""
        self.times = times
        self.last = last
        self.inputs = inputs

    def forward(self, microbatch: int, inputs: Any, target: object, *, split: bool) -> Payload:
        """Takes `forward_ms`; returns the inputs, or the loss on the last stage.

        The inputs are a payload, or a tuple with the tensor of each of several.
        """
        deadline_s = time.monotonic() + self.times.forward_ms / 1e3
        passed_on: Payload = inputs if self.inputs <= 1 else inputs[:1]
        outputs: Payload = (torch.zeros(()),) if self.last else passed_on
        wait_until(deadline_s)
        return outputs

    def backward_act(self, microbatch: int, gradients: tuple[Tensor, ...]) -> tuple[Any, ...]:
        """Takes `backward_act_ms`; returns gradients of the size of the payload."""
        deadline_s = time.monotonic() + self.times.backward_act_ms / 1e3
        passed_on = self._passed_on(gradients)
        wait_until(deadline_s)
        return passed_on

    def backward_wgt(self, microbatch: int) -> None:
        """Takes `backward_wgt_ms`."""
        wait_until(time.monotonic() + self.times.backward_wgt_ms / 1e3)

    def backward(self, microbatch: int, gradients: tuple[Tensor, ...]) -> tuple[Any, ...]:
        """Takes `fused_ms`; returns gradients of the size of the payload."""
        deadline_s = time.monotonic() + self.times.fused_ms / 1e3
        passed_on = self._passed_on(gradients)
        wait_until(deadline_s)
        return passed_on

    def _passed_on(self, gradients: tuple[Tensor, ...]) -> tuple[Any, ...]:
        own = (_payload(),) if self.last else gradients
        return own if self.inputs <= 1 else (own,) * self.inputs

    def discard(self) -> None:
        """Nothing is kept."""

    def weight_gradients(self) -> list[Tensor]:
        """There are no weights."""
        return []


def _payload() -> Tensor:
    """What sleeping stages pass to each other: (PAYLOAD_BYTES,) uint8."""
    return torch.zeros(PAYLOAD_BYTES, dtype=torch.uint8)


def wait_until(deadline_s: float) -> None:
    """Returns at a moment of the monotonic clock: sleeps until just before it, then spins."""
    nap_s = deadline_s - time.monotonic() - _SPIN_S
    if nap_s > 0:
        time.sleep(nap_s)
    while time.monotonic() < deadline_s:
        pass
