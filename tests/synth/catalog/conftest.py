"""What the tests of the catalogue share."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from synth import catalog
from synth.problem import Problem
from synth.schedule import Certificate, Schedule, value
from synth.simulate import retime

Replay = Callable[[str, Problem], Schedule]


@pytest.fixture
def replay() -> Replay:
    """A family's orders at their best times, without the work of looking for a bound."""

    def replayed(name: str, problem: Problem) -> Schedule:
        timeline = retime(problem, catalog.family(name).orders(problem))
        certificate = Certificate(value(timeline, problem.objective), 0, "not looked for")
        return Schedule(name, problem, timeline, certificate)

    return replayed
