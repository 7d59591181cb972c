"""What a schedule says of itself."""

from __future__ import annotations

import pytest

from synth.errors import ProblemError
from synth.op import parse_op
from synth.problem import Objective, Problem, make_problem
from synth.schedule import (
    Certificate,
    Schedule,
    TimedOp,
    Timeline,
    makespan,
    spans,
    value,
)


def timeline_of(*rows: str) -> Timeline:
    """`F0@0:2-3` is F0@0 from tick 2 to 3."""
    return tuple(
        tuple(
            TimedOp(parse_op(text.split(":")[0]), *map(int, text.split(":")[1].split("-")))
            for text in row.split()
        )
        for row in rows
    )


# Device 1 starts 2 ticks after device 0 and ends 2 before it.
TIMELINE = timeline_of("F0@0:2-3 B0@0:6-7 W0@0:7-9", "F0@1:4-5 B0@1:5-6 W0@1:6-7")


def schedule(problem: Problem, timeline: Timeline = TIMELINE) -> Schedule:
    certificate = Certificate(value(timeline, problem.objective), 5, "by hand")
    return Schedule("any", problem, timeline, certificate)


def test_makespan_and_spans() -> None:
    assert makespan(TIMELINE) == 7
    assert spans(TIMELINE) == (7, 3)
    assert value(TIMELINE, Objective.MAKESPAN) == 7
    assert value(timeline_of("F0@0:0-4", "F0@1:4-6"), Objective.MAKESPAN) == 6
    assert value(timeline_of("F0@0:0-4", "F0@1:4-6"), Objective.SPAN) == 4


def test_a_schedule_has_the_figures_of_its_timeline() -> None:
    plan = schedule(make_problem(2, 1, costs=(1, 1, 1)))
    assert (plan.makespan, plan.spans, plan.span) == (7, (7, 3), 7)
    assert [str(op) for op in plan.orders[1]] == ["F0@1", "B0@1", "W0@1"]


@pytest.mark.parametrize(("objective", "bubble"), [("makespan", 1 - 7 / 20), ("span", 1 - 7 / 12)])
def test_bubble_is_counted_in_what_the_objective_counts(objective: str, bubble: float) -> None:
    """Busy 4 and 3 ticks; 10 ticks from first start to last end, and the longest span is 6."""
    timeline = timeline_of("F0@0:0-1 B0@0:3-4 W0@0:4-6", "F0@1:7-8 B0@1:8-9 W0@1:9-10")
    plan = schedule(make_problem(2, 1, objective=objective), timeline)
    assert plan.bubble == bubble


@pytest.mark.parametrize(
    ("reached", "bound", "optimal", "gap"),
    [(10, 10, True, 0.0), (10, 8, False, 0.2), (10, 0, False, 1.0), (0, 0, True, 0.0)],
)
def test_certificate(reached: int, bound: int, optimal: bool, gap: float) -> None:
    certificate = Certificate(reached, bound, "by hand")
    assert (certificate.optimal, certificate.gap) == (optimal, gap)


def test_a_bound_above_the_value_contradicts_itself() -> None:
    with pytest.raises(ProblemError, match="a bound of 11 ticks above the value 10 contradicts"):
        Certificate(10, 11, "wrong")
