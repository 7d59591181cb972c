"""A module as a stage, the reference step, and the promises a run checks."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from runtime.actions import Setup
from runtime.device import HostClock
from runtime.errors import PlanError, reason
from runtime.executor import Batch, Executor
from runtime.pipeline import Pipeline
from runtime.plan import InFlight
from runtime.reference import reference_step, relative_error
from runtime.session import connect
from runtime.stage import ModuleStage
from synth.errors import UsageError
from synth.op import Kind, Op, pair
from synth.problem import make_problem
from synth.schedule import Certificate, Orders, Schedule, makespan
from synth.simulate import earliest


class TwoWays(nn.Module):
    """Two tensors in, two out: one with a gradient and one of integers without."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
        return self.linear(x) * counts, counts + 1


def mean_square(output: Tensor, target: Tensor) -> Tensor:
    return ((output - target) ** 2).mean()


@pytest.mark.parametrize("split", [True, False])
def test_tensors_without_gradient_pass_through_a_stage(split: bool) -> None:
    stage = ModuleStage(TwoWays())
    x = torch.ones(2, 3, requires_grad=True)
    output, counts = stage.forward(0, (x, torch.tensor(2)), None, split=split)
    assert (output.requires_grad, counts.requires_grad) == (True, False)
    assert output.is_leaf
    assert counts == 3
    gradients = (torch.ones(2, 3),)
    if split:
        (of_input,) = stage.backward_act(0, gradients)
        assert stage.module.linear.weight.grad is None
        stage.backward_wgt(0)
    else:
        (of_input,) = stage.backward(0, gradients)
    assert torch.allclose(of_input, 2 * stage.module.linear.weight.detach().sum(0).expand(2, 3))
    assert torch.equal(stage.module.linear.weight.grad, torch.full((3, 3), 4.0))
    assert stage.held == 0


@pytest.mark.parametrize("split", [True, False])
def test_a_frozen_stage_passes_gradients_on_and_an_unused_input_has_zeros(split: bool) -> None:
    class First(nn.Module):
        def forward(self, x: Tensor, unused: Tensor) -> Tensor:
            return 3 * x

    stage = ModuleStage(First())
    inputs = (torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True))
    stage.forward(5, inputs, None, split=split)
    backward = stage.backward_act if split else stage.backward
    of_x, of_unused = backward(5, (torch.ones(2),))
    assert of_x.tolist() == [3, 3]
    assert of_unused.tolist() == [0, 0]


@pytest.mark.parametrize("split", [True, False])
def test_a_stage_of_which_nothing_expects_a_gradient(split: bool) -> None:
    stage = ModuleStage(nn.Identity())
    stage.forward(0, (torch.ones(2),), None, split=split)
    backward = stage.backward_act if split else stage.backward
    assert backward(0, ()) == ()


def test_reference_is_the_mean_over_micro_batches_and_leaves_gradients_alone() -> None:
    module = nn.Linear(3, 1, dtype=torch.float64)
    whole = nn.Linear(3, 1, dtype=torch.float64)
    whole.load_state_dict(module.state_dict())
    inputs, targets = torch.randn(6, 3, dtype=torch.float64), torch.randn(6, 1, dtype=torch.float64)
    module.weight.grad = kept = torch.ones_like(module.weight)
    found = reference_step([module], inputs, targets, 3, mean_square)
    loss = mean_square(whole(inputs), targets)
    loss.backward()
    assert torch.allclose(found.loss, loss)
    assert relative_error(found.gradients["0.weight"], whole.weight.grad) < 1e-14
    assert module.weight.grad is kept


def test_relative_error_of_what_cannot_be_compared_is_infinite() -> None:
    ones = torch.ones(2)
    assert relative_error(ones, ones) == 0
    assert relative_error(torch.tensor([1.0, 3.0]), torch.tensor([1.0, 4.0])) == 0.25
    for wrong in (None, torch.ones(3), torch.tensor([1.0, float("nan")])):
        assert relative_error(wrong, ones) == float("inf")


def one_device(*ops: Op) -> Schedule:
    problem = make_problem(1, 2)
    orders: Orders = (ops,)
    timeline = earliest(problem, orders)
    return Schedule("by hand", problem, timeline, Certificate(makespan(timeline), 0, "none"))


F0, F1 = Op(Kind.F, 0, 0), Op(Kind.F, 1, 0)
BW0, BW1 = Op(Kind.BW, 0, 0), Op(Kind.BW, 1, 0)


def test_five_lines_train_on_one_device_also_with_overlapped_pairs() -> None:
    schedule = one_device(F0, pair(F1, BW0), BW1)
    module = nn.Linear(3, 1)
    session = connect(1, device="cpu")
    pipeline = Pipeline([module], schedule, loss=mean_square, session=session)
    inputs, targets = torch.randn(5, 3), torch.randn(5, 1)  # micro-batches of three and two
    result = pipeline.step(inputs, targets)
    reference = reference_step([module], inputs, targets, 2, mean_square)
    assert torch.stack([result.losses[0], result.losses[1]]).mean() == reference.loss
    assert torch.equal(module.weight.grad, reference.gradients["0.weight"])
    assert [str(ran.op) for ran in result.ops] == ["F0@0", "F1@0", "BW0@0", "BW1@0"]
    assert result.in_flight == pipeline.plan.in_flight == InFlight(2, 2)
    session.close()


def test_holding_more_than_planned_stops_the_run() -> None:
    pipeline = Pipeline(
        [nn.Linear(3, 1)],
        one_device(F0, F1, BW0, BW1),
        loss=mean_square,
        session=connect(1, device="cpu"),
    )
    modest = replace(pipeline.plan, in_flight=InFlight(1, 1))
    batch = Batch([(torch.randn(1, 3),)] * 2, torch.randn(2, 1, 1))
    executor = Executor(
        Setup(modest, pipeline.stages, pipeline._transport, HostClock(), pipeline._shared)
    )
    with pytest.raises(PlanError, match=r"rank 0 holds 2 micro-batches, .* allows 1 and 1"):
        executor.step(batch)


def test_too_few_samples_and_missing_stages_are_refused() -> None:
    schedule, session = one_device(F0, F1, BW0, BW1), connect(1, device="cpu")
    with pytest.raises(UsageError, match="rank 0 needs stage 0, which was not given"):
        Pipeline({1: nn.Linear(3, 1)}, schedule, loss=mean_square, session=session)
    pipeline = Pipeline([nn.Linear(3, 1)], schedule, loss=mean_square, session=session)
    with pytest.raises(UsageError, match="1 samples cannot fill 2 micro-batches"):
        pipeline.step(torch.randn(1, 3), torch.randn(1, 1))
    with pytest.raises(UsageError, match="for 3 devices, this job has 1 ranks"):
        connect(3)


@pytest.mark.parametrize(
    ("text", "short"),
    [
        (
            "[/src/pair.cc:553] Connection closed by peer [::1]. This is",
            "Connection closed",
        ),
        ("Timed out waiting 3000ms for recv operation to complete", "no answer in time"),
        ("wait timeout after 3000ms, keys: /spec", "no answer in time"),
        ("broken\nsecond line", "broken"),
    ],
)
def test_reasons_are_short(text: str, short: str) -> None:
    assert reason(RuntimeError(text)).startswith(short)
    assert "\n" not in reason(RuntimeError(text))
