"""What takes no time to speak of: closed forms, list scheduling, some steps of tabu search."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from synth.bounds import Bound
from synth.folding import Folded, fold
from synth.problem import Problem
from synth.schedule import Certificate, Schedule
from synth.separate import separated
from synth.solve.deadline import Deadline
from synth.solve.growing import grow_quickly
from synth.solve.incumbent import Incumbent
from synth.solve.listing import Lister, Starts, one_by_one, rules

FIRST_STEPS = 5_000  # of the tournament
FEW_OPS = 4_000  # more than this do not search before the solvers start


def solve_quickly(problem: Problem, bound: Bound) -> Schedule | None:
    """A good schedule by what needs no clock, None where nothing fits."""
    incumbent = Incumbent(problem, bound, lambda _: None)
    first_schedules(incumbent, Deadline(inf))
    first_search(incumbent, Deadline(inf), seed=0)
    if incumbent.timeline is None or incumbent.value is None:
        return None
    certificate = Certificate(incumbent.value, bound.value, f"{bound.name}: {bound.text}")
    return Schedule("quick", problem, incumbent.timeline, certificate)


def first_schedules(incumbent: Incumbent, deadline: Deadline) -> None:
    """Schedules that need no solver: the handcrafted families that fit, then list scheduling."""
    from synth import catalog

    problem = incumbent.problem
    first = [name for name in catalog.names() if name.startswith("zb-")]
    _closed_forms(incumbent, deadline, sorted(first, key=lambda name: not name.startswith("zb-h")))
    grow_quickly(incumbent, deadline.within(deadline.left / 4), seed=0)
    _closed_forms(incumbent, deadline, [name for name in catalog.names() if name not in first])
    if incumbent.closed:
        return
    incumbent.offer(one_by_one(problem), "one micro-batch at a time")
    incumbent.run("list scheduling")
    for costs in dict.fromkeys((problem, separated(problem) or problem)):
        folded = fold(costs, 1)
        lister = Lister(folded)
        for rule in rules(folded):
            if incumbent.closed or deadline.left == 0.0:
                return
            starts = lister.run(rule)
            if starts is not None:
                incumbent.offer(folded.unfold(starts), "list schedule")


def _closed_forms(incumbent: Incumbent, deadline: Deadline, names: Iterable[str]) -> None:
    """The handcrafted families of these names that fit."""
    from synth import catalog

    for name in names:
        if incumbent.closed or deadline.left == 0.0:
            return
        family = catalog.family(name)
        if family.refuses(incumbent.problem) is None:
            incumbent.run(name)
            incumbent.offer(family.orders(incumbent.problem), name)


def first_search(incumbent: Incumbent, deadline: Deadline, seed: int) -> None:
    """Some steps of the tournament, where they take less than the solvers need to start."""
    # Numba is slow to import, and most problems need none.
    from synth.solve.tabu import tell_of_compiler
    from synth.solve.tournament import Tournament

    if incumbent.closed or deadline.left == 0.0:
        return
    folded = fold(incumbent.problem, 1)
    if len(folded.chains) * incumbent.problem.total_microbatches <= FEW_OPS:
        incumbent.run("tabu search")
        tell_of_compiler(incumbent.note)
        tournament = Tournament(folded, seed)
        best = best_starts(incumbent, folded)
        if best is not None:
            tournament.invite(best)
        tournament.run(FIRST_STEPS)
        offer_starts(incumbent, folded, tournament.best)


def best_starts(incumbent: Incumbent, folded: Folded) -> Starts | None:
    """The start times of the best schedule, in steps; None while there is none."""
    return None if incumbent.timeline is None else folded.starts(incumbent.timeline)


def offer_starts(incumbent: Incumbent, folded: Folded, starts: Starts | None) -> None:
    """Offer what a tournament found, if anything."""
    if starts is not None:
        incumbent.offer(folded.unfold(starts), "tabu search")
