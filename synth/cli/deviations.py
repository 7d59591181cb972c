"""What `compare --run` adds below its table: planned against measured, kind by kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from synth.cli.output import number, table

if TYPE_CHECKING:
    from synth.runs import MeasuredRun
    from synth.schedule import Schedule


def sections(
    runs: Mapping[int, Sequence[MeasuredRun]], schedules: Sequence[Schedule | None]
) -> Iterator[str]:
    """A block of text for every run that holds its ops and whose plan is known in seconds."""
    for index, schedule in enumerate(schedules):
        for run in runs[index]:
            if schedule is not None:
                yield from _section(run, schedule)


def _section(run: MeasuredRun, schedule: Schedule) -> Iterator[str]:
    from synth.deviation import by_kind, parting
    from synth.measured import median_step, step_of, timed_steps

    steps, tick_s = timed_steps(run.path), _tick_seconds(run, schedule)
    if not steps or tick_s is None or not step_of(schedule, steps[0]):
        return
    rows = [
        [
            str(row.kind),
            str(row.ops),
            f"{1e3 * row.planned_s:.2f}",
            f"{1e3 * row.measured_s:.2f}",
            number(row.ratio),
        ]
        for row in by_kind(schedule, steps, tick_s)
    ]
    _, middle = median_step(run.path)
    where = parting(schedule, middle, tick_s)
    kinds = table(["kind", "ops", "planned ms", "measured ms", "ratio"], rows)
    ends = f"they part at {where}" if where else "no op ends late by 2% of the step"
    yield f"{run.path}: {run.schedule}, {len(steps)} steps\n{kinds}\n{ends}"


def _tick_seconds(run: MeasuredRun, schedule: Schedule) -> float | None:
    from synth.profiled import tick_seconds

    known = tick_seconds(schedule.problem.units)
    if known is None and run.planned_makespan_s is not None:
        return run.planned_makespan_s / schedule.makespan
    return known
