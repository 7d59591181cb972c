"""Report: what a search says of itself while it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Report:
    """What a search knows, and what it is doing, at one moment.

    `best` and `bound` are in the user's units of time; `news` is a line for the log, empty where
    nothing but `running` changed.
    """

    best: float | None
    bound: float
    running: str
    news: str = ""

    @property
    def gap(self) -> float | None:
        """(best - bound) / best; None without a best."""
        return (self.best - self.bound) / self.best if self.best else None


Progress = Callable[[Report], None]
