"""Receive buffers of one channel, used again as soon as nothing refers to them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import torch
from torch import Tensor

from runtime.spec import TensorSpec

_owners = torch._C._storage_Use_Count
"""How many tensors and handles share a storage, given its handle."""


class BufferPool:
    """At most `size` messages' worth of buffers.

    A received tensor belongs to whoever consumes the message: a stage keeps it until B, or as a
    layer's input until W, and may hand it on. So a buffer is free when its memory has no other
    owner, whoever that was. If the plan's number is not enough, because somebody keeps tensors for
    longer than the plan knows, further messages get memory that is not kept.
    """

    def __init__(self, size: int, device: torch.device) -> None:
        self.size = size
        self.unplanned = 0
        """Messages for which there was no room in the pool."""
        self._device = device
        self._buffers: deque[_Buffer] = deque()
        """The one that was lent first is the first, as it is the likeliest to be free."""

    @property
    def held_bytes(self) -> int:
        """Bytes of all buffers, in use or free."""
        return sum(t.nbytes for buffer in self._buffers for t in buffer.tensors)

    def take(self, spec: Sequence[TensorSpec]) -> tuple[Tensor, ...]:
        """New tensors of these shapes, on memory that nobody uses, without a history."""
        buffers = self._buffers
        for _ in range(len(buffers)):
            buffer = buffers[0]
            buffers.rotate(-1)
            # Every call takes time, and this is asked for every message.
            if (spec is buffer.spec or _layout(spec) == buffer.layout) and (
                list(map(_owners, buffer.handles)) == buffer.alone
            ):
                return tuple(map(Tensor.detach, buffer.tensors))
        return self._take_new(spec)

    def _take_new(self, spec: Sequence[TensorSpec]) -> tuple[Tensor, ...]:
        """Where no buffer of this layout is free: one more, or one in place of another, or none."""
        buffers = self._buffers
        tensors = tuple(
            torch.empty(one.shape, dtype=one.dtype, device=self._device) for one in spec
        )
        if len(buffers) == self.size:
            other = next((buffer for buffer in buffers if buffer.free), None)
            if other is None:
                self.unplanned += 1
                return tensors
            buffers.remove(other)  # of a batch of another shape
        buffers.append(_Buffer(spec, tensors))
        return tuple(map(Tensor.detach, tensors))


class _Buffer:
    """The memory of one message."""

    def __init__(self, spec: Sequence[TensorSpec], tensors: tuple[Tensor, ...]) -> None:
        self.spec = spec
        self.layout = _layout(spec)
        self.tensors = tensors
        self._storages = [tensor.untyped_storage() for tensor in tensors]
        self.handles = [storage._cdata for storage in self._storages]
        self.alone = list(map(_owners, self.handles))
        """How many own each storage while nobody else does."""

    @property
    def free(self) -> bool:
        """Whether nothing but this buffer owns the memory."""
        return list(map(_owners, self.handles)) == self.alone


def _layout(spec: Sequence[TensorSpec]) -> list[tuple[tuple[int, ...], torch.dtype]]:
    return [(one.shape, one.dtype) for one in spec]
