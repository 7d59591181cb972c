"""Hanayo: micro-batches run in waves down and up the devices (Liu et al. 2023, arXiv:2308.15762).

With K waves a device holds 2K chunks, and the turn of a wave needs no message. The order is found
greedily: at most P micro-batches are under way, as in 1F1B, and a free device takes what is ready,
either backwards or forwards first, and of the forwards the one that is furthest through the model.
"""

from __future__ import annotations

from heapq import heappop, heappush

from synth.catalog.family import Family
from synth.op import Kind, Op
from synth.problem import Problem
from synth.schedule import Orders, value
from synth.simulate import earliest


def orders(problem: Problem) -> Orders:
    """The better of backwards first and forwards first."""
    return min(
        (_greedy(problem, first) for first in (Kind.BW, Kind.F)),
        key=lambda orders: value(earliest(problem, orders), problem.objective),
    )


def _greedy(problem: Problem, first: Kind) -> Orders:
    devices = range(problem.devices)
    orders: list[list[Op]] = [[] for _ in devices]
    ready: list[list[tuple[bool, int, int, Op]]] = [[] for _ in devices]
    free = [0 for _ in devices]
    arrivals: list[tuple[int, int, int, Op]] = []  # by time; the further fields break ties
    for microbatch in range(min(problem.devices, problem.total_microbatches)):
        arrivals.append((0, microbatch, 0, Op(Kind.F, microbatch, 0)))
    ticks = [0]
    while ticks:
        now = heappop(ticks)
        while arrivals and arrivals[0][0] <= now:
            *_, op = heappop(arrivals)
            forward = op.kind is Kind.F
            rank = (op.kind is not first, -op.stage if forward else 0, op.microbatch, op)
            heappush(ready[problem.device(op)], rank)
        for device in devices:
            if free[device] <= now and ready[device]:
                *_, op = heappop(ready[device])
                orders[device].append(op)
                free[device] = end = now + problem.duration(op)
                heappush(ticks, end)
                follower = _follower(problem, op)
                if follower is not None:
                    arrival = end + problem.lag(device, problem.device(follower))
                    heappush(arrivals, (arrival, follower.microbatch, follower.stage, follower))
                    heappush(ticks, arrival)
    return tuple(tuple(order) for order in orders)


def _follower(problem: Problem, op: Op) -> Op | None:
    """What an op's end makes ready; a micro-batch that is done lets the P-th behind it enter."""
    if op.kind is Kind.F:
        if op.stage + 1 < len(problem.stages):
            return Op(Kind.F, op.microbatch, op.stage + 1)
        return op.sibling(Kind.BW)
    if op.stage > 0:
        return Op(Kind.BW, op.microbatch, op.stage - 1)
    entering = op.microbatch + problem.devices
    return Op(Kind.F, entering, 0) if entering < problem.total_microbatches else None


def make(waves: int) -> Family:
    """Waves down and up the devices, K times."""
    return Family(
        name=f"hanayo:{waves}",
        title="Hanayo waves",
        source="Liu et al. 2023, Hanayo, arXiv:2308.15762",
        placement=f"wave:{waves}",
        orders=orders,
        when="few micro-batches (m = P), without the second replica that Chimera needs",
        note="the order is found greedily on the paper's placement for the costs at hand",
    )
