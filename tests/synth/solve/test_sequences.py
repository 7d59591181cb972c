"""Heads, tails and moves of device orders against the simulator and a fresh start."""

import random
from itertools import islice

import pytest

from synth.errors import InvalidScheduleError, ProblemError
from synth.folding import Folded, fold
from synth.problem import Objective, make_problem
from synth.schedule import value
from synth.simulate import retime
from synth.solve.climb import climb
from synth.solve.listing import Starts
from synth.solve.sequences import Flat, Sequences, SpanSequences

GRAPHS = {Objective.MAKESPAN: Sequences, Objective.SPAN: SpanSequences}


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


def graph(folded: Folded, starts: Starts) -> Sequences:
    flat = Flat.of(folded)
    return GRAPHS[folded.problem.objective](flat, flat.order(starts))


@pytest.mark.parametrize("objective", ["makespan", "span"])
@pytest.mark.parametrize("seed", range(12))
def test_the_length_is_the_best_value_of_the_orders(seed: int, objective: str) -> None:
    folded, starts = scheduled(seed, objective)
    now = graph(folded, starts)
    best = value(retime(folded.problem, folded.unfold(starts)), folded.problem.objective)
    assert now.length == best
    rows = folded.unfold(now.starts())
    assert value(retime(folded.problem, rows), folded.problem.objective) == best


@pytest.mark.parametrize("objective", ["makespan", "span"])
@pytest.mark.parametrize("seed", range(12))
def test_a_move_mends_what_a_fresh_start_finds(seed: int, objective: str) -> None:
    folded, starts = scheduled(seed, objective)
    now, rng = graph(folded, starts), random.Random(seed)
    for _ in range(60):
        device = rng.randrange(len(now.rows))
        row = now.rows[device]
        low = rng.randrange(len(row) - 1)
        old = row[low : low + rng.randint(2, 4)]
        first_moves = rng.random() < 0.5
        new = [*old[1:], old[0]] if first_moves else [old[-1], *old[:-1]]
        if now.goes_round(old, first_moves=first_moves) or not now.fits(
            device, now.held[old[0]], new
        ):
            continue
        now.put(device, low, new)
        fresh = type(now)(now.flat, [list(row) for row in now.rows])
        assert (now.heads, now.tails, now.length) == (fresh.heads, fresh.tails, fresh.length)
        assert (now.held, now.previous, now.next) == (fresh.held, fresh.previous, fresh.next)


@pytest.mark.parametrize("seed", range(15))
def test_no_move_that_is_admitted_goes_round(seed: int) -> None:
    folded, starts = scheduled(seed, "makespan")
    now = graph(folded, starts)
    for device, row in enumerate(now.rows):
        for low in range(len(row) - 1):
            for high in range(low + 1, min(low + 5, len(row))):
                for first_moves in (True, False):
                    old = row[low : high + 1]
                    if now.goes_round(old, first_moves=first_moves):
                        continue
                    new = [*old[1:], old[0]] if first_moves else [old[-1], *old[:-1]]
                    moved = [list(r) for r in now.rows]
                    moved[device][low : high + 1] = new
                    runs(folded, now, moved)


def runs(folded: Folded, now: Sequences, rows: list[list[int]]) -> None:
    """Fails where the simulator does not get through the orders."""
    ops = {
        base + number: (chain, number)
        for base, chain in zip(now.flat.first, folded.chains, strict=True)
        for number in range(chain.count)
    }
    done: set[int] = set()
    positions = [0] * len(rows)
    while sum(positions) < len(ops):
        before = sum(positions)
        for device, row in enumerate(rows):
            while positions[device] < len(row):
                op = row[positions[device]]
                if not all(other in done for other, _ in now.flat.before[op]):
                    break
                done.add(op)
                positions[device] += 1
        if sum(positions) == before:
            raise InvalidScheduleError(f"stuck behind {len(done)} ops")


def test_two_stages_by_hand() -> None:
    # F0 F1 | B0 W0 B1 W1 on device 0, F0 B0 W0 F1 B1 W1 on device 1, one tick each:
    #   device 0: F0 F1 .  B0 W0 .  B1 W1
    #   device 1: .  F0 B0 W0 F1 B1 W1
    problem = make_problem(2, 2)
    folded = fold(problem, 1)
    flat = Flat.of(folded)
    numbers = {
        (chain.kind.name, chain.stage, i): base + i
        for base, chain in zip(flat.first, folded.chains, strict=True)
        for i in range(chain.count)
    }
    rows = [
        [numbers[name[0], device, int(name[1])] for name in order.split()]
        for device, order in enumerate(["F0 F1 B0 W0 B1 W1", "F0 B0 W0 F1 B1 W1"])
    ]
    now = Sequences(flat, rows)
    assert [now.heads[op] for op in rows[0]] == [0, 1, 3, 4, 6, 7]
    assert [now.heads[op] for op in rows[1]] == [1, 2, 3, 4, 5, 6]
    assert now.length == 8
    # Moving W0 of device 1 behind B1 lets B1 of device 0 start one tick sooner.
    position = rows[1].index(numbers["W", 1, 0])
    old = rows[1][position : position + 3]
    new = [*old[1:], old[0]]
    assert now.estimate(new, now.previous[old[0]], now.next[old[-1]]) <= 7
    now.put(1, position, new)
    assert now.length == 7
