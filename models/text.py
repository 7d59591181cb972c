"""Real text that every Python installation has: the sources of its own standard library."""

from __future__ import annotations

import sysconfig
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Text:
    """One long row of bytes, from which batches are drawn."""

    data: Tensor
    """(bytes,) uint8."""

    def batch(self, seed: int, step: int, sequences: int, seq_len: int) -> tuple[Tensor, Tensor]:
        """Draws the batch of one step; the same (seed, step) always gives the same one.

        Returns inputs and targets, both (sequences, seq_len) int64; a target is the byte that
        follows its input.

        Raises:
            ValueError: a sequence is longer than the text.
        """
        last = len(self.data) - seq_len - 1
        if last < 0:
            raise ValueError(
                f"a sequence of {seq_len} tokens does not fit into {len(self.data)} bytes of text"
            )
        # One stream of random numbers per (seed, step); the odd factor keeps steps of
        # neighbouring seeds apart.
        generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
        starts = torch.randint(0, last + 1, (sequences, 1), generator=generator)
        windows = self.data[starts + torch.arange(seq_len + 1)].to(torch.int64)
        return windows[:, :-1], windows[:, 1:]


def standard_library(limit_bytes: int = 2_000_000, root: Path | None = None) -> Text:
    """Reads the first `limit_bytes` of the top-level *.py files under `root`, in name order.

    Args:
        limit_bytes: where to stop reading.
        root: folder to read, by default the running interpreter's standard library.

    Raises:
        ValueError: the folder holds no Python source.
    """
    folder = root or Path(sysconfig.get_path("stdlib"))
    text = bytearray()
    for path in sorted(folder.glob("*.py")):
        if len(text) >= limit_bytes:
            break
        text += path.read_bytes()
    if not text:
        raise ValueError(f"{folder} holds no *.py file to train on")
    return Text(torch.frombuffer(text[:limit_bytes], dtype=torch.uint8))
