"""Balance: the cut of layers into stages whose best schedule is the fastest.

The most even cut is not always that one: fill and drain, hops, memory and how B and W share the
time count as well. So cuts are ranked by an exact lower bound of their problem, and those that may
still win are scheduled. Among them is always the cut of least bottleneck, found by an exact dynamic
programme.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from math import comb

from synth.bounds import Bound, best_bound
from synth.costs import SliceCost
from synth.errors import InfeasibleError, NothingFoundError
from synth.fusing import fuse
from synth.problem import Problem
from synth.schedule import Schedule
from synth.solve.quick import solve_quickly

Cut = tuple[int, ...]

MAX_CUTS = 3000  # all of them are looked at below that
SLACK = 1.15  # above it, only those whose bottleneck is at most so much above the least
MAX_SOLVED = 24


@dataclass(frozen=True, slots=True)
class Balanced:
    """A cut with the problem it makes and a schedule found for it."""

    cut: Cut
    problem: Problem
    schedule: Schedule

    @property
    def ticks(self) -> int:
        """What the schedule takes."""
        return self.schedule.certificate.value


def bottleneck_cut(work: Sequence[int], stages: int) -> tuple[Cut, int]:
    """The cut whose largest stage is the smallest possible, and how large that is.

    T[s, n] = min over k of max(T[s - 1, k], work of layers k..n): exact, O(stages * layers^2).
    """
    sums = [0]
    for amount in work:
        sums.append(sums[-1] + amount)

    @cache
    def least(count: int, layers: int) -> tuple[int, int]:
        """Largest stage of the first layers in so many stages, and where the last one begins."""
        if count == 1:
            return sums[layers], 0
        return min(
            (max(least(count - 1, first)[0], sums[layers] - sums[first]), first)
            for first in range(count - 1, layers)
        )

    cut: list[int] = []
    end = len(work)
    for count in range(stages, 0, -1):
        first = least(count, end)[1]
        cut.append(end - first)
        end = first
    return tuple(reversed(cut)), least(stages, len(work))[0]


def cuts(work: Sequence[int], stages: int) -> Iterator[Cut]:
    """All cuts, or where these are too many all whose largest stage is near the least possible."""
    most = sum(work)
    if comb(len(work) - 1, stages - 1) > MAX_CUTS:
        most = int(SLACK * bottleneck_cut(work, stages)[1])

    def extend(first: int, left: int) -> Iterator[Cut]:
        if left == 1:
            if sum(work[first:]) <= most:
                yield (len(work) - first,)
            return
        for count in range(1, len(work) - first - left + 2):
            if sum(work[first : first + count]) > most:
                return
            yield from ((count, *rest) for rest in extend(first + count, left - 1))

    return extend(0, stages)


def balance(layers: Sequence[SliceCost], stages: int, make: Callable[[Cut], Problem]) -> Balanced:
    """The best cut, with a schedule for it.

    `make` gives the problem of a cut and raises InfeasibleError where memory rules it out. Raises
    InfeasibleError when memory rules all of them out, and NothingFoundError when no schedule was
    found.
    """
    work = [layer.work_ns for layer in layers]
    if not 1 <= stages <= len(work):
        raise InfeasibleError(f"infeasible: {len(work)} layers cannot be cut into {stages} stages")
    first, _ = bottleneck_cut(work, stages)
    ranked: list[tuple[int, bool, Cut, Problem, Bound]] = []
    refusal: InfeasibleError | None = None
    for cut in _nearest(work, stages):
        try:
            problem = make(cut)
            bound = best_bound(problem)
            ranked.append((bound.value, cut != first, cut, problem, bound))
        except InfeasibleError as error:
            refusal = error
    if not ranked:
        assert refusal is not None
        raise refusal
    best: Balanced | None = None
    ranked.sort(key=lambda entry: entry[:3])
    for least, _, cut, problem, bound in ranked[:MAX_SOLVED]:
        if best is not None and least >= best.ticks:
            break
        found = solve_quickly(problem, bound)
        if found is not None:
            candidate = Balanced(cut, problem, fuse(found))
            if best is None or candidate.ticks < best.ticks:
                best = candidate
    if best is None:
        raise NothingFoundError("no schedule found for any cut; raise the memory limit")
    return best


def _nearest(work: Sequence[int], stages: int) -> list[Cut]:
    """The cuts worth a bound, those of smaller bottleneck first."""

    def largest(cut: Cut) -> int:
        first, most = 0, 0
        for count in cut:
            most = max(most, sum(work[first : first + count]))
            first += count
        return most

    return sorted(cuts(work, stages), key=largest)[: 8 * MAX_SOLVED]
