"""Raise the bound horizon by horizon, by what the orders of single devices rule out."""

from __future__ import annotations

from functools import lru_cache

from synth.bounds import Bound
from synth.problem import Problem
from synth.separate import separated
from synth.solve.deadline import Deadline
from synth.solve.horizons import Horizons
from synth.solve.incumbent import Incumbent
from synth.solve.states import TooManyError

MAX_OPS = 20_000  # beyond this many, heads and tails alone take too long


def refute(incumbent: Incumbent, deadline: Deadline) -> None:
    """Refute horizons below the incumbent: first by one device's orders, then by those of all.

    Nothing where there is no incumbent.
    """
    if incumbent.value is None:
        return
    bounding = separated(incumbent.problem)
    chains = 3 * len(incumbent.problem.stages)
    if bounding is None or chains * incumbent.problem.total_microbatches > MAX_OPS:
        return
    incumbent.run("orders of single devices")
    horizons = _horizons(bounding)
    for thorough in (False, True):
        _narrow(incumbent, horizons, thorough, deadline)


def _narrow(incumbent: Incumbent, horizons: Horizons, thorough: bool, deadline: Deadline) -> None:
    """From the bound up, with strides that grow, until a horizon is not refuted; then bisect.

    With one device the first horizon is that which would close the bracket.
    """
    assert incumbent.value is not None
    low = -(-incumbent.bound.value // horizons.step)
    high = min(-(-incumbent.value // horizons.step), horizons.open[thorough]) - 1
    stride = -(-(high - low + 1) // 4) if thorough else high - low + 1
    while low <= high:
        horizon = min(low + stride - 1, high)
        device = _refuting(horizons, horizon, thorough, deadline)
        if device is None:
            high = horizon - 1
            stride = -(-(high - low + 1) // 4)
        else:
            _raise(incumbent, min((horizon + 1) * horizons.step, incumbent.value), device)
            low = horizon + 1
            stride *= 2


def _refuting(horizons: Horizons, horizon: int, thorough: bool, deadline: Deadline) -> int | None:
    """The device that rules a horizon out; None also where half of the time does not tell."""
    try:
        return horizons.refuting(horizon, thorough, deadline.within(deadline.left / 2))
    except TooManyError:
        return None


@lru_cache(maxsize=2)
def _horizons(problem: Problem) -> Horizons:
    """Kept from one call to the next, with what it has learnt."""
    return Horizons(problem)


def _raise(incumbent: Incumbent, ticks: int, device: int) -> None:
    text = (
        f"device {device} has no order of its ops that takes less than "
        f"{incumbent.problem.units.time_text(ticks)}, each op behind what has to come before it "
        "and before what has to follow, within its memory"
    )
    incumbent.raise_bound(Bound(ticks, "orders", text))
