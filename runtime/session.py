"""A rank's membership in a job that torchrun started."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import HashStore, PrefixStore  # type: ignore[attr-defined]
from torch.distributed.rendezvous import rendezvous

from runtime.device import pick_device
from runtime.errors import PeerError, reason
from synth.errors import UsageError


@dataclass(frozen=True, slots=True)
class Session:
    """This rank, its device, and the store that all ranks share."""

    rank: int
    world: int
    device: torch.device
    backend: str
    store: Any
    """A torch store; it lives in the launcher, so it outlives a failing rank."""
    timeout_s: float
    replica: int = 0
    """Which of the pipelines that train side by side this rank belongs to."""
    replicas: int = 1
    job: Any = None
    """The store of all replicas together; None where this is the only one."""
    _pipelines: Iterator[int] = field(default_factory=itertools.count)

    def pipeline_store(self) -> Any:
        """A store for one pipeline; all ranks make their pipelines in the same order."""
        return PrefixStore(f"pipeline/{next(self._pipelines)}", self.store)

    def replica_store(self) -> Any:
        """The same for what all replicas of a pipeline share."""
        return PrefixStore(f"replicas/{next(self._pipelines)}", self.job)

    def close(self) -> None:
        """Leaves the job."""
        if self.world > 1:
            dist.destroy_process_group()

    def barrier(self) -> None:
        """Waits for every rank.

        Raises:
            PeerError: a rank is gone or does not come in time.
        """
        if self.world == 1:
            return
        try:
            ids = [self.device.index] if self.device.type == "cuda" else None
            dist.barrier(device_ids=ids)
        except RuntimeError as error:
            raise PeerError(
                f"rank {self.rank} waited for all ranks in vain: {reason(error)}"
            ) from error


def open_store(timeout_s: float) -> Any:
    """The store of the job that torchrun started; every attempt of the job has keys of its own."""
    timeout = timedelta(seconds=timeout_s)
    store, _, _ = next(rendezvous("env://", timeout=timeout))
    store.set_timeout(timeout)
    return PrefixStore(f"pipesynth/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)


def connect(
    devices: int, *, device: str = "auto", timeout_s: float = 60.0, store: Any = None
) -> Session:
    """Joins the job that this process was started in; alone where it was started by hand.

    Args:
        devices: how many ranks the schedule is for.
        device: "auto", "cpu" or "cuda".
        timeout_s: how long to wait for a peer before giving it up.
        store: what `open_store` gave, if it was called before.

    Raises:
        UsageError: the job has another number of ranks.
    """
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if world != devices:
        raise UsageError(
            f"the schedule is for {devices} devices, this job has {world} ranks; "
            f"start it with --nproc-per-node {devices}"
        )
    chosen, backend = pick_device(device)
    if world == 1:
        return Session(0, 1, chosen, backend, store or HashStore(), timeout_s)
    own = store or open_store(timeout_s)
    dist.init_process_group(
        backend,
        store=PrefixStore("group", own),
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=timeout_s),
    )
    return Session(rank, world, chosen, backend, own, timeout_s)
