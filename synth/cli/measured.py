"""Run files beside the schedules that they measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from synth.errors import UsageError

if TYPE_CHECKING:
    from synth.measured import MeasuredStep
    from synth.schedule import Schedule


def assign(runs: Sequence[str], schedules: Sequence[Schedule]) -> list[MeasuredStep | None]:
    """The median step of each schedule's run, None where it has none.

    Raises UsageError for a run that fits no schedule.
    """
    from synth.measured import median_step, step_of

    steps: list[MeasuredStep | None] = [None] * len(schedules)
    for path in runs:
        run, step = median_step(path)
        fitting = [index for index in run.ran(schedules) if step_of(schedules[index], step)]
        if not fitting:
            raise UsageError(
                f"{path}: is a run of {run.schedule!r}, which is not among the schedules; "
                "name its file too"
            )
        for index in fitting:
            steps[index] = step
    return steps
