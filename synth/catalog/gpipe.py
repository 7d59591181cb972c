"""GPipe: all forwards, then all backwards (Huang et al. 2019, arXiv:1811.06965, section 2).

Backwards run in the order of the forwards, as in PyTorch; the paper draws them reversed, which
takes the same time.
"""

from __future__ import annotations

from synth.catalog.family import ClosedForm, Family, uniform
from synth.op import Kind, Op
from synth.problem import Problem
from synth.schedule import Orders


def orders(problem: Problem) -> Orders:
    """m times F, then m times BW."""
    (stream,) = problem.streams
    return tuple(
        tuple(
            Op(kind, microbatch, stage)
            for kind in (Kind.F, Kind.BW)
            for microbatch in range(stream.microbatches)
        )
        for stage in range(problem.devices)
    )


def _bubble(problem: Problem) -> int | None:
    costs = uniform(problem)
    if costs is None:
        return None
    return (costs.devices - 1) * (costs.forward + costs.fused + 2 * costs.comm)


def _peak(problem: Problem) -> tuple[int, ...] | None:
    costs = uniform(problem)
    if costs is None or costs.context > costs.activation:
        return None
    return (costs.microbatches * costs.activation,) * costs.devices


FAMILY = Family(
    name="gpipe",
    title="GPipe",
    source="Huang et al. 2019, GPipe, arXiv:1811.06965, section 2",
    placement="linear",
    orders=orders,
    when="only when every micro-batch fits into memory and simplicity matters most",
    bubble=ClosedForm("(P-1)(F+BW+2c)", "equal stages", _bubble),
    span_bubble=ClosedForm("(P-1)(F+BW+2c)", "equal stages", _bubble),
    peak=ClosedForm("m A", "equal stages, C <= A", _peak),
)
