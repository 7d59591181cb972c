"""Named lower bounds that need no solver, each with the sentence that explains it.

Every bound holds for all schedules of a problem, whatever found them. `span` counts from a
device's own first start, `makespan` adds the time before the device can start at all.
"""

from __future__ import annotations

from dataclasses import dataclass

from synth.alone import alone
from synth.errors import InfeasibleError
from synth.folding import fold
from synth.heads import NEVER, heads, one_machine, relate, tails
from synth.little import LoneStage, lone_ticks, pending
from synth.paths import back, from_nothing, roots, turnarounds
from synth.problem import Objective, Problem, Stream
from synth.room import shared_ticks
from synth.separate import separated

MAX_SPAN_HEADS = 20_000  # ops x devices; beyond this only the first device is looked at


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
        if limit is not None and len(held) == 1:
            lone = _lone_stage(problem, device, *held[0], limit)
            bounds.append(_fill_and_drain(problem, device, lone))
            bounds += _little(problem, device, lone_ticks(lone))
        else:
            bounds += _little(problem, device, shared_ticks(problem, index))
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

    For span a device sees only paths that begin and end with ops of its own; what other devices run
    on these lies within its span as well.
    """
    apart = separated(problem)
    if apart is None:
        return []  # paired ops would need heads of their own
    relations = relate(fold(apart, 1))
    every = range(problem.devices)
    if problem.objective is Objective.MAKESPAN:
        opens = [0] * problem.devices
        first, last = heads(relations, opens), tails(relations, opens)
        return [_in_turn(d, one_machine(relations.folded, d, first, last)) for d in every]
    few = relations.ops * problem.devices <= MAX_SPAN_HEADS
    own: list[Bound] = []
    others: list[Bound] = []
    for device in every if few else every[:1]:  # the first device waits longest for its first B
        free = [0 if d == device else NEVER for d in every]
        first, last = heads(relations, free), tails(relations, [-o for o in free])
        for other in every:
            ticks = one_machine(relations.folded, other, first, last)
            (own if other == device else others).append(_in_turn(other, ticks, within=device))
    return own + others


def _in_turn(device: int, ticks: int, within: int | None = None) -> Bound:
    """A device runs one op at a time; what counts may be the span of another one, `within`."""
    within_text = "" if within in (None, device) else f" within the span of device {within}"
    text = (
        f"device {device} runs one op at a time{within_text}, each behind what has to come before "
        "it and before what has to follow, room in memory included"
    )
    return Bound(max(ticks, 0), "one machine", text)


def _fill(problem: Problem, device: _Device) -> Bound:
    idle = max(0, device.first_act - device.forward_room)
    time = problem.units.time_text
    return Bound(
        _offset(problem, device) + device.work + idle,
        "fill",
        f"the first B reaches device {device.index} no earlier than {time(device.first_act)} after "
        f"its first F, and until then its memory admits only {time(device.forward_room)} of F",
    )


def _lone_stage(
    problem: Problem, device: _Device, stream: Stream, stage: int, limit: int
) -> LoneStage:
    cost = problem.cost(stream.name, stage)
    if cost.activation_quanta and cost.context_quanta in (0, cost.activation_quanta):
        limit -= limit % cost.activation_quanta  # what no whole micro-batch can use
    return LoneStage(stream.microbatches, cost, limit, device.first_act, device.work)


def _fill_and_drain(problem: Problem, device: _Device, lone: LoneStage) -> Bound:
    """After its last F a device waits for that micro-batch to return, with little left to do.

    The two idle times are apart, and add up, when not all F fit in front of the first B.
    """
    cost = lone.cost
    whole = back(cost)
    most = max(whole, cost.backward_act_ticks + cost.backward_wgt_ticks)
    left = max(waiting * most + late * cost.backward_wgt_ticks for waiting, late in pending(lone))
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


def _little(problem: Problem, device: _Device, ticks: int) -> list[Bound]:
    """For so many ticks from the first start to the last end; none where memory never binds."""
    text = (
        f"what micro-batches hold of device {device.index}'s memory, times how long they hold it "
        "at least, has to fit under its limit"
    )
    return [Bound(_offset(problem, device) + ticks, "little", text)] if ticks else []
