"""One run of one rank's program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from runtime.device import Clock
from runtime.errors import PlanError
from runtime.gate import Cut, Gate
from runtime.plan import InFlight, RankPlan, Step, Task
from runtime.stage import Stage
from runtime.transport import Transport
from runtime.values import Gradients, Values, tensors
from synth.lower import Receive, Reduce, Send
from synth.op import Kind, Op


@dataclass(frozen=True, slots=True)
class RanOp:
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
    targets: Sequence[Values | Tensor]
    loss_scale: float = 1.0
    """By which every gradient is larger; what a gradient scaler undoes."""
    signature: str = ""
    """Batches of equal signature have messages of equal shapes."""


Shared = Callable[[Reduce], Sequence[Tensor]]
"""This rank's part of a reduction."""


def run_step(
    plan: RankPlan,
    stages: Mapping[int, Stage],
    transport: Transport,
    clock: Clock,
    batch: Batch,
    shared: Shared,
    gate: Gate | None = None,
) -> StepResult:
    """Runs the program once; what comes before the gate twice, if the gate does not let it pass.

    Raises:
        PeerError: another rank is gone or does not answer in time.
        PlanError: shapes changed, or more is held than the plan allows.
    """
    run = _Run(plan, stages, transport, clock, batch, shared)
    transport.begin(batch.signature)
    clock.start()
    position = 0
    if gate is not None:
        position = gate.cut.position
        gate.begin()
        run.execute(plan.steps[:position])
        if not gate.passes():
            _discard(gate.cut, stages, transport)
            run = _Run(plan, stages, transport, clock, batch, shared)
            clock.start()
            run.execute(plan.steps[:position])
    run.execute(plan.steps[position:])
    transport.finish()
    return run.finish()


def _discard(cut: Cut, stages: Mapping[int, Stage], transport: Transport) -> None:
    """Forgets what has been computed before the gate and takes in what is under way."""
    for stage in stages.values():
        stage.discard()
    for message in cut.posted:
        transport.wait(message)
    for message in cut.surplus:
        transport.post(message)
        transport.wait(message)
    transport.finish()


class _Run:
    """What a run holds."""

    def __init__(
        self,
        plan: RankPlan,
        stages: Mapping[int, Stage],
        transport: Transport,
        clock: Clock,
        batch: Batch,
        shared: Shared,
    ) -> None:
        self.results: dict[Op, Values] = {}
        """By F or B node: what is still to be sent or handed over."""
        self._plan = plan
        self._stages = stages
        self._transport = transport
        self._clock = clock
        self._batch = batch
        self._shared = shared
        self._losses: dict[int, Tensor] = {}
        self._marks: list[tuple[Op, Any, Any]] = []
        self._until_backward = self._until_weights = 0
        self._most = InFlight(0, 0)

    def execute(self, steps: Sequence[Step]) -> None:
        """Runs a part of the program."""
        for step in steps:
            if isinstance(step, Task):
                self.compute(step)
            elif isinstance(step, Send):
                self._transport.send(step.message, self.results.pop(step.message.producer))
            elif isinstance(step, Receive):
                self._transport.post(step.message)
            else:
                self._transport.reduce(step.ranks, self._shared(step))

    def compute(self, task: Task) -> None:
        """Runs an op as soon as its input is there."""
        if task.op.kind is Kind.F:
            self._forward(task)
        elif task.op.kind is Kind.W:
            start = self._clock.mark()
            self._stages[task.op.stage].backward_wgt(task.microbatch)
            self._marks.append((task.op, start, self._clock.mark()))
            self._until_weights -= 1
        else:
            self._backward(task)

    def finish(self) -> StepResult:
        """Reads the clock; makes sure that nothing is left behind."""
        if self.results or self._until_backward or self._until_weights:
            raise PlanError(
                f"rank {self._plan.rank} ends the step with {len(self.results)} results and "
                f"{self._until_weights} micro-batches left over"
            )
        starts = self._clock.seconds([start for _, start, _ in self._marks])
        ends = self._clock.seconds([end for _, _, end in self._marks])
        ops = tuple(
            RanOp(op, start_s, end_s)
            for (op, _, _), start_s, end_s in zip(self._marks, starts, ends, strict=True)
        )
        return StepResult(self._losses, ops, self._most)

    def _forward(self, task: Task) -> None:
        inputs = self._batch.inputs[task.microbatch] if task.first else self._take(task)
        target = self._batch.targets[task.microbatch] if task.last else None
        self._hold()
        start = self._clock.mark()
        outputs = self._stages[task.op.stage].forward(
            task.microbatch, inputs, target, split=task.split
        )
        self._marks.append((task.op, start, self._clock.mark()))
        if task.last:
            (loss,) = tensors(outputs)
            self._losses[task.microbatch] = loss.detach()
        else:
            self.results[task.result] = outputs

    def _backward(self, task: Task) -> None:
        if task.last:
            # The loss of the step is the mean over the micro-batches.
            loss = self._losses[task.microbatch]
            share = self._batch.loss_scale / self._plan.microbatches
            gradients: Gradients = (torch.full_like(loss, share),)
        else:
            gradients = tensors(self._take(task))
        stage = self._stages[task.op.stage]
        start = self._clock.mark()
        if task.op.kind is Kind.BW:
            passed_on = stage.backward(task.microbatch, gradients)
            self._until_weights -= 1
        else:
            passed_on = stage.backward_act(task.microbatch, gradients)
        self._marks.append((task.op, start, self._clock.mark()))
        self._until_backward -= 1
        if not task.first:
            self.results[task.result] = passed_on

    def _take(self, task: Task) -> Values:
        """The input of an op: received from another rank, or handed over on this one."""
        if task.feed is None:
            assert task.producer is not None
            return self.results.pop(task.producer)
        values = self._transport.wait(task.feed)
        for sent in task.released:
            self._transport.release(sent)
        return values

    def _hold(self) -> None:
        self._until_backward += 1
        self._until_weights += 1
        most, planned = self._most, self._plan.in_flight
        most = InFlight(
            max(most.until_backward, self._until_backward),
            max(most.until_weights, self._until_weights),
        )
        if (
            most.until_backward > planned.until_backward
            or most.until_weights > planned.until_weights
        ):
            raise PlanError(
                f"rank {self._plan.rank} holds {most.until_weights} micro-batches, "
                f"{most.until_backward} of them before their B; its plan allows "
                f"{planned.until_weights} and {planned.until_backward}"
            )
        self._most = most
