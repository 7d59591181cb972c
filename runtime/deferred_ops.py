"""Which calls can be split into B and W.

`REDIRECTED` reads the arguments of a torch function into an `Operation`, or None where this call
has to stay as it is. `REENTERED` holds functions that are written in Python around such operations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from runtime.deferred_rules import Convolution, Embedding, Linear, Operation, Product

_LINEAR = Linear()


def _read_linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Operation:
    if bias is None and (original := _untransposed(weight)) is not None:
        return Operation(Product(weight_first=False, transposed=False), input, original, None)
    return Operation(_LINEAR, input, weight, bias)


def _read_product(*operands: Any, **options: Any) -> Operation | None:
    """matmul, mm and bmm of an input and a parameter, on whichever side the parameter is."""
    if options or len(operands) != 2:
        return None
    left, right = operands
    for weight, layer_input in ((right, left), (left, right)):
        original = _untransposed(weight)
        matrix = weight if original is None else original
        if isinstance(matrix, nn.Parameter) and _fits(weight, layer_input, first=weight is left):
            rule = Product(weight_first=weight is left, transposed=original is not None)
            return Operation(rule, layer_input, matrix, None)
    return None


def _read_addmm(*operands: Any, **options: Any) -> Operation | None:
    """A bias for every row plus an input times a parameter."""
    if options or len(operands) != 3:
        return None
    bias, layer_input, weight = operands
    original = _untransposed(weight)
    if bias.dim() != 1 or bias.shape[0] != weight.shape[1]:
        return None
    rule = Product(weight_first=False, transposed=original is not None)
    return Operation(rule, layer_input, weight if original is None else original, bias)


def _fits(weight: Tensor, layer_input: Tensor, *, first: bool) -> bool:
    """Whether the product's gradients are products again, without sums over broadcast sizes."""
    if weight.dim() == 2:
        return layer_input.dim() >= 1 + first
    return weight.dim() > 2 and weight.shape[:-2] == layer_input.shape[:-2]


def _untransposed(weight: Tensor) -> nn.Parameter | None:
    """The parameter of which this is the transpose, if it is one."""
    original = None if isinstance(weight, nn.Parameter) else weight._base
    if (
        isinstance(original, nn.Parameter)
        and original.dim() == 2
        and weight.shape == original.shape[::-1]
        and weight.stride() == original.stride()[::-1]
        and weight.requires_grad
    ):
        return original
    return None


def _read_convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | str | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Operation | None:
    dimensions = weight.dim() - 2
    if input.dim() != weight.dim():
        return None  # without a batch dimension
    widths = _per_dimension(dilation, dimensions)
    if padding == "same":
        total = [width * (size - 1) for width, size in zip(widths, weight.shape[2:], strict=True)]
        if any(size % 2 for size in total):
            return None  # padded on one side more than on the other
        padding = [size // 2 for size in total]
    elif isinstance(padding, str):
        padding = 0
    rule = Convolution(
        stride=_per_dimension(stride, dimensions),
        padding=_per_dimension(padding, dimensions),
        dilation=widths,
        transposed=False,
        output_padding=[0] * dimensions,
        groups=groups,
    )
    return Operation(rule, input, weight, bias)


def _read_transposed(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
) -> Operation | None:
    dimensions = weight.dim() - 2
    if input.dim() != weight.dim():
        return None
    rule = Convolution(
        stride=_per_dimension(stride, dimensions),
        padding=_per_dimension(padding, dimensions),
        dilation=_per_dimension(dilation, dimensions),
        transposed=True,
        output_padding=_per_dimension(output_padding, dimensions),
        groups=groups,
    )
    return Operation(rule, input, weight, bias)


def _read_embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Operation | None:
    if max_norm is not None or sparse:
        return None  # changes the table in the forward, or has a gradient of another layout
    index = -1 if padding_idx is None else padding_idx % weight.shape[0]
    return Operation(Embedding(index, scale_grad_by_freq), input, weight, None)


def _per_dimension(value: int | Sequence[int], dimensions: int) -> list[int]:
    if isinstance(value, int):
        return [value] * dimensions
    return list(value) * dimensions if len(value) == 1 else list(value)


def _without_override_check(function: Callable[..., Any]) -> Callable[..., Any]:
    """A copy of a function of torch.nn.functional that goes straight to its body.

    Such a function asks first whether a mode wants to handle the call and would ask for ever while
    one is on; the operations inside the body still ask.
    """
    assert isinstance(function, FunctionType)
    unasked = {name: lambda *_: False for name in function.__globals__ if "torch_function" in name}
    copy = FunctionType(
        function.__code__,
        {**function.__globals__, **unasked},
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


REDIRECTED: dict[Callable[..., Any], Callable[..., Operation | None]] = {
    functional.linear: _read_linear,
    functional.conv1d: _read_convolution,
    functional.conv2d: _read_convolution,
    functional.conv3d: _read_convolution,
    functional.conv_transpose1d: _read_transposed,
    functional.conv_transpose2d: _read_transposed,
    functional.conv_transpose3d: _read_transposed,
    functional.embedding: _read_embedding,
    torch.matmul: _read_product,
    torch.mm: _read_product,
    torch.bmm: _read_product,
    torch.addmm: _read_addmm,
    Tensor.matmul: _read_product,
    Tensor.__matmul__: _read_product,
    Tensor.mm: _read_product,
    Tensor.bmm: _read_product,
}

REENTERED: dict[Callable[..., Any], Callable[..., Any]] = {
    functional.multi_head_attention_forward: _without_override_check(
        functional.multi_head_attention_forward
    ),
}
