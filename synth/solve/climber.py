"""Hill climbing in a process of its own, so that the other core works while a solver runs.

The process is asked for a number of steps at a time and answers with the best start times since
it was last asked; what it does depends on the seed and the steps alone, not on the clock.
"""

from __future__ import annotations

import os
import pickle
import select
import subprocess
import sys
from itertools import islice

from synth.folding import Folded, fold
from synth.problem import Problem
from synth.solve.climb import climb, worth
from synth.solve.listing import Starts


class Climber:
    """A climb that runs beside the caller. Use as a context manager; it never outlives it."""

    def __init__(self, problem: Problem, seed: int) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from synth.solve.climber import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # Ctrl-C is for the caller, who then ends this
        )
        self._send((problem, seed))

    def __enter__(self) -> Climber:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def ask(self, steps: int) -> None:
        """Let it take so many steps."""
        self._send(steps)

    def answer(self, seconds: float) -> Starts | None:
        """The best start times of those steps; None if it fails, or takes longer than that."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], seconds)
        if not ready:
            return None
        try:
            found: Starts | None = pickle.load(self._process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError):
            return None  # it was killed: the search goes on without it
        return found

    def _send(self, message: object) -> None:
        assert self._process.stdin is not None
        try:
            pickle.dump(message, self._process.stdin)
            self._process.stdin.flush()
        except OSError:
            pass  # it was killed: `answer` says so


def best_of(folded: Folded, steps: list[Starts | None]) -> Starts | None:
    """The best start times among the steps of a climb."""
    found = [starts for starts in steps if starts is not None]
    return min(found, key=lambda starts: worth(folded, starts), default=None)


def main() -> None:
    """Serve one caller over standard input and output."""
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    problem, seed = pickle.load(source)
    folded = fold(problem, 1)
    steps = climb(folded, seed)
    while True:
        try:
            count = pickle.load(source)
        except EOFError:
            return
        pickle.dump(best_of(folded, list(islice(steps, count))), sink)
        sink.flush()
