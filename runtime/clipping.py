"""Updates the parameters with a gradient whose norm over all ranks is limited.

Every rank fills its own entries of one row of squared norms, a number per stage, and the rows are
added up: all other entries are zeros, so the sum is exact and the norm is the same number on every
rank, in one process, and however the stages are placed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from runtime.errors import PeerError, reason
from runtime.pipeline import Pipeline

_EPSILON = 1e-6  # as torch's own clipping has it


@dataclass(frozen=True, slots=True)
class Update:
    """What a step does to the parameters, the same on every rank."""

    norm: float
    """Of the gradient over all ranks, before clipping."""
    factor: float
    """By which the gradient is multiplied; 0 where the step is skipped."""

    @property
    def skipped(self) -> bool:
        """The gradient is infinite or not a number, so the parameters stay as they are."""
        return not math.isfinite(self.norm)

    @property
    def plain(self) -> bool:
        """The gradient is used as it is."""
        return self.factor == 1.0


def judge(squares: Tensor, max_norm: float | None) -> Update:
    """What to do with a gradient of these squared norms: (stages,) float64."""
    total = 0.0
    for square in squares.tolist():  # always in the order of the stages
        total += square
    norm = math.sqrt(total)
    if not math.isfinite(norm):
        return Update(norm, 0.0)
    if max_norm is None:
        return Update(norm, 1.0)
    return Update(norm, min(1.0, max_norm / (norm + _EPSILON)))


def square_norms(parameters: Mapping[int, Iterable[nn.Parameter]], stages: int) -> Tensor:
    """The squared gradient norm of each given stage, zero for the others: (stages,) float64."""
    squares = torch.zeros(stages, dtype=torch.float64)
    for stage, own in parameters.items():
        norms = [
            torch.linalg.vector_norm(parameter.grad, dtype=torch.float64)
            for parameter in own
            if parameter.grad is not None
        ]
        if norms:
            squares[stage] = torch.stack(norms).square().sum()
    return squares


def counted(pipeline: Pipeline) -> dict[int, list[nn.Parameter]]:
    """This rank's parameters by stage, without those that another rank or stage counts."""
    problem, rank = pipeline.schedule.problem, pipeline.session.rank
    shared = {parameter for tied in pipeline.tied.values() for parameter in tied.values()}
    found: dict[int, list[nn.Parameter]] = {}
    for stage, module in pipeline.modules.items():
        if rank == min(stream.route[stage] for stream in problem.streams):
            found[stage] = [p for p in module.parameters() if p not in shared]
    for stages, tied in pipeline.tied.items():
        if rank == min(stream.route[stage] for stream in problem.streams for stage in stages):
            found.setdefault(stages[0], []).extend(tied.values())
    return found


def apply(update: Update, optimizer: Optimizer | None, parameters: Iterable[nn.Parameter]) -> None:
    """Steps the optimizer with the clipped gradient, or leaves it alone."""
    if optimizer is None or update.skipped:
        return
    if not update.plain:
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.mul_(update.factor)
    optimizer.step()


class ClippedOptimizer:
    """Waits for the norm over all ranks, then steps.

    optimizer = ClippedOptimizer(pipeline, AdamW(pipeline.parameters()), max_norm=1.0)
    for inputs, targets in data:
        pipeline.step(inputs, targets)
        optimizer.step()
    """

    def __init__(
        self, pipeline: Pipeline, optimizer: Optimizer | None, *, max_norm: float | None = None
    ) -> None:
        """Clips to `max_norm` if one is given.

        Args:
            pipeline: what computes the gradients.
            optimizer: of this rank's parameters; None where it has none.
            max_norm: largest norm of the gradient over all ranks.
        """
        self.optimizer = optimizer
        self.max_norm = max_norm
        self._pipeline = pipeline
        self._counted = counted(pipeline)
        self._parameters = pipeline.parameters()

    def step(self) -> Update:
        """Updates the parameters and clears their gradients; every rank has to call it.

        Raises:
            PeerError: a rank is gone or does not come in time.
        """
        session = self._pipeline.session
        squares = square_norms(self._counted, len(self._pipeline.schedule.problem.stages))
        if session.world > 1:
            everywhere = squares.to(session.device)
            try:
                dist.all_reduce(everywhere)
            except RuntimeError as error:
                raise PeerError(
                    f"rank {session.rank} did not get the norm of the gradient: {reason(error)}"
                ) from error
            squares = everywhere.cpu()
        update = judge(squares, self.max_norm)
        apply(update, self.optimizer, self._parameters)
        for parameter in self._parameters:
            parameter.grad = None
        return update

    def settle(self) -> None:
        """Nothing is ever left open."""
