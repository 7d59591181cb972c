"""Where in its next step a rank learns whether the last update stands.

Up to its gate a rank runs only F, on parameters that may still be taken back. If they are, all
ranks drop what they did since the step began and start it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from synth.lower import Compute, Instruction, Message, Program, Receive, Send
from synth.op import Kind
from synth.schedule import Schedule


class Gate(Protocol):
    """Stops a step once, after some of its instructions."""

    @property
    def cut(self) -> Cut:
        """Where it stands."""

    def begin(self) -> None:
        """Called before the first instruction."""

    def passes(self) -> bool:
        """Called at the gate. If not, the step starts again from its first instruction."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The part of one rank's program that runs before its gate."""

    position: int
    """How many of the plan's steps run before it."""
    posted: tuple[Message, ...]
    """Messages posted before the gate and not consumed there, in order."""
    surplus: tuple[Message, ...]
    """Messages sent to this rank before the sender's gate, but posted behind this rank's."""


def make_cuts(schedule: Schedule, program: Program) -> tuple[Cut, ...]:
    """Places the gates as late as the repeating schedule wants the verdict, or else earlier.

    When steps follow each other at the distance of the span, the last rank ends step k when the
    clock of step k + 1 shows makespan - span. From then on the verdict can be had for nothing.
    """
    gates = _consistent(program, [_wanted(schedule, program, r) for r in range(len(program.ranks))])
    return tuple(_cut(program, gates, rank) for rank in range(len(program.ranks)))


def _wanted(schedule: Schedule, program: Program, rank: int) -> int:
    """Before the first op that starts after the verdict, and before any that is not an F."""
    verdict = schedule.makespan - schedule.span
    starts = {timed.op: timed.start for timed in schedule.devices[rank]}
    for index, step in enumerate(program.ranks[rank]):
        if isinstance(step, Compute) and (
            step.op.partner is not None or step.op.kind is not Kind.F or starts[step.op] >= verdict
        ):
            return index
    return len(program.ranks[rank])


def _consistent(program: Program, gates: list[int]) -> list[int]:
    """Moves gates forward until nothing is awaited before a gate that is sent behind one."""
    sends = {
        step.message: (rank, index)
        for rank, steps in enumerate(program.ranks)
        for index, step in enumerate(steps)
        if isinstance(step, Send)
    }
    moved = True
    while moved:
        moved = False
        for rank, steps in enumerate(program.ranks):
            for index, step in enumerate(steps[: gates[rank]]):
                if not isinstance(step, Receive):
                    continue
                source, sent = sends[step.message]
                if sent >= gates[source]:
                    gates[rank], moved = index, True
                    break
    return gates


def _cut(program: Program, gates: Sequence[int], rank: int) -> Cut:
    before = program.ranks[rank][: gates[rank]]
    behind = program.ranks[rank][gates[rank] :]
    computed = {node for step in before if isinstance(step, Compute) for node in step.op.nodes}
    sent = {
        step.message
        for source, steps in enumerate(program.ranks)
        for step in steps[: gates[source]]
        if isinstance(step, Send)
    }
    return Cut(
        position=sum(map(_length, before)),
        posted=tuple(m for m in _received(before) if m.consumer not in computed),
        surplus=tuple(m for m in _received(behind) if m in sent),
    )


def _received(steps: Sequence[Instruction]) -> list[Message]:
    return [step.message for step in steps if isinstance(step, Receive)]


def _length(step: Instruction) -> int:
    """The plan has a step of its own for each part of an op."""
    return len(step.op.parts) if isinstance(step, Compute) else 1
