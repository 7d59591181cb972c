"""Large problems: search where micro-batches are few, and grow what is found to the number wanted.

A simulation of a few micro-batches takes milliseconds where the problem itself takes seconds, and
what counts at a large number is the time per period, which the small one shows just as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING

from synth.folding import Folded, exact_step, fold
from synth.problem import Problem
from synth.simulate import earliest
from synth.solve.backends import Backend
from synth.solve.climb import climb, worth
from synth.solve.deadline import Deadline
from synth.solve.grow import Repeat, best_repeat, grow, small
from synth.solve.incumbent import Incumbent
from synth.solve.listing import Lister, Rule, Starts, rules
from synth.solve.periodic import Kernel, find_kernel, least_period

if TYPE_CHECKING:
    from synth.solve.network import Numbering

CLIMB_STEPS = 100
FIRST_STEPS = 5_000  # of tabu search, before the solvers start
SLICE = 100  # steps of tabu search between two looks at what repeats
POOL = 4  # schedules that tabu search begins with in turn
MOST_SLOTS = 64  # of a period in the kernel's program; beyond this the grid is coarser
PATIENCES = (0.0, 0.3, 0.6, 1.0)


def grow_quickly(incumbent: Incumbent, deadline: Deadline, seed: int) -> None:
    """Grow list schedules, and what tabu search makes of them; nothing for few micro-batches."""
    growth = Growth.of(incumbent.problem, seed)
    if growth is None or incumbent.closed or deadline.left == 0.0:
        return
    incumbent.run("growing list schedules")
    growth.take_lists(deadline)
    growth.offer(incumbent, "list schedule, grown")
    if not incumbent.closed:
        from synth.solve.tabu import tell_of_compiler  # Numba is slow to import

        tell_of_compiler(incumbent.note)
        growth.take_tabu(FIRST_STEPS, deadline)
        growth.offer(incumbent, "tabu search, grown")


@dataclass(frozen=True, slots=True)
class _Grown:
    """A small schedule, what repeats in it, and the value that it grows to, in ticks."""

    value: int
    starts: Starts
    repeat: Repeat


class Growth:
    """The small problem and its best schedules that repeat themselves."""

    def __init__(self, folded: Folded, fewer: int, seed: int) -> None:
        self._folded = folded  # the small problem, in ticks
        self._fewer = fewer  # micro-batches of every stream that the small problem lacks
        self._seed = seed
        self._pool: list[_Grown] = []

    @staticmethod
    def of(problem: Problem, seed: int) -> Growth | None:
        """For a problem; None where micro-batches are few."""
        few = small(problem)
        if few is None:
            return None
        fewer = problem.streams[0].microbatches - few.streams[0].microbatches
        return Growth(fold(few, 1), fewer, seed)

    def search(self, incumbent: Incumbent, backend: Backend, runs: int, deadline: Deadline) -> None:
        """So many runs of tabu search; the first time after list schedules and kernels."""
        incumbent.run("growing list schedules")
        if not self._pool:
            self.take_lists(deadline)
            self.take_kernels(incumbent, backend, deadline.within(deadline.left / 8))
            self.offer(incumbent, "list schedule or kernel, grown")
        incumbent.run("growing what tabu search finds")
        for _ in range(runs):
            if incumbent.closed or deadline.left == 0.0:
                return
            self.take_tabu(FIRST_STEPS, deadline)
            self.offer(incumbent, "tabu search, grown")

    def take_lists(self, deadline: Deadline) -> None:
        """List schedules by rule, and some steps of climbing."""
        lister = Lister(self._folded)
        self._take(map(lister.run, rules(self._folded)), deadline)
        self._take(islice(climb(self._folded, self._seed), CLIMB_STEPS), deadline)

    def take_tabu(self, steps: int, deadline: Deadline) -> None:
        """Tabu search from one of the best so far, another one each time."""
        from synth.solve.tabu import Tabu  # Numba is slow to import

        if not self._pool:
            return
        begin = self._pool[self._seed % len(self._pool)]
        search = Tabu(self._numbering, begin.starts, self._seed)
        self._seed += 1
        best = search.best
        for _ in range(0, steps, SLICE):
            search.run(SLICE)
            if search.best < best:
                best = search.best
                self._take([search.starts], deadline)
            if deadline.left == 0.0:
                return

    @cached_property
    def _numbering(self) -> Numbering:
        from synth.solve.network import Numbering

        return Numbering(self._folded)

    def take_kernels(self, incumbent: Incumbent, backend: Backend, deadline: Deadline) -> None:
        """List schedules that follow the integer program of a period, the shorter the better."""
        exact = exact_step(self._folded.problem)
        step = exact * -(-least_period(self._folded, 1) // (MOST_SLOTS * exact))
        coarse = fold(self._folded.problem, step)
        for count in (1, 2, 3):
            low, high = least_period(coarse, count), self._known_period(coarse, count) - 1
            period = low
            while low <= high and deadline.left > 0.5:
                text = incumbent.problem.units.time_text(period * step)
                incumbent.run(f"ILP, {count} micro-batches in every {text}")
                kernel = find_kernel(coarse, count, period, backend, deadline.left / 3)
                if kernel is None:
                    low = period + 1
                else:
                    self._take(self._following(kernel, coarse), deadline)
                    high = period - 1
                period = (low + high) // 2

    def _known_period(self, coarse: Folded, count: int) -> int:
        """Steps in which so many micro-batches go through in the best schedule so far."""
        rates = [
            -(-known.repeat.period * count // (known.repeat.count * coarse.step_ticks))
            for known in self._pool
        ]
        return min(rates, default=2 * least_period(coarse, count))

    def _following(self, kernel: Kernel, coarse: Folded) -> Iterator[Starts | None]:
        """The kernel repeated, and list schedules that follow it with their ends drawn together."""
        starts = [[s * coarse.step_ticks for s in row] for row in kernel.repeated(coarse)]
        yield starts
        urgency = tuple(tuple(map(float, row)) for row in starts)
        lister = Lister(self._folded)
        for patience in PATIENCES:
            yield lister.run(Rule(urgency, (patience,) * self._folded.problem.devices, {}))

    def _take(self, found: Iterable[Starts | None], deadline: Deadline) -> None:
        """Keep the best that repeat, as they are or as early as their orders allow."""
        for starts in found:
            if starts is not None:
                self._keep(starts)
                orders = self._folded.unfold(starts)
                self._keep(self._folded.starts(earliest(self._folded.problem, orders)))
            if deadline.left == 0.0:
                return

    def _keep(self, starts: Starts) -> None:
        repeat = best_repeat(self._folded, starts)
        if repeat is None:
            return
        value = worth(self._folded, starts) + self._fewer // repeat.count * repeat.period
        if all(known.value != value for known in self._pool):
            self._pool.append(_Grown(value, starts, repeat))
            self._pool = sorted(self._pool, key=lambda known: known.value)[:POOL]

    def offer(self, incumbent: Incumbent, origin: str) -> None:
        """Offer the best schedule, grown, where it promises to be better."""
        if not self._pool:
            return
        best = self._pool[0]
        if incumbent.value is None or best.value < incumbent.value:
            grown = grow(best.starts, best.repeat, self._fewer // best.repeat.count)
            incumbent.offer(fold(incumbent.problem, 1).unfold(grown), origin)
