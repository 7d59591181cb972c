"""ZB-H1 and ZB-H2: the handcrafted zero-bubble schedules (Qi et al. 2023, arXiv:2401.10241,
section 2).

Both fill with a(P-1-r) forwards, a = 1 for H1 and 2 for H2, and delay every W by a*r backwards, so
that the W's that are left fill the time in which the devices in front drain.
"""

from __future__ import annotations

from functools import partial

from synth.catalog.family import ClosedForm, Family, Uniform, uniform
from synth.op import Kind, Op
from synth.problem import Problem
from synth.schedule import Orders


def orders(problem: Problem, depth: int) -> Orders:
    """The order rule for a = depth."""
    (stream,) = problem.streams
    return tuple(
        _device_order(
            stage, depth * (problem.devices - 1 - stage), depth * stage, stream.microbatches
        )
        for stage in range(problem.devices)
    )


def _device_order(stage: int, fill: int, delay: int, microbatches: int) -> tuple[Op, ...]:
    forwards, acts, wgts = (
        [Op(kind, microbatch, stage) for microbatch in range(microbatches)]
        for kind in (Kind.F, Kind.B, Kind.W)
    )
    order = forwards[:fill]
    for index in range(microbatches):
        order += forwards[fill + index : fill + index + 1]
        order.append(acts[index])
        if index >= delay:
            order.append(wgts[index - delay])
    order += wgts[max(0, microbatches - delay) :]
    return tuple(order)


def _fits(problem: Problem, least: int, lag: int) -> Uniform | None:
    """The costs, where the formulas hold: equal stages, enough micro-batches, no W too long."""
    costs = uniform(problem)
    if costs is None or costs.microbatches < least:
        return None
    if costs.wgt > min(costs.forward, costs.act) or lag * costs.comm > costs.wgt:
        return None
    return costs


def _bubble_h1(problem: Problem) -> int | None:
    costs = _fits(problem, least=problem.devices + 1, lag=2)
    if costs is None:
        return None
    return (costs.devices - 1) * (costs.forward + costs.act - costs.wgt + 4 * costs.comm)


def _span_bubble_h2(problem: Problem) -> int | None:
    costs = _fits(problem, least=2 * problem.devices - 1, lag=1)
    if costs is None:
        return None
    return (costs.devices - 1) * (costs.forward + costs.act - 2 * costs.wgt + 2 * costs.comm)


def _bubble_h2(problem: Problem) -> int | None:
    """The last device starts (P-1)(F+c) late, whatever the order."""
    costs = _fits(problem, least=2 * problem.devices - 1, lag=1)
    if costs is None:
        return None
    drained = costs.forward + costs.act - 2 * costs.wgt + 2 * costs.comm
    return (costs.devices - 1) * max(costs.forward + costs.comm, drained)


def _peak(problem: Problem, depth: int) -> tuple[int, ...] | None:
    """Filled forwards and the one at work, and the W's that wait when the last F starts."""
    costs = uniform(problem)
    if costs is None or costs.context > costs.activation:
        return None
    peaks = []
    for device in range(costs.devices):
        fill = depth * (costs.devices - 1 - device)
        waiting = max(0, min(depth * device, costs.microbatches - 1 - fill))
        held = min(costs.microbatches, fill + 1)
        peaks.append(held * costs.activation + waiting * costs.context)
    return tuple(peaks)


_H1 = ClosedForm("(P-1)(F+B-W+4c)", "equal stages, m > P, 2c <= W <= min(F, B)", _bubble_h1)
_REGION_H2 = "equal stages, m >= 2P-1, c <= W <= min(F, B)"

H1 = Family(
    name="zb-h1",
    title="ZB-H1",
    source="Qi et al. 2023, Zero Bubble, arXiv:2401.10241, section 2",
    placement="linear",
    orders=partial(orders, depth=1),
    when="instead of 1F1B wherever W can be split off: a third of the bubble in the same memory",
    bubble=_H1,
    span_bubble=_H1,
    peak=ClosedForm(
        "(P-r) A + r C, less when m < P", "equal stages, C <= A", partial(_peak, depth=1)
    ),
)

H2 = Family(
    name="zb-h2",
    title="ZB-H2",
    source="Qi et al. 2023, Zero Bubble, arXiv:2401.10241, section 2",
    placement="linear",
    orders=partial(orders, depth=2),
    when="with twice the activation memory and optimizer steps that do not wait for each other",
    bubble=ClosedForm("(P-1) max(F+c, F+B-2W+2c)", _REGION_H2, _bubble_h2),
    span_bubble=ClosedForm("(P-1)(F+B-2W+2c)", _REGION_H2, _span_bubble_h2),
    peak=ClosedForm(
        "(2(P-r)-1) A + 2r C, less when m < 2P-1", "equal stages, C <= A", partial(_peak, depth=2)
    ),
    note="the bubble vanishes from each device's own span, not from a synchronous step",
)
