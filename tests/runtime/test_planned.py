"""Planned seconds of sleeping stages, measured steps put together, and the measured ratio."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from models.sleep import SleepStage
from runtime.latency import SlowTransport
from runtime.pipeline import MakeTransport, Pipeline
from runtime.plan import plan_rank
from runtime.planned import latency_ms, planned_times, stage_times
from runtime.runfile import RankRecord, merge_steps
from runtime.session import Session
from runtime.transport import Transport
from synth.catalog.build import build
from synth.errors import UsageError
from synth.files import save
from synth.lower import Program, lower
from synth.op import Kind, Op, pair
from synth.problem import DeviceCost, Link, Problem, StageCost, Stream, make_problem
from synth.schedule import Certificate, Schedule, makespan
from synth.simulate import earliest

OnThreads = Callable[..., list[Any]]


def test_ticks_and_given_times_become_seconds() -> None:
    schedule = build("1f1b", make_problem(4, 8))
    assert schedule.makespan == 33
    ticks = stage_times(schedule.problem, None, 20.0)
    assert planned_times(schedule, ticks) == pytest.approx((0.66, 0.66))
    given = stage_times(schedule.problem, (10.0, 10.0, 10.0), 20.0)
    assert planned_times(schedule, given) == pytest.approx((0.33, 0.33))


def test_messages_take_as_long_as_the_costs_say() -> None:
    schedule = build("1f1b", make_problem(2, 1, comm=2))
    times = stage_times(schedule.problem, None, 10.0)
    assert latency_ms(schedule.problem, 10.0) == 20.0
    # F, message, F, B and W, message, B and W.
    assert planned_times(schedule, times, 20.0) == pytest.approx((0.10, 0.10))
    assert planned_times(schedule, times) == pytest.approx((0.06, 0.06))


def test_stages_that_sleep_are_equally_fast_everywhere() -> None:
    problem = make_problem(2, 1, comm=2)
    slow = DeviceCost(1, 1, StageCost(2, 2, 2, 4, 6, 1, 1))
    for change in ({"device_costs": (slow,)}, {"links": (Link(0, 1, 5),)}):
        schedule = build("1f1b", replace(problem, **change))
        with pytest.raises(UsageError, match="which stages that sleep cannot imitate"):
            stage_times(schedule.problem, None, 10.0)
        times = stage_times(schedule.problem, (10.0, 10.0, 10.0), 10.0)
        assert planned_times(schedule, times, 20.0) == pytest.approx((0.10, 0.10))


def test_several_losses_have_no_plan() -> None:
    """What the runtime does not execute is refused before anything is set up."""
    cost = StageCost(1, 1, 1, 2, 3, 1, 1)
    problem = Problem(
        3, "explicit", (cost,) * 3, (Stream("", 1, (0, 1, 2)),), needs=((), (0,), (0,))
    )
    orders = tuple(
        tuple(Op(kind, 0, stage) for kind in (Kind.F, Kind.B, Kind.W)) for stage in range(3)
    )
    schedule = Schedule("fork", problem, earliest(problem, orders), Certificate(5, 0, "none"))
    with pytest.raises(UsageError, match="stages 1 and 2 of this schedule end in a loss each"):
        plan_rank(schedule, lower(schedule), 0)


def test_pairs_take_as_long_as_their_halves() -> None:
    problem = make_problem(1, 2, pair=2)
    first, second = (Op(Kind.F, 0, 0), Op(Kind.F, 1, 0))
    orders = ((first, pair(second, first.sibling(Kind.BW)), second.sibling(Kind.BW)),)
    timeline = earliest(problem, orders)
    assert makespan(timeline) == 5
    schedule = Schedule("pair", problem, timeline, Certificate(5, 0, "none"))
    assert planned_times(schedule, stage_times(problem, None, 10.0))[0] == pytest.approx(0.06)


def test_a_slow_message_arrives_no_earlier_than_it_may(on_threads: OnThreads) -> None:
    schedule = build("1f1b", make_problem(2, 2, comm=3))
    times = stage_times(schedule.problem, None, 1.0)

    def body(session: Session, transport: MakeTransport) -> dict[str, tuple[float, float]]:
        own = SleepStage(times[session.rank], last=session.rank == 1)

        def slow(session: Session, program: Program) -> Transport:
            return SlowTransport(transport(session, program), 0.003)

        pipeline = Pipeline({session.rank: own}, schedule, session=session, transport=slow)
        result = pipeline.step(torch.zeros(2, 16, dtype=torch.uint8), torch.zeros(2))
        return {str(ran.op): (ran.start_s, ran.end_s) for ran in result.ops}

    first, last = on_threads(2, body)
    for sender, sent, receiver, received in (
        (first, "F0@0", last, "F0@1"),
        (first, "F1@0", last, "F1@1"),
        (last, "BW0@1", first, "BW0@0"),
    ):
        assert receiver[received][0] >= sender[sent][1] + 0.003


def test_steps_are_put_on_one_axis() -> None:
    records = [
        RankRecord(0, [[("F0@0", 10.0, 11.0), ("BW0@0", 14.0, 15.5)]], [{}], [1, 1], []),
        RankRecord(1, [[("F0@1", 11.0, 12.0), ("BW0@1", 12.0, 14.0)]], [{"0": 3.0}], [1, 1], []),
    ]
    (step,) = merge_steps(records, with_loss=True)
    assert (step.loss, step.makespan_s, step.span_s) == (3.0, 5.5, 5.5)
    assert step.ranks[1] == [("F0@1", 1.0, 2.0), ("BW0@1", 2.0, 4.0)]
    assert merge_steps(records, with_loss=False)[0].loss is None


@pytest.mark.dist
@pytest.mark.slow
def test_measured_step_times_keep_to_the_plan(tmp_path: Path) -> None:
    """A loose limit, as other work on the machine counts too; benchmarks state the real one."""
    ratios = {}
    for name in ("1f1b", "zb-h1"):
        save(build(name, make_problem(4, 8)), tmp_path / f"{name}.json")
        done = subprocess.run(
            [
                *(sys.executable, "-m", "runtime", tmp_path / f"{name}.json", "--json"),
                *("--model", "sleep", "--tick-ms", "20", "--steps", "13", "--warmup", "3"),
            ],
            check=True,
            capture_output=True,
            text=True,
            timeout=120,
        )
        run = json.loads(done.stdout)
        ratios[name] = run["measured"]["makespan_s"] / run["planned"]["makespan_s"]
    assert all(1 <= ratio <= 1.10 for ratio in ratios.values()), ratios
