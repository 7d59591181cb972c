"""Heads, tails and moves of device orders against the simulator and a fresh start."""

import random
from itertools import islice

import numpy as np
import pytest

from synth.errors import InvalidScheduleError, ProblemError
from synth.folding import Folded, fold
from synth.problem import make_problem
from synth.schedule import value
from synth.simulate import retime
from synth.solve.climb import climb
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
    moved,
    sequences,
)


def scheduled(seed: int, objective: str) -> tuple[Folded, Starts]:
    """A small problem and start times that fit its memory."""
    rng = random.Random(seed)
    while True:
        try:
            problem = make_problem(
                rng.randint(2, 4),
                2 * rng.randint(1, 3),
                placement=rng.choice(["linear", "v", "interleaved:2", "bidirectional"]),
                costs=[rng.randint(1, 5) for _ in range(3)],
                comm=rng.choice([0, 1, 3]),
                memory=rng.randint(2, 6),
                objective=objective,
            )
        except ProblemError:
            continue
        folded = fold(problem, 1)
        for starts in islice(climb(folded, seed), 20):
            if starts is not None:
                return folded, starts


def graph(folded: Folded, starts: Starts) -> tuple[Numbering, Sequences]:
    numbering = Numbering(folded)
    return numbering, sequences(numbering.network, numbering.rows(starts))


def ops(network: Network, now: Sequences, device: int) -> list[int]:
    """A device's order."""
    found: list[int] = now.rows[device, : network.counts[device]].tolist()
    return found


def is_sorted(network: Network, now: Sequences) -> bool:
    """Whether every op is behind all it waits for."""
    ends = np.repeat(np.arange(len(network.steps)), np.diff(network.before_at))
    behind = now.previous >= 0
    return bool(
        np.all(now.rank[network.before] < now.rank[ends])
        and np.all(now.rank[now.previous[behind]] < now.rank[behind])
        and np.array_equal(now.rank[now.sorted], np.arange(len(now.rank)))
    )


@pytest.mark.parametrize("objective", ["makespan", "span"])
@pytest.mark.parametrize("seed", range(12))
def test_the_length_is_the_best_value_of_the_orders(seed: int, objective: str) -> None:
    folded, starts = scheduled(seed, objective)
    numbering, now = graph(folded, starts)
    best = value(retime(folded.problem, folded.unfold(starts)), folded.problem.objective)
    assert now.longest[0] == best
    assert is_sorted(numbering.network, now)
    rows = folded.unfold(numbering.starts(earliest_heads(numbering.network, now)))
    assert value(retime(folded.problem, rows), folded.problem.objective) == best


@pytest.mark.parametrize("objective", ["makespan", "span"])
@pytest.mark.parametrize("seed", range(12))
def test_a_move_mends_what_a_fresh_start_finds(seed: int, objective: str) -> None:
    folded, starts = scheduled(seed, objective)
    numbering, now = graph(folded, starts)
    network, rng = numbering.network, random.Random(seed)
    made = 0
    for _ in range(60):
        device = rng.randrange(len(network.counts))
        row = ops(network, now, device)
        low = rng.randrange(len(row) - 1)
        move = Move(device, low, min(low + rng.randint(1, 3), len(row) - 1), rng.random() < 0.5)
        if goes_round(network, now, move) or not fits(network, now, move):
            continue
        planned = [moved(now, move, position) for position in range(low, move.high + 1)]
        make(network, now, move)
        made += 1
        assert ops(network, now, device) == row[:low] + planned + row[move.high + 1 :]
        assert is_sorted(network, now)
        fresh = sequences(network, now.rows.copy())
        for name in ("place", "previous", "next", "held", "longest"):
            assert np.array_equal(getattr(now, name), getattr(fresh, name)), name
        for name in ("heads", "tails"):  # below zero there is no path
            mended, found = (np.maximum(getattr(s, name), -1) for s in (now, fresh))
            assert np.array_equal(mended, found), name
    assert made


@pytest.mark.parametrize("seed", range(15))
def test_no_move_that_is_admitted_goes_round(seed: int) -> None:
    folded, starts = scheduled(seed, "makespan")
    numbering, now = graph(folded, starts)
    network = numbering.network
    for device in range(len(network.counts)):
        count = int(network.counts[device])
        for low in range(count - 1):
            for high in range(low + 1, min(low + 5, count)):
                for first_moves in (True, False):
                    move = Move(device, low, high, first_moves)
                    if goes_round(network, now, move):
                        continue
                    rows = now.rows.copy()
                    places = range(low, high + 1)
                    rows[device, low : high + 1] = [moved(now, move, place) for place in places]
                    runs(network, rows)


def runs(network: Network, rows: Integers) -> None:
    """Fails where devices that run these orders wait for each other."""
    done: set[int] = set()
    positions = [0] * len(rows)
    while len(done) < len(network.steps):
        before = len(done)
        for device, row in enumerate(rows):
            while positions[device] < network.counts[device]:
                op = row[positions[device]]
                arcs = slice(network.before_at[op], network.before_at[op + 1])
                if not done.issuperset(network.before[arcs].tolist()):
                    break
                done.add(int(op))
                positions[device] += 1
        if len(done) == before:
            raise InvalidScheduleError(f"stuck behind {len(done)} ops")


def test_two_stages_by_hand() -> None:
    # F0 F1 | B0 W0 B1 W1 on device 0, F0 B0 W0 F1 B1 W1 on device 1, one tick each:
    #   device 0: F0 F1 .  B0 W0 .  B1 W1
    #   device 1: .  F0 B0 W0 F1 B1 W1
    folded = fold(make_problem(2, 2), 1)
    numbering = Numbering(folded)
    network = numbering.network
    numbers = {
        (chain.kind.name, chain.stage, i): numbering.op(index, i)
        for index, chain in enumerate(folded.chains)
        for i in range(chain.count)
    }
    rows = [
        [numbers[name[0], device, int(name[1])] for name in order.split()]
        for device, order in enumerate(["F0 F1 B0 W0 B1 W1", "F0 B0 W0 F1 B1 W1"])
    ]
    now = sequences(network, np.array(rows))
    assert [now.heads[op] for op in rows[0]] == [0, 1, 3, 4, 6, 7]
    assert [now.heads[op] for op in rows[1]] == [1, 2, 3, 4, 5, 6]
    assert now.longest[0] == 8
    # Moving W0 of device 1 behind B1 lets B1 of device 0 start one tick sooner.
    position = rows[1].index(numbers["W", 1, 0])
    move = Move(1, position, position + 2, True)
    assert estimate(network, now, move) <= 7
    make(network, now, move)
    assert now.longest[0] == 7
