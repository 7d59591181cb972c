"""The rows of `pipesynth compare`, as a table for people and as fields for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from synth.cli.figures import limit_text
from synth.cli.output import number, percent, table
from synth.compare import Row, shared_limit
from synth.problem import Problem, StageCost
from synth.runs import MeasuredRun


@dataclass(frozen=True, slots=True)
class Line:
    """A row of the comparison with the runs of its schedule."""

    row: Row
    runs: tuple[MeasuredRun, ...]

    def measured_s(self, objective: str) -> float | None:
        """Median over the runs of the step time that the objective counts."""
        return median(run.step_s(objective) for run in self.runs) if self.runs else None

    def of_plan(self, objective: str) -> float | None:
        """Median over the runs of measured over planned time."""
        ratios = [run.of_plan(objective) for run in self.runs]
        known = [ratio for ratio in ratios if ratio is not None]
        return median(known) if known else None


def title(reference: Problem) -> str:
    """The problem on whose costs the rows stand, in one line."""
    ticks = reference.units.ticks
    costs = " | ".join(
        ",".join(number(ticks(time)) for time in _times(cost))
        for cost in dict.fromkeys(reference.stages)
    )
    return (
        f"{reference.devices} devices, {reference.total_microbatches} micro-batches, "
        f"F,B,W {costs}, hop {number(ticks(reference.comm_ticks))}, "
        f"{limit_text(shared_limit(reference))}, objective {reference.objective}"
    )


def _times(cost: StageCost) -> tuple[int, int, int]:
    return cost.forward_ticks, cost.backward_act_ticks, cost.backward_wgt_ticks


def as_table(lines: Sequence[Line], *, markdown: bool) -> str:
    """The rows with a header; two more columns where something was measured."""
    headers = ["schedule", "makespan", "span", "bubble", "peak", "messages", "gap"]
    with_runs = any(line.runs for line in lines)
    if with_runs:
        headers += ["measured ms", "of plan"]
    headers.append("valid")
    return table(headers, [_cells(line, with_runs) for line in lines], markdown=markdown)


def _cells(line: Line, with_runs: bool) -> list[str]:
    row, summary = line.row, line.row.summary
    if summary is None:
        figures = ["-"] * 6 + (["-"] * 2 if with_runs else [])
        return [row.name, *figures, f"no: {row.reason}"]
    cells = [
        row.name,
        number(summary.makespan),
        number(summary.span),
        percent(summary.bubble),
        number(max(summary.peak_memory)),
        str(summary.messages),
        percent(row.gap),
    ]
    if with_runs:
        step, ratio = line.measured_s(summary.objective), line.of_plan(summary.objective)
        cells += ["-" if step is None else f"{1e3 * step:.1f}", number(ratio)]
    return [*cells, "yes" if row.valid else f"no: {row.reason}"]


def reference_fields(reference: Problem) -> dict[str, Any]:
    """The reference problem as `--json` prints it."""
    ticks = reference.units.ticks
    return {
        "devices": reference.devices,
        "microbatches": reference.total_microbatches,
        "costs": [[ticks(time) for time in _times(cost)] for cost in reference.stages],
        "comm": ticks(reference.comm_ticks),
        "objective": str(reference.objective),
        "limit": shared_limit(reference),
    }


def row_fields(line: Line) -> dict[str, Any]:
    """A row as `--json` prints it; without figures where there are none."""
    row, summary = line.row, line.row.summary
    fields: dict[str, Any] = {"name": row.name, "valid": row.valid, "reason": row.reason or None}
    if summary is None:
        return fields
    return {
        **fields,
        "makespan": summary.makespan,
        "span": summary.span,
        "bubble": summary.bubble,
        "peak": max(summary.peak_memory),
        "messages": summary.messages,
        "gap": row.gap,
        "placement": summary.placement,
        "measured_s": line.measured_s(summary.objective),
        "of_plan": line.of_plan(summary.objective),
    }
