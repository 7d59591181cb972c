"""Schedule: for each device an ordered tuple of timed ops, with the certificate of its value."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from synth.errors import ProblemError
from synth.line import require_line
from synth.op import Op
from synth.problem import Objective, Problem

Orders = tuple[tuple[Op, ...], ...]


@dataclass(frozen=True, slots=True)
class TimedOp:
    """An op with its start and end in ticks."""

    op: Op
    start: int
    end: int


Timeline = tuple[tuple[TimedOp, ...], ...]


@dataclass(frozen=True, slots=True)
class Certificate:
    """How good a schedule is: its value, a proven lower bound, and what proves the bound."""

    value: int
    bound: int
    proof: str

    def __post_init__(self) -> None:
        if self.bound > self.value:
            raise ProblemError(
                f"a bound of {self.bound} ticks above the value {self.value} contradicts itself"
            )
        require_line(self.proof, "a proof")

    @property
    def optimal(self) -> bool:
        """True only when the value meets a bound that pipesynth can name."""
        return self.value == self.bound

    @property
    def gap(self) -> float:
        """(value - bound) / value."""
        return (self.value - self.bound) / self.value if self.value else 0.0


@dataclass(frozen=True)
class Schedule:
    """A problem's answer. Times are ticks; `devices[d]` is sorted by start."""

    name: str
    problem: Problem
    devices: Timeline
    certificate: Certificate

    def __post_init__(self) -> None:
        require_line(self.name, "a schedule's name")

    @cached_property
    def orders(self) -> Orders:
        """The order of ops on every device, without times."""
        return tuple(tuple(timed.op for timed in ops) for ops in self.devices)

    @property
    def makespan(self) -> int:
        """First start to last end over all devices."""
        return makespan(self.devices)

    @property
    def spans(self) -> tuple[int, ...]:
        """Each device's own first start to last end."""
        return spans(self.devices)

    @property
    def span(self) -> int:
        """The longest of the devices' spans."""
        return max(self.spans)

    @property
    def bubble(self) -> float:
        """1 - busy / time over all devices, time being what the objective counts."""
        busy = sum(timed.end - timed.start for ops in self.devices for timed in ops)
        return 1 - busy / (len(self.devices) * value(self.devices, self.problem.objective))


def makespan(devices: Timeline) -> int:
    """First start to last end over all devices, in ticks."""
    return max(ops[-1].end for ops in devices) - min(ops[0].start for ops in devices)


def spans(devices: Timeline) -> tuple[int, ...]:
    """Each device's own first start to last end, in ticks."""
    return tuple(ops[-1].end - ops[0].start for ops in devices)


def value(devices: Timeline, objective: Objective) -> int:
    """What the objective counts, in ticks."""
    return makespan(devices) if objective is Objective.MAKESPAN else max(spans(devices))
