"""Interleaved zero bubble: ZB-H1 with V chunks per device, as in PyTorch 2.13.

The turns are those of interleaved 1F1B. A device fills with P-1-r forwards more than the chunks
need, half of what interleaved 1F1B takes, and delays W by r backwards.
"""

from __future__ import annotations

from functools import partial

from synth.catalog import interleaved
from synth.catalog.family import ClosedForm, Family, uniform
from synth.op import Kind
from synth.problem import Problem
from synth.schedule import Orders


def orders(problem: Problem) -> Orders:
    """(P-1-r) + (V-1)N forwards to fill, then F, B and the W of r backwards ago in turn."""
    size = interleaved.group_size(problem)
    assert size is not None
    chunks = len(problem.stages) // problem.devices
    result = []
    for device in range(problem.devices):
        fill = problem.devices - 1 - device + (chunks - 1) * size
        forwards, acts, wgts = (
            interleaved.ops_in_turn(problem, kind, device, size)
            for kind in (Kind.F, Kind.B, Kind.W)
        )
        order = forwards[:fill]
        for index, act in enumerate(acts):
            order += [*forwards[fill + index : fill + index + 1], act]
            order += wgts[index - device : index - device + 1] if index >= device else []
        order += wgts[max(0, len(wgts) - device) :]
        result.append(tuple(order))
    return tuple(result)


def _bubble(problem: Problem) -> int | None:
    costs, size = uniform(problem), interleaved.group_size(problem)
    if costs is None or size is None or size < costs.devices or costs.comm:
        return None
    if costs.wgt > min(costs.forward, costs.act):
        return None
    return (costs.devices - 1) * (costs.forward + costs.act - costs.wgt)


def _peak(problem: Problem) -> tuple[int, ...] | None:
    """Filled forwards and the one at work, and the W's that wait when the last F starts."""
    costs, size = uniform(problem), interleaved.group_size(problem)
    if costs is None or size is None or costs.context > costs.activation:
        return None
    chunks = len(problem.stages) // problem.devices
    total = costs.microbatches * chunks
    peaks = []
    for device in range(costs.devices):
        fill = costs.devices - 1 - device + (chunks - 1) * size
        waiting = max(0, min(device, total - 1 - fill))
        peaks.append(min(total, fill + 1) * costs.activation + waiting * costs.context)
    return tuple(peaks)


def make(chunks: int) -> Family:
    """Interleaved zero bubble with V chunks per device."""
    bubble = ClosedForm("(P-1)(F+B-W)", "equal stages, c = 0, N >= P, W <= min(F, B)", _bubble)
    return Family(
        name=f"interleaved-zb:{chunks}",
        title="interleaved zero bubble",
        source="PyTorch 2.13 ScheduleInterleavedZeroBubble, after arXiv:2401.10241, section 2",
        placement=f"interleaved:{chunks}",
        orders=orders,
        when="interleaved 1F1B where W can be split off: a third of its bubble, less memory",
        needs=interleaved.GROUPS,
        constraint=partial(interleaved.constraint, group=None),
        bubble=bubble,
        span_bubble=bubble,
        peak=ClosedForm(
            "(P-r + (V-1)N) A + r C, less when m is small", "equal stages, C <= A", _peak
        ),
    )
