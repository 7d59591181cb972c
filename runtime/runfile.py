"""The run file: what was measured, beside what was planned. Imports no torch.

`format` is "pipesynth.run", `version` 1. Times are seconds; those of ops count from the moment at
which the first op of the step started on any rank. One op per line.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from synth import __version__
from synth.files import dumps
from synth.outputs import write_output
from synth.schedule import Schedule

FORMAT = "pipesynth.run"
VERSION = 1

MeasuredOp = tuple[str, float, float]
"""Spelling, start and end in seconds."""


@dataclass(frozen=True, slots=True)
class RankRecord:
    """What one rank measured; plain values, so that it travels as JSON."""

    rank: int
    ops: list[list[MeasuredOp]]
    """Per step, on the monotonic clock of rank 0's machine."""
    losses: list[dict[str, float]]
    """Per step by micro-batch; of the ranks with a last stage."""
    in_flight: list[int]
    """The most held until B and until W, over all steps."""
    unsplit: list[str]
    """Parameters whose gradient B computes."""


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """One step over all ranks."""

    loss: float | None
    """Mean over the micro-batches; None for sleeping stages."""
    makespan_s: float
    """First start to last end over all ranks."""
    span_s: float
    """Longest of the ranks' own first start to last end."""
    ranks: list[list[MeasuredOp]]
    """From the first start of the step."""


@dataclass(frozen=True, slots=True)
class Planned:
    """What the schedule says. Seconds where the durations are known beforehand."""

    makespan_s: float | None
    span_s: float | None
    in_flight: list[tuple[int, int]]
    """Per rank: the most held until B and until W."""


@dataclass(frozen=True, slots=True)
class Run:
    """A whole run."""

    schedule: Schedule
    model: dict[str, Any]
    environment: dict[str, Any]
    warmup: int
    planned: Planned
    steps: list[MeasuredStep]
    records: list[RankRecord]

    @property
    def timed(self) -> list[MeasuredStep]:
        """The steps after the warm-up."""
        return self.steps[self.warmup :]

    @property
    def makespan_s(self) -> float:
        """Median over the timed steps."""
        return median(step.makespan_s for step in self.timed)

    @property
    def span_s(self) -> float:
        """Median over the timed steps."""
        return median(step.span_s for step in self.timed)

    @property
    def ratio(self) -> float | None:
        """Measured over planned makespan, where the durations are known beforehand."""
        planned = self.planned.makespan_s
        return self.makespan_s / planned if planned else None


def merge_steps(records: Sequence[RankRecord], *, with_loss: bool) -> list[MeasuredStep]:
    """Puts the ranks' measurements of each step on one time axis."""
    steps: list[MeasuredStep] = []
    for number in range(len(records[0].ops)):
        ranks = [record.ops[number] for record in records]
        losses = [value for record in records for value in record.losses[number].values()]
        origin = min(ops[0][1] for ops in ranks)
        steps.append(
            MeasuredStep(
                loss=sum(losses) / len(losses) if with_loss else None,
                makespan_s=max(ops[-1][2] for ops in ranks) - origin,
                span_s=max(ops[-1][2] - ops[0][1] for ops in ranks),
                ranks=[[(op, a - origin, b - origin) for op, a, b in ops] for ops in ranks],
            )
        )
    return steps


def summary(run: Run) -> dict[str, Any]:
    """The run without its single ops: what `--json` prints."""
    schedule = run.schedule
    return {
        "format": FORMAT,
        "version": VERSION,
        "tool": f"pipesynth {__version__}",
        "schedule": {
            "name": schedule.name,
            "sha256": hashlib.sha256(dumps(schedule).encode()).hexdigest(),
            "devices": schedule.problem.devices,
            "microbatches": schedule.problem.total_microbatches,
            "placement": schedule.problem.placement,
            "makespan_ticks": schedule.makespan,
            "span_ticks": schedule.span,
        },
        "model": run.model,
        "environment": run.environment,
        "planned": {"makespan_s": run.planned.makespan_s, "span_s": run.planned.span_s},
        "measured": {
            "steps": len(run.timed),
            "warmup": run.warmup,
            "makespan_s": _rounded(run.makespan_s),
            "makespan_min_s": _rounded(min(step.makespan_s for step in run.timed)),
            "span_s": _rounded(run.span_s),
        },
        "ranks": [
            {
                "rank": record.rank,
                "in_flight": _both(record.in_flight),
                "planned_in_flight": _both(planned),
                "unsplit": record.unsplit,
            }
            for record, planned in zip(run.records, run.planned.in_flight, strict=True)
        ],
        "losses": [step.loss for step in run.steps],
    }


def write(run: Run, path: Path) -> None:
    """Writes the run file, whole or not at all.

    Raises:
        FileError: it cannot be written.
    """
    head = [f"  {json.dumps(key)}: {json.dumps(value)}," for key, value in summary(run).items()]
    steps = ",\n".join(_step_text(step) for step in run.steps)
    body = "\n".join(head)
    write_output(path, f'{{\n{body}\n  "steps": [\n{steps}\n  ]\n}}\n')


def _step_text(step: MeasuredStep) -> str:
    ranks = ",\n".join(
        "      [\n" + ",\n".join(f"        {_op_text(op)}" for op in ops) + "\n      ]"
        for ops in step.ranks
    )
    return (
        f'    {{"loss": {json.dumps(step.loss)}, "makespan_s": {_rounded(step.makespan_s)}, '
        f'"span_s": {_rounded(step.span_s)}, "ranks": [\n{ranks}\n    ]}}'
    )


def _op_text(op: MeasuredOp) -> str:
    name, start_s, end_s = op
    return f'{{"op": "{name}", "start_s": {_rounded(start_s)}, "end_s": {_rounded(end_s)}}}'


def _both(counts: Sequence[int]) -> dict[str, int]:
    return {"until_backward": counts[0], "until_weights": counts[1]}


def _rounded(seconds: float) -> float:
    return round(seconds, 7)
