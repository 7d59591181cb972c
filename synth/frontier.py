"""Frontier: the least bubble for every memory limit, each point with what proves it.

A schedule that keeps within a limit keeps within every larger one, and what is proved impossible
with more memory is impossible with less, so points learn from each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from synth.auto import parameter_factor
from synth.bounds import best_bound, check_memory
from synth.errors import InfeasibleError
from synth.problem import Problem
from synth.schedule import Certificate, Schedule
from synth.simulate import peaks
from synth.solve import SolveResult, Status

Make = Callable[[Fraction | None], Problem]
"""The problem with a memory limit, the same on every device, in the user's units."""
Search = Callable[[Problem], SolveResult]

MOST_STEPS = 2**40  # a grid finer than this against the memory needed is a mistake


@dataclass(frozen=True, slots=True)
class Point:
    """The best schedule found within a limit; `reused` where no search was needed for it."""

    problem: Problem
    limit: Fraction
    result: SolveResult
    reused: bool = False

    @property
    def schedule(self) -> Schedule | None:
        """The schedule, None where there is none."""
        return self.result.schedule

    @property
    def parameters(self) -> Fraction:
        """How often a device holds its share of the parameters."""
        return parameter_factor(self.problem)


@dataclass(frozen=True, slots=True)
class _Proof:
    """No schedule has a value below this many ticks."""

    value: int
    text: str


def least_limit(make: Make, step: Fraction) -> Fraction:
    """The smallest multiple of a step with which a schedule exists.

    Raises InfeasibleError when there is none within reach.
    """
    most = 1
    while not _admits(make, most * step):
        most *= 2
        if most > MOST_STEPS:
            raise InfeasibleError(f"no multiple of {float(step):g} leaves room for a schedule")
    least = most // 2  # does not admit one
    while most - least > 1:
        middle = (most + least) // 2
        if _admits(make, middle * step):
            most = middle
        else:
            least = middle
    return most * step


def _admits(make: Make, limit: Fraction) -> bool:
    try:
        check_memory(make(limit))
    except InfeasibleError:
        return False
    return True


def micro_batch_memory(problem: Problem) -> Fraction:
    """What one micro-batch holds at most on the device where it holds most, in the user's units."""
    held = max(
        sum(
            max(cost.activation_quanta, cost.context_quanta)
            for other, stage in problem.held_stages(device)
            for cost in (problem.cost(other.name, stage),)
            if other is stream
        )
        for device in range(problem.devices)
        for stream in problem.streams
    )
    return Fraction(held, problem.units.quanta_per_unit)


def sweep(
    make: Make,
    search: Search,
    *,
    step: Fraction | None = None,
    limits: Sequence[Fraction] | None = None,
) -> tuple[Point, ...]:
    """A point for each limit, or from the least one up in steps until more memory gains nothing.

    The step is what a micro-batch holds on a device where none is given. A search that Ctrl-C ended
    makes the last point. Raises InfeasibleError when no limit leaves room for a schedule, and
    KeyboardInterrupt when Ctrl-C comes before the first point.
    """
    free = make(None)
    result = search(free)
    if result.interrupted:
        raise KeyboardInterrupt
    known = [] if result.schedule is None else [result.schedule]
    proof = _Proof(result.bound or 0, result.proof)
    if limits is None:
        chosen = step or micro_batch_memory(free)
        grid = _upward(least_limit(make, chosen), chosen) if chosen else iter([chosen])
    else:
        grid = iter(sorted(set(limits)))
    points: list[Point] = []
    try:
        for limit in grid:
            point = _point(make, limit, search, known, proof)
            points.append(point)
            if point.schedule is not None:
                known.append(point.schedule)
            enough = result.schedule is None or _reaches(point, result.schedule)
            if point.result.interrupted or (limits is None and enough):
                break
    except KeyboardInterrupt:  # between two searches
        if not points:
            raise
        points[-1] = replace(points[-1], result=replace(points[-1].result, interrupted=True))
    return _proved(points)


def _upward(first: Fraction, step: Fraction) -> Iterator[Fraction]:
    while True:
        yield first
        first += step


def _reaches(point: Point, free: Schedule) -> bool:
    """Whether a point is as good as what was found without a limit."""
    schedule = point.schedule
    return schedule is not None and schedule.certificate.value <= free.certificate.value


def _point(
    make: Make, limit: Fraction, search: Search, known: Sequence[Schedule], free: _Proof
) -> Point:
    """The point of a limit; no search where a schedule known already meets a bound."""
    try:
        problem = make(limit)
        bound = best_bound(problem)
    except InfeasibleError as error:
        text = str(error).removeprefix("infeasible: ")
        return Point(make(None), limit, SolveResult(Status.INFEASIBLE, None, None, text, 0.0))
    proofs = [_Proof(bound.value, f"{bound.name}: {bound.text}"), free]
    best = _best([_restated(schedule, problem) for schedule in known])
    if best is not None:
        done = _result(problem, best, proofs, 0.0)
        if done.status is Status.OPTIMAL:
            return Point(problem, limit, done, reused=True)
    found = search(problem)
    if found.bound is not None:
        proofs.append(_Proof(found.bound, found.proof))
    best = _best([found.schedule, best])
    done = _result(problem, best, proofs, found.seconds)
    return Point(problem, limit, replace(done, interrupted=found.interrupted))


def _restated(schedule: Schedule, problem: Problem) -> Schedule | None:
    """The schedule as an answer to a problem with another limit; None where it holds too much."""
    held = peaks(problem, schedule.devices)
    for peak, limit in zip(held, problem.limits_quanta, strict=True):
        if limit is not None and peak > limit:
            return None
    return replace(schedule, problem=problem)


def _best(schedules: Sequence[Schedule | None]) -> Schedule | None:
    """The best that there is, the first of equals."""
    found = [schedule for schedule in schedules if schedule is not None]
    return min(found, key=lambda schedule: schedule.certificate.value, default=None)


def _result(
    problem: Problem, schedule: Schedule | None, proofs: Sequence[_Proof], seconds: float
) -> SolveResult:
    """The schedule with the strongest of the proofs, the first of equals."""
    proof = max(proofs, key=lambda proof: proof.value)
    if schedule is None:
        return SolveResult(Status.UNKNOWN, None, proof.value, proof.text, seconds)
    value = schedule.certificate.value
    certificate = Certificate(value, min(value, proof.value), proof.text)
    status = Status.OPTIMAL if certificate.optimal else Status.FEASIBLE
    answer = replace(schedule, problem=problem, certificate=certificate)
    return SolveResult(status, answer, certificate.bound, proof.text, seconds)


def _proved(points: Sequence[Point]) -> tuple[Point, ...]:
    """The points with what is proved for a larger limit counting for the smaller ones."""
    proved: list[Point] = []
    proof = _Proof(0, "")
    for point in reversed(points):
        result = point.result
        if result.bound is not None:
            own = _Proof(result.bound, result.proof)
            better = _result(point.problem, result.schedule, [own, proof], result.seconds)
            point = replace(point, result=replace(better, interrupted=result.interrupted))
            proof = max(own, proof, key=lambda proof: proof.value)
        proved.append(point)
    return tuple(reversed(proved))
