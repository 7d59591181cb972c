"""Stages: what a micro-batch costs on each, in whole ticks and quanta, and which needs which."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from synth.errors import ProblemError


@dataclass(frozen=True, slots=True)
class StageCost:
    """What one micro-batch costs on one stage.

    Activation is held from the start of F to the end of B, the W context from there to the end of
    W. `fused_ticks` is the duration of BW; `pair_ticks` that of an F overlapped with a BW.
    """

    forward_ticks: int
    backward_act_ticks: int
    backward_wgt_ticks: int
    fused_ticks: int
    pair_ticks: int
    activation_quanta: int
    context_quanta: int

    def __post_init__(self) -> None:
        durations = (
            self.forward_ticks,
            self.backward_act_ticks,
            self.backward_wgt_ticks,
            self.fused_ticks,
            self.pair_ticks,
        )
        if min(durations) <= 0:
            raise ProblemError(f"every duration must be positive, got {self}")
        if self.fused_ticks < self.backward_act_ticks:
            raise ProblemError(f"a fused backward cannot take less than B alone, got {self}")
        if self.pair_ticks < max(self.forward_ticks, self.fused_ticks):
            raise ProblemError(f"a pair cannot take less than its longer op, got {self}")
        if min(self.activation_quanta, self.context_quanta) < 0:
            raise ProblemError(f"held memory must not be negative, got {self}")

    @property
    def work_ticks(self) -> int:
        """F + B + W."""
        return self.forward_ticks + self.backward_act_ticks + self.backward_wgt_ticks

    @property
    def pair_gain_ticks(self) -> int:
        """What overlapping an F with a BW saves over running one after the other."""
        return self.forward_ticks + self.fused_ticks - self.pair_ticks

    @property
    def least_work_ticks(self) -> int:
        """The least a device can be busy with a micro-batch: fused or paired where that is less."""
        apart = self.backward_act_ticks + self.backward_wgt_ticks
        return self.forward_ticks + min(apart, self.fused_ticks) - max(0, self.pair_gain_ticks)

    @property
    def split_is_best(self) -> bool:
        """Whether separate F, B and W are never slower than fused or paired ops."""
        return self.least_work_ticks == self.work_ticks


@dataclass(frozen=True, slots=True)
class DeviceCost:
    """What a stage costs on one device, where that differs from what it costs elsewhere."""

    device: int
    stage: int
    cost: StageCost


@dataclass(frozen=True, slots=True)
class Link:
    """The latency of hops from one device to another, where it differs from that of the others."""

    source: int
    target: int
    lag_ticks: int


Needs = tuple[tuple[int, ...], ...]
"""For each stage the stages whose outputs its forward takes, in the order in which it takes them.

A stage needs only lower ones, so that the numbers are an order in which all can run.
"""


def chain(stages: int) -> Needs:
    """Every stage needs the one before."""
    return tuple((stage - 1,) if stage else () for stage in range(stages))


def consumers(needs: Needs) -> Needs:
    """For each stage the stages that need its output, in ascending order."""
    found: list[list[int]] = [[] for _ in needs]
    for stage, sources in enumerate(needs):
        for source in sources:
            found[source].append(stage)
    return tuple(map(tuple, found))


@lru_cache(maxsize=16)
def ancestors(needs: Needs) -> Needs:
    """For each stage all that it needs, be it through others, in ascending order."""
    found: list[set[int]] = []
    for sources in needs:
        found.append(set(sources).union(*(found[source] for source in sources)))
    return tuple(tuple(sorted(stages)) for stages in found)
