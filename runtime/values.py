"""What stages pass on: tensors in order, or by name."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from synth.errors import UsageError

Values = tuple[Tensor, ...] | dict[str, Tensor]
"""The arguments of a stage's forward, positional or by name, and what it returns."""

Inputs = Values | tuple[Tensor | Values, ...]
"""What a stage takes: values, or an argument from each of the several stages that it needs."""

Gradients = tuple[Tensor, ...]
"""One per tensor that expects one, in the order of the values."""


def as_argument(values: Values) -> Tensor | Values:
    """What one of several stages gives, as the next one takes it: a single tensor is itself."""
    return values[0] if isinstance(values, tuple) and len(values) == 1 else values


def tensors(values: Values) -> tuple[Tensor, ...]:
    """The tensors in order."""
    return tuple(values.values()) if isinstance(values, dict) else values


def renewed(values: Values, replacements: Sequence[Tensor]) -> Values:
    """Other tensors in the same places."""
    if isinstance(values, dict):
        return dict(zip(values, replacements, strict=True))
    return tuple(replacements)


def as_values(given: Any, what: str) -> Values:
    """A tensor, a sequence of tensors or a mapping from names to tensors.

    Raises:
        UsageError: it is something else.
    """
    if isinstance(given, Tensor):
        return (given,)
    found: Values | None = None
    if isinstance(given, Mapping):
        found = dict(given)
    elif isinstance(given, Sequence) and not isinstance(given, str):
        found = tuple(given)
    if found is None or not all(isinstance(tensor, Tensor) for tensor in tensors(found)):
        kinds = type(given).__name__
        if found is not None:
            kinds += " of " + ", ".join(type(one).__name__ for one in tensors(found))
        raise UsageError(f"{what} must be a tensor, or a tuple or dict of tensors, not a {kinds}")
    return found


def by_stage(given: Any, first_stages: Sequence[int]) -> dict[int, Values]:
    """What each stage that reads the batch takes: given by number, or as it is for a single one.

    Raises:
        UsageError: these are other stages than those that are given inputs.
    """
    numbered = isinstance(given, Mapping) and any(isinstance(key, int) for key in given)
    if len(first_stages) == 1 and not numbered:
        return {first_stages[0]: as_values(given, "inputs")}
    if not numbered or given.keys() != set(first_stages):
        raise UsageError(
            f"the stages that read the batch are {', '.join(map(str, first_stages))}; give what "
            "each takes in a dict by its number"
        )
    return {stage: as_values(given[stage], f"inputs of stage {stage}") for stage in first_stages}


def samples(values: Values) -> int:
    """How many samples a batch holds.

    Raises:
        UsageError: its tensors do not agree.
    """
    lengths = {len(tensor) if tensor.dim() else 0 for tensor in tensors(values)}
    if len(lengths) != 1:
        raise UsageError(f"the tensors of a batch hold {sorted(lengths)} samples")
    return lengths.pop()


def cut(values: Values, parts: int, device: torch.device) -> list[Values]:
    """Splits every tensor along dimension 0 into parts whose sizes differ by at most one."""
    pieces = [tensor.to(device).tensor_split(parts) for tensor in tensors(values)]
    together = zip(*pieces, strict=True)
    return [renewed(values, part) for part in together] if isinstance(values, dict) else [*together]


def layout(values: Values) -> Hashable:
    """Everything about a batch that decides the shapes inside a step, quick to compare."""
    names = tuple(values) if isinstance(values, dict) else None
    return names, tuple([(tensor.dtype, tensor.shape) for tensor in tensors(values)])


def shape_of(values: Values) -> str:
    """The same as text, which is alike on all ranks."""
    names = values if isinstance(values, dict) else range(len(values))
    return " ".join(
        f"{name}:{tensor.dtype}{list(tensor.shape)}"
        for name, tensor in zip(names, tensors(values), strict=True)
    )
