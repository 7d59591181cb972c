"""Measuring one slice of a model: how long its ops take and what they keep."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn

from runtime.device import Clock
from runtime.stage import Loss, ModuleStage

Samples = dict[str, list[float]]
"""By kind of op the seconds of every run of it."""

KINDS = ("forward", "backward_act", "backward_wgt", "fused")


@dataclass(frozen=True, slots=True)
class Held:
    """Bytes that a slice keeps for one micro-batch, and all the time."""

    activation_bytes: int
    context_bytes: int
    parameter_bytes: int
    gradient_bytes: int
    optimizer_bytes: int
    output_bytes: int


class _Weighed(ModuleStage):
    """A stage that can say what it keeps."""

    def weigh_forward(self, inputs: tuple[Tensor, ...], target: Any) -> tuple[Any, int]:
        """Outputs of a split F, and the bytes that it leaves behind for B."""
        saved: list[Tensor] = []

        def note(tensor: Tensor) -> Tensor:
            saved.append(tensor)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            outputs = self.forward(0, inputs, target, split=True)
        return outputs, self._weigh((*saved, *inputs, *outputs))

    def weigh_context(self) -> int:
        """The bytes that B leaves behind for W."""
        queued = self._owed[0].queue
        return self._weigh(
            value
            for work in queued
            for value in (getattr(work, field.name) for field in fields(work))
            if isinstance(value, Tensor)
        )

    def _weigh(self, tensors: Iterable[Tensor]) -> int:
        """Bytes of the storages behind tensors, each once, without parameters and buffers."""
        own = {t.data_ptr() for t in (*self.module.parameters(), *self.module.buffers())}
        storages = {
            storage.data_ptr(): storage.nbytes()
            for storage in (tensor.untyped_storage() for tensor in tensors)
        }
        return sum(size for place, size in storages.items() if place not in own)


class SliceMeter:
    """Runs one slice alone, with several micro-batches in flight as in a pipeline."""

    def __init__(
        self,
        module: nn.Module,
        loss: Loss | None,
        inputs: Sequence[tuple[Tensor, ...]],
        targets: Sequence[Any],
        clock: Clock,
    ) -> None:
        """`inputs` has an entry per micro-batch in flight; so has `targets`, read with a loss."""
        self._stage = _Weighed(module, loss)
        self._inputs = inputs
        self._targets = targets if loss is not None else [None] * len(inputs)
        self._clock = clock
        self.outputs: list[Any] = [None] * len(inputs)
        """What the next slice gets, per micro-batch; known after a round."""

    def round(self) -> Samples:
        """One run of every op for every micro-batch in flight."""
        self._clock.start()
        stage = self._stage
        self._timed(lambda index: self._forward(index, split=False))
        gradients = self._arriving()
        fused = self._timed(lambda index: stage.backward(index, gradients[index]))
        forward = self._timed(lambda index: self._forward(index, split=True))
        gradients = self._arriving()
        backward_act = self._timed(lambda index: stage.backward_act(index, gradients[index]))
        backward_wgt = self._timed(stage.backward_wgt)
        return {
            "forward": forward,
            "backward_act": backward_act,
            "backward_wgt": backward_wgt,
            "fused": fused,
        }

    def _forward(self, index: int, *, split: bool) -> None:
        self.outputs[index] = self._stage.forward(
            index, _leaves(self._inputs[index]), self._targets[index], split=split
        )

    def _arriving(self) -> list[tuple[Tensor, ...]]:
        """What comes back for every micro-batch in flight."""
        return [_gradients(outputs) for outputs in self.outputs]

    def _timed(self, run: Callable[[int], Any]) -> list[float]:
        """Runs an op for every micro-batch in flight; the seconds that each took."""
        marks = []
        for index in range(len(self._inputs)):
            start = self._clock.mark()
            run(index)
            marks.append((start, self._clock.mark()))
        starts = self._clock.seconds([start for start, _ in marks])
        ends = self._clock.seconds([end for _, end in marks])
        return [end - start for start, end in zip(starts, ends, strict=True)]

    def weigh(self) -> Held:
        """What is kept, after at least one round."""
        stage = self._stage
        outputs, activation = stage.weigh_forward(_leaves(self._inputs[0]), self._targets[0])
        output_bytes = sum(output.nbytes for output in outputs)
        stage.backward_act(0, _gradients(outputs))
        context = stage.weigh_context()
        stage.backward_wgt(0)
        parameters = list(stage.module.parameters())
        return Held(
            activation_bytes=activation,
            context_bytes=context,
            parameter_bytes=sum(p.nbytes for p in parameters),
            gradient_bytes=sum(p.grad.nbytes for p in parameters if p.grad is not None),
            optimizer_bytes=_optimizer_bytes(parameters),
            output_bytes=output_bytes,
        )


def _leaves(values: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(t.detach().requires_grad_(t.requires_grad) for t in values)


def _gradients(outputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Of the size that gradients have: neither zero nor growing over the rounds."""
    return tuple(torch.randn_like(output) * 1e-3 for output in outputs if output.requires_grad)


def _optimizer_bytes(parameters: Sequence[nn.Parameter]) -> int:
    """What AdamW keeps, found out by one step that changes nothing."""
    trained = [p for p in parameters if p.grad is not None]
    if not trained:
        return 0
    optimizer = torch.optim.AdamW(trained, lr=0.0, weight_decay=0.0)
    optimizer.step()
    states = (value for state in optimizer.state.values() for value in state.values())
    return sum(value.nbytes for value in states if isinstance(value, Tensor))
