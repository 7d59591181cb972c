"""Grow: a schedule of few micro-batches that repeats itself somewhere becomes one of any number.

If at two moments a period apart every counter differs by r, and the starts of the last while are
the same but for that period, then what lies between the moments can be inserted again and again:
all that a row of the folded problem compares was compared one period before. What a device holds is
the same at both moments, and so is its idle time, however often the piece is inserted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace

from synth.folding import Folded
from synth.problem import Problem
from synth.solve.listing import Starts

REPEATS = (1, 2, 3, 4, 6)  # micro-batches per period that are looked for
PER_DEVICE = 4  # micro-batches of the small problem, for every device


@dataclass(frozen=True, slots=True)
class Repeat:
    """`count` micro-batches of every stream go through between step `at` and a period later."""

    at: int
    period: int
    count: int


def small(problem: Problem) -> Problem | None:
    """The problem with few micro-batches, a multiple of all `REPEATS` less; None if few already.

    Streams keep the difference in their numbers.
    """
    fewest = min(stream.microbatches for stream in problem.streams)
    least = max(PER_DEVICE * problem.devices // len(problem.streams), 12)
    fewer = (fewest - least) // 12 * 12
    if fewer < least // 2:
        return None
    streams = tuple(
        replace(stream, microbatches=stream.microbatches - fewer) for stream in problem.streams
    )
    return replace(problem, streams=streams)


def best_repeat(folded: Folded, starts: Starts) -> Repeat | None:
    """The repeat with the least time per micro-batch; None where nothing repeats."""
    best: Repeat | None = None
    for found in _candidates(starts[0]):
        if best is not None and found.period * best.count >= best.period * found.count:
            continue
        if _repeats(folded, starts, found):
            best = found
    return best


def _candidates(times: list[int]) -> Iterator[Repeat]:
    """Periods that begin with a start of the first chain and end with a later one."""
    for count in REPEATS:
        for first in range(len(times) - count):
            yield Repeat(times[first], times[first + count] - times[first], count)


def _repeats(folded: Folded, starts: Starts, found: Repeat) -> bool:
    reach = max(chain.steps for chain in folded.chains)
    reach += max((edge.lag for edge in folded.edges), default=0)
    at, period = found.at, found.period
    for times in starts:
        now, then = bisect_left(times, at), bisect_left(times, at + period)
        if then - now != found.count:
            return False
        first, second = bisect_left(times, at - reach), bisect_left(times, at + period - reach)
        if now - first != then - second:
            return False
        if any(b - a != period for a, b in zip(times[first:now], times[second:then], strict=True)):
            return False
    return True


def grow(starts: Starts, repeat: Repeat, times: int) -> Starts:
    """The starts with the repeated piece inserted so many times more."""
    grown: Starts = []
    for row in starts:
        now = bisect_left(row, repeat.at)
        then = now + repeat.count
        piece = row[now:then]
        grown.append(
            row[:then]
            + [start + k * repeat.period for k in range(1, times + 1) for start in piece]
            + [start + times * repeat.period for start in row[then:]]
        )
    return grown
