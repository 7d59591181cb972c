"""Exact earliest times for given orders, memory over time, and communication counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import itemgetter

from synth.errors import InvalidScheduleError
from synth.graph import dependencies
from synth.op import Kind, Op
from synth.problem import Objective, Problem
from synth.schedule import Orders, TimedOp, Timeline, spans


@dataclass(frozen=True, slots=True)
class MemoryPoint:
    """What a device holds from a tick on, in quanta."""

    tick: int
    held: int


def earliest(problem: Problem, orders: Orders, releases: Sequence[int] = ()) -> Timeline:
    """Start every op as soon as its order and its dependencies allow.

    `releases[d]` keeps device d from starting before that tick. Raises InvalidScheduleError, naming
    the op each device is stuck at, when the orders contradict the dependencies.
    """
    done: dict[Op, int] = {}
    waiting: dict[Op, list[int]] = {}
    timed: list[list[TimedOp]] = [[] for _ in orders]
    clock = list(releases) or [0] * len(orders)
    ready = list(range(len(orders)))
    while ready:
        device = ready.pop()
        order, mine = orders[device], timed[device]
        while len(mine) < len(order):
            op = order[len(mine)]
            start = clock[device]
            inside = op.nodes
            for before, lag in _outer_dependencies(problem, inside):
                end = done.get(before)
                if end is None:
                    waiting.setdefault(before, []).append(device)
                    break
                start = max(start, end + lag)
            else:
                clock[device] = end = start + problem.duration(op)
                mine.append(TimedOp(op, start, end))
                for node in inside:
                    done[node] = end
                    ready.extend(waiting.pop(node, ()))
                continue
            break
    _check_complete(orders, timed)
    return tuple(tuple(ops) for ops in timed)


def _outer_dependencies(problem: Problem, nodes: tuple[Op, ...]) -> Iterator[tuple[Op, int]]:
    """What the nodes of one op wait for, other than each other."""
    for node in nodes:
        for before, lag in dependencies(problem, node):
            if before not in nodes:
                yield before, lag


def _check_complete(orders: Orders, timed: list[list[TimedOp]]) -> None:
    stuck = [
        f"device {device} at {order[len(mine)]}"
        for device, (order, mine) in enumerate(zip(orders, timed, strict=True))
        if len(mine) < len(order)
    ]
    if stuck:
        raise InvalidScheduleError(
            f"the orders wait for each other and never finish: {', '.join(stuck)}"
        )


def retime(problem: Problem, orders: Orders) -> Timeline:
    """The best times for given orders: exact for both objectives.

    For makespan these are the earliest times. For span, the first ops of a device may start later
    so that its window shrinks: the smallest common window is found by bisection.
    """
    best = earliest(problem, orders)
    if problem.objective is Objective.MAKESPAN:
        return best
    low = max(sum(timed.end - timed.start for timed in ops) for ops in best)
    high = max(spans(best))
    if low == high:
        return best
    reach = _reach(problem, best)
    while low < high:
        middle = (low + high) // 2
        if _first_starts(best, reach, middle) is None:
            low = middle + 1
        else:
            high = middle
    return earliest(problem, orders, _first_starts(best, reach, high) or ())


_Reach = list[list[tuple[int, int]]]


def _reach(problem: Problem, best: Timeline) -> _Reach:
    """For every device, which devices' last ends follow from its first start, and how much later.

    Longest paths, from the first starts of all devices at once: a list of them goes along with
    every op, and no op comes before what it depends on when they are taken by their start.
    """
    devices = range(len(best))
    far = -(1 << 62)  # no path, whatever is added to it
    behind = [[0 if source == device else far for source in devices] for device in devices]
    done: dict[Op, list[int]] = {}
    ops = ((timed.start, device, timed.op) for device, row in enumerate(best) for timed in row)
    for _, device, op in sorted(ops, key=itemgetter(0)):
        inside = op.nodes
        longest = behind[device]
        for before, lag in _outer_dependencies(problem, inside):
            longest = [max(a, b + lag) for a, b in zip(longest, done[before], strict=True)]
        duration = problem.duration(op)
        behind[device] = [ticks + duration for ticks in longest]
        for node in inside:
            done[node] = behind[device]
    return [
        [(other, behind[other][source]) for other in devices if behind[other][source] > 0]
        for source in devices
    ]


def _first_starts(best: Timeline, reach: _Reach, window: int) -> list[int] | None:
    """The earliest first starts at which no device's span exceeds the window; None without any.

    A late end pushes its own device's first start, and that the ends behind it. In a fixed point no
    chain of pushes meets a device twice, so one round per device finds it.
    """
    starts = [ops[0].start for ops in best]
    ends = [ops[-1].end for ops in best]
    for _ in range(len(best) + 1):
        for device, start in enumerate(starts):
            for other, ticks in reach[device]:
                ends[other] = max(ends[other], start + ticks)
        pushed = [max(start, end - window) for start, end in zip(starts, ends, strict=True)]
        if pushed == starts:
            return starts
        starts = pushed
    return None


def memory_profile(problem: Problem, device_ops: Sequence[TimedOp]) -> tuple[MemoryPoint, ...]:
    """What a device holds over time, in quanta; allocations at an op's start, releases at its end.

    At equal ticks releases come first, as an op that starts when another ends finds its room free.
    """
    changes: dict[int, list[int]] = {}
    for timed in device_ops:
        taken, freed = memory_change(problem, timed.op)
        if taken:
            changes.setdefault(timed.start, []).append(taken)
        if freed:
            changes.setdefault(timed.end, []).append(-freed)
    ticks = sorted(changes)
    held = accumulate(sum(changes[tick]) for tick in ticks)
    return tuple(MemoryPoint(tick, amount) for tick, amount in zip(ticks, held, strict=True))


def memory_change(problem: Problem, op: Op) -> tuple[int, int]:
    """Quanta an op takes at its start and gives back at its end."""
    taken = freed = 0
    for part in op.parts:
        cost = problem.cost(part.stream, part.stage)
        growth = max(0, cost.context_quanta - cost.activation_quanta)
        if part.kind is Kind.F:
            taken += cost.activation_quanta
        elif part.kind is Kind.B:
            taken += growth
            freed += max(0, cost.activation_quanta - cost.context_quanta)
        elif part.kind is Kind.W:
            freed += cost.context_quanta
        else:
            taken += growth
            freed += growth + cost.activation_quanta
    return taken, freed


def peaks(problem: Problem, devices: Timeline) -> tuple[int, ...]:
    """The most each device holds, in quanta."""
    return tuple(
        max((point.held for point in memory_profile(problem, ops)), default=0) for ops in devices
    )


def in_flight(devices: Timeline, released_by: Kind) -> tuple[int, ...]:
    """The most (micro-batch, stage) pairs each device holds from F to the end of B, or of W."""

    def peak(device_ops: Sequence[TimedOp], frees: Callable[[Op], bool]) -> int:
        held = most = 0
        for timed in device_ops:
            held += sum(node.kind is Kind.F for node in timed.op.nodes)
            most = max(most, held)
            held -= sum(frees(node) for node in timed.op.nodes)
        return most

    return tuple(peak(ops, lambda node: node.kind is released_by) for ops in devices)


def messages(problem: Problem) -> int:
    """Point-to-point messages of one step: one per micro-batch, direction and device boundary."""
    return sum(
        2 * stream.microbatches
        for stream in problem.streams
        for stage, device in enumerate(stream.route)
        for other in problem.before(stage)
        if stream.route[other] != device
    )
