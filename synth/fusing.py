"""Fusing: a B and the W right behind it become one BW, which is cheaper where splitting costs.

A fused backward hands its input gradient on only at its end, so a device upstream may wait longer;
`merge` takes every chance, `fuse` only those that pay.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from synth.op import Kind, Op
from synth.problem import Problem
from synth.schedule import Certificate, Orders, Schedule, value
from synth.simulate import peaks, retime

_Order = tuple[Op, ...]

EFFORT = 400_000  # ops timed while looking for what pays: some seconds


def merge(schedule: Schedule) -> Schedule:
    """The schedule with every B and W that are neighbours as one BW, timed anew."""
    orders = fused_neighbours(schedule.orders)
    if orders == schedule.orders:
        return schedule
    return _timed(schedule, orders)


def fused_neighbours(orders: Orders) -> Orders:
    """The orders with every W that directly follows its B fused with it."""
    return tuple(map(_merged, orders))


def _merged(order: _Order) -> _Order:
    merged: list[Op] = []
    for op in order:
        if op.kind is Kind.W and merged and merged[-1] == op.sibling(Kind.B):
            merged[-1] = op.sibling(Kind.BW)
        else:
            merged.append(op)
    return tuple(merged)


def fuse(schedule: Schedule) -> Schedule:
    """The schedule with those B and W fused that make it faster, one change at a time.

    Each backward in turn is fused at the place of its B, or split again, and what is faster stays,
    until nothing more is gained or the effort is spent. Where splitting never costs anything there
    is nothing to do.
    """
    problem = schedule.problem
    if problem.split_is_best:
        return schedule
    best = min((schedule.orders, all_fused(schedule.orders)), key=lambda o: _score(problem, o))
    score = _score(problem, best)
    tries = EFFORT // sum(map(len, schedule.orders))
    improved = True
    while improved:
        improved = False
        for candidate in islice(_neighbours(best), tries):
            tries -= 1
            found = _score(problem, candidate)
            if found < score:
                best, score, improved = candidate, found, True
                break
    return schedule if best == schedule.orders else _timed(schedule, best)


def _score(problem: Problem, orders: Orders) -> tuple[int, int, int]:
    """What is minimised: memory beyond the limits, then the objective, then work."""
    timeline = retime(problem, orders)
    excess = sum(
        max(0, peak - limit)
        for peak, limit in zip(peaks(problem, timeline), problem.limits_quanta, strict=True)
        if limit is not None
    )
    busy = sum(timed.end - timed.start for ops in timeline for timed in ops)
    return excess, value(timeline, problem.objective), busy


def all_fused(orders: Orders) -> Orders:
    """The orders with every W fused with its B, at the place of the B."""
    fused = [
        (op.sibling(Kind.BW) if op.kind is Kind.B else op for op in order if op.kind is not Kind.W)
        for order in orders
    ]
    return tuple(map(tuple, fused))


def _neighbours(orders: Orders) -> Iterator[Orders]:
    """The orders with one backward fused, or split with its W right behind or at the end."""
    for device, order in enumerate(orders):
        for place, op in enumerate(order):
            for changed in _changes(order, place, op):
                yield (*orders[:device], changed, *orders[device + 1 :])


def _changes(order: _Order, place: int, op: Op) -> Iterator[_Order]:
    before, after = order[:place], order[place + 1 :]
    if op.kind is Kind.B:
        weights = op.sibling(Kind.W)
        yield (*before, op.sibling(Kind.BW), *(other for other in after if other != weights))
    elif op.kind is Kind.BW:
        split, weights = op.sibling(Kind.B), op.sibling(Kind.W)
        for later in range(len(after) + 1):
            yield (*before, split, *after[:later], weights, *after[later:])


def _timed(schedule: Schedule, orders: Orders) -> Schedule:
    problem, old = schedule.problem, schedule.certificate
    timeline = retime(problem, orders)
    reached = value(timeline, problem.objective)
    certificate = Certificate(reached, min(reached, old.bound), old.proof)
    return replace(schedule, devices=timeline, certificate=certificate)
