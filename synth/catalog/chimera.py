"""Chimera: two 1F1B pipelines in opposite directions (Li and Hoefler 2021, arXiv:2107.06925,
section 3.1), and BitPipe, the same with a V in each direction (Wu et al. 2024, arXiv:2410.19367).

Micro-batches run in units of P, half of them in each direction. Within a unit the passes of both
directions fill each other's slots without ever meeting; units follow one another.
"""

from __future__ import annotations

from synth.catalog.family import ClosedForm, Family, unequal_streams, uniform
from synth.op import Kind, Op
from synth.problem import Problem
from synth.schedule import Orders


def orders(problem: Problem) -> Orders:
    """Within a unit F of micro-batch i at slot s + 2i, its BW at 2S-1-s + 2i, with S stages."""
    stages, devices = len(problem.stages), problem.devices
    at: list[list[tuple[int, Op]]] = [[] for _ in range(devices)]
    for stream in problem.streams:
        for microbatch in range(stream.microbatches):
            unit, index = divmod(microbatch, devices // 2)
            first = 2 * stages * unit + 2 * index
            for stage, device in enumerate(stream.route):
                forward = Op(Kind.F, microbatch, stage, stream.name)
                at[device].append((first + stage, forward))
                at[device].append((first + 2 * stages - 1 - stage, forward.sibling(Kind.BW)))
    return tuple(tuple(op for _, op in sorted(slots, key=lambda slot: slot[0])) for slots in at)


def _constraint(problem: Problem) -> str | None:
    devices, microbatches = problem.devices, problem.total_microbatches
    if devices % 2:
        return f"needs an even P, got {devices}"
    if microbatches % devices:
        return f"needs m to be a multiple of P, got {microbatches} for P = {devices}"
    return unequal_streams(problem)


def _bubble(problem: Problem) -> int | None:
    """The ends of a unit take (P-2)F, and where BW > F each unit waits for its longer passes."""
    costs = uniform(problem)
    if costs is None or costs.comm or costs.fused < costs.forward:
        return None
    units = costs.microbatches // costs.devices
    return (costs.devices - 2) * (costs.forward + units * (costs.fused - costs.forward))


def _peak(problem: Problem) -> tuple[int, ...] | None:
    costs = uniform(problem)
    if costs is None or costs.context > costs.activation:
        return None
    least = len(problem.stages) - costs.devices // 2 + 1
    return tuple(
        (least + min(device, costs.devices - 1 - device)) * costs.activation
        for device in range(costs.devices)
    )


_FORM = ClosedForm("(P-2)(F + (m/P)(BW-F))", "equal stages, c = 0, BW >= F", _bubble)

CHIMERA = Family(
    name="chimera",
    title="Chimera",
    source="Li and Hoefler 2021, Chimera, arXiv:2107.06925, section 3.1",
    placement="bidirectional",
    orders=orders,
    when="few micro-batches (m = P) and memory for a second replica of the parameters",
    needs="even P, P divides m",
    constraint=_constraint,
    bubble=_FORM,
    span_bubble=_FORM,
    peak=ClosedForm("(P/2 + 1 + min(r, P-1-r)) A", "equal stages, C <= A", _peak),
    note="keeps two replicas of the model, whose gradients mirrored devices add up",
)

BITPIPE = Family(
    name="bitpipe",
    title="BitPipe",
    source="Wu et al. 2024, BitPipe, arXiv:2410.19367",
    placement="bidirectional-v",
    orders=orders,
    when="as Chimera, with half its bubble for twice its messages",
    needs="even P, P divides m",
    constraint=_constraint,
    bubble=_FORM,
    span_bubble=_FORM,
    peak=ClosedForm("(3P/2 + 1 + min(r, P-1-r)) A", "equal stages, C <= A", _peak),
    note="keeps two replicas of the model, whose gradients mirrored devices add up",
)
