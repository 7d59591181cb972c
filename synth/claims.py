"""What the literature says of a handcrafted schedule, beside what the simulator finds."""

from __future__ import annotations

from dataclasses import dataclass

from synth.catalog import Family, family, most_idle
from synth.errors import UsageError
from synth.schedule import Schedule

Number = int | float


@dataclass(frozen=True, slots=True)
class Claims:
    """A family's formulas at one problem, in the units the user typed.

    Idle times are those of the most idle device in the time that the objective counts. What no
    formula covers is None. `note`, `steady` and `weight_versions` are of asynchronous families: why
    they are no synchronous training, the time per step once full, the copies on each device.
    """

    predicted_idle: Number | None
    found_idle: Number
    predicted_bubble: float | None
    synchronous: bool
    note: str
    steady: Number | None
    weight_versions: tuple[int, ...] | None

    @property
    def agrees(self) -> bool | None:
        """Whether the simulator finds what the closed form says; None where none holds."""
        return None if self.predicted_idle is None else self.predicted_idle == self.found_idle


def recognise(schedule: Schedule) -> Family | None:
    """The family that a schedule is named after, if it runs that family's orders."""
    try:
        named = family(schedule.name)
    except UsageError:
        return None
    problem = schedule.problem
    if named.refuses(problem) is not None or named.orders(problem) != schedule.orders:
        return None
    return named


def claims(named: Family, schedule: Schedule) -> Claims:
    """What is said of a family's schedule."""
    problem = schedule.problem
    predicted, found = named.predicted_idle(problem), most_idle(schedule)
    # Closed forms hold for equal stages, where all devices are busy for the same time.
    busy = min(sum(timed.end - timed.start for timed in ops) for ops in schedule.devices)
    steady = None if named.steady is None else named.steady.value(problem)
    versions = named.weight_versions
    return Claims(
        predicted_idle=None if predicted is None else problem.units.ticks(predicted),
        found_idle=problem.units.ticks(found),
        predicted_bubble=None if predicted is None else predicted / (busy + predicted),
        synchronous=named.synchronous,
        note=named.note,
        steady=None if steady is None else problem.units.ticks(steady),
        weight_versions=None if versions is None else versions.value(problem),
    )
