"""Fix and optimise: the ILP with every op kept near where the best schedule has it.

Where the whole model is too large to be solved, most of its counters are fixed by windows around
the start times of a known schedule, and what is left decides whether a shorter one is near. The
width follows the solver: wider where nothing is near, narrower where the time was not enough.
"""

from __future__ import annotations

from synth.folding import Folded, exact_step, fold
from synth.problem import Objective
from synth.solve.backends import Answer, Backend
from synth.solve.deadline import Deadline
from synth.solve.formulation import build
from synth.solve.incumbent import Incumbent
from synth.solve.listing import Starts
from synth.solve.windows import Window, Windows, makespan_windows

FIRST_WIDTH = 4  # steps that an op may move, either way
MAX_COUNTERS = 20_000


class Corridor:
    """A search around the incumbent that goes on where it left off; for the makespan only."""

    def __init__(self) -> None:
        self._width = FIRST_WIDTH

    def search(self, incumbent: Incumbent, backend: Backend, deadline: Deadline) -> None:
        """Look for better and better schedules near the best until the time is over."""
        problem = incumbent.problem
        if problem.objective is not Objective.MAKESPAN or incumbent.timeline is None:
            return
        folded = fold(problem, exact_step(problem))
        while not incumbent.closed and deadline.left > 0.05:
            assert incumbent.timeline is not None
            assert incumbent.value is not None
            horizon = incumbent.value // folded.step_ticks - 1
            incumbent.run(f"ILP within {self._width} steps of the best schedule")
            windows = near(folded, folded.starts(incumbent.timeline), horizon, self._width)
            if _size(windows) > MAX_COUNTERS:
                return
            if not self._try(incumbent, backend, deadline, folded, windows):
                return

    def _try(
        self,
        incumbent: Incumbent,
        backend: Backend,
        deadline: Deadline,
        folded: Folded,
        windows: Windows,
    ) -> bool:
        """One model. Returns whether there is any use in another one."""
        assert incumbent.value is not None
        model = build(folded, windows)
        answer = Answer.INFEASIBLE
        if not model.trivially_infeasible:
            answer = backend.solve(model.program, deadline.left)
        if answer is Answer.FEASIBLE:
            return incumbent.offer(folded.unfold(model.starts()), "ILP near the best schedule")
        if answer is Answer.INFEASIBLE:
            self._width *= 2
            return self._width < incumbent.value // folded.step_ticks
        self._width = max(1, self._width // 2)
        return False


def near(folded: Folded, starts: Starts, horizon: int, width: int) -> Windows:
    """The windows of a horizon, cut down to those within so many steps of given start times."""
    whole = makespan_windows(folded, horizon)
    chains = []
    for chain, window, times in zip(folded.chains, whole.chains, starts, strict=True):
        assert window.latest_end is not None
        earliest = tuple(
            max(low, min(time - width, high - chain.steps))
            for low, time, high in zip(window.earliest, times, window.latest_end, strict=True)
        )
        latest = tuple(
            min(high, max(time + chain.steps + width, low + chain.steps))
            for low, time, high in zip(window.earliest, times, window.latest_end, strict=True)
        )
        chains.append(Window(earliest, latest, max(latest)))
    return Windows(tuple(chains), whole.possible)


def _size(windows: Windows) -> int:
    """About how many counters a model of these windows has."""
    counters = 0
    for window in windows.chains:
        assert window.latest_end is not None
        reaches = zip(window.earliest, window.latest_end, strict=True)
        counters += min(window.reach, sum(end - start for start, end in reaches))
    return counters
