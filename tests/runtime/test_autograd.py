"""The engine called without torch.autograd.backward: same gradients, same refusals."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from runtime.autograd import backward


def test_gradients_are_those_of_an_ordinary_backward_and_add_up() -> None:
    module, x = nn.Linear(3, 2), torch.ones(4, 3, requires_grad=True)
    for _ in range(2):
        output = module(x)
        backward([output, output.sum()], [torch.ones(4, 2), torch.ones(())])
    assert torch.equal(module.weight.grad, torch.full((2, 3), 16.0))
    assert torch.equal(x.grad, 4 * module.weight.detach().sum(0).expand(4, 3))


def test_a_gradient_that_does_not_fit_is_refused() -> None:
    output = torch.ones(2, requires_grad=True) * 2
    with pytest.raises(RuntimeError, match="shape"):
        backward([output], [torch.ones(3)])


def test_the_graph_is_freed() -> None:
    x = torch.ones(2, requires_grad=True)
    output = x.exp()
    backward([output], [torch.ones(2)])
    with pytest.raises(RuntimeError, match="second time"):
        backward([output], [torch.ones(2)])


def test_a_mode_stays_on_inside() -> None:
    class Watch(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x: Tensor) -> Tensor:
            return 2 * x

        @staticmethod
        def backward(ctx, gradient: Tensor) -> Tensor:
            return torch.neg(gradient)

    seen: list[object] = []
    x = torch.ones(2, requires_grad=True)
    output = Doubled.apply(x)
    with Watch():
        backward([output], [torch.ones(2)])
    assert torch.neg in seen
    assert x.grad.tolist() == [-1, -1]
