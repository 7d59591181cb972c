"""Every schedule runs where operations meet in strict order, and gives one process's gradients."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from runtime.errors import PeerError
from runtime.pipeline import MakeTransport, Pipeline
from runtime.plan import RankPlan, plan_rank
from runtime.reference import parameter_names, reference_step, relative_error
from runtime.session import Session
from synth import catalog
from synth.errors import InvalidScheduleError, ProblemError
from synth.lower import Instruction, Program, Receive, Send, lower
from synth.problem import Problem, make_problem
from synth.rendezvous import check_program, per_pair, single
from synth.schedule import Certificate, Orders, Schedule, makespan
from synth.simulate import earliest
from synth.solve import solve

OnThreads = Callable[..., list[Any]]
Edit = Callable[[RankPlan], RankPlan]
WIDTH = 5
PLACEMENTS = ("linear", "v", "interleaved:2", "wave:2", "bidirectional", "bidirectional-v")


def mean_square(output: Tensor, target: Tensor) -> Tensor:
    return ((output - target) ** 2).mean()


def stage(number: int) -> nn.Module:
    """Weights that split and weights that do not."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(number)
        layers = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.LayerNorm(WIDTH))
        return layers.to(torch.float64)


def timed(name: str, problem: Problem, orders: Orders) -> Schedule:
    timeline = earliest(problem, orders)
    return Schedule(name, problem, timeline, Certificate(makespan(timeline), 0, "none"))


def handcrafted(devices: int, microbatches: int) -> Iterator[Schedule]:
    """The catalogue, as far as it fits."""
    for name in catalog.names():
        family = catalog.family(name)
        try:
            problem = make_problem(
                devices, microbatches, placement=family.placement, costs=(2, 3, 1), comm=1
            )
        except ProblemError:
            continue
        if family.refuses(problem) is None:
            yield timed(name, problem, family.orders(problem))


def solved(devices: int, microbatches: int, placement: str, memory: int | None) -> Schedule | None:
    """The best schedule found in a moment, if the problem exists."""
    try:
        problem = make_problem(
            devices, microbatches, placement=placement, costs=(2, 3, 1), memory=memory
        )
    except ProblemError:
        return None
    return solve(problem, time_limit_s=0.5).schedule


def largest_error(schedule: Schedule, on_threads: OnThreads, **options: Any) -> float:
    """Of losses and gradients of one step on threads, against one process; checks what was held."""
    problem = schedule.problem
    count = len(problem.stages)
    modules = [stage(number) for number in range(count)]
    chance = torch.Generator().manual_seed(7)
    samples = 2 * problem.total_microbatches - 1  # the last micro-batch is smaller
    inputs = torch.randn(samples, WIDTH, generator=chance, dtype=torch.float64)
    targets = torch.randn(samples, WIDTH, generator=chance, dtype=torch.float64)
    own = [
        {number: copy.deepcopy(modules[number]) for _, number in problem.held_stages(rank)}
        for rank in range(problem.devices)
    ]

    def body(session: Session, transport: MakeTransport) -> float:
        pipeline = Pipeline(
            own[session.rank], schedule, loss=mean_square, session=session, transport=transport
        )
        result = pipeline.step(inputs, targets)
        assert result.in_flight == pipeline.plan.in_flight
        errors = [relative_error(loss, reference.losses[n]) for n, loss in result.losses.items()]
        for number, module in own[session.rank].items():
            for name, parameter in parameter_names(number, module):
                errors.append(relative_error(parameter.grad, reference.gradients[name]))
        return max(errors)

    reference = reference_step(modules, inputs, targets, problem.total_microbatches, mean_square)
    return max(on_threads(problem.devices, body, **options))


@pytest.mark.parametrize("devices", [1, 2, 3, 4])
def test_handcrafted_schedules_meet_strictly(devices: int, on_threads: OnThreads) -> None:
    found = 0
    for microbatches in (1, 3, 8):
        for schedule in handcrafted(devices, microbatches):
            assert largest_error(schedule, on_threads) <= 1e-12, schedule.name
            found += 1
    assert found >= 10


@pytest.mark.slow
@pytest.mark.parametrize("communicator", [per_pair, single])
@pytest.mark.parametrize("devices", [2, 3, 4])
def test_handcrafted_schedules_meet_on_shared_communicators(
    devices: int, communicator: Any, on_threads: OnThreads
) -> None:
    for microbatches in (1, 3, 8):
        for schedule in handcrafted(devices, microbatches):
            error = largest_error(schedule, on_threads, communicator=communicator)
            assert error <= 1e-12, schedule.name


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_solved_schedule_of_every_placement_meets_strictly(
    placement: str, on_threads: OnThreads
) -> None:
    schedule = solved(2, 3, placement, None)
    assert schedule is not None
    assert largest_error(schedule, on_threads, communicator=single) <= 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_solved_schedules_meet_strictly(placement: str, on_threads: OnThreads) -> None:
    found = 0
    for devices in (1, 2, 3, 4):
        for microbatches, memory in ((1, None), (3, devices), (8, devices + 1)):
            schedule = solved(devices, microbatches, placement, memory)
            if schedule is not None:
                assert largest_error(schedule, on_threads) <= 1e-12
                found += 1
    assert found >= 4


