"""DualPipe and DualPipeV: two streams of work that meet on every device and overlap there
(DeepSeek-AI 2024, DeepSeek-V3, arXiv:2412.19437, section 3.2.1; github.com/deepseek-ai/DualPipe).

DualPipe sends micro-batches in from both ends of two model replicas. DualPipeV cuts DualPipe in
half: each device holds chunk 0 = stage r and chunk 1 = stage 2P-1-r of one model, and the second
half of a V plays the part of the second direction.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from synth.catalog.family import (
    ClosedForm,
    Family,
    Uniform,
    held_until_wgt,
    unequal_streams,
    uniform,
)
from synth.op import Kind, Op, pair
from synth.problem import Problem
from synth.schedule import Orders


@dataclass(frozen=True, slots=True)
class _Lane:
    """One of the two flows of micro-batches through a device."""

    stage: int
    stream: str = ""

    def op(self, kind: Kind, microbatch: int) -> Op:
        """An op of this lane."""
        return Op(kind, microbatch, self.stage, self.stream)


def dualpipe_orders(problem: Problem) -> Orders:
    """Each device's near direction is the one that enters on its side."""
    devices = problem.devices
    down, up = problem.streams
    result = []
    for device in range(devices):
        lanes = [_Lane(device, down.name), _Lane(devices - 1 - device, up.name)]
        near, far = lanes if device < devices // 2 else lanes[::-1]
        depth = min(device, devices - 1 - device)
        result.append(tuple(_steps(near, far, depth, devices // 2, down.microbatches)))
    return tuple(result)


def dualpipev_orders(problem: Problem) -> Orders:
    """Chunk 0 is near, chunk 1 far."""
    devices, count = problem.devices, problem.total_microbatches
    return tuple(
        tuple(_steps(_Lane(device), _Lane(2 * devices - 1 - device), device, devices, count))
        for device in range(devices)
    )


def _steps(near: _Lane, far: _Lane, depth: int, half: int, count: int) -> Iterator[Op]:
    """The eight steps of a device `depth` away from the end where its near stream enters.

    `half` is the number of devices from that end to the middle, `count` the micro-batches of a
    stream.
    """
    next_forward = {near: itertools.count(), far: itertools.count()}
    next_backward = {near: itertools.count(), far: itertools.count()}
    waiting: deque[Op] = deque()
    inner = half - depth - 1  # devices between this one and the middle

    def forward(lane: _Lane) -> Op:
        return lane.op(Kind.F, next(next_forward[lane]))

    def backward(lane: _Lane, kind: Kind = Kind.BW) -> Op:
        op = lane.op(kind, next(next_backward[lane]))
        if kind is Kind.B:
            waiting.append(op.sibling(Kind.W))
        return op

    for _ in range(2 * inner):
        yield forward(near)
    for _ in range(depth + 1):
        yield forward(near)
        yield forward(far)
    for _ in range(inner):
        yield backward(far, Kind.B)
        yield waiting.popleft()
        yield forward(far)
    for turn in range(count - 2 * half + depth + 1):
        if turn == 0 and inner == 0:  # in the middle the first F and BW do not overlap yet
            yield forward(near)
            yield backward(far)
        else:
            yield pair(forward(near), backward(far))
        yield pair(forward(far), backward(near))
    for _ in range(inner):
        yield backward(far)
        yield pair(forward(far), backward(near))
    for turn in range(2 * (depth + 1)):
        kind = Kind.BW if turn <= depth else Kind.B
        yield backward(far if turn % 2 == 0 else near, kind)
    for _ in range(inner):
        yield waiting.popleft()
        yield backward(near, Kind.B)
    yield from waiting


def _even_streams(problem: Problem) -> str | None:
    if problem.devices % 2:
        return f"needs an even P, got {problem.devices}"
    if problem.total_microbatches % 2:
        return f"needs an even m, got {problem.total_microbatches}"
    return _enough(problem) or unequal_streams(problem)


def _enough(problem: Problem) -> str | None:
    if problem.total_microbatches < 2 * problem.devices:
        return f"needs m >= 2P = {2 * problem.devices}"
    return None


def _regular(problem: Problem) -> Uniform | None:
    """The costs where the idle time is known: BW = B+W <= FB <= F+BW, W short, F <= 1.5 B."""
    costs = uniform(problem)
    if costs is None or costs.comm or costs.fused != costs.act + costs.wgt:
        return None
    if costs.pair > costs.forward + costs.fused or costs.wgt > min(costs.forward, costs.act):
        return None
    return costs if 2 * costs.forward <= 3 * costs.act else None


def _bubble(problem: Problem) -> int | None:
    """(stages/2 - 1)(FB + BW - 3W) where F = B; what B exceeds F by hides partly in the middle."""
    costs = _regular(problem)
    if costs is None or len(problem.stages) <= 2:
        return None
    forward, act = costs.forward, costs.act
    hops = len(problem.stages) // 2 - 1
    lost = max(forward, act) + costs.pair - costs.fused + act - costs.wgt
    return hops * lost - min(forward, hops * max(0, act - forward))


def _peak(problem: Problem) -> tuple[int, ...] | None:
    costs = held_until_wgt(problem)
    if costs is None:
        return None
    return ((len(problem.stages) + 1) * costs.activation,) * costs.devices


_REGION = "equal stages, c = 0, BW = B+W, BW <= FB <= F+BW, W <= min(F, B), F <= 1.5 B"
_LAW = "max(F, B) + FB - BW + B - W"
_SOURCE = "DeepSeek-AI 2024, DeepSeek-V3, arXiv:2412.19437; github.com/deepseek-ai/DualPipe"

DUALPIPE = Family(
    name="dualpipe",
    title="DualPipe",
    source=_SOURCE,
    placement="bidirectional",
    orders=dualpipe_orders,
    when="where overlapping an F with a BW pays, as with expert parallelism, and 2x parameters fit",
    needs="even P, even m >= 2P",
    constraint=_even_streams,
    bubble=ClosedForm(
        f"(P/2-1)({_LAW}) - min(F, (P/2-1) max(0, B-F)); (P/2-1)(FB+BW-3W) at F = B",
        _REGION + ", P > 2",
        _bubble,
    ),
    peak=ClosedForm("(P+1) A", "equal stages, C = A", _peak),
    note="keeps two replicas of the model, whose gradients mirrored devices add up",
)

DUALPIPEV = Family(
    name="dualpipev",
    title="DualPipeV",
    source=_SOURCE,
    placement="v",
    orders=dualpipev_orders,
    when="DualPipe's overlap without the second replica of the parameters",
    needs="m >= 2P",
    constraint=_enough,
    bubble=ClosedForm(
        f"(P-1)({_LAW}) - min(F, (P-1) max(0, B-F)); (P-1)(FB+BW-3W) at F = B",
        _REGION + ", P > 1",
        _bubble,
    ),
    peak=ClosedForm("(2P+1) A", "equal stages, C = A", _peak),
)
