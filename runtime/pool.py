"""Receive buffers of one channel, used again as soon as nothing refers to them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from runtime.spec import TensorSpec


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
        self._buffers: list[_Buffer] = []

    @property
    def held_bytes(self) -> int:
        """Bytes of all buffers, in use or free."""
        return sum(t.nbytes for buffer in self._buffers for t in buffer.tensors)

    def take(self, spec: Sequence[TensorSpec]) -> tuple[Tensor, ...]:
        """New tensors of these shapes, on memory that nobody uses."""
        wanted = tuple((one.shape, one.dtype) for one in spec)
        free = [buffer for buffer in self._buffers if buffer.free]
        for buffer in free:
            if buffer.layout == wanted:
                return buffer.lend()
        if len(self._buffers) == self.size:
            if not free:
                self.unplanned += 1
                return self._allocate(spec)
            self._buffers.remove(free[0])  # of a batch of another shape
        self._buffers.append(_Buffer(wanted, self._allocate(spec)))
        return self._buffers[-1].lend()

    def _allocate(self, spec: Sequence[TensorSpec]) -> tuple[Tensor, ...]:
        return tuple(torch.empty(one.shape, dtype=one.dtype, device=self._device) for one in spec)


class _Buffer:
    """The memory of one message."""

    def __init__(
        self, layout: tuple[tuple[tuple[int, ...], torch.dtype], ...], tensors: tuple[Tensor, ...]
    ) -> None:
        self.layout = layout
        self.tensors = tensors
        self._storages = [tensor.untyped_storage() for tensor in tensors]
        self._alone = [_owners(storage) for storage in self._storages]

    @property
    def free(self) -> bool:
        """Whether nothing but this buffer owns the memory."""
        return all(
            _owners(storage) == alone
            for storage, alone in zip(self._storages, self._alone, strict=True)
        )

    def lend(self) -> tuple[Tensor, ...]:
        """Fresh tensors, without the history of those lent before."""
        return tuple(tensor.detach() for tensor in self.tensors)


def _owners(storage: torch.UntypedStorage) -> int:
    """How many tensors and handles share a storage."""
    return int(torch._C._storage_Use_Count(storage._cdata))
