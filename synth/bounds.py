"""Named lower bounds that need no solver, each with the sentence that explains it.

Every bound holds for all schedules of a problem, whatever found them. `span` counts from a
device's own first start, `makespan` adds the time before the device can start at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor

from synth.alone import alone
from synth.errors import InfeasibleError
from synth.folding import fold
from synth.heads import NEVER, heads, one_machine, relate, tails
from synth.paths import back, from_nothing, roots, turnarounds
from synth.problem import Objective, Problem, StageCost, Stream
from synth.separate import separated

MAX_SPAN_HEADS = 20_000  # ops x devices; beyond this only the first device is looked at
MAX_PENDING = 20_000  # ways to fill a memory at the end; beyond this they are estimated


@dataclass(frozen=True, slots=True)
class Bound:
    """No schedule has a value below `value` ticks, because of `text`."""

    value: int
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class _Device:
    """A device as the bounds see it."""

    index: int
    head: int  # earliest start of anything, from the start of the step
    work: int
    first_act: int  # from the device's first start to the earliest B, along the shortest route
    forward_room: int  # ticks of F that fit its memory before a first B frees some


def all_bounds(problem: Problem) -> tuple[Bound, ...]:
    """Every bound, strongest first. Raises InfeasibleError when memory rules every schedule out."""
    check_memory(problem)
    bounds: list[Bound] = [_critical_path(problem)]
    for index in range(problem.devices):
        device = _look_at(problem, index)
        bounds += [_work(problem, device), _fill(problem, device)]
        held = problem.held_stages(index)
        limit = problem.limits_quanta[index]
        if len(held) == 1 and limit is not None:
            stream, stage = held[0]
            lone = _lone_stage(problem, device, stream, stage, limit)
            bounds += [_fill_and_drain(problem, lone), _little(problem, lone)]
    bounds += _one_machine(problem)
    return tuple(sorted(bounds, key=lambda bound: -bound.value))


def best_bound(problem: Problem) -> Bound:
    """The strongest bound. Raises InfeasibleError when memory rules every schedule out."""
    return all_bounds(problem)[0]


def check_memory(problem: Problem) -> None:
    """Raise InfeasibleError unless every device has room for one micro-batch at a time.

    Before any B, all F that its stage needs have run, and none of their B has: a device holds its
    chunks of that micro-batch among these, and what that B adds. Where the stages are a chain, that
    is also enough to run micro-batches one after another; elsewhere `alone` looks for an order.
    """
    ancestors = problem.ancestors()
    for stream in problem.streams:
        costs = problem.costs_of(stream.name)
        most = [0] * problem.devices
        for stage, cost in enumerate(costs):
            held = [0] * problem.devices
            for other in (*ancestors[stage], stage):
                held[stream.route[other]] += costs[other].activation_quanta
            held[stream.route[stage]] += max(0, cost.context_quanta - cost.activation_quanta)
            most = list(map(max, most, held))
        for device, (need, limit) in enumerate(zip(most, problem.limits_quanta, strict=True)):
            if limit is not None and need > limit:
                units = problem.units
                raise InfeasibleError(
                    f"device {device} needs {units.memory_text(need)} for a single micro-batch, "
                    f"its limit is {units.quanta(limit)}; raise the limit or cut the model finer"
                )
        if not problem.is_chain and alone(problem, stream).fits is False:
            raise InfeasibleError(
                "no order of its stages keeps a single micro-batch within the limits; raise them "
                "or cut the model finer"
            )


def _offset(problem: Problem, device: _Device) -> int:
    return device.head if problem.objective is Objective.MAKESPAN else 0


def _look_at(problem: Problem, index: int) -> _Device:
    held = problem.held_stages(index)
    limit = problem.limits_quanta[index]
    streams = [stream for stream in problem.streams if index in stream.route]
    return _Device(
        index,
        head=min(
            from_nothing(problem, stream).forward[root] or 0
            for stream in streams
            for root in roots(problem, stream, index)
        ),
        work=problem.work(index),
        first_act=min(
            ticks for stream in streams for ticks in turnarounds(problem, stream, index).values()
        ),
        forward_room=_forward_room(problem, held, limit),
    )


def _forward_room(problem: Problem, held: tuple[tuple[Stream, int], ...], limit: int | None) -> int:
    """Most ticks of F a device can run before anything is released."""
    costs = [problem.cost(stream.name, stage) for stream, stage in held]
    total = sum(
        stream.microbatches * cost.forward_ticks
        for (stream, _), cost in zip(held, costs, strict=True)
    )
    if limit is None or any(cost.activation_quanta == 0 for cost in costs):
        return total
    if len({(cost.forward_ticks, cost.activation_quanta) for cost in costs}) == 1:
        return min(total, limit // costs[0].activation_quanta * costs[0].forward_ticks)
    best = max(limit * cost.forward_ticks // cost.activation_quanta for cost in costs)
    return min(total, best)


def _critical_path(problem: Problem) -> Bound:
    """The longest way of one micro-batch; for span, of those that begin and end on one device."""
    ways: list[int] = []
    for stream in problem.streams:
        costs = problem.costs_of(stream.name)
        if problem.objective is Objective.MAKESPAN:
            starts = dict(enumerate(from_nothing(problem, stream).backward))
            ways += [start + back(costs[s]) for s, start in starts.items() if start is not None]
            continue
        for device in sorted(set(stream.route)):
            own = turnarounds(problem, stream, device)
            ways += [start + back(costs[stage]) for stage, start in own.items()]
    return Bound(max(ways), "path", "one micro-batch has to travel down all stages and back up")


def _work(problem: Problem, device: _Device) -> Bound:
    value = _offset(problem, device) + device.work
    time = problem.units.time_text
    head = f" after at least {time(device.head)}" if _offset(problem, device) else ""
    return Bound(value, "work", f"device {device.index} has {time(device.work)} of work{head}")


def _one_machine(problem: Problem) -> list[Bound]:
    """Heads and tails of all ops, memory's share in them included, then one device at a time.

    For span a device sees only paths that begin and end with ops of its own.
    """
    apart = separated(problem)
    if apart is None:
        return []  # paired ops would need heads of their own
    relations = relate(fold(apart, 1))
    devices = range(problem.devices)
    alone = problem.objective is Objective.SPAN
    if alone and relations.ops * problem.devices > MAX_SPAN_HEADS:
        devices = range(1)  # the first device waits longest for its first B
    first = last = None
    found = []
    for device in devices:
        if alone or first is None or last is None:
            free = [NEVER if alone and d != device else 0 for d in range(problem.devices)]
            first, last = heads(relations, free), tails(relations, [-o for o in free])
        ticks = one_machine(relations.folded, device, first, last)
        text = (
            f"device {device} runs one op at a time, each behind what has to come before it and "
            "before what has to follow, room in memory included"
        )
        found.append(Bound(ticks, "one machine", text))
    return found


def _fill(problem: Problem, device: _Device) -> Bound:
    idle = max(0, device.first_act - device.forward_room)
    time = problem.units.time_text
    return Bound(
        _offset(problem, device) + device.work + idle,
        "fill",
        f"the first B reaches device {device.index} no earlier than {time(device.first_act)} after "
        f"its first F, and until then its memory admits only {time(device.forward_room)} of F",
    )


@dataclass(frozen=True, slots=True)
class _LoneStage:
    """A device with a single stage and a memory limit."""

    device: _Device
    count: int
    cost: StageCost
    limit: int

    @property
    def turnaround(self) -> int:
        """Least ticks from the start of an F to the start of its B."""
        return self.device.first_act


def _lone_stage(
    problem: Problem, device: _Device, stream: Stream, stage: int, limit: int
) -> _LoneStage:
    cost = problem.cost(stream.name, stage)
    if cost.activation_quanta and cost.context_quanta in (0, cost.activation_quanta):
        limit -= limit % cost.activation_quanta  # what no whole micro-batch can use
    return _LoneStage(device, stream.microbatches, cost, limit)


def _pending(lone: _LoneStage) -> list[tuple[int, int]]:
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


def _fill_and_drain(problem: Problem, lone: _LoneStage) -> Bound:
    """After its last F a device waits for that micro-batch to return, with little left to do.

    The two idle times are apart, and add up, when not all F fit in front of the first B.
    """
    cost, device = lone.cost, lone.device
    whole = back(cost)
    most = max(whole, cost.backward_act_ticks + cost.backward_wgt_ticks)
    left = max(waiting * most + late * cost.backward_wgt_ticks for waiting, late in _pending(lone))
    drain = max(0, lone.turnaround - cost.forward_ticks + whole - left)
    fill = max(0, device.first_act - device.forward_room)
    apart = device.forward_room < lone.count * cost.forward_ticks
    idle = fill + drain if apart else max(fill, drain)
    time = problem.units.time_text
    return Bound(
        _offset(problem, device) + device.work + idle,
        "fill and drain",
        f"device {device.index} idles {time(fill)} before its first B and, its memory admitting "
        f"only {time(left)} of B and W behind its last F, {time(drain)} while that F returns",
    )


def _little(problem: Problem, lone: _LoneStage) -> Bound:
    """Little's law: what is held, times how long, fits under the limit times the time.

    At both ends the memory cannot be full: F come one at a time, and so do the last B and W. What
    that wastes adds up where the device's work keeps the two ends apart.
    """
    cost, limit = lone.cost, lone.limit
    act, context = cost.activation_quanta, cost.context_quanta
    if limit == 0 or act == 0:
        return Bound(0, "little", "memory never binds")
    apart = act * cost.backward_act_ticks + context * cost.backward_wgt_ticks
    hold = act * lone.turnaround + min(apart, act * cost.fused_ticks)
    up, down = _ramp_up(lone), _ramp_down(lone)
    apart_ends = up.ticks + down.ticks <= lone.device.work
    waste = up.waste + down.waste if apart_ends else max(up.waste, down.waste)
    area = lone.count * hold + waste
    value = _offset(problem, lone.device) - (-area // limit)
    time = problem.units.time_text
    return Bound(
        value,
        "little",
        f"each micro-batch holds memory of device {lone.device.index} for at least "
        f"{time(lone.turnaround + cost.backward_act_ticks)}, and its limit admits only so many",
    )


@dataclass(frozen=True, slots=True)
class _Ramp:
    """The ticks at one end in which memory cannot be full, and the memory x ticks wasted there."""

    ticks: int
    waste: int


def _ramp_up(lone: _LoneStage) -> _Ramp:
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
    return _Ramp(ticks, waste)


def _ramp_down(lone: _LoneStage) -> _Ramp:
    """Up to the last end: what is held then has to be released in the time that is left."""
    cost, limit = lone.cost, lone.limit
    whole, wgt = back(cost), cost.backward_wgt_ticks
    pending = _pending(lone)
    if cost.context_quanta and sum(late + 1 for _, late in pending) > MAX_PENDING:
        return _smooth_ramp_down(lone)
    steps: list[tuple[int, int]] = []
    for waiting, late in pending:
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
    return _Ramp(ticks, waste)


def _smooth_ramp_down(lone: _LoneStage) -> _Ramp:
    """The same with parts of micro-batches allowed, so that more is held: one step for any limit.

    What is held `t` before the end is at most `rate` times `t` plus the op that is almost over.
    """
    cost, limit = lone.cost, lone.limit
    whole, wgt = back(cost), cost.backward_wgt_ticks
    rate = max(Fraction(cost.activation_quanta, whole), Fraction(cost.context_quanta, wgt))
    under_way = max(whole, wgt)
    full = max(Fraction(0), min(limit / rate - under_way, Fraction(lone.device.work)))
    return _Ramp(ceil(full), floor(full * (limit - rate * (under_way + full / 2))))
