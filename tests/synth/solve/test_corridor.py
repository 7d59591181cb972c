"""The ILP near a known schedule: better ones where they are near, wider where they are not."""

import pytest

from synth.bounds import best_bound
from synth.folding import fold
from synth.problem import make_problem
from synth.simulate import earliest
from synth.solve.backends import make_backend
from synth.solve.corridor import Corridor, near
from synth.solve.deadline import Deadline
from synth.solve.incumbent import Incumbent
from synth.solve.listing import one_by_one
from synth.solve.windows import makespan_windows


@pytest.mark.parametrize("placement", ["linear", "v"])
def test_it_leads_from_the_poorest_schedule_to_the_best(placement: str) -> None:
    problem = make_problem(3, 4, placement=placement, memory=2)
    incumbent = Incumbent(problem, best_bound(problem), lambda _: None)
    incumbent.offer(one_by_one(problem), "one micro-batch at a time")
    poorest = incumbent.value
    assert poorest is not None
    corridor = Corridor()
    for _ in range(3):
        corridor.search(incumbent, make_backend("highs"), Deadline.after(60))
    assert incumbent.value is not None
    assert incumbent.value < poorest
    # Once the corridor is as wide as the horizon, nothing better exists.
    exact = {"linear": 17, "v": 29}  # in steps; a step of v is half a unit
    assert incumbent.value // fold(problem, 1).step_ticks == exact[placement]


def test_windows_lie_within_those_of_the_horizon_and_about_the_schedule() -> None:
    problem = make_problem(3, 5, memory=2)
    folded = fold(problem, 1)
    starts = folded.starts(earliest(problem, one_by_one(problem)))
    horizon = max(times[-1] for times in starts)
    whole, cut = makespan_windows(folded, horizon), near(folded, starts, horizon, 2)
    for chain, wide, window, times in zip(
        folded.chains, whole.chains, cut.chains, starts, strict=True
    ):
        assert window.latest_end is not None
        assert wide.latest_end is not None
        for number, time in enumerate(times):
            low, high = window.earliest[number], window.latest_end[number]
            assert wide.earliest[number] <= low <= high - chain.steps
            assert high <= wide.latest_end[number]
            inside = wide.earliest[number] <= time <= wide.latest_end[number] - chain.steps
            assert not inside or low >= time - 2
            assert not inside or high <= time + chain.steps + 2
