"""Deadline: how much time is left."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment on the monotonic clock."""

    at: float

    @staticmethod
    def after(seconds: float) -> Deadline:
        """The moment in that many seconds."""
        return Deadline(time.monotonic() + seconds)

    @property
    def left(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self.at - time.monotonic())

    def within(self, seconds: float) -> Deadline:
        """This deadline, or an earlier one in that many seconds."""
        return Deadline(min(self.at, time.monotonic() + seconds))
