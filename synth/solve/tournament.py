"""A tournament of tabu searches: many starts, and ever more steps for those that do well.

A newcomer takes a number of steps. Of two that took equally many, the better one goes on to take as
many again, and the other is dropped. So every round has the same share of the time: no newcomer is
judged too early, and no leader is left alone. Which steps are taken depends on the seed, the starts
and their number, not on the clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice

from synth.folding import Folded
from synth.solve.climb import climb, worth
from synth.solve.listing import Lister, Starts, rules
from synth.solve.network import Numbering
from synth.solve.tabu import Tabu

NEWCOMER_STEPS = 1_000  # of tabu search
LIST_STEPS = 50  # a list schedule takes as long as so many steps of tabu search
CLIMB_LISTS = 5  # list schedules per newcomer that comes of climbing
SLICE = 200  # steps between two looks at whether to stop
RULED = 6  # newcomers that come of list scheduling by rule


class Tournament:
    """An endless search from many starts; `best` is the best schedule so far, None before one."""

    def __init__(self, folded: Folded, seed: int) -> None:
        self.best: Starts | None = None
        self.value: int | None = None
        self._folded = folded
        self._numbering = Numbering(folded)
        self._seed = seed
        self._invited: deque[Starts] = deque()
        self._climb = climb(folded, seed)
        self._newcomers = self._new()
        self._waiting: list[Tabu | None] = []  # per round: who has no opponent yet
        self._running: tuple[Tabu, int, int] | None = None  # with its round and the steps to go

    def invite(self, starts: Starts) -> None:
        """Let a schedule found elsewhere take part, if it is better than all so far."""
        if self._note(starts, self._worth(starts)):
            self._invited.append(starts)

    def enter(self, starts: Starts) -> None:
        """Let a schedule take part however good it is."""
        self._note(starts, self._worth(starts))
        self._invited.append(starts)

    def run(self, steps: int) -> None:
        """Go on for about so many steps."""
        while steps > 0:
            if self._running is None:
                steps -= self._begin()
            else:
                steps -= self._go_on(steps)

    def run_until(self, steps: int, enough: int, stop: Callable[[], bool]) -> None:
        """Go on for so many steps, or until the value is enough or it is told to stop."""
        while steps > 0 and not (self.value is not None and self.value <= enough) and not stop():
            self.run(min(steps, SLICE))
            steps -= SLICE

    def _worth(self, starts: Starts) -> int:
        return worth(self._folded, starts)

    def _note(self, starts: Starts, value: int) -> bool:
        """Keep a schedule if it is the best so far. Returns whether it is."""
        if not self._is_better(value):
            return False
        self.best, self.value = starts, value
        return True

    def _is_better(self, value: int) -> bool:
        return self.value is None or value < self.value

    def _begin(self) -> int:
        """Bring in a newcomer. Returns what finding it took, in steps."""
        starts, steps = next(self._newcomers)
        if starts is not None:
            self._note(starts, self._worth(starts))
            self._seed += 1
            self._running = Tabu(self._numbering, starts, self._seed), 0, NEWCOMER_STEPS
        return steps

    def _go_on(self, steps: int) -> int:
        assert self._running is not None
        search, level, left = self._running
        steps = min(steps, left)
        search.run(steps)
        if self._is_better(search.best):  # its starts are worked out when asked for
            self._note(search.starts, search.best)
        self._running = search, level, left - steps
        if steps == left:
            self._running = self._meet(search, level)
        return steps

    def _meet(self, search: Tabu, level: int) -> tuple[Tabu, int, int] | None:
        """Wait for an opponent, or play the one that waits: the winner runs on."""
        if level == len(self._waiting):
            self._waiting.append(None)
        opponent = self._waiting[level]
        if opponent is None:
            self._waiting[level] = search
            return None
        self._waiting[level] = None
        winner = min(opponent, search, key=lambda player: player.best)
        return winner, level + 1, winner.steps

    def _new(self) -> Iterator[tuple[Starts | None, int]]:
        """Newcomers and what finding them takes: the invited first, then by rule, then climbing."""
        yield from self._take_invited()
        lister = Lister(self._folded)
        ruled: dict[int, Starts] = {}
        for rule in rules(self._folded):
            starts = lister.run(rule)
            if starts is not None:
                ruled.setdefault(self._worth(starts), starts)
            yield None, LIST_STEPS
        for value in sorted(ruled)[:RULED]:
            yield ruled[value], 0
            yield from self._take_invited()
        while True:
            best: Starts | None = None
            for starts in islice(self._climb, CLIMB_LISTS):
                if starts is not None and (best is None or self._worth(starts) < self._worth(best)):
                    best = starts
                yield None, LIST_STEPS
            yield best, 0
            yield from self._take_invited()

    def _take_invited(self) -> Iterator[tuple[Starts | None, int]]:
        while self._invited:
            yield self._invited.popleft(), 0
