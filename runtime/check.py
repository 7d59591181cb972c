"""Compares a pipeline step with the single-process reference."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import models
from runtime.errors import GradientsDifferError
from runtime.executor import StepResult
from runtime.pipeline import Pipeline
from runtime.reference import parameter_names, reference_step, relative_error
from runtime.ties import Tie, bind

TOLERANCES = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 5e-2}
"""Largest allowed difference over the largest value, by the model's dtype.

Where every rank runs its W in the order of the micro-batches the difference is zero.
"""


def compare(
    pipeline: Pipeline, model: models.Model, inputs: Any, targets: Tensor, result: StepResult
) -> float:
    """Checks this rank's gradients and losses of the first step, before the optimizer.

    Returns:
        The largest error relative to the reference's largest value.

    Raises:
        GradientsDifferError: an error exceeds the tolerance; names the worst.
    """
    device = pipeline.session.device
    modules: list[nn.Module] = []
    for number in range(model.stages):
        module = model.make_stage(number)
        assert isinstance(module, nn.Module)
        modules.append(module.to(device))
    bind([Tie(uses) for uses in model.shared], dict(enumerate(modules)))
    assert model.loss is not None
    reference = reference_step(
        modules,
        inputs,
        targets,
        pipeline.plan.microbatches,
        model.loss,
        pipeline.schedule.problem.needs,
    )
    errors = {
        f"the gradient of {name}": relative_error(parameter.grad, reference.gradients[name])
        for number, module in pipeline.modules.items()
        for name, parameter in parameter_names(number, module)
    }
    for number, loss in result.losses.items():
        errors[f"the loss of micro-batch {number}"] = relative_error(loss, reference.losses[number])
    worst = max(errors, key=lambda name: errors[name])
    tolerance = TOLERANCES[reference.loss.dtype]
    if not errors[worst] <= tolerance:
        raise GradientsDifferError(
            f"rank {pipeline.session.rank}: {worst} differs from the single-process reference by "
            f"{errors[worst]:.1e} of its largest value, allowed is {tolerance:.0e}"
        )
    return errors[worst]
