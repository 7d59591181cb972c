"""Little's law on a device that several stages share, with what cannot be held together.

A micro-batch holds memory for each stage of the device, from its F to its W, for at least the time
that its B takes to come back. All that, memory x ticks, fits under the limit x the device's time.

Amounts that do not fit beside each other count as if they were larger: a function that keeps every
sum within the limit within it (a dual feasible function) may be applied to all amounts, and the
largest outcome counts. The two families here are those of S. P. Fekete and J. Schepers, "New
classes of fast lower bounds for bin packing problems", Mathematical Programming 91 (2001).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from math import ceil

from synth.little import Ramp, both, smooth_ramp
from synth.paths import back, from_stage
from synth.problem import Problem
from synth.stages import StageCost

Weigh = Callable[[int], Fraction]


@dataclass(frozen=True, slots=True)
class _Held:
    """A stage of the device; `turnaround` is the least time from the start of an F to its B's."""

    count: int
    cost: StageCost
    turnaround: int


def shared_ticks(problem: Problem, device: int) -> int:
    """Least time from the device's first start to its last end; 0 where memory never binds."""
    limit = problem.limits_quanta[device]
    if not limit:
        return 0
    held = list(_held(problem, device))
    work = problem.work(device)
    return max(_ticks(held, limit, work, weigh) for weigh in _weights(held, limit))


def steady_ticks(problem: Problem, device: int) -> Fraction:
    """Least time per micro-batch of every stream, where they go on and on; 0 as above."""
    limit = problem.limits_quanta[device]
    if not limit:
        return Fraction(0)
    held = list(_held(problem, device))
    return max(
        sum((_hold(each, weigh) for each in held), Fraction(0)) / limit
        for weigh in _weights(held, limit)
    )


def weights(limit: int, sizes: Iterable[int]) -> Iterator[Weigh]:
    """Functions that keep every sum of amounts within the limit within it, chosen by the amounts.

    The first leaves all as it is. The second kind counts what is below some least amount as
    nothing, and as the whole limit what leaves no room for that amount; the third rounds to equal
    parts of the limit.
    """
    known = sorted(size for size in set(sizes) if size <= limit)
    yield Fraction
    for least in dict.fromkeys(k for size in known for k in (size, limit - size + 1)):
        if 2 * least <= limit:
            yield partial(_without_small, limit, least)
    for parts in dict.fromkeys(limit // size for size in known):
        yield partial(_in_parts, limit, parts)


def _without_small(limit: int, least: int, size: int) -> Fraction:
    return Fraction(limit if size > limit - least else size if size >= least else 0)


def _in_parts(limit: int, parts: int, size: int) -> Fraction:
    whole, rest = divmod((parts + 1) * size, limit)
    return Fraction(whole * limit, parts) if rest else Fraction(size)


def _held(problem: Problem, device: int) -> Iterator[_Held]:
    for stream, stage in problem.held_stages(device):
        turnaround = from_stage(problem, stream, stage).backward[stage]
        assert turnaround is not None
        yield _Held(stream.microbatches, problem.cost(stream.name, stage), turnaround)


def _weights(held: list[_Held], limit: int) -> Iterator[Weigh]:
    return weights(limit, {size for each in held for size in _sizes(each.cost) if size})


def _hold(each: _Held, weigh: Weigh) -> Fraction:
    """What a micro-batch holds, times how long."""
    cost = each.cost
    act, context = map(weigh, _sizes(cost))
    apart = act * cost.backward_act_ticks + context * cost.backward_wgt_ticks
    return act * each.turnaround + min(apart, act * cost.fused_ticks)


def _sizes(cost: StageCost) -> tuple[int, int]:
    return cost.activation_quanta, cost.context_quanta


def _ticks(held: list[_Held], limit: int, work: int, weigh: Weigh) -> int:
    area = sum((each.count * _hold(each, weigh) for each in held), Fraction(0))
    if not area:
        return 0
    costs = [each.cost for each in held]
    area += both(_ramp_up(costs, limit, work, weigh), _ramp_down(costs, limit, work, weigh), work)
    return ceil(area / limit)


def _growth(cost: StageCost, weigh: Weigh) -> Fraction:
    """What a B takes at its start."""
    act, context = map(weigh, _sizes(cost))
    return max(Fraction(0), context - act)


def _ramp_up(costs: list[StageCost], limit: int, work: int, weigh: Weigh) -> Ramp:
    """What is held is taken by one op at a time, and every op but the last has ended.

    An F may take what a B takes too, overlapped with it in no less than the time of the F.
    """
    growth = max(_growth(cost, weigh) for cost in costs)
    first = growth + max(weigh(cost.activation_quanta) for cost in costs)
    rates = [(weigh(cost.activation_quanta) + growth) / cost.forward_ticks for cost in costs]
    rates += [_growth(cost, weigh) / cost.backward_act_ticks for cost in costs]
    return smooth_ramp(limit, first, max(rates), work)


def _ramp_down(costs: list[StageCost], limit: int, work: int, weigh: Weigh) -> Ramp:
    """What is held is given back by one op at a time, and every op but the first is to start.

    That one may be a B that holds the larger of activation and context, and be almost over.
    """
    first = max(weigh(max(_sizes(cost))) for cost in costs)
    rates = [weigh(cost.activation_quanta) / back(cost) for cost in costs]
    rates += [weigh(cost.context_quanta) / cost.backward_wgt_ticks for cost in costs]
    return smooth_ramp(limit, first, max(rates), work)
