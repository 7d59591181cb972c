"""The measured ops of a run file: one step of it, on the clock of its first start."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from synth.errors import FileError
from synth.files import decode, read_bytes
from synth.op import Op, parse_op
from synth.runs import MeasuredRun, load_run
from synth.schedule import Schedule


@dataclass(frozen=True, slots=True)
class MeasuredOp:
    """An op with the seconds at which it started and ended."""

    op: Op
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """One step of a run: number `number` of `steps`, per device its ops in order."""

    source: str
    number: int
    steps: int
    makespan_s: float
    planned_makespan_s: float | None
    devices: tuple[tuple[MeasuredOp, ...], ...]


class _OpField(msgspec.Struct, frozen=True):
    op: str
    start_s: float
    end_s: float


class _StepField(msgspec.Struct, frozen=True):
    makespan_s: float
    ranks: list[list[_OpField]]


class _Measured(msgspec.Struct, frozen=True):
    warmup: int = 0


class _Steps(msgspec.Struct, frozen=True):
    measured: _Measured
    steps: list[_StepField]


def timed_steps(path: str | Path) -> tuple[MeasuredStep, ...]:
    """The steps after the warm-up, in order. Raises FileError when they cannot be read."""
    run = load_run(path)
    data = decode(read_bytes(path), _Steps, str(path))
    found = []
    for number, step in enumerate(data.steps[data.measured.warmup :], data.measured.warmup):
        devices = tuple(
            tuple(MeasuredOp(_parse(path, field.op), field.start_s, field.end_s) for field in ops)
            for ops in step.ranks
        )
        if any(op.end_s < op.start_s or op.start_s < 0 for ops in devices for op in ops):
            raise FileError(f"{path}: step {number} has an op that ends before it starts")
        found.append(
            MeasuredStep(
                str(path),
                number,
                len(data.steps),
                step.makespan_s,
                run.planned_makespan_s,
                devices,
            )
        )
    return tuple(found)


def median_step(path: str | Path) -> tuple[MeasuredRun, MeasuredStep]:
    """The step of median makespan after the warm-up. Raises FileError when there is none."""
    run, timed = load_run(path), timed_steps(path)
    if not timed:
        raise FileError(f"{path}: holds no step after the warm-up; run more steps")
    return run, sorted(timed, key=lambda step: step.makespan_s)[len(timed) // 2]


def _parse(path: str | Path, text: str) -> Op:
    try:
        return parse_op(text)
    except FileError as error:
        raise FileError(f"{path}: {error}") from None


def step_of(schedule: Schedule, step: MeasuredStep) -> bool:
    """Whether the step ran exactly the ops of the schedule on the same devices."""
    planned = [{timed.op for timed in ops} for ops in schedule.devices]
    return planned == [{measured.op for measured in ops} for ops in step.devices]
