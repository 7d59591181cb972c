"""Orders from elsewhere become a schedule of ours: timed, verified and with a bound."""

from __future__ import annotations

from synth.bounds import best_bound
from synth.errors import InvalidScheduleError
from synth.problem import Problem
from synth.schedule import Certificate, Orders, Schedule, value
from synth.simulate import retime
from synth.verify import verify


def adopt(name: str, problem: Problem, orders: Orders) -> Schedule:
    """The orders with their best times.

    Raises InvalidScheduleError, naming the first violation, for orders that do not answer the
    problem.
    """
    timeline = retime(problem, orders)
    reached = value(timeline, problem.objective)
    unproved = Schedule(name, problem, timeline, Certificate(reached, 0, "none"))
    if violations := verify(unproved):
        more = f" (and {len(violations) - 1} more)" if len(violations) > 1 else ""
        raise InvalidScheduleError(f"{name}: {violations[0]}{more}")
    bound = best_bound(problem)
    certificate = Certificate(reached, bound.value, f"{bound.name}: {bound.text}")
    return Schedule(name, problem, timeline, certificate)
