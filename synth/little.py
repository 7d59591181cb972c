"""Little's law on one device with a single stage: what is held, times how long, has to fit.

At both ends the memory cannot be full: F come one at a time, and so do the last B and W. What that
wastes adds up where the device's work keeps the two ends apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor

from synth.paths import back
from synth.stages import StageCost

MAX_PENDING = 20_000  # ways to fill a memory at the end; beyond this they are estimated


@dataclass(frozen=True, slots=True)
class LoneStage:
    """The only stage of a device that has a memory limit.

    `turnaround` is the least time from the start of an F to the start of its B, `work` what the
    device has to do in all.
    """

    count: int
    cost: StageCost
    limit: int
    turnaround: int
    work: int


def lone_ticks(lone: LoneStage) -> int:
    """Least time from the device's first start to its last end; 0 where memory never binds."""
    cost, limit = lone.cost, lone.limit
    act, context = cost.activation_quanta, cost.context_quanta
    if limit == 0 or act == 0:
        return 0
    apart = act * cost.backward_act_ticks + context * cost.backward_wgt_ticks
    hold = act * lone.turnaround + min(apart, act * cost.fused_ticks)
    area = lone.count * hold + both(_ramp_up(lone), _ramp_down(lone), lone.work)
    return -(-area // limit)


def pending(lone: LoneStage) -> list[tuple[int, int]]:
    """How many micro-batches may await (their B and W, only their W), memory permitting."""
    cost, limit = lone.cost, lone.limit
    act, context = cost.activation_quanta, cost.context_quanta
    most = lone.count if act == 0 else min(lone.count, limit // act)
    pairs = []
    for waiting in range(most + 1):
        room = lone.count - waiting
        late = room if context == 0 else min(room, (limit - act * waiting) // context)
        pairs.append((waiting, late))
    return pairs


@dataclass(frozen=True, slots=True)
class Ramp:
    """The ticks at one end in which memory cannot be full, and the memory x ticks wasted there."""

    ticks: int
    waste: int


def both(up: Ramp, down: Ramp, work: int) -> int:
    """What the two ends of a device waste that has so much work between them."""
    if up.ticks + down.ticks <= work:
        return up.waste + down.waste
    return max(up.waste, down.waste)


def smooth_ramp(limit: int, first: Fraction, rate: Fraction, work: int) -> Ramp:
    """Where at most `first` + `rate` x t is held t ticks from the end, of a device with `work`."""
    full = max(Fraction(0), min((limit - first) / rate, Fraction(work)))
    return Ramp(ceil(full), floor(full * (limit - first - rate * full / 2)))


def _ramp_up(lone: LoneStage) -> Ramp:
    """From the first F on: as many micro-batches are held as F fit into the time so far."""
    cost, limit = lone.cost, lone.limit
    act, forward = cost.activation_quanta, cost.forward_ticks
    ticks = waste = 0
    for started in range(1, min(lone.count, limit // act) + 1):
        # No B has ended by the turnaround, so until then nothing has grown to a larger context.
        early = started * forward <= lone.turnaround
        each = act if early else max(act, cost.context_quanta)
        if started * each < limit:
            ticks += forward
            waste += forward * (limit - started * each)
    return Ramp(ticks, waste)


def _ramp_down(lone: LoneStage) -> Ramp:
    """Up to the last end: what is held then has to be released in the time that is left."""
    cost, limit = lone.cost, lone.limit
    whole, wgt = back(cost), cost.backward_wgt_ticks
    ways = pending(lone)
    if cost.context_quanta and sum(late + 1 for _, late in ways) > MAX_PENDING:
        # With parts of micro-batches allowed, more is held, and one step does for any limit.
        rate = max(Fraction(cost.activation_quanta, whole), Fraction(cost.context_quanta, wgt))
        return smooth_ramp(limit, rate * max(whole, wgt), rate, lone.work)
    steps: list[tuple[int, int]] = []
    for waiting, late in ways:
        for only_w in range(late + 1 if cost.context_quanta else 1):
            if waiting + only_w == 0:
                continue
            # The op under way at that moment may be almost over.
            under_way = max(whole if waiting else 0, wgt)
            after = waiting * whole + only_w * wgt - under_way
            held = waiting * cost.activation_quanta + only_w * cost.context_quanta
            steps.append((after, min(held, limit)))
    waste = clock = most = ticks = 0
    for after, held in sorted(steps):
        if most < limit:
            ticks = after
        waste += (after - clock) * (limit - most)
        clock, most = after, max(most, held)
    return Ramp(ticks, waste)
