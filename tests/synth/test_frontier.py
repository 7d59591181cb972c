"""Bubble against memory limit: where it begins and ends, what it reuses and what it proves."""

from fractions import Fraction

import pytest

from synth.errors import InfeasibleError
from synth.frontier import least_limit, micro_batch_memory, sweep
from synth.plot.limits import Level, limits
from synth.plot.scene import Dot, Path
from synth.problem import make_problem
from synth.schedule import Certificate
from synth.solve import SolveResult, Status, solve
from synth.verify import verify


def maker(devices=4, microbatches=8, **options):
    return lambda limit: make_problem(devices, microbatches, memory=limit, **options)


def search(problem):
    return solve(problem, time_limit_s=60)


@pytest.mark.parametrize(
    ("options", "step", "least"),
    [
        ({}, 1, 1),
        ({"activation": (1, "0.4")}, 1, 1),
        ({"activation": ("0.4", "1.5")}, Fraction(1, 2), Fraction(3, 2)),
        ({"activation": (3, 3)}, Fraction(1, 7), 3),
        ({"placement": "v"}, Fraction(1, 4), 1),
    ],
)
def test_least_limit(options, step, least):
    assert least_limit(maker(**options), Fraction(step)) == least


def test_no_limit_is_enough():
    def make(limit):
        raise InfeasibleError("never")

    with pytest.raises(InfeasibleError, match="no multiple of 1"):
        least_limit(make, Fraction(1))


@pytest.mark.parametrize("placement", ["linear", "v", "interleaved:3", "bidirectional"])
def test_what_a_micro_batch_holds(placement):
    problem = make_problem(4, 8, placement=placement, activation=("0.5", "0.75"))
    assert micro_batch_memory(problem) == Fraction(3, 4)


def values(points):
    certificates = [point.schedule.certificate for point in points]
    return [
        (int(point.limit), certificate.value, certificate.bound)
        for point, certificate in zip(points, certificates, strict=True)
    ]


def test_linear_from_the_least_limit_until_more_gains_nothing():
    points = sweep(maker(), search)
    assert values(points) == [(1, 72, 72), (2, 41, 41), (3, 31, 31), (4, 27, 27)]
    for point in points:
        assert point.schedule is not None
        assert verify(point.schedule) == []
        assert point.schedule.problem.limits_quanta == (point.limit,) * 4
        assert point.result.status is Status.OPTIMAL
        assert point.result.proof
        assert point.parameters == 1


def test_a_schedule_that_stays_optimal_is_reused():
    searched = []

    def counted(problem):
        searched.append(problem.limits_quanta[0])
        return search(problem)

    asked = [Fraction(limit) for limit in (7, 4, 3, 3, "3.5")]
    points = sweep(maker(), counted, limits=asked)
    assert [point.limit for point in points] == [3, Fraction(7, 2), 4, 7]
    assert [point.reused for point in points] == [False, True, True, True]
    assert searched == [None, 3]
    assert [point.schedule.certificate.value for point in points] == [31, 31, 27, 27]
    assert all(verify(point.schedule) == [] for point in points)


def test_more_memory_never_makes_a_point_worse():
    """A search that fails still leaves what smaller limits gave."""

    def forgetful(problem):
        result = search(problem)
        if problem.limits_quanta[0] in (2, None):
            return result
        return SolveResult(Status.UNKNOWN, None, result.bound, result.proof, 0.0)

    points = sweep(maker(), forgetful, limits=[Fraction(2), Fraction(3)])
    assert values(points) == [(2, 41, 41), (3, 41, 31)]
    assert points[1].result.status is Status.FEASIBLE


def test_what_is_proved_with_more_memory_holds_with_less():
    """The bound of the largest limit reaches down to smaller ones whose own is weaker."""

    def weak(problem):
        result = search(problem)
        if problem.limits_quanta[0] in (3, None):
            return result
        return SolveResult(Status.FEASIBLE, result.schedule, 1, "weak", 0.0)

    strong = sweep(maker(), search, limits=[Fraction(3)])[0].result.bound
    points = sweep(maker(), weak, limits=[Fraction(2), Fraction(3)])
    assert points[0].result.bound >= strong


def test_an_infeasible_limit_is_a_point_too():
    points = sweep(maker(), search, limits=[Fraction(1, 2), Fraction(4)])
    assert points[0].result.status is Status.INFEASIBLE
    assert points[0].schedule is None
    assert "needs 1" in points[0].result.proof


def test_nothing_found_ends_the_sweep():
    def helpless(problem):
        return SolveResult(Status.UNKNOWN, None, 1, "nothing", 0.0)

    (point,) = sweep(maker(), helpless)
    assert point.result.status is Status.UNKNOWN
    assert point.result.bound == 72


def test_certificates_never_claim_more_than_the_value():
    for point in sweep(maker(3, 5, activation=(1, "0.5"), costs=(2, 3, 1)), search):
        certificate = point.schedule.certificate
        assert isinstance(certificate, Certificate)
        assert certificate.bound <= certificate.value


def test_picture_has_a_dot_for_each_point():
    lines = {"linear": [Level(1, 0.5, 0.5), Level(2, 0.3, 0.2)], "v": [Level(1, 0.4, 0.4)]}
    scene = limits(lines, "activation units", 100)
    dots = [shape for shape in scene.shapes if isinstance(shape, Dot)]
    assert [dot.filled for dot in dots] == [True, False, True]
    assert dots[0].x < dots[1].x
    assert dots[0].y < dots[1].y
    assert sum(isinstance(shape, Path) and shape.dashed for shape in scene.shapes) == 1
    assert all(0 <= dot.x <= scene.width and 0 <= dot.y <= scene.height for dot in dots)
