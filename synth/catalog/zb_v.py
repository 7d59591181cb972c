"""ZB-V: zero bubble on the V placement in the memory of 1F1B (Qi et al. 2023, arXiv:2401.10241,
section 6).

Device r holds chunk 0 = stage r and chunk 1 = stage 2P-1-r. A forward comes back to the device it
started from, so that its backward can start there at once.
"""

from __future__ import annotations

from collections.abc import Iterator

from synth.catalog.family import ClosedForm, Family, even, held_until_wgt
from synth.op import Kind, Op
from synth.problem import Problem
from synth.schedule import Orders


def orders(problem: Problem) -> Orders:
    """The seven steps of every device."""
    return tuple(tuple(_steps(problem, device)) for device in range(problem.devices))


def _steps(problem: Problem, device: int) -> Iterator[Op]:
    devices, microbatches = problem.devices, problem.total_microbatches
    stages = (device, 2 * devices - 1 - device)
    done: dict[tuple[Kind, int], int] = {}

    def take(kind: Kind, chunk: int) -> Op:
        microbatch = done.get((kind, chunk), 0)
        done[kind, chunk] = microbatch + 1
        return Op(kind, microbatch, stages[chunk])

    def left(kind: Kind, chunk: int) -> int:
        return microbatches - done.get((kind, chunk), 0)

    for _ in range(2 * (devices - device) - 1):
        yield take(Kind.F, 0)
    for _ in range(device):
        yield from (take(Kind.F, 1), take(Kind.F, 0))
    for _ in range(devices - device):
        yield from (take(kind, 1) for kind in (Kind.F, Kind.B, Kind.W))
    while left(Kind.F, 1):
        if left(Kind.F, 0):
            yield take(Kind.F, 0)
        yield from (take(kind, 0) for kind in (Kind.B, Kind.W))
        yield from (take(kind, 1) for kind in (Kind.F, Kind.B, Kind.W))
    for _ in range(device):
        yield from (take(Kind.B, 0), take(Kind.B, 1))
    for _ in range(devices - device):
        yield from (take(Kind.B, 0), take(Kind.W, 0))
    for chunk in (1, 0):
        for _ in range(left(Kind.W, chunk)):
            yield take(Kind.W, chunk)


def _constraint(problem: Problem) -> str | None:
    least = 2 * problem.devices - 1
    if problem.total_microbatches < least:
        return f"needs m >= 2P-1 = {least}"
    return None


def _bubble(problem: Problem) -> int | None:
    costs = even(problem)
    return None if costs is None else (costs.devices - 1) * costs.forward


def _span_bubble(problem: Problem) -> int | None:
    return None if even(problem) is None else 0


def _peak(problem: Problem) -> tuple[int, ...] | None:
    costs = held_until_wgt(problem)
    return None if costs is None else (2 * costs.devices * costs.activation,) * costs.devices


FAMILY = Family(
    name="zb-v",
    title="ZB-V",
    source="Qi et al. 2023, Zero Bubble, arXiv:2401.10241, section 6",
    placement="v",
    orders=orders,
    when="the memory of 1F1B and no bubble in the span, where F, B and W take about the same",
    needs="m >= 2P-1",
    constraint=_constraint,
    bubble=ClosedForm("(P-1) F", "equal stages, F = B = W, c = 0", _bubble),
    span_bubble=ClosedForm("0", "equal stages, F = B = W, c = 0", _span_bubble),
    peak=ClosedForm("2P A", "equal stages, C = A", _peak),
)
