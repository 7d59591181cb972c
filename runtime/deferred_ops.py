"""The operations whose weight gradient can be split off, each with its backward in two halves.

`REDIRECTED` reads the arguments of a torch function into an `Operation`, or None where this call
has to stay as it is. `REENTERED` holds functions that are written in Python around such operations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional

Gradients = tuple[Tensor, Tensor | None]
"""Of the weight and of the bias."""


class Rule(Protocol):
    """Forward and both halves of the backward of one operation."""

    def output(self, layer_input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The operation itself."""

    def input_gradient(
        self, output_gradient: Tensor, layer_input: Tensor, weight: Tensor
    ) -> Tensor:
        """What B computes."""

    def parameter_gradients(
        self, output_gradient: Tensor, layer_input: Tensor, weight: Tensor, bias: Tensor | None
    ) -> Gradients:
        """What W computes; a gradient of the bias only where a bias is given."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One call of an operation that can be split."""

    rule: Rule
    layer_input: Tensor
    weight: Tensor
    bias: Tensor | None


@dataclass(frozen=True, slots=True)
class _Linear:
    """y = x w^T + b: (..., in) to (..., out)."""

    def output(self, layer_input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return functional.linear(layer_input, weight, bias)

    def input_gradient(
        self, output_gradient: Tensor, layer_input: Tensor, weight: Tensor
    ) -> Tensor:
        return output_gradient.matmul(weight)

    def parameter_gradients(
        self, output_gradient: Tensor, layer_input: Tensor, weight: Tensor, bias: Tensor | None
    ) -> Gradients:
        rows = output_gradient.reshape(-1, output_gradient.shape[-1])
        weight_gradient = rows.t().mm(layer_input.reshape(-1, layer_input.shape[-1]))
        return weight_gradient, None if bias is None else rows.sum(0)


@dataclass(frozen=True, slots=True)
class _Convolution:
    """Any convolution: (batch, in, *space) to (batch, out, *space)."""

    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    transposed: bool
    output_padding: Sequence[int]
    groups: int

    def output(self, layer_input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return torch.convolution(
            layer_input,
            weight,
            bias,
            self.stride,
            self.padding,
            self.dilation,
            self.transposed,
            self.output_padding,
            self.groups,
        )

    def input_gradient(
        self, output_gradient: Tensor, layer_input: Tensor, weight: Tensor
    ) -> Tensor:
        found = self._backward(output_gradient, layer_input, weight, None, [True, False, False])
        assert found[0] is not None
        return found[0]

    def parameter_gradients(
        self, output_gradient: Tensor, layer_input: Tensor, weight: Tensor, bias: Tensor | None
    ) -> Gradients:
        wanted = [False, True, bias is not None]
        _, of_weight, of_bias = self._backward(output_gradient, layer_input, weight, bias, wanted)
        assert of_weight is not None
        return of_weight, of_bias

    def _backward(
        self,
        output_gradient: Tensor,
        layer_input: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        wanted: list[bool],
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        found: tuple[Tensor | None, Tensor | None, Tensor | None]
        found = torch.ops.aten.convolution_backward(
            output_gradient,
            layer_input,
            weight,
            None if bias is None else list(bias.shape),
            self.stride,
            self.padding,
            self.dilation,
            self.transposed,
            self.output_padding,
            self.groups,
            wanted,
        )
        return found


@dataclass(frozen=True, slots=True)
class _Embedding:
    """Rows of a table: (...) integer to (..., width)."""

    padding_index: int
    """-1 for none."""
    scale_by_frequency: bool

    def output(self, layer_input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return torch.embedding(
            weight, layer_input, self.padding_index, self.scale_by_frequency, False
        )

    def input_gradient(
        self, output_gradient: Tensor, layer_input: Tensor, weight: Tensor
    ) -> Tensor:
        raise AssertionError("row numbers have no gradient")

    def parameter_gradients(
        self, output_gradient: Tensor, layer_input: Tensor, weight: Tensor, bias: Tensor | None
    ) -> Gradients:
        gradient: Tensor = torch.ops.aten.embedding_dense_backward(
            output_gradient,
            layer_input,
            weight.shape[0],
            self.padding_index,
            self.scale_by_frequency,
        )
        return gradient, None


_LINEAR = _Linear()


def _read_linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Operation:
    return Operation(_LINEAR, input, weight, bias)


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
    rule = _Convolution(
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
    rule = _Convolution(
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
    return Operation(_Embedding(index, scale_grad_by_freq), input, weight, None)


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
}

REENTERED: dict[Callable[..., Any], Callable[..., Any]] = {
    functional.multi_head_attention_forward: _without_override_check(
        functional.multi_head_attention_forward
    ),
}
