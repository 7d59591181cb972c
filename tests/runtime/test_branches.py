"""Stages that are not a chain: joins, forks and several first stages."""

from __future__ import annotations

import copy
import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from runtime.pipeline import MakeTransport, Pipeline
from runtime.plan import Task, plan_rank
from runtime.reference import parameter_names, reference_step, relative_error
from runtime.session import Session, connect
from runtime.stage import ModuleStage
from synth.errors import UsageError
from synth.files import save
from synth.lower import lower
from synth.op import parse_op
from synth.problem import Problem, StageCost, Stream
from synth.problem_maker import load_problem
from synth.rendezvous import per_channel, single
from synth.schedule import Certificate, Orders, Schedule, makespan
from synth.simulate import earliest
from synth.solve import solve

OnThreads = Callable[..., list[Any]]
RandomOrders = Callable[..., Orders | None]
EXAMPLE = Path(__file__).parents[2] / "examples" / "vision_text.json"
WORKER = Path(__file__).with_name("branches_worker.py")
UNIT = StageCost(2, 3, 1, 4, 6, 1, 1)


WIDTH = 5


class Part(nn.Module):
    """Takes whatever stages before give; gives a tensor, or a tuple or dict of two, in turn."""

    def __init__(self, problem: Problem, stage: int) -> None:
        super().__init__()
        inputs = len(problem.before(stage))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(stage)
            self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(max(1, inputs)))
            self.norm = nn.LayerNorm(WIDTH)  # a weight that does not split
        self.double()
        self.joins = inputs > 1
        self.stage = stage
        self.form = 0 if stage in problem.last_stages else stage % 3

    def forward(self, *given: Any, **named: Tensor) -> Any:
        arguments = given if self.joins else (named or given,)
        found = [layer(_hidden(one)) for layer, one in zip(self.layers, arguments, strict=True)]
        # With a weight each, so that mixing the arguments up shows.
        hidden = self.norm(
            torch.stack([(1 + n) * torch.tanh(f) for n, f in enumerate(found)]).sum(0)
        )
        scale = torch.full((len(hidden), 1), 1 + self.stage / 2, dtype=torch.float64)
        forms: tuple[Any, ...] = (hidden, (hidden, scale), {"scale": scale, "hidden": hidden})
        return forms[self.form]


def _hidden(argument: Any) -> Tensor:
    if isinstance(argument, dict):
        argument = argument["hidden"], argument["scale"]
    if isinstance(argument, Tensor):
        return argument
    hidden, *scale = argument
    return hidden * scale[0] if scale else hidden


def mean_square(output: Tensor, target: Tensor) -> Tensor:
    return ((output - target) ** 2).mean()


def make_batch(problem: Problem, samples: int, seed: int = 0) -> tuple[Any, Tensor]:
    """Inputs as `Pipeline.step` wants them, and targets."""
    chance = torch.Generator().manual_seed(seed)
    first = problem.first_stages
    drawn = torch.randn((1 + len(first), samples, WIDTH), generator=chance, dtype=torch.float64)
    targets, *inputs = drawn
    return dict(zip(first, inputs, strict=True)) if len(first) > 1 else inputs[0], targets


def timed(problem: Problem, orders: Orders) -> Schedule:
    timeline = earliest(problem, orders)
    return Schedule("graph", problem, timeline, Certificate(makespan(timeline), 0, "none"))


def graph(*needs: tuple[int, ...], routes: tuple[tuple[int, ...], ...], count: int = 3) -> Problem:
    """Stages that each need some, and the devices of each, for one stream or several."""
    names = ("",) if len(routes) == 1 else ("a", "b")
    streams = tuple(Stream(n, count, route) for n, route in zip(names, routes, strict=True))
    devices = 1 + max(device for route in routes for device in route)
    return Problem(devices, "explicit", (UNIT,) * len(needs), streams, 1, needs=needs)


JOIN = graph((), (), (0, 1), routes=((0, 1, 2),))
FORK = graph((), (0,), (0,), (1, 2), routes=((0, 1, 1, 0),))
"""Two results of one op go to one rank."""
SKIP = graph((), (0,), (1, 0), (2, 1, 0), routes=((0, 1, 0, 1),))
"""What stages need is not in ascending order."""
TWICE = graph((), (), (0, 1), routes=((0, 1, 1), (1, 0, 0)), count=2)
"""Two streams, so that both ranks hold every stage."""


