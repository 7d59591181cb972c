"""The norm of a gradient that is spread over stages, and what is made of it."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from runtime.clipping import ClippedOptimizer, Update, apply, judge, square_norms
from runtime.pipeline import Pipeline
from runtime.session import connect
from runtime.ties import Tie
from synth import catalog
from synth.problem import make_problem
from synth.schedule import Certificate, Schedule
from synth.simulate import earliest


def with_gradients(*values: float) -> list[nn.Parameter]:
    parameters = [nn.Parameter(torch.zeros(1)) for _ in values]
    for parameter, value in zip(parameters, values, strict=True):
        parameter.grad = torch.tensor([value])
    return parameters


@pytest.mark.parametrize(
    ("squares", "max_norm", "norm", "factor"),
    [
        ([9.0, 16.0], None, 5.0, 1.0),
        ([9.0, 16.0], 6.0, 5.0, 1.0),
        ([9.0, 16.0], 2.5, 5.0, 0.5),
        ([0.0, 0.0], 1.0, 0.0, 1.0),
    ],
)
def test_factor(squares: list[float], max_norm: float | None, norm: float, factor: float) -> None:
    update = judge(torch.tensor(squares, dtype=torch.float64), max_norm)
    assert update.norm == norm
    assert update.factor == pytest.approx(factor, rel=1e-6)
    assert update.plain == (factor == 1.0)
    assert not update.skipped


@pytest.mark.parametrize("wrong", [math.inf, math.nan])
@pytest.mark.parametrize("max_norm", [None, 1.0])
def test_what_is_not_finite_is_skipped(wrong: float, max_norm: float | None) -> None:
    update = judge(torch.tensor([1.0, wrong], dtype=torch.float64), max_norm)
    assert update.skipped
    assert update.factor == 0.0
    (parameter,) = with_gradients(wrong)
    apply(update, torch.optim.SGD([parameter], lr=1.0), [parameter])
    assert parameter.item() == 0.0


def test_the_update_is_that_of_torch() -> None:
    mine, theirs = with_gradients(3.0, -4.0), with_gradients(3.0, -4.0)
    update = judge(square_norms({0: mine[:1], 2: mine[1:]}, 3), 1.0)
    apply(update, torch.optim.SGD(mine, lr=1.0), mine)
    assert update.norm == 5.0
    torch.nn.utils.clip_grad_norm_(theirs, 1.0)
    torch.optim.SGD(theirs, lr=1.0).step()
    assert [p.item() for p in mine] == pytest.approx([p.item() for p in theirs])


def test_a_long_gradient_in_half_precision_has_its_norm() -> None:
    """Squares of half-precision numbers would overflow beyond 65,504."""
    parameter = nn.Parameter(torch.zeros(10_000, dtype=torch.float16))
    parameter.grad = torch.full_like(parameter, 300.0)
    assert judge(square_norms({0: [parameter]}, 1), None).norm == pytest.approx(30_000)


def test_stages_without_gradients_count_nothing() -> None:
    assert square_norms({1: [nn.Parameter(torch.zeros(1))]}, 3).tolist() == [0, 0, 0]


def test_a_tied_parameter_counts_once() -> None:
    problem = make_problem(1, 2, placement="interleaved:2")
    timeline = earliest(problem, catalog.family("interleaved:2").orders(problem))
    schedule = Schedule("", problem, timeline, Certificate(0, 0, "none"))
    stages = [nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)]
    tie = Tie(((0, "weight"), (1, "weight")))
    pipeline = Pipeline(
        stages,
        schedule,
        loss=lambda output, target: (output - target).square().mean(),
        session=connect(1, device="cpu"),
        ties=[tie],
    )
    pipeline.step(torch.ones(2, 2), torch.zeros(2, 2))
    (parameter,) = pipeline.parameters()
    assert parameter.grad is not None
    norm = parameter.grad.norm().item()
    update = ClippedOptimizer(pipeline, torch.optim.SGD([parameter], lr=1.0)).step()
    assert update == Update(pytest.approx(norm), 1.0)
    assert parameter.grad is None
