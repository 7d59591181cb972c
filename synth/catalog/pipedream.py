"""PipeDream and PipeDream-2BW: 1F1B that never drains (Narayanan et al. 2019, arXiv:1806.03377,
section 3; Narayanan et al. 2021, arXiv:2006.09503, section 3).

Weights change while micro-batches are under way, so that a backward has to find the weights of its
forward again. PipeDream updates after every backward and stashes the weights of each forward still
under way; 2BW updates once per m >= P micro-batches and keeps two versions. The order is that of
1F1B; the bubble it shows at both ends is paid once per training, not once per step.
"""

from __future__ import annotations

from synth.catalog import one_f_one_b
from synth.catalog.family import ClosedForm, Family, uniform
from synth.problem import Problem


def _steady(problem: Problem) -> int | None:
    """Device 0 has P micro-batches under way and waits for the latency of their round trip."""
    busiest = max(cost.forward_ticks + cost.fused_ticks for cost in problem.costs)
    microbatches, devices = problem.total_microbatches, problem.devices
    if problem.comm_ticks == 0 and not problem.links:
        return microbatches * busiest
    if uniform(problem) is None or microbatches % devices:
        return None
    return microbatches * busiest + 2 * problem.comm_ticks * (devices - 1) * microbatches // devices


def _constraint_2bw(problem: Problem) -> str | None:
    if problem.total_microbatches < problem.devices:
        return f"needs m >= P = {problem.devices} micro-batches per update"
    return None


_STEADY = ClosedForm("m (F+BW)_max + 2c(P-1)m/P", "c = 0, or equal stages and P divides m", _steady)

PIPEDREAM = Family(
    name="pipedream",
    title="PipeDream (asynchronous)",
    source="Narayanan et al. 2019, PipeDream, arXiv:1806.03377, section 3",
    placement="linear",
    orders=one_f_one_b.orders,
    when="only where stale gradients are acceptable: no bubble, but P-r versions of the weights",
    bubble=one_f_one_b.BUBBLE,
    span_bubble=one_f_one_b.BUBBLE,
    peak=one_f_one_b.PEAK,
    note="not equivalent to synchronous training: weights change after every backward, and the "
    "gradient of a micro-batch is P-1-r updates old on device r",
    synchronous=False,
    steady=_STEADY,
    weight_versions=ClosedForm(
        "P-r",
        "always",
        lambda problem: tuple(problem.devices - device for device in range(problem.devices)),
    ),
)

PIPEDREAM_2BW = Family(
    name="pipedream-2bw",
    title="PipeDream-2BW (asynchronous)",
    source="Narayanan et al. 2021, PipeDream-2BW, arXiv:2006.09503, section 3",
    placement="linear",
    orders=one_f_one_b.orders,
    when="as PipeDream, with two versions of the weights and a delay of one update everywhere",
    needs="m >= P",
    constraint=_constraint_2bw,
    bubble=one_f_one_b.BUBBLE,
    span_bubble=one_f_one_b.BUBBLE,
    peak=one_f_one_b.PEAK,
    note="not equivalent to synchronous training: gradients belong to the weights of one update "
    "earlier",
    synchronous=False,
    steady=_STEADY,
    weight_versions=ClosedForm("2", "always", lambda problem: (2,) * problem.devices),
)