def random_graph(chance: random.Random) -> Problem:
    """Any graph with one loss, placed anywhere, with up to two streams."""
    devices, stages = chance.randint(1, 4), chance.randint(3, 7)
    routes = [tuple(chance.randrange(devices) for _ in range(stages))]
    if chance.random() < 0.3:
        routes.append(tuple(chance.randrange(devices) for _ in range(stages)))
    used = sorted({device for route in routes for device in route})
    routes = [tuple(map(used.index, route)) for route in routes]
    needs = [
        tuple(chance.sample(range(s), min(s, chance.choice((0, 1, 2, 2, 3)))))
        for s in range(stages)
    ]
    taken = {source for sources in needs[:-1] for source in sources}
    ends = [stage for stage in range(stages - 1) if stage not in taken]
    needs[-1] = tuple(chance.sample(ends, len(ends)))
    return graph(*needs, routes=tuple(routes), count=chance.choice((1, 2, 4)))


def largest_error(schedule: Schedule, on_threads: OnThreads, **options: Any) -> float:
    """Of losses and gradients of two steps on threads, against one process."""
    problem = schedule.problem
    modules = [Part(problem, stage) for stage in range(len(problem.stages))]
    inputs, targets = make_batch(problem, 2 * problem.total_microbatches + 1)
    count = problem.total_microbatches
    reference = reference_step(modules, inputs, targets, count, mean_square, problem.needs)
    own = [
        {number: copy.deepcopy(modules[number]) for _, number in problem.held_stages(rank)}
        for rank in range(problem.devices)
    ]

    def body(session: Session, transport: MakeTransport) -> float:
        pipeline = Pipeline(
            own[session.rank], schedule, loss=mean_square, session=session, transport=transport
        )
        errors = [0.0]
        for _ in range(2):
            result = pipeline.step(inputs, targets)
            assert result.in_flight == pipeline.plan.in_flight
            errors += [
                relative_error(found, reference.losses[n]) for n, found in result.losses.items()
            ]
            for number, module in own[session.rank].items():
                for name, parameter in parameter_names(number, module):
                    errors.append(relative_error(parameter.grad, reference.gradients[name]))
                    parameter.grad = None
        held = [s.held for s in pipeline.stages.values() if isinstance(s, ModuleStage)]
        assert not any(held)
        return max(errors)

    return max(on_threads(problem.devices, body, **options))


def test_the_reference_is_what_autograd_says_of_a_join() -> None:
    left, right, join = (nn.Linear(3, 3).double() for _ in range(3))

    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = join

        def forward(self, one: Tensor, two: Tensor) -> Tensor:
            output: Tensor = self.layer(one - 2 * two)
            return output

    x, y, targets = torch.randn(3, 4, 3, dtype=torch.float64)
    found = reference_step(
        [left, right, Sum()], {0: x, 1: y}, targets, 2, mean_square, ((), (), (1, 0))
    )
    mean_square(join(right(y) - 2 * left(x)), targets).backward()
    for stage, layer, name in ((0, left, ""), (1, right, ""), (2, join, "layer.")):
        own = layer.weight.grad
        assert own is not None
        assert relative_error(found.gradients[f"{stage}.{name}weight"], own) < 1e-14


def test_random_graphs_and_orders_give_the_gradients_of_one_process(
    random_orders: RandomOrders, on_threads: OnThreads
) -> None:
    seen: set[str] = set()
    for seed in range(40):
        chance = random.Random(seed)
        problem = random_graph(chance)
        orders = random_orders(
            problem, chance, eager=seed % 2 == 0, fused=True, paired=True, cap=99
        )
        assert orders is not None
        communicator = single if seed % 3 else per_channel
        error = largest_error(timed(problem, orders), on_threads, communicator=communicator)
        assert error <= 1e-12, (seed, problem)
        stages = range(len(problem.stages))
        seen |= {f"{problem.devices} devices", f"{len(problem.streams)} streams"}
        seen |= {f"join of {len(problem.before(stage))}" for stage in stages}
        seen |= {f"fork to {len(problem.behind(stage))}" for stage in stages}
        seen |= {f"{len(problem.first_stages)} first"}
    assert seen >= {"1 devices", "2 devices", "3 devices", "4 devices", "2 streams"}
    assert seen >= {"join of 2", "join of 3", "fork to 2", "fork to 3", "1 first", "2 first"}


