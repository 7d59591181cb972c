"""The rules that every problem keeps, checked when it is made."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from synth.errors import ProblemError
from synth.line import require_line
from synth.units import MAX_TOTAL_TICKS

if TYPE_CHECKING:
    from synth.problem import Problem


def check(problem: Problem) -> None:
    """Raise ProblemError where the parts of a problem do not fit each other."""
    if problem.devices < 1:
        raise ProblemError(f"devices must be at least 1, got {problem.devices}")
    if not problem.stages or not problem.streams:
        raise ProblemError("a problem needs at least one stage and one stream")
    require_line(problem.placement, "a placement")
    if problem.comm_ticks < 0:
        raise ProblemError(f"comm must not be negative, got {problem.comm_ticks} ticks")
    if len(problem.limits_quanta) != problem.devices:
        raise ProblemError(
            f"{len(problem.limits_quanta)} memory limits for {problem.devices} devices; "
            "give one number or one per device"
        )
    if any(limit is not None and limit < 0 for limit in problem.limits_quanta):
        raise ProblemError("a memory limit must not be negative")
    if problem.kept_quanta and len(problem.kept_quanta) != len(problem.stages):
        raise ProblemError(
            f"kept memory is given for {len(problem.kept_quanta)} stages, the model has "
            f"{len(problem.stages)}"
        )
    if min(problem.kept_quanta, default=0) < 0:
        raise ProblemError("kept memory must not be negative")
    _check_streams(problem)
    _check_needs(problem)
    _check_device_costs(problem)
    _check_links(problem)


def check_totals(problem: Problem) -> None:
    """Raise ProblemError where numbers that add up leave what JSON and floats hold exactly."""
    total = sum(problem.work(device) for device in range(problem.devices))
    ways = max(len(problem.stages), sum(map(len, problem.needs)))
    hops = 2 * ways * problem.total_microbatches
    slowest = max(problem.comm_ticks, *(link.lag_ticks for link in problem.links), 0)
    if total + hops * slowest >= MAX_TOTAL_TICKS:
        raise ProblemError("the costs are too large: all work together must stay below 2**53 ticks")
    _check_memory_numbers(problem)


def _check_memory_numbers(problem: Problem) -> None:
    held = sum(
        stream.microbatches * max(cost.activation_quanta, cost.context_quanta)
        for stream in problem.streams
        for cost in problem.costs_of(stream.name)
    )
    limits = (limit for limit in problem.limits_quanta if limit is not None)
    kept = sum(problem.kept_quanta) * len(problem.streams)
    if max(held, kept, *limits, 0) >= MAX_TOTAL_TICKS:
        raise ProblemError(
            "the memory numbers are too large: limits and all that is held together must stay "
            "below 2**53 quanta"
        )
    if max(problem.units.ticks_per_unit, problem.units.quanta_per_unit) >= MAX_TOTAL_TICKS:
        raise ProblemError("the numbers are too fine: a unit must have fewer than 2**53 parts")


def _check_streams(problem: Problem) -> None:
    names = [stream.name for stream in problem.streams]
    if names != [""] and not all(re.fullmatch(r"[a-z][a-z0-9_-]*", name) for name in names):
        raise ProblemError(
            "with several streams each needs a lower-case name; a single one has none"
        )
    if len(set(names)) != len(names):
        raise ProblemError(f"stream names must differ, got {names}")
    for stream in problem.streams:
        if len(stream.route) != len(problem.stages):
            raise ProblemError(
                f"stream {stream.name!r} names devices for {len(stream.route)} stages, "
                f"the model has {len(problem.stages)}"
            )
        if not all(0 <= device < problem.devices for device in stream.route):
            raise ProblemError(
                f"stream {stream.name!r} names a device outside 0..{problem.devices - 1}"
            )
    idle = set(range(problem.devices)) - {d for stream in problem.streams for d in stream.route}
    if idle:
        raise ProblemError(f"device {min(idle)} holds no stage; use fewer devices")


def _check_needs(problem: Problem) -> None:
    """A stage needs lower ones only, each once."""
    if problem.needs and len(problem.needs) != len(problem.stages):
        raise ProblemError(
            f"needs are given for {len(problem.needs)} stages, the model has {len(problem.stages)}"
        )
    for stage, sources in enumerate(problem.needs):
        for source in sources:
            if not 0 <= source < stage:
                raise ProblemError(
                    f"stage {stage} needs stage {source}; number the stages so that each needs "
                    "only lower ones, from 0"
                )
        if len(set(sources)) != len(sources):
            raise ProblemError(f"stage {stage} needs a stage twice; name each once")


def _check_device_costs(problem: Problem) -> None:
    held = {pair for stream in problem.streams for pair in enumerate(stream.route)}
    seen: set[tuple[int, int]] = set()
    for own in problem.device_costs:
        if (own.stage, own.device) not in held:
            raise ProblemError(
                f"device {own.device} has own costs for stage {own.stage}, which it does not hold"
            )
        if (own.stage, own.device) in seen:
            raise ProblemError(
                f"device {own.device} has own costs for stage {own.stage} twice; give them once"
            )
        seen.add((own.stage, own.device))


def _check_links(problem: Problem) -> None:
    seen: set[tuple[int, int]] = set()
    for link in problem.links:
        ends = (link.source, link.target)
        if not all(0 <= end < problem.devices for end in ends):
            raise ProblemError(
                f"the link {link.source} -> {link.target} names a device outside "
                f"0..{problem.devices - 1}"
            )
        if link.source == link.target:
            raise ProblemError(
                f"the link {link.source} -> {link.target} joins a device to itself, where results "
                "are there at once; leave it out"
            )
        if link.lag_ticks < 0:
            raise ProblemError(
                f"the link {link.source} -> {link.target} has a negative lag, {link.lag_ticks}"
            )
        if ends in seen:
            raise ProblemError(
                f"the link {link.source} -> {link.target} is given twice; give it once"
            )
        seen.add(ends)
