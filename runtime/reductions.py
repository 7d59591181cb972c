"""Gradients that are being added up over ranks while the step goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from runtime.errors import PeerError, reason


@dataclass(frozen=True, slots=True)
class _Reduction:
    """A reduction under way."""

    where: str
    work: Any
    bucket: Tensor
    parts: list[Tensor]
    """Where the totals go."""


class Reductions:
    """All reductions of one rank that are under way."""

    def __init__(self, who: str, divisor: int = 1) -> None:
        self._who = who
        """For errors, such as "rank 3"."""
        self._divisor = divisor
        """Of the sums; the number of replicas where their mean is wanted."""
        self._under_way: list[_Reduction] = []

    def start(self, tensors: Sequence[Tensor], reduce: Callable[[Tensor], Any], where: str) -> None:
        """Starts to add tensors up in place, one message per dtype; does not wait.

        Args:
            tensors: this rank's part.
            reduce: starts an all-reduce of one tensor and returns its work.
            where: over which ranks, for errors.
        """
        for dtype in sorted({tensor.dtype for tensor in tensors}, key=str):
            parts = [tensor for tensor in tensors if tensor.dtype is dtype]
            bucket = torch.cat([part.flatten() for part in parts])
            self._under_way.append(_Reduction(where, reduce(bucket), bucket, parts))

    def finish(self) -> None:
        """Waits for all and writes the results where the parts came from.

        Raises:
            PeerError: another rank is gone or does not answer in time.
        """
        for reduction in self._under_way:
            try:
                reduction.work.wait()
            except RuntimeError as error:
                raise PeerError(
                    f"{self._who} could not reduce gradients over {reduction.where}: "
                    f"{reason(error)}"
                ) from error
            if self._divisor > 1:
                reduction.bucket.div_(self._divisor)
            totals = torch.split(reduction.bucket, [part.numel() for part in reduction.parts])
            for part, total in zip(reduction.parts, totals, strict=True):
                part.copy_(total.view_as(part))
        self._under_way.clear()
