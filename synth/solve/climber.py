"""Hill climbing in a process of its own, so that the other core works while a solver runs.

The process is asked for a number of steps at a time and answers with the best start times since
it was last asked; what it does depends on the seed and the steps alone, not on the clock.
"""

from __future__ import annotations

from itertools import islice

from synth.folding import Folded, fold
from synth.problem import Problem
from synth.solve.beside import Beside, Caller
from synth.solve.climb import climb, worth
from synth.solve.listing import Starts


class Climber:
    """A climb that runs beside the caller. Use as a context manager; it never outlives it."""

    def __init__(self, problem: Problem, seed: int) -> None:
        self._process = Beside("synth.solve.climber")
        self._process.send((problem, seed))

    def __enter__(self) -> Climber:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.__exit__()

    def ask(self, steps: int) -> None:
        """Let it take so many steps."""
        self._process.send(steps)

    def answer(self, seconds: float) -> Starts | None:
        """The best start times of those steps; None if it fails, or takes longer than that."""
        try:
            found: Starts | None = self._process.receive(seconds)
        except EOFError:
            return None  # it was killed: the search goes on without it
        return found


def best_of(folded: Folded, steps: list[Starts | None]) -> Starts | None:
    """The best start times among the steps of a climb."""
    found = [starts for starts in steps if starts is not None]
    return min(found, key=lambda starts: worth(folded, starts), default=None)


def main() -> None:
    """Serve one caller."""
    caller = Caller()
    problem, seed = caller.receive()
    folded = fold(problem, 1)
    steps = climb(folded, seed)
    while True:
        caller.send(best_of(folded, list(islice(steps, caller.receive()))))
