"""The device a rank computes on, and its clock."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Sequence
from typing import Any, Protocol

import torch

from synth.errors import UsageError


class Clock(Protocol):
    """Marks moments in the device's order of execution."""

    def start(self) -> None:
        """Begins a step; earlier marks are void."""

    def mark(self) -> Any:
        """The moment at which everything issued so far is done; cheap, does not wait."""

    def seconds(self, marks: Sequence[Any]) -> list[float]:
        """The marks on the host's monotonic clock, once all of them have passed."""


class HostClock:
    """For devices that compute while the host waits: a mark is the time itself."""

    def start(self) -> None:
        """Nothing to do."""

    mark = staticmethod(time.monotonic)
    """Seconds on the monotonic clock, which all processes of a host share."""

    def seconds(self, marks: Sequence[float]) -> list[float]:
        """The marks themselves."""
        return list(marks)


class CudaClock:
    """For CUDA: marks are events on the current stream, tied to the host's clock once a step."""

    def __init__(self) -> None:
        self._origin: torch.cuda.Event | None = None
        self._origin_s = 0.0

    def start(self) -> None:
        """Ties an event to the host's clock at a moment when the current stream is idle."""
        self._origin = _event()
        self._origin.record()
        # Of the stream, not of the device: what others compute on it need not be waited for.
        self._origin.synchronize()
        self._origin_s = time.monotonic()

    def mark(self) -> torch.cuda.Event:
        """An event recorded on the current stream."""
        event = _event()
        event.record()
        return event

    def seconds(self, marks: Sequence[torch.cuda.Event]) -> list[float]:
        """Waits for the events and reads them."""
        assert self._origin is not None, "seconds() before start()"
        for mark in marks:
            mark.synchronize()
        return [self._origin_s + self._origin.elapsed_time(mark) / 1e3 for mark in marks]


def pick_device(wanted: str = "auto", local_rank: int | None = None) -> tuple[torch.device, str]:
    """The device of this rank and the backend that connects it.

    Args:
        wanted: "cpu" for gloo, "cuda" for NCCL, "auto" for CUDA where there is one.
        local_rank: which of this machine's ranks it is; by default what torchrun says.

    Raises:
        UsageError: there is no such device.
    """
    if wanted == "cuda" or (wanted == "auto" and torch.cuda.is_available()):
        number = int(os.environ.get("LOCAL_RANK", "0")) if local_rank is None else local_rank
        here = torch.cuda.device_count()
        if number >= here:
            raise UsageError(
                f"local rank {number} has no GPU, torch finds {here} on this machine; "
                "start fewer ranks or give --device cpu"
            )
        device = torch.device("cuda", number)
        torch.cuda.set_device(device)
        return device, "nccl"
    return torch.device("cpu"), "gloo"


def device_name(device: torch.device) -> str:
    """The model of a GPU, or the machine's architecture."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return platform.machine()


def make_clock(device: torch.device) -> Clock:
    """The clock that fits a device."""
    return CudaClock() if device.type == "cuda" else HostClock()


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
