"""The portfolio: bounds, closed forms, list scheduling, ILP; stops when value meets bound."""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from synth.bounds import Bound, best_bound
from synth.errors import InfeasibleError
from synth.folding import Folded, fold
from synth.problem import Problem
from synth.schedule import Certificate, Schedule
from synth.simulate import earliest
from synth.solve.apart import search_apart
from synth.solve.backends import Backend, make_backend
from synth.solve.cpsat import improve_by_cpsat
from synth.solve.deadline import Deadline
from synth.solve.growing import Growth
from synth.solve.improver import Improver
from synth.solve.incumbent import Incumbent
from synth.solve.interrupt import Interrupts
from synth.solve.kernels import Kernels
from synth.solve.quick import best_starts, first_schedules, first_search, offer_starts
from synth.solve.refute import refute
from synth.solve.report import Progress

if TYPE_CHECKING:
    from synth.solve.corridor import Corridor
    from synth.solve.tournament import Tournament

FIRST_SLICE_S = 2.0  # for each solver
FIRST_REFUTATION = 0.15  # of the time there is, at most
STEP_OPS = 15_000_000  # ops that a second's steps of the tournament look at


class Status(StrEnum):
    """How a search ended."""

    OPTIMAL = "optimal"  # the value meets a bound that is named
    FEASIBLE = "feasible"  # a schedule, not proved best
    INFEASIBLE = "infeasible"  # proved that none exists
    UNKNOWN = "unknown"  # nothing found in the time given


@dataclass(frozen=True, slots=True)
class SolveResult:
    """The best schedule with its certificate, how the search ended and how long it took.

    `interrupted` where Ctrl-C ended it.
    """

    status: Status
    schedule: Schedule | None
    bound: int | None
    proof: str
    seconds: float
    interrupted: bool = False


def solve(
    problem: Problem,
    *,
    time_limit_s: float = 60.0,
    seed: int = 0,
    backend: str = "highs",
    progress: Progress | None = None,
    apart: bool = False,
) -> SolveResult:
    """Find the best schedule for a problem.

    Returns after `time_limit_s` seconds, or on Ctrl-C, with the best verified schedule and its true
    gap: once the model being built and the solver running are done, or, with the search `apart` in
    a process of its own, at once. Raises UsageError for an unknown backend.
    """
    begin = time.monotonic()
    deadline = Deadline.after(time_limit_s)
    with Interrupts() as interrupts:
        solver = make_backend(backend, seed)
        interrupts.check()
        try:
            bound = best_bound(problem)
        except InfeasibleError as error:
            return SolveResult(Status.INFEASIBLE, None, None, str(error), time.monotonic() - begin)
        incumbent = Incumbent(problem, bound, progress or (lambda _: None))
        interrupted = False
        try:
            first_schedules(incumbent, deadline)
            first_search(incumbent, deadline, seed)
            interrupts.check()
            if not incumbent.closed and deadline.left > 0.0:
                (search_apart if apart else search)(incumbent, solver, deadline)
        except KeyboardInterrupt:
            interrupted = True
            incumbent.note("interrupted: returning the best schedule so far")
        return _result(incumbent, time.monotonic() - begin, interrupted)


def search(incumbent: Incumbent, backend: Backend, deadline: Deadline) -> None:
    """A bound from the orders of single devices, then rounds of ILP, CP-SAT and tabu search.

    Solvers that get nowhere sit out a round, and have twice the time in the next. With two cores
    one tournament goes on in a process of its own all the time; the other one takes turns with the
    solvers, and has steady kernels in it.
    """
    # PuLP and Numba are slow to import, and most problems need none.
    from synth.solve.corridor import Corridor
    from synth.solve.tabu import tell_of_compiler
    from synth.solve.tournament import Tournament

    tell_of_compiler(incumbent.note)
    folded = fold(incumbent.problem, 1)
    ops = len(folded.chains) * incumbent.problem.total_microbatches
    second = Tournament(folded, backend.seed + 2)
    corridor = Corridor()
    growth = Growth.of(incumbent.problem, backend.seed)
    kernels = Kernels(incumbent.problem)
    slice_s, helped = FIRST_SLICE_S, True
    with Improver(incumbent.problem, backend.seed + 1) as improver:
        refute(incumbent, deadline.within(FIRST_REFUTATION * deadline.left))
        while not incumbent.closed and deadline.left > 0.0:
            steps = max(1, round(2 * slice_s * STEP_OPS / ops))
            best = best_starts(incumbent, folded)
            improver.ask((1 + helped) * steps, best, incumbent.bound.value)
            if growth is not None:
                growth.search(incumbent, backend, round(slice_s), deadline)
            solving = helped
            helped = not solving or _solve_exactly(incumbent, backend, corridor, slice_s, deadline)
            for orders in kernels.search(incumbent, backend, deadline.within(2 * slice_s)):
                second.enter(folded.starts(earliest(incumbent.problem, orders)))
            _search_too(incumbent, folded, second, steps, improver, deadline)
            if not incumbent.closed:
                incumbent.run("tabu search")
                offer_starts(incumbent, folded, improver.answer(deadline.left))
            slice_s *= 1 + solving


def _solve_exactly(
    incumbent: Incumbent,
    backend: Backend,
    corridor: Corridor,
    slice_s: float,
    deadline: Deadline,
) -> bool:
    """A slice of time for each solver. Returns whether the bracket got narrower."""
    from synth.solve.refine import refine

    before = incumbent.value, incumbent.bound.value
    refine(incumbent, backend, deadline.within(slice_s))
    if before[0] == incumbent.value:
        corridor.search(incumbent, backend, deadline.within(slice_s))
    if not incumbent.closed:
        improve_by_cpsat(incumbent, backend.seed, slice_s, deadline)
    return before != (incumbent.value, incumbent.bound.value)


def _search_too(
    incumbent: Incumbent,
    folded: Folded,
    tournament: Tournament,
    steps: int,
    improver: Improver,
    deadline: Deadline,
) -> None:
    """Tabu search in this process as well, until one of the two finds what meets the bound."""
    if incumbent.closed:
        return
    incumbent.run("tabu search")
    best = best_starts(incumbent, folded)
    if best is not None:
        tournament.invite(best)
    tournament.run_until(
        steps, incumbent.bound.value, lambda: improver.has_enough or deadline.left == 0.0
    )
    offer_starts(incumbent, folded, tournament.best)


def _result(incumbent: Incumbent, seconds: float, interrupted: bool) -> SolveResult:
    bound: Bound = incumbent.bound
    proof = f"{bound.name}: {bound.text}"
    if incumbent.timeline is None or incumbent.value is None:
        return SolveResult(Status.UNKNOWN, None, bound.value, proof, seconds, interrupted)
    certificate = Certificate(incumbent.value, bound.value, proof)
    schedule = Schedule("solved", incumbent.problem, incumbent.timeline, certificate)
    status = Status.OPTIMAL if certificate.optimal else Status.FEASIBLE
    return SolveResult(status, schedule, bound.value, proof, seconds, interrupted)
