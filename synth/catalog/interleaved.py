"""Interleaved 1F1B (Narayanan et al. 2021, arXiv:2104.04473, section 2.2; Megatron-LM).

A device holds V chunks, chunk k being stage k P + r, and works through micro-batches in groups of
N: within a group chunk 0 for all of them, then chunk 1, and so on; backwards take the chunks in
reverse. N is P where P divides m; otherwise the groups are as many as P fits into m, and equal.
"""

from __future__ import annotations

from functools import partial

from synth.catalog.family import ClosedForm, Family, Uniform, uniform
from synth.op import Kind, Op
from synth.problem import Problem
from synth.schedule import Orders

GROUPS = "m < P, or m in equal groups of at least P, as many as fit"


def group_size(problem: Problem) -> int | None:
    """Micro-batches per group when none is asked for, or None when they cannot be equal."""
    groups = max(1, problem.total_microbatches // problem.devices)
    size, rest = divmod(problem.total_microbatches, groups)
    return size if rest == 0 else None


def turns(problem: Problem, size: int) -> list[tuple[int, int]]:
    """The (micro-batch, chunk) pairs in the order in which a device runs their forwards."""
    chunks = len(problem.stages) // problem.devices
    total = problem.total_microbatches
    return [
        (microbatch, chunk)
        for first in range(0, total, size)
        for chunk in range(chunks)
        for microbatch in range(first, min(first + size, total))
    ]


def ops_in_turn(problem: Problem, kind: Kind, device: int, size: int) -> list[Op]:
    """All ops of a kind that a device runs, in order; backwards see the chunks from the last."""
    chunks = len(problem.stages) // problem.devices
    return [
        Op(kind, microbatch, place * problem.devices + device)
        for microbatch, chunk in turns(problem, size)
        for place in (chunk if kind is Kind.F else chunks - 1 - chunk,)
    ]


def orders(problem: Problem, group: int | None) -> Orders:
    """2(P-1-r) + (V-1)N forwards to fill, then a forward and a backward in turn."""
    size = group or group_size(problem)
    assert size is not None
    chunks = len(problem.stages) // problem.devices
    result = []
    for device in range(problem.devices):
        fill = 2 * (problem.devices - 1 - device) + (chunks - 1) * size
        forwards = ops_in_turn(problem, Kind.F, device, size)
        backwards = ops_in_turn(problem, Kind.BW, device, size)
        order = forwards[:fill]
        for index, backward in enumerate(backwards):
            order += [*forwards[fill + index : fill + index + 1], backward]
        result.append(tuple(order))
    return tuple(result)


def constraint(problem: Problem, group: int | None) -> str | None:
    """What Megatron-LM asks of the group size."""
    devices, microbatches = problem.devices, problem.total_microbatches
    if group is None:
        if group_size(problem) is None:
            groups = microbatches // devices
            return f"needs m to be a multiple of the {groups} groups of at least P micro-batches"
        return None
    if not devices <= group <= microbatches:
        return f"needs P <= group size <= m, the group size is {group}"
    if 0 < microbatches % group < devices:
        return (
            f"needs m mod group size to be 0 or at least P, "
            f"{microbatches} mod {group} is {microbatches % group}"
        )
    return None


def _bubble(problem: Problem, group: int | None) -> int | None:
    """A micro-batch crosses PV-1 boundaries each way; the fill and drain take P-1 chunk times."""
    costs, size = uniform(problem), group or group_size(problem)
    if costs is None or size is None or size < costs.devices or not _lag_fits(costs, size):
        return None
    if costs.devices == 1:
        return 0
    hops = 2 * (len(problem.stages) - 1)
    return (costs.devices - 1) * (costs.forward + costs.fused) + hops * costs.comm


def _lag_fits(costs: Uniform, size: int) -> bool:
    """Whether the turns of a group of P give a hop's latency time to pass."""
    if costs.comm == 0:
        return True
    whole = size == costs.devices and costs.microbatches % costs.devices == 0
    return whole and 2 * costs.comm <= min(costs.forward, costs.fused)


def _peak(problem: Problem, group: int | None) -> tuple[int, ...] | None:
    costs, size = uniform(problem), group or group_size(problem)
    if costs is None or size is None or costs.context > costs.activation:
        return None
    chunks = len(problem.stages) // problem.devices
    return tuple(
        min(
            costs.microbatches * chunks,
            2 * (costs.devices - 1 - device) + (chunks - 1) * size + 1,
        )
        * costs.activation
        for device in range(costs.devices)
    )


def make(chunks: int, group: int | None = None) -> Family:
    """Interleaved 1F1B with V chunks per device and, if given, N micro-batches per group."""
    bubble = ClosedForm(
        "(P-1)(F+BW) + 2c(PV-1)",
        "equal stages, N >= P; with c > 0 also N = P, P divides m, 2c <= min(F, BW)",
        partial(_bubble, group=group),
    )
    return Family(
        name=f"interleaved:{chunks}" + (f":{group}" if group else ""),
        title="interleaved 1F1B" + (f", groups of {group}" if group else ""),
        source="Narayanan et al. 2021, Megatron-LM, arXiv:2104.04473, section 2.2",
        placement=f"interleaved:{chunks}",
        orders=partial(orders, group=group),
        when="a V-th of the 1F1B bubble for V times the messages and some more memory",
        needs=GROUPS if group is None else "P <= N <= m, m mod N = 0 or >= P",
        constraint=partial(constraint, group=group),
        bubble=bubble,
        span_bubble=bubble,
        peak=ClosedForm(
            "min(mV, 2(P-1-r) + (V-1)N + 1) A", "equal stages, C <= A", partial(_peak, group=group)
        ),
    )
