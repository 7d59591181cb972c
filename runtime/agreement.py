"""Finds out at the start what ranks see differently, rather than by wrong results."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from runtime.errors import PeerError, reason
from synth import __version__
from synth.errors import UsageError
from synth.files import dumps
from synth.schedule import Schedule


def agree(store: Any, name: str, rank: int, world: int, facts: Mapping[str, str]) -> None:
    """Compares what all ranks say of the same things; where two differ all ranks raise alike.

    Args:
        store: shared by all ranks.
        name: tells one comparison of a job from another.
        rank: this rank.
        world: how many ranks take part; all of them have to.
        facts: what this rank knows, by what it is about; ranks need not know the same things.

    Raises:
        PeerError: a rank is gone or does not come in time.
        UsageError: two ranks differ; says in what.
    """
    store.set(f"agree/{name}/{rank}", json.dumps(dict(facts)))
    known: dict[str, tuple[int, str]] = {}
    for other in range(world):
        try:
            theirs = json.loads(store.get(f"agree/{name}/{other}"))
        except RuntimeError as error:
            raise PeerError(
                f"rank {rank} did not hear from rank {other} at the start: {reason(error)}"
            ) from error
        for what, value in theirs.items():
            first, said = known.setdefault(what, (other, value))
            if said != value:
                raise UsageError(
                    f"{what} is not the same on all ranks: rank {first} has {said}, rank {other} "
                    f"has {value}; start all ranks with the same files and options"
                )


def schedule_facts(schedule: Schedule) -> dict[str, str]:
    """What identifies a schedule, and who reads it."""
    return {"the version of pipesynth": __version__, "the schedule": _digest(dumps(schedule))}


def stage_facts(stages: Mapping[int, nn.Module]) -> dict[str, str]:
    """What identifies stages: their parameters and buffers with all values."""
    return {f"stage {number}": _stage_digest(module) for number, module in stages.items()}


def _stage_digest(module: nn.Module) -> str:
    digest = hashlib.blake2b()
    for name, tensor in module.state_dict().items():
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()[:12]


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode()).hexdigest()[:12]
