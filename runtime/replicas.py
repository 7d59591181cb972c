"""Pipelines that train side by side: D replicas of a schedule for P devices on D x P ranks.

Ranks d P to d P + P - 1 are the d-th pipeline and have a job of their own; only gradients cross
over. As soon as the last W of a stage has run, its gradients travel to the ranks with the same
stage in the other pipelines, while the rank goes on with what is left of the step. Where the
schedule itself has several holders of a stage, they and their replicas reduce in one go.

torch's DDP and FSDP2 do not serve here: both reduce from hooks of autograd's backward, which is B,
when W has added nothing yet; DDP then sends gradients that lack it, and FSDP2 puts its shards back
in place and loses what W adds to the parameters it had gathered. Without those hooks, what is left
of them is a reduction after the last W, which is what happens here.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import PrefixStore  # type: ignore[attr-defined]

from runtime.device import pick_device
from runtime.reductions import Reductions
from runtime.session import Session, connect
from runtime.transport import GroupTransport
from synth.errors import UsageError
from synth.lower import Program, Reduce


def join(devices: int, replicas: int, *, device: str, timeout_s: float, store: Any) -> Session:
    """Joins the job that torchrun started, as a rank of one of its pipelines.

    Args:
        devices: how many ranks the schedule is for.
        replicas: how many pipelines there are.
        device: "auto", "cpu" or "cuda".
        timeout_s: how long to wait for a peer before giving it up.
        store: what `open_store` gave.

    Raises:
        UsageError: the job has another number of ranks.
    """
    if replicas == 1:
        return connect(devices, device=device, timeout_s=timeout_s, store=store)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if world != devices * replicas:
        raise UsageError(
            f"{replicas} replicas of a schedule for {devices} devices need {devices * replicas} "
            f"ranks, this job has {world}; start it with --nproc-per-node {devices * replicas}"
        )
    replica, own_rank = divmod(rank, devices)
    own = PrefixStore(f"replica/{replica}", store)
    chosen, backend = pick_device(device)
    if devices > 1:
        dist.init_process_group(
            backend,
            store=PrefixStore("group", own),
            rank=own_rank,
            world_size=devices,
            timeout=timedelta(seconds=timeout_s),
        )
    return Session(own_rank, devices, chosen, backend, own, timeout_s, replica, replicas, store)


class ReplicaTransport(GroupTransport):
    """Messages inside the pipeline, reductions over all replicas of it."""

    def __init__(self, session: Session, program: Program) -> None:
        """Creates and warms every communicator; all ranks of all replicas must call it alike."""
        super().__init__(session, _without_reductions(program))
        store = session.replica_store()
        self._across = {
            ranks: _group(session, ranks, store)
            for ranks in program.replicas
            if session.rank in ranks
        }
        self._means = Reductions(
            f"rank {session.rank} of replica {session.replica}", divisor=session.replicas
        )
        for group in self._across.values():
            group.allreduce([torch.zeros(1, device=session.device)]).wait()

    def reduce(self, ranks: tuple[int, ...], tensors: Sequence[Tensor]) -> None:
        """See `Transport`. Replicas are averaged, holders added up."""
        group = self._across[ranks]
        self._means.start(tensors, lambda bucket: group.allreduce([bucket]), "the replicas")

    def finish(self) -> None:
        """See `Transport`."""
        super().finish()
        self._means.finish()


def _without_reductions(program: Program) -> Program:
    ranks = tuple(
        tuple(step for step in steps if not isinstance(step, Reduce)) for steps in program.ranks
    )
    return replace(program, ranks=ranks)


def _group(session: Session, ranks: tuple[int, ...], store: Any) -> Any:
    """The holders of some stages in all replicas, as a communicator outside of any pipeline."""
    place = session.replica * len(ranks) + ranks.index(session.rank)
    size = session.replicas * len(ranks)
    own = PrefixStore("-".join(map(str, ranks)), store)
    timeout = timedelta(seconds=session.timeout_s)
    if session.backend == "nccl":
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = timeout
        return dist.ProcessGroupNCCL(own, place, size, options)
    return dist.ProcessGroupGloo(own, place, size, timeout)
