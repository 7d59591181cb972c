"""The best placement: the same model on each one that fits, and what was tried."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from synth.bounds import Bound, best_bound
from synth.errors import InfeasibleError, ProblemError
from synth.problem import Problem
from synth.solve import SolveResult, Status

PLACEMENTS = ("linear", "v", "wave:2", "interleaved:2", "bidirectional")

Make = Callable[[str], Problem]
"""The problem on a placement. Raises ProblemError or InfeasibleError where there is none."""
Search = Callable[[Problem, float], SolveResult]
"""Solves a problem in so many seconds."""


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of one placement: a result, or the reason why it was not searched.

    `bound` is in ticks of its problem, None where nothing is proved.
    """

    placement: str
    problem: Problem | None = None
    result: SolveResult | None = None
    bound: int | None = None
    reason: str = ""

    @property
    def parameters(self) -> Fraction | None:
        """How often a device holds its share of the parameters; None where it has none to hold."""
        return None if self.problem is None else parameter_factor(self.problem)

    @property
    def value(self) -> Fraction | None:
        """What was reached, in units of time."""
        if self.problem is None or self.result is None or self.result.schedule is None:
            return None
        ticks = self.result.schedule.certificate.value
        return Fraction(ticks, self.problem.units.ticks_per_unit)


@dataclass(frozen=True, slots=True)
class Choice:
    """The best of what was tried, in the order asked for; None where nothing was found."""

    best: Tried | None
    tried: tuple[Tried, ...]

    @property
    def infeasible(self) -> bool:
        """Whether every placement is proved to have no schedule."""
        return all(
            entry.result is not None and entry.result.status is Status.INFEASIBLE
            for entry in self.tried
        )


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A placement that memory admits, and what no schedule on it can beat."""

    rank: int
    placement: str
    problem: Problem
    bound: Bound

    @property
    def hopes_for(self) -> tuple[Fraction, Fraction, int]:
        """Sorts the promising first: time, then parameters, then the order asked for."""
        time = Fraction(self.bound.value, self.problem.units.ticks_per_unit)
        return time, parameter_factor(self.problem), self.rank


def parameter_factor(problem: Problem) -> Fraction:
    """Stages that a device holds, over its P-th of the model; the most of any device.

    A stage that two streams share on a device is held once.
    """
    held = max(
        len({stage for _, stage in problem.held_stages(device)})
        for device in range(problem.devices)
    )
    return Fraction(held * problem.devices, len(problem.stages))


def choose(
    make: Make, search: Search, *, time_limit_s: float, placements: Sequence[str] = PLACEMENTS
) -> Choice:
    """Solve on every placement and take the fastest; of equals the one with fewer parameters.

    The most promising come first and share the time evenly, what one leaves going to the others. A
    placement whose bound cannot beat the best so far is not searched, nor any after Ctrl-C.
    """
    entries: dict[str, Tried] = {}
    candidates = []
    for rank, placement in enumerate(placements):
        entry = _candidate(make, rank, placement)
        if isinstance(entry, Tried):
            entries[placement] = entry
        else:
            candidates.append(entry)
    best: Tried | None = None
    left = time_limit_s
    candidates.sort(key=lambda candidate: candidate.hopes_for)
    for place, candidate in enumerate(candidates):
        entry = _try(candidate, best, search, left / (len(candidates) - place))
        entries[candidate.placement] = entry
        if entry.result is not None:
            left = max(0.0, left - entry.result.seconds)
        if entry.value is not None and (best is None or _key(entry) < _key(best)):
            best = entry
        if entry.result is not None and entry.result.interrupted:
            entries |= _untried(candidates[place + 1 :])
            break
    return Choice(best, tuple(entries[placement] for placement in placements))


def _untried(candidates: Sequence[_Candidate]) -> dict[str, Tried]:
    """What Ctrl-C left no time for."""
    return {
        left.placement: Tried(
            left.placement, left.problem, bound=left.bound.value, reason="interrupted"
        )
        for left in candidates
    }


def _candidate(make: Make, rank: int, placement: str) -> _Candidate | Tried:
    """The problem on a placement with its bound, or why there is none."""
    problem = None
    try:
        problem = make(placement)
        bound = best_bound(problem)
    except InfeasibleError as error:
        text = str(error).removeprefix("infeasible: ")
        result = SolveResult(Status.INFEASIBLE, None, None, text, 0.0)
        return Tried(placement, problem, result, reason=text)
    except ProblemError as error:
        return Tried(placement, reason=str(error))
    return _Candidate(rank, placement, problem, bound)


def _try(candidate: _Candidate, best: Tried | None, search: Search, seconds: float) -> Tried:
    placement, problem, bound = candidate.placement, candidate.problem, candidate.bound
    if best is not None and candidate.hopes_for[:2] >= _key(best):
        text = f"cannot be better ({bound.name}: {bound.text})"
        return Tried(placement, problem, bound=bound.value, reason=text)
    result = search(problem, seconds)
    reason = "" if result.schedule is not None else result.proof
    return Tried(placement, problem, result, result.bound, reason)


def _key(entry: Tried) -> tuple[Fraction, Fraction]:
    assert entry.value is not None
    assert entry.parameters is not None
    return entry.value, entry.parameters
