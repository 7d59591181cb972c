"""What a training says while it runs: a log file per rank, now and then a line on the console."""

from __future__ import annotations

import json
import logging
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from runtime.executor import StepResult
from synth.errors import FileError

logger = logging.getLogger("runtime")


@dataclass(frozen=True, slots=True)
class Share:
    """What one rank saw of some steps in a row; plain values, so that it travels as JSON."""

    losses: list[list[float]]
    """Per step those of the micro-batches whose last stage is here."""
    busy_s: float
    """Time in ops."""
    wall_s: float
    """From the end of the step before to the end of the last step."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Some steps in a row over all ranks."""

    last_step: int
    """Counted from 1."""
    losses: list[float]
    """Mean over the micro-batches, per step."""
    step_s: float
    """Mean time from step to step, of the slowest rank."""
    bubble: float
    """Share of the time in which the ranks were in no op."""


@dataclass(slots=True)
class Recorder:
    """Collects this rank's share of a stretch."""

    losses: list[list[float]] = field(default_factory=list)
    busy_s: float = 0.0
    start_s: float = field(default_factory=time.monotonic)

    def note(self, result: StepResult) -> None:
        """Adds a step."""
        self.losses.append([loss.item() for _, loss in sorted(result.losses.items())])
        self.busy_s += sum(ran.end_s - ran.start_s for ran in result.ops)

    def take(self) -> Share:
        """The share since the last call."""
        now_s = time.monotonic()
        share = Share(self.losses, self.busy_s, now_s - self.start_s)
        self.losses, self.busy_s, self.start_s = [], 0.0, now_s
        return share


def publish(store: Any, rank: int, last_step: int, share: Share) -> None:
    """Gives rank 0 this rank's share."""
    store.set(f"progress/{last_step}/{rank}", json.dumps(asdict(share)))


def collect(store: Any, world: int, last_step: int) -> Stretch:
    """Puts the shares of all ranks together; waits for those that are not there yet."""
    shares: list[Share] = []
    for rank in range(world):
        key = f"progress/{last_step}/{rank}"
        shares.append(Share(**json.loads(store.get(key))))
        store.delete_key(key)
    steps = len(shares[0].losses)
    losses = []
    for step in range(steps):
        values = [value for share in shares for value in share.losses[step]]
        losses.append(sum(values) / len(values))
    wall_s = max(share.wall_s for share in shares)
    busy_s = sum(share.busy_s for share in shares)
    return Stretch(last_step, losses, wall_s / steps, max(0.0, 1 - busy_s / (wall_s * world)))


def describe(stretch: Stretch, steps: int, samples: int, unit: str) -> str:
    """One line of progress; `samples` is what one step works through, counted in `unit`."""
    return (
        f"step {stretch.last_step}/{steps}  loss {stretch.losses[-1]:.4f}  "
        f"{stretch.step_s * 1e3:.1f} ms per step  {samples / stretch.step_s:,.0f} {unit}/s  "
        f"bubble {stretch.bubble:.1%}"
    )


def set_up_logging(rank: int, folder: Path | None) -> None:
    """Sends this rank's messages to a file of its own, and those of rank 0 to the console too.

    Raises:
        FileError: the file cannot be written.
    """
    logger.setLevel(logging.INFO)
    logger.propagate = False
    if rank == 0:
        console = logging.StreamHandler(sys.stderr)
        console.setFormatter(logging.Formatter("%(message)s"))
        logger.addHandler(console)
    if folder is not None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = logging.FileHandler(folder / f"rank-{rank}.log", encoding="utf-8")
        except OSError as error:
            raise FileError(
                f"--log-folder {folder}: cannot be written: {error.strerror or error}"
            ) from None
        file.setFormatter(logging.Formatter(f"%(asctime)s [rank {rank}] %(message)s"))
        logger.addHandler(file)
