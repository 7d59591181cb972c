"""What the receiver of a message has to know before it can post a receive."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import torch

from runtime.values import Values, tensors


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One tensor of a message."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    requires_grad: bool

    def __str__(self) -> str:
        with_gradient = "" if self.requires_grad else " without gradient"
        return f"{self.dtype} of shape {self.shape}{with_gradient}"


@dataclass(frozen=True, slots=True)
class Spec:
    """What a message holds: tensors in order, with names where the stage gives them names."""

    tensors: tuple[TensorSpec, ...]
    names: tuple[str, ...] | None
    has_complex: bool = field(init=False, repr=False, compare=False)
    has_gradients: bool = field(init=False, repr=False, compare=False)
    """Whether a gradient is expected for any of them."""

    def __post_init__(self) -> None:
        # Asked for every message.
        object.__setattr__(self, "has_complex", any(t.dtype.is_complex for t in self.tensors))
        object.__setattr__(self, "has_gradients", any(t.requires_grad for t in self.tensors))

    @staticmethod
    def of(values: Values) -> Spec:
        """The spec of what is sent."""
        return Spec(
            tuple(TensorSpec(tuple(t.shape), t.dtype, t.requires_grad) for t in tensors(values)),
            tuple(values) if isinstance(values, dict) else None,
        )

    def fits(self, values: Values) -> bool:
        """Whether values are as this says; what every send asks."""
        if isinstance(values, dict):
            if self.names != tuple(values):
                return False
            given = tuple(values.values())
        elif self.names is not None:
            return False
        else:
            given = values
        if len(given) != len(self.tensors):
            return False
        for one, spec in zip(given, self.tensors, strict=True):
            if (
                one.shape != spec.shape
                or one.dtype is not spec.dtype
                or one.requires_grad is not spec.requires_grad
            ):
                return False
        return True

    @staticmethod
    def read(text: bytes | str) -> Spec:
        """The spec that `written` wrote."""
        given, names = json.loads(text)
        found = (TensorSpec(tuple(s), getattr(torch, dtype), grad) for s, dtype, grad in given)
        return Spec(tuple(found), None if names is None else tuple(names))

    def written(self) -> str:
        """As text, for a store."""
        given = [
            [one.shape, str(one.dtype).removeprefix("torch."), one.requires_grad]
            for one in self.tensors
        ]
        return json.dumps([given, self.names])

    def __str__(self) -> str:
        named = [""] * len(self.tensors) if self.names is None else [f"{n}: " for n in self.names]
        parts = (f"{name}{one}" for name, one in zip(named, self.tensors, strict=True))
        return " and ".join(parts) or "nothing"
