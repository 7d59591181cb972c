"""Deferred W: a backward that computes input gradients and queues the weight-gradient work.

Works for unmodified modules. While a stage's forward runs inside a `Deferral`, a torch-function
mode redirects the operations whose weight gradient is worth splitting off (`deferred_ops`) to an
autograd function whose backward returns the input gradient only and queues a `WeightWork`, which
holds just the layer's input and the gradient of its output. Everything else (norm scales,
free-standing parameters) gets its gradient inside B, as in any backward.

The arithmetic is that of torch's own backward formulas, so gradients are bit-equal to an ordinary
backward as long as the micro-batches' W run in the same order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling
from torch.overrides import TorchFunctionMode

from runtime.autograd import backward
from runtime.deferred_ops import REDIRECTED, REENTERED
from runtime.deferred_rules import Operation, Rule


@dataclass(slots=True)  # not frozen, as one is made per layer and B
class WeightWork:
    """The weight gradient that one layer still owes for one micro-batch."""

    rule: Rule
    weight: Tensor
    bias: Tensor | None
    """None also where the bias needs no gradient."""
    layer_input: Tensor
    output_gradient: Tensor

    def run(self) -> tuple[tuple[Tensor, Tensor], ...]:
        """The parameters with their gradients, in the type in which the layer computed."""
        of_weight, of_bias = self.rule.parameter_gradients(
            self.output_gradient, self.layer_input, self.weight, self.bias
        )
        if self.bias is None or of_bias is None:
            return ((self.weight, of_weight),)
        return ((self.weight, of_weight), (self.bias, of_bias))


class Deferral(TorchFunctionMode):
    """One stage's forward for one micro-batch, and the W it leaves behind.

    Enter it around the forward, give it the output gradients in `backward` (B), then `run` the W.
    """

    def __init__(self) -> None:
        super().__init__()
        self.queue: list[WeightWork] = []
        self.split: set[Tensor] = set()
        """Parameters whose gradient is computed in W; filled by the forward."""
        self._repeats = False
        """Whether one of them is used more than once."""

    def backward(self, outputs: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
        """Adds to the gradients of all leaves but the split parameters, whose work it queues."""
        # The mode has to be on for layers that run their forward again in the backward.
        with self:
            backward(outputs, gradients)

    def run(self) -> None:
        """Does the queued work, first in first out, letting go of each piece when it is done."""
        uses = self._uses() if self._repeats else {}
        sums: dict[Tensor, Tensor] = {}
        self.queue.reverse()
        # No graph is recorded: none of the tensors in the queue requires a gradient.
        while self.queue:
            for parameter, gradient in self.queue.pop().run():
                total = gradient
                if uses:
                    # The uses of a parameter are summed first, as autograd does.
                    partial = sums.pop(parameter, None)
                    total = gradient if partial is None else partial + gradient
                    uses[parameter] -= 1
                    if uses[parameter]:
                        sums[parameter] = total
                        continue
                if (present := parameter.grad) is None:
                    parameter.grad = total.to(parameter.dtype)
                else:
                    present.add_(total)

    def _uses(self) -> Counter[Tensor]:
        """How often the queue has a gradient for a parameter."""
        weights = (work.weight for work in self.queue)
        biases = (work.bias for work in self.queue if work.bias is not None)
        return Counter(chain(weights, biases))

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func in REENTERED and not is_compiling():
            # A mode is off while it handles a call; the calls made inside are to be seen too.
            with self:
                return REENTERED[func](*args, **kwargs)
        # Inside of functorch's transforms, or of a function being compiled, a call stays whole.
        if (
            func in REDIRECTED
            and torch.is_grad_enabled()
            and not _in_a_transform()
            and not is_compiling()
        ):
            found = REDIRECTED[func](*args, **kwargs)
            if found is not None and self._splits(found.weight, found.bias):
                lower = _autocast_type(found)
                layer_input = found.layer_input
                if lower is not None:
                    layer_input = _lowered(layer_input, lower)
                return _apply(self, found.rule, lower, layer_input, found.weight, found.bias)
        return func(*args, **kwargs)

    def _splits(self, weight: Tensor, bias: Tensor | None) -> bool:
        """Whether W can add to the gradients of these tensors later."""
        if not _is_trained_parameter(weight):
            return False
        if bias is not None and bias.requires_grad:
            if not _is_trained_parameter(bias):
                return False
            self._note(bias)
        self._note(weight)
        return True

    def _note(self, parameter: Tensor) -> None:
        if parameter in self.split:
            self._repeats = True
        self.split.add(parameter)


class _InputGradientOnly(torch.autograd.Function):
    """A layer whose backward leaves the gradients of its parameters to W.

    The parameters are inputs although no gradient is returned for them: that makes the output part
    of the graph where the layer's own input needs no gradient, as in the first stage.
    """

    @staticmethod
    def forward(
        ctx: Any,
        deferral: Deferral,
        rule: Rule,
        lower: torch.dtype | None,
        layer_input: Tensor,
        weight: Tensor,
        bias: Tensor | None,
    ) -> Tensor:
        # The parameter itself as well as its saved value: checkpointing saves a copy of the tensor.
        ctx.deferral, ctx.rule, ctx.lower, ctx.weight = deferral, rule, lower, weight
        ctx.bias = bias if bias is not None and bias.requires_grad else None
        # Under autocast the weight as it is: a lower copy per micro-batch would be held until B.
        ctx.save_for_backward(layer_input, weight)
        if lower is None:
            return rule.output(layer_input, weight, bias)
        with torch.autocast(weight.device.type, enabled=False):
            bias = None if bias is None else _lowered(bias, lower)
            return rule.output(layer_input, _lowered(weight, lower), bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        layer_input, weight = ctx.saved_tensors
        (gradient,) = gradients
        # Detached, or the queue would keep the whole graph before this layer alive. Nothing else
        # needs that: a backward that makes no graph of its own runs without gradients.
        kept = layer_input.detach()
        ctx.deferral.queue.append(WeightWork(ctx.rule, ctx.weight, ctx.bias, kept, gradient))
        if not ctx.needs_input_grad[3]:
            return None, None, None, None, None, None
        if ctx.lower is not None:
            weight = _lowered(weight, ctx.lower)
        passed_on = ctx.rule.input_gradient(gradient, kept, weight)
        return None, None, None, passed_on, None, None


# What torch puts in front of it is for functions inside of functorch's transforms.
_apply: Callable[..., Tensor] = super(torch.autograd.Function, _InputGradientOnly).apply
_in_a_transform = torch._C._are_functorch_transforms_active


def _autocast_type(operation: Operation) -> torch.dtype | None:
    """The type that autocast, if it is on, has this operation computed in."""
    kind = operation.weight.device.type
    if operation.rule.autocasts and torch.is_autocast_enabled(kind):
        return torch.get_autocast_dtype(kind)
    return None


def _lowered(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """As autocast does it: double precision stays."""
    return tensor if tensor.dtype is torch.float64 else tensor.to(dtype)


def unsplit(module: nn.Module, deferral: Deferral) -> list[str]:
    """Names of the trained parameters whose gradient B computes; known after a forward."""
    return [
        name
        for name, parameter in module.named_parameters()
        if parameter.requires_grad and parameter not in deferral.split
    ]


def _is_trained_parameter(tensor: Tensor) -> bool:
    # An input of the stage is a leaf with a gradient too, but B owes that gradient to its sender.
    return isinstance(tensor, nn.Parameter) and tensor.is_leaf and tensor.requires_grad