@pytest.mark.parametrize("problem", [JOIN, FORK, SKIP], ids=["join", "fork", "skip"])
@pytest.mark.parametrize("communicator", [per_channel, single])
def test_solved_schedules_meet_strictly(
    problem: Problem, communicator: Any, on_threads: OnThreads
) -> None:
    schedule = solve(problem, time_limit_s=0.5).schedule
    assert schedule is not None
    assert largest_error(schedule, on_threads, communicator=communicator) <= 1e-12


def test_the_example_with_two_inputs(on_threads: OnThreads) -> None:
    schedule = solve(load_problem(str(EXAMPLE)), time_limit_s=1).schedule
    assert schedule is not None
    assert largest_error(schedule, on_threads) <= 1e-12


@pytest.mark.dist
@pytest.mark.parametrize("devices", [2, 3])
def test_the_same_over_process_groups(
    devices: int, random_orders: RandomOrders, tmp_path: Path
) -> None:
    plans: dict[str, Schedule] = {}
    for name, problem in (("join", JOIN), ("fork", FORK), ("skip", SKIP), ("twice", TWICE)):
        if problem.devices == devices:
            orders = random_orders(problem, random.Random(3), fused=True, cap=99)
            assert orders is not None
            plans[name] = timed(problem, orders)
            save(plans[name], tmp_path / f"{name}.json")
    command = [sys.executable, str(WORKER), str(devices), str(tmp_path)]
    subprocess.run(command, check=True, timeout=150)
    results = (tmp_path / "results").glob("*.json")
    found = [json.loads(path.read_text()) for path in results]
    assert len(found) == devices
    for name in plans:
        assert max(max(rank[name]["errors"]) for rank in found) <= 1e-12, name
        assert all(rank[name]["same"] for rank in found), name
    assert sum(rank[name]["taken_back"] for rank in found for name in plans) > 0


# Plans, stages and batches ------------------------------------------------------------------------


def plan_of(problem: Problem, rank: int, *rows: str) -> dict[str, Task]:
    schedule = timed(problem, tuple(tuple(map(parse_op, row.split())) for row in rows))
    steps = plan_rank(schedule, lower(schedule), rank).steps
    return {str(step.op): step for step in steps if isinstance(step, Task)}


def sources(task: Task) -> list[tuple[str, bool]]:
    """What a task takes, and whether it comes from another rank."""
    return [(str(feed.producer), feed.message is not None) for feed in task.feeds]


def test_the_plan_of_a_join() -> None:
    problem = graph((), (), (1, 0), routes=((0, 1, 1),), count=1)
    own = plan_of(problem, 1, "F0@0 BW0@0", "F0@1 F0@2 B0@2 BW0@1 W0@2")
    assert sources(own["F0@2"]) == [("F0@1", False), ("F0@0", True)]
    assert list(map(str, own["B0@2"].consumers)) == ["B0@1", "B0@0"]
    assert own["B0@2"].feeds == ()
    assert sources(own["BW0@1"]) == [("B0@2", False)]
    assert (own["F0@1"].reads, own["F0@2"].reads) == (0, None)


def test_the_plan_of_a_fork() -> None:
    problem = graph((), (0,), (0,), (1, 2), routes=((0, 0, 1, 0),), count=1)
    rows = "F0@0 F0@1 F0@3 BW0@3 BW0@1 BW0@0", "F0@2 BW0@2"
    own = plan_of(problem, 0, *rows)
    assert list(map(str, own["F0@0"].consumers)) == ["F0@1", "F0@2"]
    assert sources(own["BW0@0"]) == [("B0@1", False), ("B0@2", True)]
    assert [own[op].last for op in ("F0@0", "F0@1", "F0@3")] == [False, False, True]


