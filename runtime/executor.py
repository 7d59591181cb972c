"""One run of one rank's program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from runtime.actions import Action, Held, Setup, prepare
from runtime.errors import PlanError
from runtime.gate import Cut, Gate
from runtime.plan import InFlight, Task
from runtime.values import Values
from synth.op import Op


class RanOp(NamedTuple):
    """A simple op with its measured start and end in seconds of the monotonic clock."""

    op: Op
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one rank knows about one step."""

    losses: dict[int, Tensor]
    """By micro-batch, counted across streams; empty unless this rank holds a last stage."""
    ops: tuple[RanOp, ...]
    in_flight: InFlight
    """The most that was held at once."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The micro-batches of one step; read on ranks that hold a first or a last stage."""

    inputs: Sequence[Values]
    """By first stage of this rank and micro-batch."""
    targets: Sequence[Values | Tensor]
    loss_scale: float = 1.0
    """By which every gradient is larger; what a gradient scaler undoes."""
    signature: str = ""
    """Batches of equal signature have messages of equal shapes."""


class Executor:
    """Runs one rank's plan, step after step."""

    def __init__(self, setup: Setup, gate: Gate | None = None) -> None:
        self._setup = setup
        self._gate = gate
        self._held = Held()
        self._actions = prepare(setup, self._held)
        self._ops = tuple(step.op for step in setup.plan.steps if isinstance(step, Task))

    def step(self, batch: Batch) -> StepResult:
        """Runs the program once; what comes before the gate twice, if it does not let it pass.

        Raises:
            PeerError: another rank is gone or does not answer in time.
            PlanError: shapes changed, or more is held than the plan allows.
        """
        self._begin(batch)
        transport, clock = self._setup.transport, self._setup.clock
        transport.begin(batch.signature)
        clock.start()
        position, gate = 0, self._gate
        if gate is not None:
            position = gate.cut.position
            gate.begin()
            _run(self._actions[:position])
            if not gate.passes():
                self._discard(gate.cut)
                self._begin(batch)
                clock.start()
                _run(self._actions[:position])
        _run(self._actions[position:])
        transport.finish()
        return self._finish()

    def _begin(self, batch: Batch) -> None:
        # The loss of the step is the mean over the micro-batches.
        loss_gradient = batch.loss_scale / self._setup.plan.microbatches
        self._held.begin(batch.inputs, batch.targets, loss_gradient)

    def _discard(self, cut: Cut) -> None:
        """Forgets what has been computed before the gate and takes in what is under way."""
        transport = self._setup.transport
        for stage in self._setup.stages.values():
            stage.discard()
        for receiver in map(transport.receiver, cut.posted):
            receiver.wait()
        for receiver in map(transport.receiver, cut.surplus):
            receiver.post()
            receiver.wait()
        transport.finish()

    def _finish(self) -> StepResult:
        """Reads the clock; makes sure that nothing is left behind."""
        held = self._held
        if held.results or held.until_backward or held.until_weights:
            raise PlanError(
                f"rank {self._setup.plan.rank} ends the step with {len(held.results)} results and "
                f"{held.until_weights} micro-batches left over"
            )
        times_s = self._setup.clock.seconds(held.marks)
        return StepResult(
            held.losses,
            tuple(map(RanOp, self._ops, times_s[::2], times_s[1::2])),
            InFlight(held.most_until_backward, held.most_until_weights),
        )


def _run(actions: Sequence[Action]) -> None:
    for act in actions:
        act()
