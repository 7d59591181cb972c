"""Kernels as starts: valid orders, the shortest period first, and better than what was known."""

from synth.bounds import best_bound
from synth.problem import make_problem
from synth.solve.backends import make_backend
from synth.solve.deadline import Deadline
from synth.solve.incumbent import Incumbent
from synth.solve.kernels import Kernels
from synth.solve.listing import one_by_one


def test_a_kernel_repeated_is_offered_and_handed_on() -> None:
    problem = make_problem(4, 3, placement="v", memory=2)  # too few for two in a period
    incumbent = Incumbent(problem, best_bound(problem), lambda _: None)
    incumbent.offer(one_by_one(problem), "one micro-batch at a time")
    poorest = incumbent.value
    found = Kernels(problem).search(incumbent, make_backend("highs"), Deadline.after(10))
    assert found
    assert all(sum(map(len, orders)) == 8 * 3 * 3 for orders in found)
    assert incumbent.origin == "ILP, a kernel repeated"
    assert poorest is not None
    assert incumbent.value is not None
    # A period is the work of a micro-batch: 3 units, two ticks each; and the ends are short.
    assert incumbent.value <= 6 * 3 + 6 * 4 < poorest


def test_long_periods_are_left_to_others() -> None:
    problem = make_problem(4, 12, placement="v", costs=(20, 24, 17), comm=3, memory=3)
    incumbent = Incumbent(problem, best_bound(problem), lambda _: None)
    found = Kernels(problem).search(incumbent, make_backend("highs"), Deadline.after(10))
    assert found == []
