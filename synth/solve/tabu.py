"""Tabu search over device orders: what makes good schedules of fair ones.

Only ops on a longest path are moved: to either end of their block, the stretch of that path in
which a device never idles (Nowicki and Smutnicki 1996; Balas and Vazacopoulos 1998), or past their
neighbour. A pair of ops that was just turned round stays so for a while.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from synth.solve.compiled import compiled, is_kept
from synth.solve.listing import Starts
from synth.solve.network import Integers, Network, Numbering
from synth.solve.sequences import (
    Move,
    Sequences,
    earliest_heads,
    estimate,
    fits,
    goes_round,
    make,
    measure_afresh,
    sequences,
)

LEAST_TENURE = 6  # steps for which a pair stays turned at least,
OPS_PER_TENURE = 100  # and one more for so many ops;
TENURE_RANGE = 2.5  # at most it is so many times as long
STALE = 2_000  # steps without a better schedule before going back to the best
KICKS = 20  # moves at random behind that
BLOCKS_PASSED = 4  # of so many blocks of the path with more than two ops, one is looked at
SLOTS = 2**14  # for turned pairs; two that share one forget the older

STEPS, SINCE, LEFT, BEST = range(4)  # taken; since the best; moves at random to go; best length

_NOWHERE = Move(-1, 0, 0, False)


class _State(NamedTuple):
    """What a search remembers."""

    counters: Integers  # at the places below
    tenure: Integers  # the least and the most
    best_rows: Integers
    pairs: Integers  # turned pair, by slot
    until: Integers  # step up to which it must stay so
    random: Integers  # the generator's state
    path: Integers  # a longest path
    blocks: Integers  # where its blocks begin


class Tabu:
    """A search from one schedule; `best` is the least value of the objective so far, in steps.

    The same seed takes the same steps.
    """

    def __init__(self, numbering: Numbering, starts: Starts, seed: int) -> None:
        network = numbering.network
        count = len(network.steps)
        least = LEAST_TENURE + count // OPS_PER_TENURE
        self._numbering = numbering
        self._now = sequences(network, numbering.rows(starts))
        self._state = _State(
            np.array([0, 0, 0, self._now.longest[0]]),
            np.array([least, round(TENURE_RANGE * least)]),
            self._now.rows.copy(),
            np.full(SLOTS, -1),
            np.zeros(SLOTS, dtype=np.int64),
            np.array([seed]),
            np.zeros(count, dtype=np.int64),
            np.zeros(count + 1, dtype=np.int64),
        )

    @property
    def steps(self) -> int:
        """Steps taken so far."""
        return int(self._state.counters[STEPS])

    @property
    def best(self) -> int:
        """The least makespan, or longest span, so far, in steps."""
        return int(self._state.counters[BEST])

    @property
    def starts(self) -> Starts:
        """The earliest start of every op in the best orders, by chain.

        Where spans count, delaying some of them makes the spans least.
        """
        network = self._numbering.network
        best = sequences(network, self._state.best_rows.copy())
        return self._numbering.starts(earliest_heads(network, best))

    def run(self, steps: int) -> None:
        """Take so many steps."""
        _run(self._numbering.network, self._now, self._state, steps)


def tell_of_compiler(note: Callable[[str], None]) -> None:
    """Notes it where the first steps will have to wait for the compiler."""
    if not is_kept(_run):
        note("compiling tabu search, as in every first search after an installation")


@compiled
def _run(network: Network, now: Sequences, state: _State, steps: int) -> None:
    for _ in range(steps):
        state.counters[STEPS] += 1
        state.counters[SINCE] += 1
        if state.counters[SINCE] > STALE:
            _restart(network, now, state)
        kicked = state.counters[LEFT] > 0
        move = _choose(network, now, state, kicked)
        if kicked:
            state.counters[LEFT] -= 1
        if move.device >= 0:
            _make(network, now, state, move)
        elif not kicked:
            _restart(network, now, state)


@compiled
def _restart(network: Network, now: Sequences, state: _State) -> None:
    """Go back to the best, with nothing forbidden but some moves to be made at random."""
    now.rows[:] = state.best_rows
    measure_afresh(network, now)
    state.pairs[:] = -1
    state.counters[SINCE], state.counters[LEFT] = 0, KICKS


@compiled
def _make(network: Network, now: Sequences, state: _State, move: Move) -> None:
    """Make a move, forbid its reverse, keep what is better than all before."""
    until = state.counters[STEPS] + state.tenure[0]
    until += _draw(state.random) % (state.tenure[1] - state.tenure[0] + 1)
    for position in range(move.low, move.high):
        earlier, later = _turned(now, move, position)
        pair = later * len(network.steps) + earlier
        slot = _slot(pair)
        state.pairs[slot], state.until[slot] = pair, until
    make(network, now, move)
    if now.longest[0] < state.counters[BEST]:
        state.counters[SINCE], state.counters[BEST] = 0, now.longest[0]
        state.best_rows[:] = now.rows


@compiled
def _choose(network: Network, now: Sequences, state: _State, at_random: bool) -> Move:
    """The best of the moves of a longest path, or any, that memory admits and nothing forbids."""
    best, worth = _NOWHERE, np.inf
    count = _longest_path(network, now, state)
    for block in range(count):
        begin, end = state.blocks[block], state.blocks[block + 1]
        if end > begin + 2 and _draw(state.random) % BLOCKS_PASSED:
            continue  # looking at all takes longer than it helps
        op = state.path[begin]
        device, low = network.device[op], now.place[op]
        high = low + end - begin - 1
        for middle in range(low + 1, high + 1):
            for case in range(5):
                move = _case(device, low, middle, high, case)
                if move.device < 0:
                    continue
                found = _worth(network, now, state, move, at_random)
                if found < worth:
                    best, worth = move, found
    return best


@compiled
def _case(device: int, low: int, middle: int, high: int, case: int) -> Move:
    """A way to move within a block: up to `middle` or from it on, or `middle` past the next."""
    if case == 0:
        return Move(device, low, middle, True)
    if case == 1 and middle > low + 1:
        return Move(device, low, middle, False)
    if case == 2 and middle < high:
        return Move(device, middle, high, True)
    if case == 3 and middle < high - 1:
        return Move(device, middle, high, False)
    if case == 4 and middle < high - 1:
        return Move(device, middle, middle + 1, True)
    return _NOWHERE


@compiled
def _worth(network: Network, now: Sequences, state: _State, move: Move, at_random: bool) -> float:
    """What the longest path is likely to be; infinite for a move that may not be made."""
    if not fits(network, now, move) or goes_round(network, now, move):
        return np.inf
    length = estimate(network, now, move)
    if length >= state.counters[BEST] and _forbidden(network, now, state, move):
        return np.inf
    dice = _draw(state.random) / 2**31
    return dice if at_random else length + dice / 2


@compiled
def _forbidden(network: Network, now: Sequences, state: _State, move: Move) -> bool:
    """Whether the move turns round a pair that has to stay as it is."""
    for position in range(move.low, move.high):
        earlier, later = _turned(now, move, position)
        pair = earlier * len(network.steps) + later
        slot = _slot(pair)
        if state.pairs[slot] == pair and state.until[slot] > state.counters[STEPS]:
            return True
    return False


@compiled
def _turned(now: Sequences, move: Move, position: int) -> tuple[int, int]:
    """The pair (earlier, later) of the op that moves and the one that it passes, by position."""
    row = now.rows[move.device]
    if move.first_moves:
        return row[move.low], row[position + 1]
    return row[position], row[move.high]


@compiled
def _longest_path(network: Network, now: Sequences, state: _State) -> int:
    """Draw a longest path, cut where it leaves a device or its order. Returns how many blocks."""
    heads, tails, length = now.heads, now.tails, now.longest[0]
    op, ways = -1, 0
    for device in range(len(network.counts)):
        first = now.rows[device, 0]
        if not heads[first] and tails[first] == length:
            ways += 1
            if _draw(state.random) % ways == 0:
                op = first
    blocks, found = 0, 0
    local = op
    while op >= 0:
        if op != local or not found:
            state.blocks[blocks] = found
            blocks += 1
        state.path[found] = op
        found += 1
        local, ways, chosen = now.next[op], 0, -1
        if (
            local >= 0
            and heads[local] == heads[op] + network.steps[op]
            and heads[local] + tails[local] == length
        ):
            chosen, ways = local, 1
        for arc in range(network.after_at[op], network.after_at[op + 1]):
            other = network.after[arc]
            if (
                heads[other] == heads[op] + network.after_weight[arc]
                and heads[other] + tails[other] == length
            ):
                ways += 1
                if _draw(state.random) % ways == 0:
                    chosen = other
        op = chosen
    state.blocks[blocks] = found
    return blocks


@compiled
def _draw(random: Integers) -> int:
    """A number of 31 bits from a linear congruential generator (Knuth's MMIX)."""
    random[0] = random[0] * 6364136223846793005 + 1442695040888963407
    return int(random[0] >> 32) & 0x7FFFFFFF


@compiled
def _slot(pair: int) -> int:
    """Where a pair is kept: Fibonacci hashing (Knuth, volume 3, 6.4)."""
    return ((pair * -7046029254386353131) >> 40) & (SLOTS - 1)
