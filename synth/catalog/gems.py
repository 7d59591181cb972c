"""GEMS: one micro-batch at a time, from either end in turn (Jain et al. 2020, SC20)."""

from __future__ import annotations

from functools import partial

from synth.catalog.family import ClosedForm, Family, unequal_streams, uniform
from synth.op import Kind, Op
from synth.problem import Problem
from synth.schedule import Orders


def orders(problem: Problem) -> Orders:
    """F and BW of a micro-batch of one direction, then of one of the other."""
    first, second = problem.streams
    turns = [
        (stream, microbatch)
        for microbatch in range(first.microbatches)
        for stream in (first, second)
    ]
    return tuple(
        tuple(
            Op(kind, microbatch, stream.route.index(device), stream.name)
            for stream, microbatch in turns
            for kind in (Kind.F, Kind.BW)
        )
        for device in range(problem.devices)
    )


def _constraint(problem: Problem) -> str | None:
    if problem.total_microbatches % 2:
        return f"needs an even m, got {problem.total_microbatches}"
    return unequal_streams(problem)


def _bubble(problem: Problem, late: bool) -> int | None:
    """A micro-batch has the devices to itself from its first BW on: T = m(P BW + F) + (P-1)F."""
    costs = uniform(problem)
    if costs is None or costs.comm or costs.fused < costs.forward:
        return None
    start = costs.forward if late else 0  # the last device starts (P-1)F late
    return (costs.devices - 1) * (costs.microbatches * costs.fused + start)


def _peak(problem: Problem) -> tuple[int, ...] | None:
    costs = uniform(problem)
    if costs is None or costs.context > costs.activation:
        return None
    return (costs.activation,) * costs.devices


_REGION = "equal stages, c = 0, BW >= F"

FAMILY = Family(
    name="gems",
    title="GEMS",
    source="Jain et al. 2020, GEMS, SC20",
    placement="bidirectional",
    orders=orders,
    when="where not even two micro-batches fit into memory at once",
    needs="even m",
    constraint=_constraint,
    bubble=ClosedForm("(P-1)(m BW + F)", _REGION, partial(_bubble, late=True)),
    span_bubble=ClosedForm("(P-1) m BW", _REGION, partial(_bubble, late=False)),
    peak=ClosedForm("A", "equal stages, C <= A", _peak),
    note="keeps two replicas of the model, whose gradients mirrored devices add up",
)
