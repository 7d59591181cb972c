"""The head of a run file: which schedule was measured, and how long its steps took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from synth.files import decode, dumps, read_bytes
from synth.problem import Objective
from synth.problem_fields import Line
from synth.schedule import Schedule

Seconds = Annotated[float, msgspec.Meta(gt=0)]


class _Schedule(msgspec.Struct, frozen=True):
    name: Line
    sha256: str
    devices: int
    microbatches: int
    placement: Line


class _Measured(msgspec.Struct, frozen=True):
    makespan_s: Seconds
    span_s: Seconds


class _Planned(msgspec.Struct, frozen=True):
    makespan_s: Seconds | None
    span_s: Seconds | None


class _Model(msgspec.Struct, frozen=True):
    name: Line | None = None
    cut: tuple[int, ...] = ()


class _RunHead(msgspec.Struct, frozen=True):
    """What a comparison needs of a run file; the steps and all else are passed over."""

    format: Literal["pipesynth.run"]
    version: Literal[1]
    schedule: _Schedule
    measured: _Measured
    planned: _Planned
    model: _Model = _Model()


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """Median step times of a run, and what was planned where that is known in seconds."""

    path: str
    schedule: str
    devices: int
    microbatches: int
    placement: Line
    digest: str
    makespan_s: float
    span_s: float
    planned_makespan_s: float | None
    planned_span_s: float | None
    model: str | None
    """Its name; None in files that do not say it."""
    cut: tuple[int, ...]
    """Layers per stage; empty where there are none."""

    def step_s(self, objective: str) -> float:
        """The measured time of what the objective counts."""
        return self.makespan_s if objective == Objective.MAKESPAN else self.span_s

    def of_plan(self, objective: str) -> float | None:
        """Measured over planned time; None where no plan in seconds is known."""
        makespan = objective == Objective.MAKESPAN
        planned = self.planned_makespan_s if makespan else self.planned_span_s
        return None if planned is None else self.step_s(objective) / planned

    def ran(self, schedules: Sequence[Schedule]) -> list[int]:
        """Which of the schedules it ran: the very same, else those of its name and size."""
        exact = [i for i, schedule in enumerate(schedules) if _digest(schedule) == self.digest]
        own = (self.schedule, self.devices, self.microbatches, self.placement)
        return exact or [i for i, schedule in enumerate(schedules) if _identity(schedule) == own]


def _digest(schedule: Schedule) -> str:
    return sha256(dumps(schedule).encode()).hexdigest()


def _identity(schedule: Schedule) -> tuple[str, int, int, str]:
    problem = schedule.problem
    return schedule.name, problem.devices, problem.total_microbatches, problem.placement


def load_run(path: str | Path) -> MeasuredRun:
    """Read a run file. Raises FileError when it cannot be read."""
    head = decode(read_bytes(path), _RunHead, str(path))
    ran = head.schedule
    return MeasuredRun(
        path=str(path),
        schedule=ran.name,
        devices=ran.devices,
        microbatches=ran.microbatches,
        placement=ran.placement,
        digest=ran.sha256,
        makespan_s=head.measured.makespan_s,
        span_s=head.measured.span_s,
        planned_makespan_s=head.planned.makespan_s,
        planned_span_s=head.planned.span_s,
        model=head.model.name,
        cut=head.model.cut,
    )
