"""Every closed form against the simulator, inside its region, on costs drawn at random."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from random import Random

import pytest

from synth import catalog
from synth.problem import Problem, make_problem
from synth.schedule import Schedule
from synth.simulate import messages, peaks

Replay = Callable[[str, Problem], Schedule]

NAMES = (
    *(name for name in catalog.names() if catalog.family(name).bubble is not None),
    "interleaved:3",
    "interleaved:2:6",
    "bfs:3",
    "interleaved-zb:3",
)
FITTING = 30


def draw(random: Random, placement: str) -> Problem:
    """A small problem whose costs are as often in a region as outside."""
    devices = random.randint(1, 6)
    microbatches = random.choice((random.randint(2, 2 * devices + 3), 2 * devices, 3 * devices))
    wgt = random.randint(1, 6)
    forward, act = random.choice(
        ((wgt, wgt), (wgt, wgt), (wgt, wgt), (random.randint(1, 9), random.randint(1, 9)))
    )
    chunks = 8  # every placement cuts a stage into a divisor of it, which keeps the ticks small
    saved = random.choice((0, random.randint(0, min(forward, act + wgt))))
    context = random.choice((2, 2, 1, 0))
    return make_problem(
        devices,
        max(2, microbatches),
        placement=placement,
        costs=[chunks * time for time in (forward, act, wgt)],
        comm=random.choice((0, 0, 0, 1, 3)),
        activation=(2, context),
        objective=random.choice(("makespan", "span")),
        pair=chunks * (forward + act + wgt - saved),
    )


@pytest.mark.parametrize("name", NAMES)
def test_closed_forms_hold_where_they_say(replay: Replay, name: str) -> None:
    family = catalog.family(name)
    random = Random(name)
    compared = {"idle": 0, "peak": 0}
    fitting = (
        problem
        for _ in range(20 * FITTING)
        if family.refuses(problem := draw(random, family.placement)) is None
    )
    for problem in islice(fitting, FITTING):
        schedule = replay(name, problem)
        idle = family.predicted_idle(problem)
        if idle is not None:
            compared["idle"] += 1
            assert catalog.most_idle(schedule) == idle, problem
        peak = None if family.peak is None else family.peak.value(problem)
        if peak is not None:
            compared["peak"] += 1
            assert peaks(problem, schedule.devices) == peak, problem
    assert compared["idle"] >= 4
    assert compared["peak"] >= 4 or family.peak is None


@pytest.mark.parametrize("name", catalog.names())
def test_messages_and_parameters(name: str) -> None:
    family = catalog.family(name)
    for devices in (1, 2, 5):
        problem = make_problem(devices, 4, placement=family.placement)
        counted = family.messages.value(problem)
        if devices == 1 and family.placement.startswith("interleaved"):
            assert counted is None
            continue
        assert counted == messages(problem)
        if devices > 1:
            assert catalog.parameter_factor(problem) == family.parameters