def test_orders_nobody_would_write_meet_strictly(
    random_orders: Callable[..., Orders | None], on_threads: OnThreads
) -> None:
    for seed, placement in enumerate(PLACEMENTS):
        problem = make_problem(3, 4, placement=placement, costs=(2, 3, 1), comm=1)
        orders = random_orders(problem, random.Random(seed), eager=False, fused=True, paired=True)
        assert orders is not None
        schedule = timed(placement, problem, orders)
        assert largest_error(schedule, on_threads, communicator=single) <= 1e-12, placement


# What must not run ---------------------------------------------------------------------------


def run_steps(schedule: Schedule, edit: Edit, on_threads: OnThreads, **options: Any) -> None:
    """Runs the schedule with each rank's steps edited, past the static check."""

    def body(session: Session, transport: MakeTransport) -> None:
        own = {number: stage(number) for _, number in schedule.problem.held_stages(session.rank)}
        pipeline = Pipeline(own, schedule, loss=mean_square, session=session, transport=transport)
        pipeline.plan = edit(pipeline.plan)
        batch = torch.zeros(schedule.problem.total_microbatches, WIDTH, dtype=torch.float64)
        pipeline.step(batch, batch)

    on_threads(schedule.problem.devices, body, **options)


def late_receives(program: Program) -> Program:
    """Every receive right before its consumer."""
    ranks: list[tuple[Instruction, ...]] = []
    for steps in program.ranks:
        receives = {s.message.consumer: s for s in steps if isinstance(s, Receive)}
        late: list[Instruction] = []
        for step in steps:
            if not isinstance(step, Receive):
                nodes = step.op.nodes if hasattr(step, "op") else ()
                late += [receives[node] for node in nodes if node in receives]
                late.append(step)
        ranks.append(tuple(late))
    return Program(tuple(ranks))


def test_late_receives_hang_on_a_shared_communicator_and_are_refused(
    on_threads: OnThreads,
) -> None:
    schedule = catalog.build("1f1b", make_problem(2, 3))
    late = late_receives(lower(schedule))
    check_program(late)

    def edit(plan: RankPlan) -> RankPlan:
        return plan_rank(schedule, late, plan.rank)

    run_steps(schedule, edit, on_threads)
    with pytest.raises(InvalidScheduleError, match="deadlocks"):
        check_program(late, per_pair)
    with pytest.raises(PeerError, match=r"rank \d did not get .*: the ranks wait for each other"):
        run_steps(schedule, edit, on_threads, communicator=per_pair)


def test_a_missing_send_hangs_and_is_refused(on_threads: OnThreads) -> None:
    schedule = catalog.build("1f1b", make_problem(2, 2))
    program = lower(schedule)
    sends = [step for step in program.ranks[0] if isinstance(step, Send)]
    steps = tuple(step for step in program.ranks[0] if step is not sends[-1])
    with pytest.raises(InvalidScheduleError, match="rank 0 sends 1 messages, rank 1 receives 2"):
        check_program(Program((steps, program.ranks[1])))

    def edit(plan: RankPlan) -> RankPlan:
        return replace(plan, steps=tuple(step for step in plan.steps if step != sends[-1]))

    with pytest.raises(PeerError, match="the ranks wait for each other"):
        run_steps(schedule, edit, on_threads)


def test_a_rank_that_does_not_answer_is_given_up(on_threads: OnThreads) -> None:
    schedule = catalog.build("1f1b", make_problem(2, 1))
    over = [False]

    def body(session: Session, transport: MakeTransport) -> None:
        pipeline = Pipeline(
            {session.rank: stage(session.rank)},
            schedule,
            loss=mean_square,
            session=session,
            transport=transport,
        )
        batch = torch.zeros(1, WIDTH, dtype=torch.float64)
        if session.rank == 1:
            pipeline.step(batch, batch)
        while session.rank == 0 and not over[0]:
            pass

    def watched(session: Session, transport: MakeTransport) -> None:
        try:
            body(session, transport)
        finally:
            over[0] = True

    with pytest.raises(PeerError, match="rank 1 did not get F0@0: no answer in time"):
        on_threads(2, watched, timeout_s=0.2)
