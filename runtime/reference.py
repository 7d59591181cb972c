"""The reference: the same step in one process, with plain autograd and no pipeline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from runtime.stage import Loss
from runtime.values import Inputs, Values, as_argument, as_values, by_stage, cut, tensors
from synth.stages import Needs, chain


@dataclass(frozen=True, slots=True)
class Reference:
    """Loss and gradients of one step."""

    loss: Tensor
    """Mean over the micro-batches: a scalar."""
    losses: tuple[Tensor, ...]
    """Of each micro-batch."""
    gradients: dict[str, Tensor]
    """By `stage.parameter`, as `parameter_names` gives them; trained parameters only."""


def reference_step(
    modules: Sequence[nn.Module],
    inputs: Any,
    targets: Any,
    microbatches: int,
    loss: Loss,
    needs: Needs = (),
) -> Reference:
    """Runs one step on all stages; the loss is the mean over the micro-batches.

    The modules' own gradients are left untouched.

    Args:
        modules: every stage, in order.
        inputs: the whole batch, as `Pipeline.step` takes it.
        targets: likewise.
        microbatches: how many parts the batch is cut into.
        loss: mean loss of (output, target).
        needs: the stages whose outputs each stage takes; empty, they are a chain.
    """
    needs = needs or chain(len(modules))
    every = (p for module in modules for p in module.parameters())
    parameters = list(dict.fromkeys(p for p in every if p.requires_grad))
    kept = [parameter.grad for parameter in parameters]
    for parameter in parameters:
        parameter.grad = None
    losses: list[Tensor] = []
    device = parameters[0].device
    whole = by_stage(inputs, [stage for stage, sources in enumerate(needs) if not sources])
    parts = {stage: cut(values, microbatches, device) for stage, values in whole.items()}
    wanted = cut(as_values(targets, "targets"), microbatches, device)
    for number, target_values in enumerate(wanted):
        value = _output(modules, needs, {stage: own[number] for stage, own in parts.items()})
        target = tensors(target_values)[0] if isinstance(targets, Tensor) else target_values
        own = loss(value, target)
        torch.autograd.backward(own, torch.full_like(own, 1 / microbatches))
        losses.append(own.detach())
    gradients = {
        name: torch.zeros_like(p) if p.grad is None else p.grad
        for stage, module in enumerate(modules)
        for name, p in parameter_names(stage, module)
    }
    for parameter, own_gradient in zip(parameters, kept, strict=True):
        parameter.grad = own_gradient
    return Reference(torch.stack(losses).mean(), tuple(losses), gradients)


def _output(modules: Sequence[nn.Module], needs: Needs, read: Mapping[int, Values]) -> Any:
    """What the last stage returns for what the first ones read."""
    made: list[Any] = []
    for stage, (module, sources) in enumerate(zip(modules, needs, strict=True)):
        taken = [as_values(made[source], "a stage's output") for source in sources]
        given: Inputs = read[stage] if not sources else taken[0]
        if len(taken) > 1:
            given = tuple(map(as_argument, taken))
        made.append(module(**given) if isinstance(given, dict) else module(*given))
    return made[-1]


def parameter_names(stage: int, module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """The trained parameters of a stage, named `stage.parameter`."""
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            yield f"{stage}.{name}", parameter


def relative_error(mine: Tensor | None, theirs: Tensor) -> float:
    """Largest difference over the largest value of the reference; infinite where one is missing."""
    if mine is None or mine.shape != theirs.shape:
        return float("inf")
    if torch.equal(mine, theirs):
        return 0.0
    scale = theirs.abs().max().item() or 1.0
    difference = (mine - theirs).abs().max().item() / scale
    return float("inf") if difference != difference else difference
