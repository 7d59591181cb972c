"""1F1B, the synchronous PipeDream-Flush (Narayanan et al. 2021, arXiv:2104.04473, section 2.2)."""

from __future__ import annotations

from synth.catalog.family import ClosedForm, Family, uniform
from synth.op import Kind, Op
from synth.problem import Problem
from synth.schedule import Orders


def orders(problem: Problem) -> Orders:
    """P-1-r forwards to fill, then one forward and one backward in turn, then what is left."""
    (stream,) = problem.streams
    return tuple(
        _device_order(stage, problem.devices - 1 - stage, stream.microbatches)
        for stage in range(problem.devices)
    )


def _device_order(stage: int, fill: int, microbatches: int) -> tuple[Op, ...]:
    forwards = [Op(Kind.F, microbatch, stage) for microbatch in range(microbatches)]
    order = forwards[:fill]
    for microbatch in range(microbatches):
        order += forwards[fill + microbatch : fill + microbatch + 1]
        order.append(Op(Kind.BW, microbatch, stage))
    return tuple(order)


def _bubble(problem: Problem) -> int | None:
    """Every P micro-batches pay 2c(P-1) once more, as each F waits for the B before it."""
    costs = uniform(problem)
    if costs is None or (costs.comm and costs.microbatches % costs.devices):
        return None
    devices, microbatches = costs.devices, costs.microbatches
    lags = 0
    if costs.comm and devices > 1:
        lags = 2 * ((devices - 1) * microbatches // devices + devices - 2)
    return (devices - 1) * (costs.forward + costs.fused) + lags * costs.comm


def _peak(problem: Problem) -> tuple[int, ...] | None:
    """Device r keeps P-r micro-batches: its fill and the one it works on."""
    costs = uniform(problem)
    if costs is None or costs.context > costs.activation:
        return None
    return tuple(
        min(costs.microbatches, costs.devices - device) * costs.activation
        for device in range(costs.devices)
    )


BUBBLE = ClosedForm(
    "(P-1)(F+BW) + 2c((P-1)m/P + P-2)", "equal stages, P divides m unless c = 0", _bubble
)
PEAK = ClosedForm("min(m, P-r) A", "equal stages, C <= A", _peak)

FAMILY = Family(
    name="1f1b",
    title="1F1B (PipeDream-Flush)",
    source="Narayanan et al. 2021, Megatron-LM, arXiv:2104.04473, section 2.2",
    placement="linear",
    orders=orders,
    when="the baseline: no more bubble than GPipe, at most P micro-batches in memory",
    bubble=BUBBLE,
    span_bubble=BUBBLE,
    peak=PEAK,
)
