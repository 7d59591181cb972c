"""The choice of a placement: what is searched, what is not, and which wins."""

from fractions import Fraction

import pytest

from synth.auto import PLACEMENTS, choose, parameter_factor
from synth.errors import InfeasibleError, ProblemError
from synth.problem import make_problem
from synth.solve import SolveResult, Status, solve


def maker(**options):
    return lambda placement: make_problem(4, 8, placement=placement, **options)


def search(problem, seconds):
    return solve(problem, time_limit_s=60)


@pytest.mark.parametrize(
    ("placement", "factor"),
    [
        ("linear", 1),
        ("v", 1),
        ("wave:2", 1),
        ("interleaved:3", 1),
        ("bidirectional", 2),
        ("bidirectional-v", 2),
    ],
)
def test_parameters_a_device_holds(placement, factor):
    assert parameter_factor(make_problem(4, 8, placement=placement)) == factor


def test_a_stage_that_two_streams_share_is_held_once():
    assert parameter_factor(make_problem(1, 2, placement="bidirectional")) == 1


def test_the_fastest_placement_wins():
    choice = choose(maker(memory=4), search, time_limit_s=60)
    assert choice.best is not None
    assert choice.best.placement == "wave:2"
    assert choice.best.value == Fraction(99, 4)
    assert [entry.placement for entry in choice.tried] == list(PLACEMENTS)


def test_what_cannot_win_is_not_searched():
    asked = []

    def counted(problem, seconds):
        asked.append(problem.placement)
        return search(problem, seconds)

    choice = choose(maker(memory=4), counted, time_limit_s=60)
    assert asked == ["wave:2"]
    linear = choice.tried[0]
    assert (linear.result, linear.bound) == (None, 27)
    assert linear.reason.startswith("cannot be better (")


def test_of_equals_the_one_with_fewer_parameters_wins():
    choice = choose(
        lambda placement: make_problem(1, 4, placement=placement),
        search,
        time_limit_s=60,
        placements=("bidirectional", "linear"),
    )
    assert choice.best is not None
    assert choice.best.placement == "bidirectional"  # on one device no stage is held twice
    choice = choose(
        maker(objective="span"), search, time_limit_s=60, placements=("bidirectional", "linear")
    )
    assert choice.best is not None
    assert choice.best.placement == "linear"


def test_time_is_split_evenly_and_left_time_handed_on():
    given = []

    def slow(problem, seconds):
        given.append(seconds)
        used = 1.0 if len(given) == 1 else seconds
        return SolveResult(Status.UNKNOWN, None, 1, "nothing", used)

    choice = choose(maker(memory=3), slow, time_limit_s=25)
    assert given == [5, 6, 6, 6, 6]
    assert choice.best is None
    assert not choice.infeasible


def test_a_placement_without_a_problem_says_why():
    def make(placement):
        if placement == "v":
            raise ProblemError("needs 8 stages")
        if placement == "wave:2":
            raise InfeasibleError("infeasible: parameters alone are too much")
        return make_problem(4, 8, placement=placement, memory=4)

    choice = choose(make, search, time_limit_s=60, placements=("linear", "v", "wave:2"))
    assert choice.best is choice.tried[0]
    assert [entry.reason for entry in choice.tried] == [
        "",
        "needs 8 stages",
        "parameters alone are too much",
    ]


def test_infeasible_everywhere():
    choice = choose(maker(memory="0.5"), search, time_limit_s=60)
    assert choice.best is None
    assert choice.infeasible
