"""What no fused backward can beat: a problem of separate B and W that bounds one with fused ops."""

from __future__ import annotations

from dataclasses import replace

from synth.problem import Problem
from synth.stages import StageCost


def separated(problem: Problem) -> Problem | None:
    """A problem without fused ops in which nothing takes longer; the same where splitting is best.

    In place of a BW it runs a B as long as the one apart and, right behind, a W for the rest of the
    time; a W apart has room for that one. So every schedule of the problem has one here of the same
    value or less: what is refuted here is refuted there. None where overlapped pairs gain
    something, or a tick cannot be divided.
    """
    if problem.split_is_best:
        return problem
    if any(cost.pair_gain_ticks > 0 or cost.fused_ticks < 2 for cost in problem.costs):
        return None
    return replace(
        problem,
        stages=tuple(map(_separated, problem.stages)),
        device_costs=tuple(
            replace(entry, cost=_separated(entry.cost)) for entry in problem.device_costs
        ),
    )


def _separated(cost: StageCost) -> StageCost:
    if cost.fused_ticks < 2:
        return cost  # of no device: each that holds this stage has a cost of its own
    wgt = max(1, min(cost.backward_wgt_ticks, cost.fused_ticks - cost.backward_act_ticks))
    act = min(cost.backward_act_ticks, cost.fused_ticks - wgt)
    return replace(
        cost,
        backward_act_ticks=act,
        backward_wgt_ticks=wgt,
        fused_ticks=act + wgt,
        pair_ticks=cost.forward_ticks + act + wgt,
    )
