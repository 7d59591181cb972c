"""The two halves of the backward of operations with a weight: of the input, and of the weight.

The arithmetic is that of torch's own backward formulas.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

Gradients = tuple[Tensor, Tensor | None]
"""Of the weight and of the bias."""


class Rule(Protocol):
    """Forward and both halves of the backward of one operation."""

    @property
    def autocasts(self) -> bool:
        """Whether torch.autocast has it computed in a lower precision."""

    def output(self, layer_input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The operation itself."""

    def input_gradient(
        self, output_gradient: Tensor, layer_input: Tensor, weight: Tensor
    ) -> Tensor:
        """What B computes."""

    def parameter_gradients(
        self, output_gradient: Tensor, layer_input: Tensor, weight: Tensor, bias: Tensor | None
    ) -> Gradients:
        """What W computes; a gradient of the bias only where a bias is given.

        The weight and the bias say what is wanted; no graph may come to depend on them.
        """


@dataclass(slots=True)  # not frozen, as one is made per call
class Operation:
    """One call of an operation that can be split."""

    rule: Rule
    layer_input: Tensor
    weight: Tensor
    bias: Tensor | None


@dataclass(frozen=True, slots=True)
class Linear:
    """y = x w^T + b: (..., in) to (..., out)."""

    @property
    def autocasts(self) -> bool:
        return True

    def output(self, layer_input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return functional.linear(layer_input, weight, bias)

    def input_gradient(
        self, output_gradient: Tensor, layer_input: Tensor, weight: Tensor
    ) -> Tensor:
        return output_gradient.matmul(weight)

    def parameter_gradients(
        self, output_gradient: Tensor, layer_input: Tensor, weight: Tensor, bias: Tensor | None
    ) -> Gradients:
        rows, inputs = _as_rows(output_gradient), _as_rows(layer_input)
        return rows.t().mm(inputs), None if bias is None else rows.sum(0)


@dataclass(frozen=True, slots=True)
class Convolution:
    """Any convolution: (batch, in, *space) to (batch, out, *space)."""

    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    transposed: bool
    output_padding: Sequence[int]
    groups: int

    @property
    def autocasts(self) -> bool:
        return True

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
        weight = weight.detach().to(output_gradient.dtype)
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
class Embedding:
    """Rows of a table: (...) integer to (..., width)."""

    padding_index: int
    """-1 for none."""
    scale_by_frequency: bool

    @property
    def autocasts(self) -> bool:
        return False

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


@dataclass(frozen=True, slots=True)
class Product:
    """A matrix product of a layer's input and a weight.

    The weight has two dimensions, or as many as the input and the same leading ones.
    """

    weight_first: bool
    """Weight times input instead of input times weight."""
    transposed: bool
    """The weight enters as its transpose."""

    @property
    def autocasts(self) -> bool:
        return True

    def output(self, layer_input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        matrix = weight.mT if self.transposed else weight
        if bias is not None:
            return torch.addmm(bias, layer_input, matrix)
        return matrix @ layer_input if self.weight_first else layer_input @ matrix

    def input_gradient(
        self, output_gradient: Tensor, layer_input: Tensor, weight: Tensor
    ) -> Tensor:
        matrix = weight if self.transposed else weight.mT
        return matrix @ output_gradient if self.weight_first else output_gradient @ matrix

    def parameter_gradients(
        self, output_gradient: Tensor, layer_input: Tensor, weight: Tensor, bias: Tensor | None
    ) -> Gradients:
        inner, outer = layer_input, output_gradient
        if weight.dim() == 2:
            # Everything but the contracted dimension becomes rows.
            if self.weight_first:
                inner, outer = inner.mT, outer.mT
            inner, outer = _as_rows(inner), _as_rows(outer)
        elif self.weight_first:
            inner, outer = inner.mT, outer.mT
        of_weight = outer.mT @ inner if self.weight_first != self.transposed else inner.mT @ outer
        return of_weight, None if bias is None else outer.sum(0)


def _as_rows(tensor: Tensor) -> Tensor:
    """All dimensions but the last as one."""
    return tensor if tensor.dim() == 2 else tensor.reshape(-1, tensor.shape[-1])
