"""Schedules side by side on the same costs: what each takes, holds and sends, and is it valid."""

from __future__ import annotations

from dataclasses import dataclass, replace

from synth.catalog import Family, parameter_factor
from synth.claims import Claims, claims, recognise
from synth.costs import Costs
from synth.errors import InvalidScheduleError, ProblemError
from synth.placement import Placement
from synth.problem import Problem
from synth.recut import recut
from synth.schedule import Certificate, Schedule, value
from synth.simulate import messages, peaks, retime
from synth.traffic import sent_bytes
from synth.verify import verify

Number = int | float
Limit = Number | tuple[Number | None, ...] | None
"""A memory limit: one number where all devices share it, None where there is none."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What a schedule achieves, in the units the user typed."""

    name: str
    placement: str
    devices: int
    microbatches: int
    objective: str
    value: Number
    bound: Number
    gap: float
    proof: str
    makespan: Number
    span: Number
    bubble: float
    peak_memory: tuple[Number, ...]
    limit: Limit
    messages: int
    parameters: float

    @property
    def optimal(self) -> bool:
        """Whether the value meets its proven bound."""
        return self.value == self.bound


def shared_limit(problem: Problem) -> Limit:
    """A problem's memory limit in the user's units."""
    limits = tuple(
        None if limit is None else problem.units.quanta(limit) for limit in problem.limits_quanta
    )
    return limits[0] if len(set(limits)) == 1 else limits


def summarize(schedule: Schedule) -> Summary:
    """The figures of a schedule in which every device runs something."""
    problem, certificate = schedule.problem, schedule.certificate
    units = problem.units
    return Summary(
        name=schedule.name,
        placement=problem.placement,
        devices=problem.devices,
        microbatches=problem.total_microbatches,
        objective=str(problem.objective),
        value=units.ticks(certificate.value),
        bound=units.ticks(certificate.bound),
        gap=certificate.gap,
        proof=certificate.proof,
        makespan=units.ticks(schedule.makespan),
        span=units.ticks(schedule.span),
        bubble=schedule.bubble,
        peak_memory=tuple(units.quanta(peak) for peak in peaks(problem, schedule.devices)),
        limit=shared_limit(problem),
        messages=messages(problem),
        parameters=parameter_factor(problem),
    )


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a comparison: a summary, or the reason why there is none.

    `reason` is empty for a valid schedule; a schedule that only breaks the reference's memory limit
    has both a summary and a reason. `gap` is None where nothing was proved for these costs,
    `claims` where the schedule is no handcrafted one, `sent_bytes` where sizes are not known.
    """

    name: str
    summary: Summary | None
    reason: str = ""
    gap: float | None = None
    claims: Claims | None = None
    sent_bytes: int | None = None

    @property
    def valid(self) -> bool:
        """Whether the schedule answers the reference problem."""
        return not self.reason


def compare(
    label: str,
    schedule: Schedule,
    reference: Problem,
    *,
    named: Family | None = None,
    sizes: Costs | None = None,
) -> Row:
    """A schedule timed anew on the costs, limits and objective of the reference problem.

    `named` is the family it was made by, where that is known, else it is looked for by its name;
    `sizes` says how large messages are.
    """
    broken = [str(violation) for violation in verify(schedule) if violation.rule != "memory"]
    if broken:
        return Row(label, None, _first_of(broken))
    try:
        restated = _on_costs_of(schedule, reference)
    except (InvalidScheduleError, ProblemError) as error:
        return Row(label, None, str(error))
    family = named or recognise(restated)
    return Row(
        label,
        summarize(restated),
        _exceeded(restated),
        restated.certificate.gap if restated.problem == schedule.problem else None,
        None if family is None else claims(family, restated),
        None if sizes is None else sent_bytes(restated.problem, sizes),
    )


def _exceeded(schedule: Schedule) -> str:
    """The device that exceeds its memory limit by the most; empty when none does."""
    problem = schedule.problem
    excess = [
        (peak - limit, device)
        for device, (peak, limit) in enumerate(
            zip(peaks(problem, schedule.devices), problem.limits_quanta, strict=True)
        )
        if limit is not None and peak > limit
    ]
    if not excess:
        return ""
    over, device = max(excess, key=lambda entry: entry[0])
    limit = problem.limits_quanta[device] or 0
    held, allowed = map(problem.units.quanta, (limit + over, limit))
    return f"device {device} holds {held}, its limit is {allowed}"


def _first_of(reasons: list[str]) -> str:
    if len(reasons) < 2:
        return "".join(reasons)
    return f"{reasons[0]} (and {len(reasons) - 1} more)"


def _on_costs_of(schedule: Schedule, reference: Problem) -> Schedule:
    """The same orders with the best times on the reference's costs.

    Its certificate holds only if the problem stays the same; else nothing is claimed.
    """
    problem = _restate(schedule.problem, reference)
    if problem == schedule.problem:
        return schedule
    devices = retime(problem, schedule.orders)
    reached = value(devices, problem.objective)
    return replace(
        schedule, problem=problem, devices=devices, certificate=Certificate(reached, 0, "none")
    )


def _restate(problem: Problem, reference: Problem) -> Problem:
    """The reference, cut and placed like the other problem.

    Raises ProblemError when the two cannot be compared.
    """
    if problem.devices != reference.devices:
        raise ProblemError(f"is for {problem.devices} devices, not for {reference.devices}")
    if problem.total_microbatches != reference.total_microbatches:
        raise ProblemError(
            f"has {problem.total_microbatches} micro-batches, not {reference.total_microbatches}"
        )
    if problem.streams == reference.streams:
        return reference
    routes = tuple((stream.name, stream.route) for stream in problem.streams)
    restated = recut(reference, Placement(problem.placement, routes))
    if restated.streams != problem.streams:
        raise ProblemError("shares its micro-batches among its streams in another way")
    return restated
