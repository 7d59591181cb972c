"""The portfolio: bounds, closed forms, list scheduling, ILP; stops when value meets bound."""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import StrEnum

from synth.bounds import Bound, best_bound
from synth.errors import InfeasibleError
from synth.folding import fold
from synth.problem import Problem
from synth.schedule import Certificate, Schedule
from synth.solve.backends import make_backend
from synth.solve.climb import climb
from synth.solve.incumbent import Incumbent, Progress
from synth.solve.listing import Lister, one_by_one, rules
from synth.solve.refine import Deadline, refine

CLIMB_SHARE = 0.3  # of the time left, before the ILP


class Status(StrEnum):
    """How a search ended."""

    OPTIMAL = "optimal"  # the value meets a bound that is named
    FEASIBLE = "feasible"  # a schedule, not proved best
    INFEASIBLE = "infeasible"  # proved that none exists
    UNKNOWN = "unknown"  # nothing found in the time given


@dataclass(frozen=True, slots=True)
class SolveResult:
    """The best schedule with its certificate, how the search ended and how long it took."""

    status: Status
    schedule: Schedule | None
    bound: int | None
    proof: str
    seconds: float


def solve(
    problem: Problem,
    *,
    time_limit_s: float = 60.0,
    seed: int = 0,
    backend: str = "highs",
    progress: Progress | None = None,
) -> SolveResult:
    """Find the best schedule for a problem.

    Returns after `time_limit_s` seconds at the latest (within one model build), or on Ctrl-C, with
    the best verified schedule and its true gap. Raises UsageError for an unknown backend.
    """
    begin = time.monotonic()
    deadline = Deadline(begin + time_limit_s)
    solver = make_backend(backend, seed)
    try:
        bound = best_bound(problem)
    except InfeasibleError as error:
        return SolveResult(Status.INFEASIBLE, None, None, str(error), time.monotonic() - begin)
    incumbent = Incumbent(problem, bound, progress or (lambda _: None))
    try:
        _first_schedules(incumbent, deadline)
        if not incumbent.closed:
            _climb(incumbent, deadline.share(CLIMB_SHARE), seed)
        if not incumbent.closed:
            refine(incumbent, solver, deadline)
    except KeyboardInterrupt:
        incumbent.progress("interrupted: returning the best schedule so far")
    return _result(incumbent, time.monotonic() - begin)


def _first_schedules(incumbent: Incumbent, deadline: Deadline) -> None:
    """Schedules that need no solver: the handcrafted families that fit, then list scheduling."""
    from synth import catalog

    problem = incumbent.problem
    for name in catalog.names():
        family = catalog.family(name)
        if family.refuses(problem) is None and not incumbent.closed:
            incumbent.offer(family.orders(problem), name)
    if incumbent.closed:
        return
    incumbent.offer(one_by_one(problem), "one micro-batch at a time")
    folded = fold(problem, 1)
    lister = Lister(folded)
    for rule in rules(folded):
        if incumbent.closed or deadline.left == 0.0:
            return
        starts = lister.run(rule)
        if starts is not None:
            incumbent.offer(folded.unfold(starts), "list schedule")


def _climb(incumbent: Incumbent, deadline: Deadline, seed: int) -> None:
    """Improve list schedules by climbing over their rules until the deadline."""
    folded = fold(incumbent.problem, 1)
    for starts in climb(folded, seed):
        if starts is not None:
            incumbent.offer(folded.unfold(starts), "climbing over list schedules")
        if incumbent.closed or deadline.left == 0.0:
            return


def _result(incumbent: Incumbent, seconds: float) -> SolveResult:
    bound: Bound = incumbent.bound
    proof = f"{bound.name}: {bound.text}"
    if incumbent.timeline is None or incumbent.value is None:
        return SolveResult(Status.UNKNOWN, None, bound.value, proof, seconds)
    certificate = Certificate(incumbent.value, bound.value, proof)
    schedule = Schedule("solved", incumbent.problem, incumbent.timeline, certificate)
    status = Status.OPTIMAL if certificate.optimal else Status.FEASIBLE
    return SolveResult(status, schedule, bound.value, proof, seconds)
