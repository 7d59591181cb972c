"""Incumbent: the best verified schedule so far, and the strongest bound proved so far."""

from __future__ import annotations

from dataclasses import dataclass, field

from synth.bounds import Bound
from synth.errors import InvalidScheduleError
from synth.fusing import all_fused, fused_neighbours
from synth.problem import Problem
from synth.schedule import Certificate, Orders, Schedule, Timeline, value
from synth.simulate import earliest, retime
from synth.solve.report import Progress, Report
from synth.verify import verify

MAX_RETIMED = 1_000_000  # ops x devices; re-timing for span simulates once per device


@dataclass(slots=True)
class Incumbent:
    """What a search knows; every order offered is re-timed exactly and verified."""

    problem: Problem
    bound: Bound
    progress: Progress
    timeline: Timeline | None = None
    origin: str = ""
    running: str = "bounds"
    seen: set[Orders] = field(default_factory=set)

    @property
    def value(self) -> int | None:
        """Ticks of the best schedule, None while there is none."""
        return None if self.timeline is None else value(self.timeline, self.problem.objective)

    @property
    def closed(self) -> bool:
        """Whether the best schedule meets the bound."""
        return self.value == self.bound.value

    def offer(self, orders: Orders, origin: str) -> bool:
        """Take an order if its exact times are valid and better. Returns whether it was taken.

        Where a fused backward is cheaper it may be one of the same order with B and W fused.
        """
        if self.problem.split_is_best:
            return self._offer(orders, origin)
        choices = dict.fromkeys((orders, fused_neighbours(orders), all_fused(orders)))
        taken = [self._offer(choice, origin) for choice in choices]
        return any(taken)

    def _offer(self, orders: Orders, origin: str) -> bool:
        if orders in self.seen:
            return False
        self.seen.add(orders)
        try:
            timeline = self._times(orders)
        except InvalidScheduleError:
            return False
        return self.take(timeline, origin)

    def take(self, timeline: Timeline, origin: str) -> bool:
        """Take a timeline if it is valid and better. Returns whether it was taken."""
        ticks = value(timeline, self.problem.objective)
        if self.value is not None and ticks >= self.value:
            return False
        certificate = Certificate(ticks, min(ticks, self.bound.value), "")
        if verify(Schedule("candidate", self.problem, timeline, certificate)):
            return False
        self.timeline, self.origin = timeline, origin
        self._report()
        return True

    def _times(self, orders: Orders) -> Timeline:
        """Earliest times where they will do; else, if affordable, the best times of the order."""
        problem = self.problem
        timeline = earliest(problem, orders)
        if value(timeline, problem.objective) <= self.bound.value:
            return timeline
        if sum(map(len, orders)) * problem.devices > MAX_RETIMED:
            return timeline
        return retime(problem, orders)

    def raise_bound(self, bound: Bound) -> None:
        """Take a bound if it is stronger."""
        if bound.value > self.bound.value:
            self.bound = bound
            self._report()

    def run(self, what: str) -> None:
        """Say what the search does next."""
        self.running = what
        self.note("")

    def note(self, news: str) -> None:
        """Say something worth a line in the log."""
        ticks = self.problem.units.ticks
        best = None if self.value is None else ticks(self.value)
        self.progress(Report(best, ticks(self.bound.value), self.running, news))

    def _report(self) -> None:
        units = self.problem.units
        shown = "none" if self.value is None else units.ticks(self.value)
        self.note(
            f"best {shown} ({self.origin or 'nothing yet'}), "
            f"bound {units.ticks(self.bound.value)} ({self.bound.name})"
        )
