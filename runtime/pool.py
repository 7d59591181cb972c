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

    @property
    def held_bytes(self) -> int:
        """Bytes of all buffers, in use or free."""
        return sum(t.nbytes for buffer in self._buffers for t in buffer.tensors)

    def take(self, spec: Sequence[TensorSpec]) -> tuple[Tensor, ...]:
        """New tensors of these shapes, on memory that nobody uses."""
        buffers = self._buffers
        for _ in range(len(buffers)):
            buffer = buffers[0]
            buffers.rotate(-1)  # the one that was lent first is the likeliest to be free
            if (spec is buffer.spec or _layout(spec) == buffer.layout) and buffer.free:
                return buffer.fresh()
        if len(buffers) == self.size:
            other = next((buffer for buffer in buffers if buffer.free), None)
            if other is None:
                self.unplanned += 1
                return self._allocate(spec)
            buffers.remove(other)  # of a batch of another shape
        buffer = _Buffer(spec, self._allocate(spec))
        buffers.append(buffer)
        return buffer.fresh()

    def _allocate(self, spec: Sequence[TensorSpec]) -> tuple[Tensor, ...]:
        return tuple(torch.empty(one.shape, dtype=one.dtype, device=self._device) for one in spec)


class _Buffer:
    """The memory of one message."""

    def __init__(self, spec: Sequence[TensorSpec], tensors: tuple[Tensor, ...]) -> None:
        self.spec = spec
        self.layout = _layout(spec)
        self.tensors = tensors
        self._storages = [tensor.untyped_storage() for tensor in tensors]
        self._handles = [storage._cdata for storage in self._storages]
        self._alone = list(map(_owners, self._handles))

    @property
    def free(self) -> bool:
        """Whether nothing but this buffer owns the memory."""
        return list(map(_owners, self._handles)) == self._alone

    def fresh(self) -> tuple[Tensor, ...]:
        """New tensors on the memory, without the history of those lent before."""
        return tuple(map(Tensor.detach, self.tensors))


def _layout(spec: Sequence[TensorSpec]) -> list[tuple[tuple[int, ...], torch.dtype]]:
    return [(one.shape, one.dtype) for one in spec]
