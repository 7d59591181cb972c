"""A rank's plan as functions: what does not change from step to step is looked up before the first.

With small stages the questions would take longer than the answers, so a step asks none: each of its
actions is bound to its stage, its message and the place of its result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from runtime.device import Clock
from runtime.errors import PlanError
from runtime.plan import InFlight, RankPlan, Task
from runtime.stage import Stage
from runtime.transport import Transport
from runtime.values import Gradients, Values, tensors
from synth.lower import Receive, Reduce, Send
from synth.op import Kind, Op


@dataclass(slots=True)
class Held:
    """What a run of the program holds."""

    inputs: Sequence[Values]
    """By micro-batch."""
    targets: Sequence[Values | Tensor]
    loss_gradient: float
    """What the last stage's backwards start with."""
    results: dict[int, Values] = field(default_factory=dict)
    """By the number of the F or B node: what is still to be sent or handed over."""
    losses: dict[int, Tensor] = field(default_factory=dict)
    marks: list[tuple[Op, Any, Any]] = field(default_factory=list)
    """Start and end of every op, on the clock."""
    until_backward: int = 0
    until_weights: int = 0
    most_until_backward: int = 0
    most_until_weights: int = 0


Action = Callable[[Held], None]
Take = Callable[[Held], Values]
"""Gets the input of an op: received from another rank, or handed over on this one."""

Shared = Callable[[Reduce], Sequence[Tensor]]
"""This rank's part of a reduction."""


def prepare(
    plan: RankPlan,
    stages: Mapping[int, Stage],
    transport: Transport,
    clock: Clock,
    shared: Shared,
) -> tuple[Action, ...]:
    """One action per step of the plan."""
    return _Preparation(plan, stages, transport, clock, shared).actions()


class _Preparation:
    """Makes actions."""

    def __init__(
        self,
        plan: RankPlan,
        stages: Mapping[int, Stage],
        transport: Transport,
        clock: Clock,
        shared: Shared,
    ) -> None:
        self._plan = plan
        self._stages = stages
        self._transport = transport
        self._clock = clock
        self._shared = shared
        self._numbers: dict[Op, int] = {}

    def actions(self) -> tuple[Action, ...]:
        """In the order of the plan."""
        return tuple(map(self._action, self._plan.steps))

    def _action(self, step: Task | Send | Receive | Reduce) -> Action:
        if isinstance(step, Send):
            return self._sending(step)
        if isinstance(step, Receive):
            post, message = self._transport.post, step.message
            return lambda held: post(message)
        if isinstance(step, Reduce):
            reduce, shared = self._transport.reduce, self._shared
            return lambda held: reduce(step.ranks, shared(step))
        if step.op.kind is Kind.F:
            return self._forward(step)
        return self._weights(step) if step.op.kind is Kind.W else self._backward(step)

    def _number(self, node: Op) -> int:
        """Of a node with a result; numbers are found faster than ops."""
        return self._numbers.setdefault(node, len(self._numbers))

    def _sending(self, step: Send) -> Action:
        send, message = self._transport.send, step.message
        number = self._number(message.producer)
        return lambda held: send(message, held.results.pop(number))

    def _take(self, task: Task) -> Take:
        if task.feed is None:
            assert task.producer is not None
            number = self._number(task.producer)
            return lambda held: held.results.pop(number)
        wait, release = self._transport.wait, self._transport.release
        feed, released = task.feed, task.released

        def take(held: Held) -> Values:
            values = wait(feed)
            for sent in released:
                release(sent)
            return values

        return take

    def _forward(self, task: Task) -> Action:
        forward, hold = self._stages[task.op.stage].forward, _hold(self._plan)
        mark, op = self._clock.mark, task.op
        microbatch, last, split = task.microbatch, task.last, task.split
        result = self._number(task.result)
        take: Take = (lambda held: held.inputs[microbatch]) if task.first else self._take(task)

        def act(held: Held) -> None:
            inputs = take(held)
            target = held.targets[microbatch] if last else None
            hold(held)
            start = mark()
            outputs = forward(microbatch, inputs, target, split=split)
            held.marks.append((op, start, mark()))
            if last:
                (loss,) = tensors(outputs)
                held.losses[microbatch] = loss.detach()
            else:
                held.results[result] = outputs

        return act

    def _backward(self, task: Task) -> Action:
        stage, fused = self._stages[task.op.stage], task.op.kind is Kind.BW
        backward = stage.backward if fused else stage.backward_act
        mark, op = self._clock.mark, task.op
        microbatch, first = task.microbatch, task.first
        result = self._number(task.result)
        take = _loss_gradient(microbatch) if task.last else self._take(task)

        def act(held: Held) -> None:
            gradients: Gradients = tensors(take(held))
            start = mark()
            passed_on = backward(microbatch, gradients)
            held.marks.append((op, start, mark()))
            held.until_backward -= 1
            held.until_weights -= fused
            if not first:
                held.results[result] = passed_on

        return act

    def _weights(self, task: Task) -> Action:
        backward_wgt = self._stages[task.op.stage].backward_wgt
        mark, op, microbatch = self._clock.mark, task.op, task.microbatch

        def act(held: Held) -> None:
            start = mark()
            backward_wgt(microbatch)
            held.marks.append((op, start, mark()))
            held.until_weights -= 1

        return act


def _loss_gradient(microbatch: int) -> Take:
    """What the last stage's backward of a micro-batch starts with."""
    return lambda held: (torch.full_like(held.losses[microbatch], held.loss_gradient),)


def _hold(plan: RankPlan) -> Action:
    """Counts one more micro-batch.

    Raises:
        PlanError: when run, if these are more than the schedule allows.
    """
    planned: InFlight = plan.in_flight

    def hold(held: Held) -> None:
        held.until_backward += 1
        held.until_weights += 1
        if held.until_backward > held.most_until_backward:
            held.most_until_backward = held.until_backward
        if held.until_weights > held.most_until_weights:
            held.most_until_weights = held.until_weights
        if (
            held.until_backward > planned.until_backward
            or held.until_weights > planned.until_weights
        ):
            raise PlanError(
                f"rank {plan.rank} holds {held.until_weights} micro-batches, "
                f"{held.until_backward} of them before their B; its plan allows "
                f"{planned.until_weights} and {planned.until_backward}"
            )

    return hold
