"""The same model, devices, micro-batches, costs and memory limits on another placement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain
from math import lcm

from synth.errors import ProblemError
from synth.placement import Placement, parse_placement
from synth.problem import DeviceCost, Problem, StageCost, share_out

_TIMES = (
    "forward_ticks",
    "backward_act_ticks",
    "backward_wgt_ticks",
    "fused_ticks",
    "pair_ticks",
)
_MEMORY = ("activation_quanta", "context_quanta")

Amounts = Sequence[Sequence[int]]
"""For each stage the same costs, in ticks or quanta."""


def recut(problem: Problem, placement: Placement | str) -> Problem:
    """Cut the model of a problem as another placement wants it.

    Within a stage the cost is taken as spread evenly: a stage cut into V chunks gives each a V-th
    of its durations and of what it holds, and neighbouring stages that are merged add up. Ticks and
    quanta become the coarsest in which everything is whole. Latency and limits stay what they are,
    and several streams share the micro-batches, the first taking one more where they do not divide.

    A device that takes some times as long for all its stages does so for the new ones.

    Raises ProblemError for an unknown placement, where there are fewer micro-batches than streams,
    and where the stages are no chain or devices differ in another way: nothing says how to cut
    those.
    """
    wanted = placement
    if isinstance(wanted, str):
        wanted = parse_placement(wanted, problem.devices)
    if wanted.routes == tuple((stream.name, stream.route) for stream in problem.streams):
        return replace(problem, placement=wanted.name)
    factors = _factors(problem, wanted)
    parts = _parts(problem, wanted)
    slow = _slowed(parts.times, wanted, factors)
    limits = _limits(problem, wanted, parts.kept)
    ticks = _coarsest([*parts.latencies, *chain(*parts.times), *chain(*slow.values())])
    quanta = _coarsest([*filter(None, limits), *parts.kept, *chain(*parts.memory)])
    comm, *lags = (int(latency * ticks) for latency in parts.latencies)

    def cost(stage: int, times: Sequence[Fraction]) -> StageCost:
        whole = (int(time * ticks) for time in times)
        return StageCost(*whole, *(int(part * quanta) for part in parts.memory[stage]))

    return Problem(
        devices=problem.devices,
        placement=wanted.name,
        stages=tuple(cost(stage, times) for stage, times in enumerate(parts.times)),
        streams=share_out(wanted, problem.total_microbatches),
        comm_ticks=comm,
        limits_quanta=tuple(None if limit is None else int(limit * quanta) for limit in limits),
        objective=problem.objective,
        units=replace(problem.units, ticks_per_unit=ticks, quanta_per_unit=quanta),
        links=tuple(
            replace(link, lag_ticks=lag) for link, lag in zip(problem.links, lags, strict=True)
        ),
        device_costs=tuple(
            DeviceCost(device, stage, cost(stage, times)) for (device, stage), times in slow.items()
        ),
        kept_quanta=tuple(int(part * quanta) for part in parts.kept),
    )


@dataclass(frozen=True, slots=True)
class _Parts:
    """What the new stages cost, in the user's units."""

    times: list[list[Fraction]]
    """By stage, as `_TIMES` names them."""
    memory: list[list[Fraction]]
    """By stage, as `_MEMORY` names it."""
    kept: list[Fraction]
    """By stage."""
    latencies: list[Fraction]
    """Of a hop in general, and of the links that differ."""


def _parts(problem: Problem, wanted: Placement) -> _Parts:
    """Cuts what the old stages cost."""
    units, stages = problem.units, wanted.stages
    times = [[getattr(cost, name) for name in _TIMES] for cost in problem.stages]
    memory = [[getattr(cost, name) for name in _MEMORY] for cost in problem.stages]
    kept = [Fraction(0)] * stages
    if problem.kept_quanta:
        static = _cut([[part] for part in problem.kept_quanta], stages, units.quanta_per_unit)
        kept = [part for (part,) in static]
    lags = (problem.comm_ticks, *(link.lag_ticks for link in problem.links))
    return _Parts(
        _cut(times, stages, units.ticks_per_unit),
        _cut(memory, stages, units.quanta_per_unit),
        kept,
        [Fraction(lag, units.ticks_per_unit) for lag in lags],
    )


def _slowed(
    times: Sequence[Sequence[Fraction]], wanted: Placement, factors: Sequence[Fraction]
) -> dict[tuple[int, int], list[Fraction]]:
    """The times of the stages of devices that take longer, or less long, by device and stage."""
    return {
        (device, stage): [factors[device] * time for time in times[stage]]
        for _, route in wanted.routes
        for stage, device in enumerate(route)
        if factors[device] != 1
    }


def _limits(problem: Problem, wanted: Placement, kept: Sequence[Fraction]) -> list[Fraction | None]:
    """What each device has left on the new placement, where it may keep more or less."""
    per_unit = problem.units.quanta_per_unit
    found: list[Fraction | None] = []
    for device, limit in enumerate(problem.limits_quanta):
        if limit is None:
            found.append(None)
            continue
        held = {s for _, route in wanted.routes for s, d in enumerate(route) if d == device}
        whole = Fraction(limit + problem.kept(device), per_unit)
        static = sum((kept[stage] for stage in held), Fraction(0))
        if static > whole:
            raise ProblemError(
                f"placement {wanted.name} leaves no memory: parameters, gradients and optimizer of "
                f"device {device} take {float(static):g}, its limit is {float(whole):g}"
            )
        found.append(whole - static)
    return found


def _factors(problem: Problem, wanted: Placement) -> list[Fraction]:
    """How many times as long each device takes for everything."""
    reason = ""
    factors = [_factor(problem, device) for device in range(problem.devices)]
    known = [factor for factor in factors if factor is not None]
    if not problem.is_chain:
        reason = "its stages are not a chain"
    elif len(known) < problem.devices:
        reason = "some devices have costs of their own"
    if reason:
        raise ProblemError(
            f"the problem cannot be cut for placement {wanted.name}: {reason}; compare schedules "
            f"of placement {problem.placement} only"
        )
    return known


def _factor(problem: Problem, device: int) -> Fraction | None:
    """The same of one device; None where it holds more or less, or differs from stage to stage."""
    found: set[Fraction] = set()
    for stream, stage in problem.held_stages(device):
        own, usual = problem.cost(stream.name, stage), problem.stages[stage]
        if any(getattr(own, name) != getattr(usual, name) for name in _MEMORY):
            return None
        found |= {Fraction(getattr(own, name), getattr(usual, name)) for name in _TIMES}
    return found.pop() if len(found) == 1 else None


def _cut(amounts: Amounts, stages: int, per_unit: int) -> list[list[Fraction]]:
    """For each new stage the costs of its part of the old ones, in the user's units."""
    width = Fraction(len(amounts), stages)
    return [
        [
            _between(column, index * width, (index + 1) * width) / per_unit
            for column in zip(*amounts, strict=True)
        ]
        for index in range(stages)
    ]


def _between(column: Sequence[int], first: Fraction, last: Fraction) -> Fraction:
    """The part of a cost that lies between two points of the model, counted in old stages."""
    total = Fraction(0)
    for index in range(int(first), len(column)):
        overlap = min(last, Fraction(index + 1)) - max(first, Fraction(index))
        if overlap <= 0:
            break
        total += overlap * column[index]
    return total


def _coarsest(values: Sequence[Fraction]) -> int:
    """The least number of ticks or quanta per unit that makes every value whole."""
    return lcm(*(value.denominator for value in values))
