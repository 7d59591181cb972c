"""What the executor asks of a stage, and how a torch module answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from runtime.deferred import Deferral, unsplit

Values = tuple[Tensor, ...]
Loss = Callable[[Tensor, Tensor], Tensor]


class Stage(Protocol):
    """One slice of the model. Micro-batches are numbered across all streams.

    Tensors that come in are leaves, and tensors that go out are detached; `requires_grad` says on
    both whether a gradient is expected for them. `gradients` holds one entry per output that
    expects one, what a backward returns one per input that expects one, both in order.
    """

    def forward(
        self, microbatch: int, inputs: Values, target: Tensor | None, *, split: bool
    ) -> Values:
        """F. Returns the outputs; on the last stage, which gets a target, just the loss.

        `split` announces that B and W will come apart.
        """

    def backward_act(self, microbatch: int, gradients: Values) -> Values:
        """B after a split forward. Returns the input gradients and keeps what W needs."""

    def backward_wgt(self, microbatch: int) -> None:
        """W. Adds to the gradients of the weights."""

    def backward(self, microbatch: int, gradients: Values) -> Values:
        """BW after a forward that was not split."""

    def weight_gradients(self) -> Sequence[Tensor]:
        """What has to be added up over the ranks that hold a replica of this stage, in place."""


@dataclass(frozen=True, slots=True)
class _Running:
    """A micro-batch between its F and its B."""

    inputs: Values
    outputs: Values
    deferral: Deferral | None


class ModuleStage:
    """A stage that is a torch module: tensors in, a tensor or a tuple of tensors out."""

    def __init__(self, module: nn.Module, loss: Loss | None = None) -> None:
        self.module = module
        self.loss = loss
        """Given to the last stage: mean loss of (output, target)."""
        self.unsplit: tuple[str, ...] | None = None
        """Parameters whose gradient B computes, as their operation cannot be split; known after
        the first split forward."""
        self._running: dict[int, _Running] = {}
        self._owed: dict[int, Deferral] = {}

    @property
    def held(self) -> int:
        """Micro-batches of which anything is still held."""
        return len(self._running) + len(self._owed)

    def forward(
        self, microbatch: int, inputs: Values, target: Tensor | None, *, split: bool
    ) -> Values:
        """F: see `Stage`."""
        deferral = Deferral() if split else None
        with deferral or nullcontext():
            result = self.module(*inputs)
            if self.loss is not None:
                assert target is not None, "the last stage needs a target"
                result = self.loss(result, target)
        outputs: Values = (result,) if isinstance(result, Tensor) else tuple(result)
        self._running[microbatch] = _Running(inputs, outputs, deferral)
        if deferral is not None and self.unsplit is None:
            self.unsplit = tuple(unsplit(self.module, deferral))
        return tuple(output.detach().requires_grad_(output.requires_grad) for output in outputs)

    def backward_act(self, microbatch: int, gradients: Values) -> Values:
        """B: see `Stage`. What F kept is free afterwards, but for the layers' inputs."""
        running = self._running.pop(microbatch)
        assert running.deferral is not None, "B after a forward that was not split"
        if outputs := _expecting(running.outputs):
            running.deferral.backward(outputs, gradients)
        self._owed[microbatch] = running.deferral
        return _gradients_of(running.inputs)

    def backward_wgt(self, microbatch: int) -> None:
        """W: see `Stage`."""
        self._owed.pop(microbatch).run()

    def backward(self, microbatch: int, gradients: Values) -> Values:
        """BW: see `Stage`."""
        running = self._running.pop(microbatch)
        if outputs := _expecting(running.outputs):
            torch.autograd.backward(outputs, gradients)
        return _gradients_of(running.inputs)

    def weight_gradients(self) -> Sequence[Tensor]:
        """See `Stage`. A parameter that got none has zeros from now on, like its replicas."""
        found: list[Tensor] = []
        for parameter in self.module.parameters():
            if parameter.requires_grad:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                found.append(parameter.grad)
        return found


def _expecting(tensors: Values) -> Sequence[Tensor]:
    return [tensor for tensor in tensors if tensor.requires_grad]


def _gradients_of(inputs: Values) -> Values:
    """Takes the gradients off the inputs; an input that nothing depends on has zeros."""
    found: list[Tensor] = []
    for tensor in _expecting(inputs):
        found.append(torch.zeros_like(tensor) if tensor.grad is None else tensor.grad)
        tensor.grad = None
    return tuple(found)
