"""Exact copies of what a step changes, to be put back bit for bit."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer


class Snapshot:
    """Parameters and the optimizer's state, such as the moments of AdamW.

    The memory of the copies is used again from snapshot to snapshot.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], optimizer: Optimizer | None) -> None:
        self._parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self._optimizer = optimizer
        self._values: list[Tensor] = []
        self._states: list[dict[str, Any] | None] = []

    @torch.no_grad()
    def take(self) -> None:
        """Copies everything."""
        self._values = _refill(self._values, self._parameters)
        states = self._states or [None] * len(self._parameters)
        self._states = [
            None if (state := self._state(parameter)) is None else _refill_state(old or {}, state)
            for parameter, old in zip(self._parameters, states, strict=True)
        ]

    @torch.no_grad()
    def put_back(self) -> None:
        """Makes everything what it was."""
        assert self._optimizer is not None
        for parameter, value in zip(self._parameters, self._values, strict=True):
            parameter.copy_(value)
        for parameter, saved in zip(self._parameters, self._states, strict=True):
            if saved is None:
                self._optimizer.state.pop(parameter, None)
                continue
            state = self._optimizer.state[parameter]
            for name in state.keys() - saved.keys():
                del state[name]
            _refill_state(state, saved)

    def _state(self, parameter: nn.Parameter) -> dict[str, Any] | None:
        """The optimizer's notes on a parameter; None before its first step."""
        if self._optimizer is None or parameter not in self._optimizer.state:
            return None
        found: dict[str, Any] = self._optimizer.state[parameter]
        return found


class ForwardState:
    """What an F changes besides its outputs: random numbers, and buffers such as running means."""

    def __init__(self, modules: Iterable[nn.Module], device: torch.device) -> None:
        self._buffers = [buffer for module in modules for buffer in module.buffers()]
        self._device = device
        self._values: list[Tensor] = []
        self._random: list[Tensor] = []

    @torch.no_grad()
    def take(self) -> None:
        """Copies everything."""
        self._values = _refill(self._values, self._buffers)
        self._random = [torch.get_rng_state()]
        if self._device.type == "cuda":
            self._random.append(torch.cuda.get_rng_state(self._device))

    @torch.no_grad()
    def put_back(self) -> None:
        """Makes everything what it was."""
        for buffer, value in zip(self._buffers, self._values, strict=True):
            buffer.copy_(value)
        torch.set_rng_state(self._random[0])
        if self._device.type == "cuda":
            torch.cuda.set_rng_state(self._random[1], self._device)


def _refill(copies: list[Tensor], tensors: Sequence[Tensor]) -> list[Tensor]:
    """Copies of the tensors, in the memory of earlier ones if there are any."""
    if not copies:
        return [tensor.detach().clone() for tensor in tensors]
    for old, tensor in zip(copies, tensors, strict=True):
        old.copy_(tensor)
    return copies


def _refill_state(copies: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    for name, value in state.items():
        old = copies.get(name)
        if isinstance(value, Tensor) and isinstance(old, Tensor):
            old.copy_(value)
        else:
            copies[name] = value.clone() if isinstance(value, Tensor) else copy.deepcopy(value)
    return copies
