"""Tabu search: never worse, always valid, the same again, and better where lists are not best."""

from itertools import islice

import pytest

from synth.folding import fold
from synth.problem import make_problem
from synth.schedule import Certificate, Schedule, value
from synth.simulate import retime
from synth.solve.climb import climb
from synth.solve.listing import one_by_one
from synth.solve.network import Numbering
from synth.solve.tabu import Tabu
from synth.solve.tournament import Tournament
from synth.verify import verify

CASES = [
    ("linear", "makespan", 2),
    ("linear", "span", 3),
    ("v", "makespan", 2),
    ("v", "span", 2),
    ("bidirectional", "makespan", 3),
    ("interleaved:2", "makespan", 3),
]


@pytest.mark.parametrize(("placement", "objective", "memory"), CASES)
def test_every_schedule_is_valid_and_none_is_worse(
    placement: str, objective: str, memory: int
) -> None:
    problem = make_problem(
        4, 6, placement=placement, costs=(5, 6, 4), memory=memory, objective=objective
    )
    folded = fold(problem, 1)
    start = next(s for s in climb(folded, 3) if s is not None)
    search = Tabu(Numbering(folded), start, 0)
    best = search.best
    for _ in range(10):
        search.run(20)
        assert search.best <= best
        best = search.best
        timeline = retime(problem, folded.unfold(search.starts))
        assert value(timeline, problem.objective) == best
        assert not verify(Schedule("tabu", problem, timeline, Certificate(best, 0, "")))


@pytest.mark.parametrize(("memory", "optimum"), [(4, 27), (3, 31)])
def test_it_finds_the_optimum_from_the_poorest_start(memory: int, optimum: int) -> None:
    problem = make_problem(4, 8, memory=memory)
    folded = fold(problem, 1)
    start = folded.starts(retime(problem, one_by_one(problem)))
    search = Tabu(Numbering(folded), start, 0)
    assert search.best == 72
    search.run(10_000)
    assert search.best == optimum


def test_the_same_seed_takes_the_same_steps() -> None:
    folded = fold(make_problem(4, 8, placement="v", costs=(20, 24, 16), comm=3, memory=2), 1)
    start = next(s for s in climb(folded, 1) if s is not None)
    twins = [Tabu(Numbering(folded), start, 7) for _ in range(2)]
    for search in twins:
        search.run(300)
    assert twins[0].starts == twins[1].starts


def test_a_tournament_does_not_depend_on_how_its_steps_are_cut() -> None:
    folded = fold(make_problem(4, 8, placement="v", costs=(20, 24, 16), comm=3, memory=2), 1)
    whole, parts = Tournament(folded, 0), Tournament(folded, 0)
    whole.run(30_000)
    for _ in range(300):
        parts.run(100)
    assert whole.best is not None
    assert (whole.value, whole.best) == (parts.value, parts.best)


def test_a_tournament_keeps_what_it_is_given() -> None:
    folded = fold(make_problem(4, 8, placement="v", costs=(20, 24, 16), comm=3, memory=2), 1)
    better = Tournament(folded, 0)
    better.run(40_000)
    assert better.best is not None
    fresh = Tournament(folded, 5)
    fresh.invite(better.best)
    assert better.value is not None
    assert fresh.value == better.value
    fresh.run(5_000)
    assert fresh.value is not None
    assert fresh.value <= better.value


def test_it_beats_climbing_over_lists() -> None:
    # V, two chunks a device, F10 B12 W8, a hop of 3, room for half of 1F1B's activations.
    folded = fold(make_problem(4, 8, placement="v", costs=(20, 24, 16), comm=3, memory=2), 1)
    tournament = Tournament(folded, 0)
    tournament.run(50_000)
    lists = [s for s in islice(climb(folded, 0), 600) if s is not None]
    listed = min(Tabu(Numbering(folded), s, 0).best for s in lists)
    assert tournament.value is not None
    assert tournament.value < listed
