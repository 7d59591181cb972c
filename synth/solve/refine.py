"""The search between bound and incumbent: one ILP per horizon, feasible or refuted.

Feasibility is monotone in the horizon, so every answer narrows the bracket from one side. Horizons
that a time slice leaves open are set aside while easier ones on both sides are tried, and come back
with a longer slice.
"""

from __future__ import annotations

from dataclasses import dataclass

from synth.bounds import Bound
from synth.folding import Folded, exact_step, fold
from synth.problem import Objective
from synth.separate import separated
from synth.solve.backends import Answer, Backend
from synth.solve.deadline import Deadline
from synth.solve.formulation import Model, build
from synth.solve.incumbent import Incumbent
from synth.solve.meeting import rooted
from synth.solve.refute import refute
from synth.solve.windows import free_windows, makespan_windows, relaxed_windows, span_windows

REFUTATION = 0.75  # of the time of a call, at most, for the orders of single devices
MAX_TRIES = 3  # horizons that share the time of a call
MAX_COUNTERS = 60_000  # beyond this many counters a single solve takes minutes


def refine(incumbent: Incumbent, backend: Backend, deadline: Deadline) -> None:
    """Narrow the bracket until it closes or the time is over."""
    problem = incumbent.problem
    if incumbent.value is None:
        return  # nothing to start from: too many stages for `alone` to find an order that fits
    refute(incumbent, deadline.within(REFUTATION * deadline.left))
    exact = exact_step(problem)
    bounding = separated(problem) or problem  # else nothing counts as refuted
    chains = 3 * len(problem.stages) * len(problem.streams)
    least = -(-incumbent.value * chains // MAX_COUNTERS)  # ticks per step, for the model's size
    if least > exact:
        step = exact * -(-least // exact)
        incumbent.note(f"the costs need a coarser grid: {step} ticks a step")
        grids = Grids(fold(problem, step), fold(bounding, step, round_up=False))
        _narrow(incumbent, backend, deadline, grids)
        return
    folded = fold(problem, exact)
    same = bounding is problem
    down = folded if same else fold(bounding, exact, round_up=False)
    _narrow(incumbent, backend, deadline, Grids(folded, down))
    if same and problem.objective is Objective.SPAN and least <= 1 < exact:
        # Windows that depend on each other can need starts between the grid's steps.
        folded = fold(problem, 1)
        _narrow(incumbent, backend, deadline, Grids(folded, folded))


@dataclass(frozen=True, slots=True)
class Grids:
    """Durations rounded up, to find schedules, and down, to refute; one and the same if exact."""

    up: Folded
    down: Folded

    @property
    def exact(self) -> bool:
        """Whether nothing was rounded."""
        return self.up is self.down

    @property
    def step(self) -> int:
        """Ticks per step."""
        return self.up.step_ticks


def _narrow(incumbent: Incumbent, backend: Backend, deadline: Deadline, grids: Grids) -> None:
    """Bisect, beginning at the bound itself, which is most often the answer.

    Every horizon gets a part of the time left, the larger the fewer are open; one that remains
    undecided is not tried again before the next call, which brings more time.
    """
    step = grids.step
    undecided: set[int] = set()
    first = True
    while not incumbent.closed and deadline.left > 0.05:
        assert incumbent.value is not None
        low = -(-incumbent.bound.value // step)
        high = -(-incumbent.value // step) - 1
        candidates = [h for h in range(low, high + 1) if h not in undecided]
        if not candidates:
            return
        horizon = low if first else _pick(candidates)
        first = False
        seconds = deadline.left / min(len(candidates), MAX_TRIES)
        if not _try(incumbent, backend, seconds, horizon, grids):
            undecided.add(horizon)


def _pick(candidates: list[int]) -> int:
    """The middle of the longest stretch of horizons that is still untouched."""
    stretches: list[list[int]] = [[candidates[0]]]
    for horizon in candidates[1:]:
        if horizon == stretches[-1][-1] + 1:
            stretches[-1].append(horizon)
        else:
            stretches.append([horizon])
    longest = max(stretches, key=len)
    return longest[(len(longest) - 1) // 2]


def _try(
    incumbent: Incumbent, backend: Backend, seconds: float, horizon: int, grids: Grids
) -> bool:
    """One horizon. Returns whether the bracket moved."""
    up, down = grids.up, grids.down
    units = incumbent.problem.units
    incumbent.run(f"ILP, horizon {units.time_text(horizon * grids.step)}")
    if incumbent.problem.objective is Objective.MAKESPAN:
        model = build(up, makespan_windows(up, horizon))
        answer = _solve(model, backend, seconds)
        if answer is Answer.FEASIBLE:
            return incumbent.offer(up.unfold(model.starts()), f"ILP, horizon {horizon}")
        if not grids.exact:
            model = build(down, makespan_windows(down, horizon))
            answer = _solve(model, backend, seconds)
            if answer is Answer.FEASIBLE:  # perhaps in its own times too, or with B and W fused
                return incumbent.offer(down.unfold(model.starts()), f"ILP, horizon {horizon}")
        return answer is Answer.INFEASIBLE and _refuted(incumbent, (horizon + 1) * grids.step)
    model = build(up, span_windows(up, horizon))
    if _solve(model, backend, seconds) is Answer.FEASIBLE:
        return incumbent.offer(up.unfold(model.starts()), f"ILP, horizon {horizon}")
    if rooted(incumbent.problem):
        relaxed = build(down, relaxed_windows(down, horizon))
        if _solve(relaxed, backend, seconds) is Answer.INFEASIBLE:
            return _refuted(incumbent, (horizon + 1) * grids.step)
    return _try_free_windows(incumbent, backend, seconds, horizon, grids)


def _try_free_windows(
    incumbent: Incumbent, backend: Backend, seconds: float, horizon: int, grids: Grids
) -> bool:
    """The exact span model, where every device chooses when its window opens."""
    up, down = grids.up, grids.down
    model = build(up, free_windows(up, horizon), free_span=horizon)
    answer = _solve(model, backend, seconds)
    if answer is Answer.FEASIBLE:
        return incumbent.offer(up.unfold(model.starts()), f"ILP, free windows, horizon {horizon}")
    if grids.exact:
        # Windows that bind each other can meet between two steps, so only the horizon is refuted.
        return answer is Answer.INFEASIBLE and _refuted(incumbent, horizon * grids.step + 1)
    # Rounding start and end of a window down can lengthen it by a step.
    model = build(down, free_windows(down, horizon + 1), free_span=horizon + 1)
    answer = _solve(model, backend, seconds)
    return answer is Answer.INFEASIBLE and _refuted(incumbent, horizon * grids.step + 1)


def _solve(model: Model, backend: Backend, seconds: float) -> Answer:
    if model.trivially_infeasible:
        return Answer.INFEASIBLE
    return backend.solve(model.program, seconds)


def _refuted(incumbent: Incumbent, ticks: int) -> bool:
    """The ILP proved that no schedule of separate F, B and W has a value below `ticks`."""
    assert incumbent.value is not None
    if separated(incumbent.problem) is None:
        return False  # paired ops, which the ILP does not know, may be faster
    units = incumbent.problem.units
    text = f"the ILP has no solution in less than {units.time_text(ticks)}"
    incumbent.raise_bound(Bound(min(ticks, incumbent.value), "refutation", text))
    return True
