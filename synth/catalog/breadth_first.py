"""Breadth-first pipeline, looped BFS (Lamy-Poirier 2022, arXiv:2211.05953, section 4)."""

from __future__ import annotations

from synth.catalog.family import ClosedForm, Family, uniform
from synth.op import Kind, Op
from synth.problem import Problem
from synth.schedule import Orders


def orders(problem: Problem) -> Orders:
    """All forwards of chunk 0, then of chunk 1, ..; then all backwards in reverse."""
    (stream,) = problem.streams
    result = []
    for device in range(problem.devices):
        forwards = [
            Op(Kind.F, microbatch, stage)
            for stage in range(device, len(problem.stages), problem.devices)
            for microbatch in range(stream.microbatches)
        ]
        backwards = [forward.sibling(Kind.BW) for forward in reversed(forwards)]
        result.append((*forwards, *backwards))
    return tuple(result)


def _bubble(problem: Problem) -> int | None:
    """With m >= P each chunk's micro-batches follow those of the chunk before without a gap.

    A round trip over all devices takes P(F+c), in which the chunk before keeps the device busy mF.
    """
    costs = uniform(problem)
    if costs is None or costs.microbatches < costs.devices:
        return None
    spare = (costs.microbatches - costs.devices) * min(costs.forward, costs.fused)
    if costs.devices * costs.comm > spare:
        return None
    return (costs.devices - 1) * (costs.forward + costs.fused + 2 * costs.comm)


def _peak(problem: Problem) -> tuple[int, ...] | None:
    costs = uniform(problem)
    if costs is None or costs.context > costs.activation:
        return None
    chunks = len(problem.stages) // problem.devices
    return (costs.microbatches * chunks * costs.activation,) * costs.devices


def make(chunks: int) -> Family:
    """Breadth-first with V chunks per device."""
    bubble = ClosedForm("(P-1)(F+BW+2c)", "equal stages, m >= P, Pc <= (m-P) min(F, BW)", _bubble)
    return Family(
        name=f"bfs:{chunks}",
        title="breadth-first (looped BFS)",
        source="Lamy-Poirier 2022, Breadth-First Pipeline Parallelism, arXiv:2211.05953, section 4",
        placement=f"interleaved:{chunks}",
        orders=orders,
        when="with fully sharded parameters, each gathered once per step and chunk",
        bubble=bubble,
        span_bubble=bubble,
        peak=ClosedForm("mV A", "equal stages, C <= A", _peak),
    )
