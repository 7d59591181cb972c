"""The rows of `pipesynth compare` as fields for programs: JSON and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from synth.cli.figures import limit_text
from synth.cli.output import number
from synth.compare import Row, shared_limit
from synth.problem import Problem, StageCost
from synth.runs import MeasuredRun


@dataclass(frozen=True, slots=True)
class Line:
    """A row of the comparison with the runs of its schedule."""

    row: Row
    runs: tuple[MeasuredRun, ...] = ()

    @property
    def measured_s(self) -> float | None:
        """Median over the runs of the step time that the objective counts."""
        summary = self.row.summary
        if summary is None or not self.runs:
            return None
        return median(run.step_s(summary.objective) for run in self.runs)

    @property
    def of_plan(self) -> float | None:
        """Median over the runs of measured over planned time."""
        if self.row.summary is None:
            return None
        ratios = [run.of_plan(self.row.summary.objective) for run in self.runs]
        known = [ratio for ratio in ratios if ratio is not None]
        return median(known) if known else None

    @property
    def synchronous(self) -> bool:
        """Whether all gradients of a step come from the same weights."""
        return self.row.claims is None or self.row.claims.synchronous


def title(reference: Problem) -> str:
    """The problem on whose costs the rows stand, in one line."""
    ticks = reference.units.ticks
    costs = " | ".join(
        ",".join(number(ticks(time)) for time in _times(cost))
        for cost in dict.fromkeys(
            cost for stream in reference.streams for cost in reference.costs_of(stream.name)
        )
    )
    lags = [reference.comm_ticks, *(link.lag_ticks for link in reference.links)]
    hops = " | ".join(number(ticks(lag)) for lag in dict.fromkeys(lags))
    return (
        f"{reference.devices} devices, {reference.total_microbatches} micro-batches, "
        f"F,B,W {costs}, hop {hops}, "
        f"{limit_text(shared_limit(reference))}, objective {reference.objective}"
    )


def _times(cost: StageCost) -> tuple[int, int, int]:
    return cost.forward_ticks, cost.backward_act_ticks, cost.backward_wgt_ticks


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
        **_claim_fields(line),
        "peak": max(summary.peak_memory),
        "peak_memory": summary.peak_memory,
        "parameters": summary.parameters,
        "messages": summary.messages,
        "bytes": row.sent_bytes,
        "gap": row.gap,
        "placement": summary.placement,
        "measured_s": line.measured_s,
        "of_plan": line.of_plan,
    }


def _claim_fields(line: Line) -> dict[str, Any]:
    """What a family's formulas say; nulls for a schedule of no family."""
    names = {
        "bubble_formula": "predicted_bubble",
        "idle_formula": "predicted_idle",
        "idle": "found_idle",
        "formula_agrees": "agrees",
        "steady": "steady",
        "weight_versions": "weight_versions",
        "note": "note",
    }
    found = {name: getattr(line.row.claims, of, None) for name, of in names.items()}
    return {**found, "note": found["note"] or None, "synchronous": line.synchronous}


def as_csv(lines: Sequence[Line]) -> str:
    """A header and a record per row; lists are joined by spaces, what is not known is empty."""
    records = [row_fields(line) for line in lines]
    names = list(dict.fromkeys(name for record in records for name in record))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([_cell(record.get(name)) for name in names] for record in records)
    return out.getvalue().rstrip("\n")


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return "" if value is None else str(value)
