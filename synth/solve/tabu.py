"""Tabu search over device orders: what makes good schedules of fair ones.

Only ops on a longest path are moved: to either end of their block, the stretch of that path in
which a device never idles (Nowicki and Smutnicki 1996; Balas and Vazacopoulos 1998), or past their
neighbour. A pair of ops that was just turned round stays so for a while.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from synth.problem import Objective
from synth.solve.listing import Starts
from synth.solve.sequences import Flat, Sequences, SpanSequences

LEAST_TENURE = 6  # steps for which a pair stays turned at least,
OPS_PER_TENURE = 50  # and one more for so many ops;
TENURE_RANGE = 2.5  # at most it is so many times as long
STALE = 500  # steps without a better schedule before going back to the best
KICKS = 20  # moves at random behind that

_Pair = tuple[int, int]
_Candidate = tuple[float, int, int, list[int], list[_Pair]]  # estimate, device, position, ops, ...


class Tabu:
    """A search from one schedule; `best` is the least value of the objective so far, in steps.

    The same seed takes the same steps.
    """

    def __init__(self, flat: Flat, starts: Starts, seed: int) -> None:
        self._rng = random.Random(seed)
        self._graph = (
            Sequences if flat.folded.problem.objective is Objective.MAKESPAN else SpanSequences
        )
        self._now = self._graph(flat, flat.order(starts))
        self._until: dict[_Pair, int] = {}
        self._stale = 0
        least = LEAST_TENURE + len(flat.steps) // OPS_PER_TENURE
        self._tenure = least, round(TENURE_RANGE * least)
        self.steps = 0
        self._keep()

    def _keep(self) -> None:
        self.best = self._now.length
        self.starts = self._now.starts()
        self._rows = [list(row) for row in self._now.rows]
        self._stale = 0

    def run(self, steps: int) -> None:
        """Take so many steps."""
        for _ in range(steps):
            self._step()

    def _step(self) -> None:
        self.steps += 1
        self._stale += 1
        candidates = list(self._candidates())
        if not candidates or self._stale > STALE:
            self._restart()
            return
        self._move(min(candidates, key=lambda candidate: candidate[0]))

    def _move(self, candidate: _Candidate) -> None:
        _, device, position, ops, turned = candidate
        now = self._now
        now.put(device, position, ops)
        until = self.steps + self._rng.randint(*self._tenure)
        for earlier, later in turned:
            self._until[later, earlier] = until
        if now.length < self.best:
            self._keep()

    def _restart(self) -> None:
        """Go back to the best, with nothing forbidden but some moves made at random."""
        self._now = self._graph(self._now.flat, [list(row) for row in self._rows])
        self._until.clear()
        self._stale = 0
        for _ in range(KICKS):
            candidates = list(self._candidates())
            if candidates:
                self._move(self._rng.choice(candidates))

    def _candidates(self) -> Iterator[_Candidate]:
        """The moves of a longest path that memory admits and that are not forbidden."""
        now, flat = self._now, self._now.flat
        for block in now.blocks(self._rng):
            if len(block) < 2:
                continue
            device = flat.device[block[0]]
            base = now.rows[device].index(block[0])
            for low, high, first_moves in _stretches(len(block)):
                old = block[low : high + 1]
                new = [*old[1:], old[0]] if first_moves else [old[-1], *old[:-1]]
                if not now.fits(device, now.held[old[0]], new):
                    continue
                if now.goes_round(old, first_moves=first_moves):
                    continue
                estimate = now.estimate(new, now.previous[old[0]], now.next[old[-1]])
                turned = _turned(old, first_moves=first_moves)
                if estimate >= self.best and self._forbidden(turned):
                    continue
                yield estimate + self._rng.random() / 2, device, base + low, new, turned

    def _forbidden(self, turned: list[_Pair]) -> bool:
        return any(self._until.get(pair, 0) > self.steps for pair in turned)


def _stretches(length: int) -> Iterator[tuple[int, int, bool]]:
    """Which part of a block is turned, and whether its first op moves to its end, or its last."""
    last = length - 1
    for middle in range(1, last):
        yield 0, middle, True
        yield 0, middle, False
        yield middle, last, True
        yield middle, last, False
        if middle + 1 < last:
            yield middle, middle + 1, True
    yield 0, last, True
    if length > 2:
        yield 0, last, False


def _turned(ops: list[int], *, first_moves: bool) -> list[_Pair]:
    """The pairs (earlier, later) whose order a move turns round."""
    if first_moves:
        return [(ops[0], other) for other in ops[1:]]
    return [(other, ops[-1]) for other in ops[:-1]]
