"""Schedules that begin as a steady kernel, for tabu search to draw their ends together.

Where memory is tight, what is good in the middle is hard to come by from list schedules: there a
kernel without idle time, found by an integer program of one period, is the better start.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from synth.folding import exact_step, fold
from synth.problem import Problem
from synth.schedule import Orders
from synth.solve.backends import Backend
from synth.solve.deadline import Deadline
from synth.solve.incumbent import Incumbent
from synth.solve.periodic import find_kernel, least_period

MOST_SLOTS = 64  # of a period; longer ones take too long
COUNTS = (1, 2)  # micro-batches per period
EXTRA = 3  # steps by which a period may be longer than the work of the busiest device
FIRST_S = 4.0  # for one program the first time; twice as long the next


class Kernels:
    """The programs of short periods, one after another, the shortest periods first."""

    def __init__(self, problem: Problem) -> None:
        self._folded = fold(problem, exact_step(problem))
        fewest = min(chain.count for chain in self._folded.chains)
        self._open = deque(
            (count, least_period(self._folded, count) + extra, FIRST_S)
            for extra in range(EXTRA + 1)
            for count in COUNTS
            if 2 * count <= fewest and least_period(self._folded, count) + extra <= MOST_SLOTS
        )
        self._best: float | None = None  # steps per micro-batch
        self._tries = 0

    def search(self, incumbent: Incumbent, backend: Backend, deadline: Deadline) -> list[Orders]:
        """The orders of the kernels found in time.

        Programs that take longer come back later, and meet another seed.
        """
        found: list[Orders] = []
        while self._open and deadline.left > 0.1 and not incumbent.closed:
            count, period, seconds = self._open.popleft()
            if self._best is not None and period / count > self._best:
                continue
            text = incumbent.problem.units.time_text(period * self._folded.step_ticks)
            incumbent.run(f"ILP, {count} micro-batches in every {text}")
            own = deadline.within(seconds)
            seeded = replace(backend, seed=backend.seed + self._tries)
            self._tries += 1
            kernel = find_kernel(self._folded, count, period, seeded, own.left)
            if kernel is not None:
                self._best = period / count
                orders = self._folded.unfold(kernel.repeated(self._folded))
                incumbent.offer(orders, "ILP, a kernel repeated")
                found.append(orders)
            elif own.left == 0.0:
                self._open.append((count, period, 2 * seconds))
        return found
