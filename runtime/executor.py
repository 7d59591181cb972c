"""One run of one rank's program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from runtime.device import Clock
from runtime.errors import PlanError
from runtime.plan import InFlight, RankPlan, Task
from runtime.stage import Stage, Values
from runtime.transport import Transport
from synth.lower import Receive, Send
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

    inputs: Sequence[Tensor]
    targets: Sequence[Tensor]


def run_step(
    plan: RankPlan, stages: Mapping[int, Stage], transport: Transport, clock: Clock, batch: Batch
) -> StepResult:
    """Runs the program once.

    Raises:
        PeerError: another rank is gone or does not answer in time.
        PlanError: shapes changed, or more is held than the plan allows.
    """
    run = _Run(plan, stages, transport, clock, batch)
    clock.start()
    for step in plan.steps:
        if isinstance(step, Task):
            run.compute(step)
        elif isinstance(step, Send):
            transport.send(step.message, run.results.pop(step.message.producer))
        elif isinstance(step, Receive):
            transport.post(step.message)
        else:
            transport.reduce(step.ranks, stages[step.stage].weight_gradients())
    transport.finish()
    return run.finish()


class _Run:
    """What a run holds."""

    def __init__(
        self,
        plan: RankPlan,
        stages: Mapping[int, Stage],
        transport: Transport,
        clock: Clock,
        batch: Batch,
    ) -> None:
        self.results: dict[Op, Values] = {}
        """By F or B node: what is still to be sent or handed over."""
        self._plan = plan
        self._stages = stages
        self._transport = transport
        self._clock = clock
        self._batch = batch
        self._losses: dict[int, Tensor] = {}
        self._marks: list[tuple[Op, Any, Any]] = []
        self._until_backward = self._until_weights = 0
        self._most = InFlight(0, 0)

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
        if task.first:
            inputs: Values = (self._batch.inputs[task.microbatch],)
        else:
            inputs = self._take(task)
        target = self._batch.targets[task.microbatch] if task.last else None
        self._hold()
        start = self._clock.mark()
        outputs = self._stages[task.op.stage].forward(
            task.microbatch, inputs, target, split=task.split
        )
        self._marks.append((task.op, start, self._clock.mark()))
        if task.last:
            self._losses[task.microbatch] = outputs[0].detach()
        else:
            self.results[task.result] = outputs

    def _backward(self, task: Task) -> None:
        if task.last:
            # The loss of the step is the mean over the micro-batches.
            loss = self._losses[task.microbatch]
            gradients: Values = (torch.full_like(loss, 1 / self._plan.microbatches),)
        else:
            gradients = self._take(task)
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
