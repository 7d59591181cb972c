"""What the executor asks of a stage, and how a torch module answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from runtime.autograd import backward
from runtime.deferred import Deferral, unsplit
from runtime.values import Gradients, Inputs, Values, as_values

Loss = Callable[[Any, Any], Tensor]
"""Mean loss of (what the last stage returns, target)."""

PassedOn = Gradients | tuple[Gradients, ...]
"""The gradients of a stage's inputs; where it needs several stages, those for each."""

_NOTHING = nullcontext()


class Stage(Protocol):
    """One slice of the model. Micro-batches are numbered across all streams.

    Tensors that come in are leaves, and tensors that go out are detached; `requires_grad` says on
    both whether a gradient is expected for them. `gradients` holds one entry per output that
    expects one, what a backward returns one per input that expects one, both in order. A target
    comes as the batch has it: a tensor, or a tuple or dict of tensors.

    A stage that needs several others gets a tuple with what each of them gives, a single tensor as
    such, and its backwards return a tuple with the gradients for each. One that several need gets
    the sum of their gradients.
    """

    def forward(
        self, microbatch: int, inputs: Inputs, target: Values | Tensor | None, *, split: bool
    ) -> Values:
        """F. Returns the outputs; on the last stage, which gets a target, just the loss.

        `split` announces that B and W will come apart.
        """

    def backward_act(self, microbatch: int, gradients: Gradients) -> PassedOn:
        """B after a split forward. Returns the input gradients and keeps what W needs."""

    def backward_wgt(self, microbatch: int) -> None:
        """W. Adds to the gradients of the weights."""

    def backward(self, microbatch: int, gradients: Gradients) -> PassedOn:
        """BW after a forward that was not split."""

    def discard(self) -> None:
        """Forgets the micro-batches of which only F has run; they will run again."""

    def weight_gradients(self) -> Sequence[Tensor]:
        """What has to be added up over the ranks that hold a replica of this stage, in place."""


_Running = tuple[Inputs, tuple[Tensor, ...], Deferral | None]
"""A micro-batch between its F and its B: inputs, and those outputs that expect a gradient."""


class ModuleStage:
    """A stage that is a torch module: values in, values out.

    A tuple of values are the positional arguments of the module's forward, a dict those by name.
    Where it joins what several stages give, it has a positional argument for each.
    """

    def __init__(
        self,
        module: nn.Module,
        loss: Loss | None = None,
        autocast: torch.autocast | None = None,
        *,
        joins: bool = False,
    ) -> None:
        self.module = module
        self.loss = loss
        """Given to the last stage."""
        self.autocast = autocast
        """What forwards run in."""
        self.elsewhere: set[Tensor] = set()
        """Parameters whose gradients are not this stage's to add up, as other stages share them."""
        self.unsplit: tuple[str, ...] | None = None
        """Parameters whose gradient B computes, as their operation cannot be split; known after
        the first split forward."""
        self.compiled = any(map(_is_compiled, module.modules()))
        """Compiled code hides its operations, so B computes all weight gradients."""
        self._gradients_of: Callable[[Any], PassedOn]
        self._gradients_of = _gradients_for_each if joins else _gradients_of
        self._running: dict[int, _Running] = {}
        self._owed: dict[int, Deferral] = {}

    @property
    def held(self) -> int:
        """Micro-batches of which anything is still held."""
        return len(self._running) + len(self._owed)

    def forward(
        self, microbatch: int, inputs: Inputs, target: Values | Tensor | None, *, split: bool
    ) -> Values:
        """F: see `Stage`."""
        deferral = Deferral() if split else None
        if deferral is None and self.autocast is None:
            result = self._call(inputs, target)
        else:
            mode = _NOTHING if deferral is None or self.compiled else deferral
            with self.autocast or _NOTHING, mode:
                result = self._call(inputs, target)
        outputs = (result,) if isinstance(result, Tensor) else self._as_values(result)
        if deferral is not None and self.unsplit is None:
            self.unsplit = tuple(unsplit(self.module, deferral))
        passed_on: list[Tensor] = []
        with_graph: list[Tensor] = []
        for tensor in outputs if isinstance(outputs, tuple) else outputs.values():
            leaf = tensor.detach()
            if tensor.requires_grad:
                leaf.requires_grad_()
                with_graph.append(tensor)
            passed_on.append(leaf)
        self._running[microbatch] = inputs, tuple(with_graph), deferral
        if isinstance(outputs, tuple):
            return tuple(passed_on)
        return dict(zip(outputs, passed_on, strict=True))

    def backward_act(self, microbatch: int, gradients: Gradients) -> PassedOn:
        """B: see `Stage`. What F kept is free afterwards, but for the layers' inputs."""
        inputs, outputs, deferral = self._running.pop(microbatch)
        assert deferral is not None, "B after a forward that was not split"
        if outputs:
            deferral.backward(outputs, gradients)
        self._owed[microbatch] = deferral
        return self._gradients_of(inputs)

    def backward_wgt(self, microbatch: int) -> None:
        """W: see `Stage`."""
        self._owed.pop(microbatch).run()

    def backward(self, microbatch: int, gradients: Gradients) -> PassedOn:
        """BW: see `Stage`."""
        inputs, outputs, _ = self._running.pop(microbatch)
        if outputs:
            backward(outputs, gradients)
        return self._gradients_of(inputs)

    def discard(self) -> None:
        """See `Stage`."""
        self._running.clear()

    def weight_gradients(self) -> Sequence[Tensor]:
        """See `Stage`."""
        trained = (p for p in self.module.parameters() if p.requires_grad)
        return [gradient_of(p) for p in trained if p not in self.elsewhere]

    def _call(self, inputs: Inputs, target: Values | Tensor | None) -> Any:
        result = self.module(**inputs) if isinstance(inputs, dict) else self.module(*inputs)
        if self.loss is None:
            return result
        assert target is not None, "the last stage needs a target"
        return self.loss(result, target)

    def _as_values(self, result: Any) -> Values:
        return as_values(result, f"what {type(self.module).__name__} returns")


def gradient_of(parameter: Tensor) -> Tensor:
    """A parameter's gradient; one that got none has zeros from now on, like its replicas."""
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad


def _gradients_of(inputs: Values) -> Gradients:
    """Takes the gradients off the inputs; an input that nothing depends on has zeros."""
    found: list[Tensor] = []
    for tensor in inputs if isinstance(inputs, tuple) else inputs.values():
        if tensor.requires_grad:
            gradient = tensor.grad
            found.append(torch.zeros_like(tensor) if gradient is None else gradient)
            tensor.grad = None
    return tuple(found)


def _gradients_for_each(inputs: Sequence[Tensor | Values]) -> tuple[Gradients, ...]:
    """The same for each of several arguments."""
    return tuple(_gradients_of((one,) if isinstance(one, Tensor) else one) for one in inputs)


def _is_compiled(module: nn.Module) -> bool:
    """Whether torch.compile has wrapped it, or compiled it in place."""
    return "_orig_mod" in module._modules or module._compiled_call_impl is not None
