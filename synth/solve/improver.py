"""A tournament in a process of its own, so that the other core works while a solver runs.

The process is asked for a number of steps at a time and answers with the best start times it
knows; what it does depends on the seed, the steps and what it is given, not on the clock, unless
the time is up.
"""

from __future__ import annotations

from types import TracebackType

from synth.folding import fold
from synth.problem import Problem
from synth.solve.beside import Beside, Caller
from synth.solve.listing import Starts

GRACE_S = 1.0  # for the answer of a process that is told to stop


class Improver:
    """A tournament that runs beside the caller. Use as a context manager; it never outlives it."""

    def __init__(self, problem: Problem, seed: int) -> None:
        self._process = Beside("synth.solve.improver")
        self._process.send((problem, seed))
        self._found: tuple[Starts | None, int | None] | None = None  # start times, their value
        self._enough = 0

    def __enter__(self) -> Improver:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.__exit__(kind, error, trace)

    def ask(self, steps: int, starts: Starts | None, enough: int) -> None:
        """Let it take so many steps, or fewer if it finds a value that is enough.

        The best start times known to the caller take part.
        """
        self._found = None
        self._enough = enough
        self._process.send((steps, starts, enough))

    @property
    def has_enough(self) -> bool:
        """Whether the value is found."""
        try:
            if self._found is None:
                self._found = self._process.receive(0.0)
        except EOFError:
            return False
        return (
            self._found is not None
            and self._found[1] is not None
            and self._found[1] <= self._enough
        )

    def answer(self, seconds: float) -> Starts | None:
        """The best start times behind those steps, or so far when the time is up.

        None if there are none, or if the process fails.
        """
        try:
            if self._found is None:
                self._found = self._process.receive(seconds)
            if self._found is None:
                self._process.send(None)
                self._found = self._process.receive(GRACE_S)
        except EOFError:
            return None  # it was killed: the search goes on without it
        return None if self._found is None else self._found[0]


def main() -> None:
    """Serve one caller."""
    from synth.solve.tournament import Tournament  # Numba is slow to import, and the caller may not

    caller = Caller()
    problem, seed = caller.receive()
    tournament = Tournament(fold(problem, 1), seed)
    while True:
        task = caller.receive()
        if task is None:
            continue  # told to stop too late: the answer is already there
        steps, starts, enough = task
        if starts is not None:
            tournament.invite(starts)
        tournament.run_until(steps, enough, lambda: caller.waiting)
        caller.send((tournament.best, tournament.value))
