"""Checkpoints that are whole or absent.

A checkpoint is a folder `step-N` in the format of torch.distributed.checkpoint, with a
`pipesynth.json`. It is written under a name that starts with a dot, synchronised to the disk, and
then renamed; so a folder called `step-N` is complete, whatever happened while it was written.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.optim import Optimizer

from runtime.errors import PeerError, RunError, reason
from runtime.session import Session
from synth.errors import FileError

FORMAT = "pipesynth.checkpoint"
VERSION = 1
_FACTS = "pipesynth.json"
_WHOLE = re.compile(r"step-(\d+)")

Facts = Mapping[str, Any]
"""What has to be the same when the training goes on: seed, batch and the like."""


def unfinished(folder: Path, step: int) -> Path:
    """Where the checkpoint of a step is while it is being written."""
    return folder / f".step-{step:08}"


def save(
    folder: Path,
    step: int,
    modules: Mapping[int, nn.Module],
    optimizer: Optimizer | None,
    facts: Facts,
    session: Session,
    *,
    keep: int = 2,
) -> Path:
    """Writes the state after a number of steps; every rank of one pipeline has to call it.

    Args:
        folder: where checkpoints go; all ranks see it.
        step: steps done.
        modules: this rank's stages.
        optimizer: of this rank; None where it has no parameters.
        facts: see `Facts`.
        session: this rank's job.
        keep: how many checkpoints to leave, older ones go.

    Raises:
        RunError: it cannot be written, on any rank; nothing of it is left.
    """
    partial, whole = unfinished(folder, step), folder / f"step-{step:08}"
    state = {**_model_state(modules), **_optimizer_state(modules, optimizer)}
    try:
        if session.rank == 0:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
        session.barrier()
        with _quiet():
            writer = FileSystemWriter(partial)
            state_dict_saver.save(state, storage_writer=writer, no_dist=session.world == 1)
        if session.rank == 0:
            _complete(partial, whole, {"format": FORMAT, "version": VERSION, "step": step, **facts})
            for old in _whole(folder)[:-keep]:
                shutil.rmtree(old, ignore_errors=True)
        session.barrier()
    except (OSError, CheckpointException) as error:
        shutil.rmtree(partial, ignore_errors=True)
        last = latest(folder)
        kept = f"the last whole one is {last}" if last else "there is no earlier one"
        raise RunError(f"checkpoint {whole} cannot be written: {_cause(error)}; {kept}") from error
    except RuntimeError as error:
        raise PeerError(
            f"rank {session.rank} could not write {whole} with the others: {reason(error)}"
        ) from error
    return whole


def load(
    checkpoint: Path,
    modules: Mapping[int, nn.Module],
    optimizer: Optimizer | None,
    facts: Facts,
    session: Session,
) -> int:
    """Reads a checkpoint into this rank's stages and optimizer; returns the steps done.

    The placement of the stages may be another than when it was written.

    Raises:
        FileError: it is damaged, or of another model or training.
    """
    found = _read_facts(checkpoint)
    for name, value in facts.items():
        if found.get(name) != value:
            raise FileError(
                f"{checkpoint} was made with {name} {found.get(name)}, now it is {value}; "
                "go on with the same options or choose another folder"
            )
    model = _model_state(modules)
    try:
        reader = FileSystemReader(checkpoint)
        stored = reader.read_metadata().state_dict_metadata
        optimized = _empty(stored, modules) if optimizer is not None else {}
        _check(checkpoint, model, stored)
        state: dict[str, Any] = {**model, **optimized}
        with _quiet():
            state_dict_loader.load(state, storage_reader=reader, no_dist=session.world == 1)
    except (OSError, CheckpointException, EOFError) as error:
        raise FileError(f"{checkpoint}: cannot be read: {_cause(error)}") from error
    if optimizer is not None:
        _fill_optimizer(modules, optimizer, optimized)
    return int(found["step"])


def latest(folder: Path) -> Path | None:
    """The last whole checkpoint of a folder."""
    return next(reversed(_whole(folder)), None)


def prepare(folder: Path) -> None:
    """Makes the folder, and removes what was left when a whole machine went down while it wrote.

    Raises:
        FileError: nothing can be written there, which a training should not learn hours later.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for partial in folder.glob(".step-*"):
            shutil.rmtree(partial, ignore_errors=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise FileError(
            f"{folder}: checkpoints cannot be written there: {error.strerror or error}; "
            "choose another folder"
        ) from error


def _whole(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("step-*") if _WHOLE.fullmatch(path.name))


def _complete(partial: Path, whole: Path, facts: Facts) -> None:
    """Adds the facts and gives the folder its name, once everything is on the disk."""
    with (partial / _FACTS).open("w") as file:
        json.dump(facts, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    _synchronise(partial)
    if whole.exists():  # of the same step, by a run that was resumed from an earlier one
        shutil.rmtree(whole)
    partial.rename(whole)
    _synchronise(whole.parent)


def _synchronise(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _read_facts(checkpoint: Path) -> dict[str, Any]:
    try:
        found = json.loads((checkpoint / _FACTS).read_text())
    except (OSError, ValueError) as error:
        raise FileError(f"{checkpoint}: cannot be read: {error}") from error
    if not isinstance(found, dict) or (found.get("format"), found.get("version")) != (
        FORMAT,
        VERSION,
    ):
        raise FileError(f"{checkpoint}: is not a {FORMAT} of version {VERSION}")
    return found


def _model_state(modules: Mapping[int, nn.Module]) -> dict[str, Tensor]:
    """Parameters and buffers as `model/stage.name`; they share memory with the modules."""
    return {
        f"model/{stage}.{name}": value
        for stage, module in modules.items()
        for name, value in module.state_dict().items()
        if isinstance(value, Tensor)
    }


def _named_parameters(modules: Mapping[int, nn.Module]) -> Iterator[tuple[str, nn.Parameter]]:
    for stage, module in modules.items():
        for name, parameter in module.named_parameters():
            yield f"optimizer/{stage}.{name}", parameter


def _optimizer_state(
    modules: Mapping[int, nn.Module], optimizer: Optimizer | None
) -> dict[str, Tensor]:
    """The optimizer's tensors as `optimizer/stage.name/key`."""
    if optimizer is None:
        return {}
    return {
        f"{name}/{key}": value
        for name, parameter in _named_parameters(modules)
        for key, value in optimizer.state.get(parameter, {}).items()
        if isinstance(value, Tensor)
    }


def _empty(stored: Mapping[str, Any], modules: Mapping[int, nn.Module]) -> dict[str, Tensor]:
    """Room for the stored state of this rank's parameters."""
    names = tuple(f"{name}/" for name, _ in _named_parameters(modules))
    return {
        key: torch.empty(one.size, dtype=one.properties.dtype)
        for key, one in stored.items()
        if isinstance(one, TensorStorageMetadata) and key.startswith(names)
    }


def _check(checkpoint: Path, wanted: Mapping[str, Tensor], stored: Mapping[str, Any]) -> None:
    for name, tensor in wanted.items():
        one = stored.get(name)
        size = None if one is None else tuple(one.size)
        if size != tuple(tensor.shape):
            has = "does not have it" if size is None else f"has one of shape {size}"
            raise FileError(
                f"{checkpoint} is of another model: {name.removeprefix('model/')} has shape "
                f"{tuple(tensor.shape)}, the checkpoint {has}"
            )


def _fill_optimizer(
    modules: Mapping[int, nn.Module], optimizer: Optimizer, values: Mapping[str, Tensor]
) -> None:
    """Gives the optimizer its tensors back; settings such as the learning rate stay."""
    names = {parameter: name for name, parameter in _named_parameters(modules)}
    described = optimizer.state_dict()
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    described["state"] = {
        number: own
        for number, parameter in enumerate(parameters)
        if (own := _of_parameter(f"{names[parameter]}/", values))
    }
    optimizer.load_state_dict(described)


def _of_parameter(prefix: str, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {
        key.removeprefix(prefix): value for key, value in values.items() if key.startswith(prefix)
    }


@contextmanager
def _quiet() -> Iterator[None]:
    """Keeps back the warning that a single process saves or loads as a single process."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)
        yield


def _cause(error: BaseException) -> str:
    """What an error of a checkpoint comes down to; those of several ranks come wrapped."""
    if isinstance(error, CheckpointException):
        rank, (inner, _) = next(iter(sorted(error.failures.items())))
        return f"rank {rank}: {_cause(inner)}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error).split("\n")[0] or type(error).__name__