def test_first_stages_read_their_part_of_the_batch() -> None:
    problem = graph((), (), (0, 1), routes=((0, 0, 0),), count=2)
    row = "F0@0 F1@0 F0@1 F1@1 F0@2 F1@2 BW0@2 BW1@2 BW0@0 BW1@0 BW0@1 BW1@1"
    own = plan_of(problem, 0, row)
    assert [own[op].reads for op in ("F0@0", "F1@0", "F0@1", "F1@1")] == [0, 1, 2, 3]


@pytest.mark.parametrize("split", [True, False])
def test_a_join_has_an_argument_and_gradients_for_each(split: bool) -> None:
    class Join(nn.Module):
        def forward(self, one: Tensor, two: tuple[Tensor, ...], named: dict[str, Tensor]) -> Tensor:
            return 2 * one + two[0] * two[1] + 5 * named["hidden"]

    stage = ModuleStage(Join(), joins=True)
    leaf = [torch.ones(2, requires_grad=True) for _ in range(3)]
    named = {"count": torch.tensor(1), "hidden": leaf[2]}
    inputs = (leaf[0], (leaf[1], torch.tensor(3.0)), named)
    (output,) = stage.forward(0, inputs, None, split=split)
    assert output.tolist() == [10, 10]
    gradients = (torch.ones(2),)
    found = stage.backward_act(0, gradients) if split else stage.backward(0, gradients)
    assert [[one.tolist() for one in part] for part in found] == [[[2, 2]], [[3, 3]], [[5, 5]]]
    assert all(one.grad is None for one in leaf)


def test_one_tensor_of_a_fork_has_the_gradients_of_each_stage_apart() -> None:
    """On one device both stages take the same tensor."""
    stages = [ModuleStage(nn.Linear(2, 1, bias=False)) for _ in range(2)]
    shared = torch.ones(1, 2, requires_grad=True)
    for stage in stages:
        stage.forward(0, (shared,), None, split=False)
    for stage in stages:
        (found,) = stage.backward(0, (torch.ones(1, 1),))
        assert torch.equal(found, stage.module.weight)


def one_rank(problem: Problem, stages: Any) -> Pipeline:
    schedule = solve(problem, time_limit_s=0.5).schedule
    assert schedule is not None
    return Pipeline(stages, schedule, loss=mean_square, session=connect(1, device="cpu"))


ALONE = graph((), (), (0, 1), routes=((0, 0, 0),), count=2)


@pytest.mark.parametrize("inputs", [torch.ones(2, WIDTH), {0: torch.ones(2, WIDTH)}, {}])
def test_several_first_stages_need_their_inputs_by_number(inputs: Any) -> None:
    pipeline = one_rank(ALONE, [Part(ALONE, stage) for stage in range(3)])
    with pytest.raises(UsageError, match="stages that read the batch are 0, 1; give what each"):
        pipeline.step(inputs, torch.ones(2, WIDTH))


def test_the_only_first_stage_may_have_a_number_too() -> None:
    fork = graph((), (0,), (0, 1), routes=((0, 0, 0),), count=2)
    pipeline = one_rank(fork, [Part(fork, stage) for stage in range(3)])
    inputs, targets = make_batch(fork, 5)
    found = [pipeline.step(given, targets).losses for given in (inputs, {0: inputs})]
    assert found[0] == found[1]
    with pytest.raises(UsageError, match="stages that read the batch are 0; give what each"):
        pipeline.step({0: inputs, 1: inputs}, targets)


def test_each_first_stage_needs_enough_samples() -> None:
    pipeline = one_rank(ALONE, [Part(ALONE, stage) for stage in range(3)])
    with pytest.raises(UsageError, match="1 samples cannot fill 2 micro-batches"):
        pipeline.step({0: torch.ones(2, WIDTH), 1: torch.ones(1, WIDTH)}, torch.ones(2, WIDTH))


def test_a_sequence_of_layers_is_cut_into_a_chain_only() -> None:
    with pytest.raises(UsageError, match=r"not a chain, .* give a list of 3 modules"):
        one_rank(ALONE, nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(3))))


def test_several_losses_are_refused() -> None:
    problem = graph((), (0,), (0,), routes=((0, 0, 0),))
    with pytest.raises(UsageError, match="stages 1 and 2 of this schedule end in a loss each"):
        one_rank(problem, [nn.Linear(WIDTH, WIDTH)] * 3)
