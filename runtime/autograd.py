"""The backward of a graph, without what torch.autograd.backward does before it starts."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

_run_backward = torch.autograd.Variable._execution_engine.run_backward


def backward(outputs: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
    """Adds to the gradients of all leaves and frees the graph.

    Calls the engine itself, which checks shapes and types too: for a small stage the checks in
    torch.autograd.backward take longer than the backward. Nor does a torch-function mode take
    this for an operation and be off inside.

    Args:
        outputs: tensors with a graph.
        gradients: one per output, of the same shape and type.

    Raises:
        RuntimeError: a gradient does not fit, or the graph has been freed.
    """
    _run_backward(
        tuple(outputs),
        tuple(gradients),
        False,  # keep no graph
        False,  # make no graph of the backward
        (),  # all leaves
        allow_unreachable=True,
        accumulate_grad=True,
    )
