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
from runtime.plan import Feed, InFlight, RankPlan, Task
from runtime.stage import Stage
from runtime.transport import Transport
from runtime.values import Gradients, Values, as_argument, tensors
from synth.lower import Receive, Reduce, Send
from synth.op import Kind, Op

Shared = Callable[[Reduce], Sequence[Tensor]]
"""This rank's part of a reduction."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What a rank runs, and with what."""

    plan: RankPlan
    stages: Mapping[int, Stage]
    transport: Transport
    clock: Clock
    shared: Shared


@dataclass(slots=True)
class Held:
    """What a run of the program holds."""

    inputs: Sequence[Values]
    """By first stage of this rank and micro-batch."""
    targets: Sequence[Values | Tensor]
    loss_gradient: float
    """What the last stage's backwards start with."""
    results: dict[int, Values] = field(default_factory=dict)
    """By number, one per node that needs a result: what is still to be sent or handed over."""
    losses: dict[int, Tensor] = field(default_factory=dict)
    marks: list[tuple[Op, Any, Any]] = field(default_factory=list)
    """Start and end of every op, on the clock."""
    until_backward: int = 0
    until_weights: int = 0
    most_until_backward: int = 0
    most_until_weights: int = 0


Action = Callable[[Held], None]
Backward = Callable[[int, Any], Any]
Take = Callable[[Held], Any]
"""Gets the input of an op: received from another rank, or handed over on this one."""


def prepare(setup: Setup) -> tuple[Action, ...]:
    """One action per step of the plan."""
    preparation = _Preparation(setup)
    return tuple(map(preparation.action, setup.plan.steps))


class _Preparation:
    """Makes actions."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._numbers: dict[tuple[Op, Op], int] = {}

    def action(self, step: Task | Send | Receive | Reduce) -> Action:
        """What a step of the plan does."""
        transport = self._setup.transport
        if isinstance(step, Send):
            send, message = transport.send, step.message
            number = self._number(message.producer, message.consumer)
            return lambda held: send(message, held.results.pop(number))
        if isinstance(step, Receive):
            post, awaited = transport.post, step.message
            return lambda held: post(awaited)
        if isinstance(step, Reduce):
            reduce, shared = transport.reduce, self._setup.shared
            return lambda held: reduce(step.ranks, shared(step))
        if step.op.kind is Kind.F:
            return self._forward(step)
        return self._weights(step) if step.op.kind is Kind.W else self._backward(step)

    def _number(self, producer: Op, consumer: Op) -> int:
        """Of a result on its way to one node; numbers are found faster than ops."""
        return self._numbers.setdefault((producer, consumer), len(self._numbers))

    def _numbers_of(self, task: Task) -> list[int]:
        """Under which its result is found by each node that needs it."""
        return [self._number(task.node, consumer) for consumer in task.consumers]

    def _takes(self, task: Task) -> list[Take]:
        """What gets each of its inputs."""
        return [self._take(feed, task.node) for feed in task.feeds]

    def _take(self, feed: Feed, consumer: Op) -> Take:
        if feed.message is None:
            number = self._number(feed.producer, consumer)
            return lambda held: held.results.pop(number)
        wait, release = self._setup.transport.wait, self._setup.transport.release
        message, released = feed.message, feed.released

        def take(held: Held) -> Values:
            values = wait(message)
            for sent in released:
                release(sent)
            return values

        return take

    def _forward(self, task: Task) -> Action:
        forward, hold = self._setup.stages[task.op.stage].forward, _hold(self._setup.plan)
        mark, op = self._setup.clock.mark, task.op
        microbatch, last, split = task.microbatch, task.last, task.split
        numbers = self._numbers_of(task)
        result = numbers[0] if numbers else None
        take = _read(task.reads) if task.reads is not None else _joined(self._takes(task))

        def act(held: Held) -> None:
            inputs = take(held)
            target = held.targets[microbatch] if last else None
            hold(held)
            start = mark()
            outputs = forward(microbatch, inputs, target, split=split)
            held.marks.append((op, start, mark()))
            if result is None:
                (loss,) = tensors(outputs)
                held.losses[microbatch] = loss.detach()
            else:
                held.results[result] = outputs

        return act if len(numbers) < 2 else _handed_to_each(act, numbers)

    def _backward(self, task: Task) -> Action:
        stage, fused = self._setup.stages[task.op.stage], task.op.kind is Kind.BW
        backward: Backward = stage.backward if fused else stage.backward_act
        mark, op = self._setup.clock.mark, task.op
        microbatch = task.microbatch
        numbers = self._numbers_of(task)
        result = numbers[0] if numbers else None
        takes = [_loss_gradient(microbatch)] if task.last else self._takes(task)
        take = takes[0]
        if len(takes) > 1:
            take, backward = _all(takes), _of_sum(backward)

        def act(held: Held) -> None:
            gradients: Gradients = tensors(take(held))
            start = mark()
            passed_on = backward(microbatch, gradients)
            held.marks.append((op, start, mark()))
            held.until_backward -= 1
            held.until_weights -= fused
            if result is not None:
                held.results[result] = passed_on

        return act if len(numbers) < 2 else _handed_out(act, numbers)

    def _weights(self, task: Task) -> Action:
        backward_wgt = self._setup.stages[task.op.stage].backward_wgt
        mark, op, microbatch = self._setup.clock.mark, task.op, task.microbatch

        def act(held: Held) -> None:
            start = mark()
            backward_wgt(microbatch)
            held.marks.append((op, start, mark()))
            held.until_weights -= 1

        return act


def _read(place: int) -> Take:
    """What a first stage takes from the batch."""
    return lambda held: held.inputs[place]


def _joined(takes: Sequence[Take]) -> Take:
    """What the stage before gives; of several an argument each."""
    if len(takes) == 1:
        return takes[0]
    return lambda held: tuple([as_argument(take(held)) for take in takes])


def _all(takes: Sequence[Take]) -> Take:
    """What each of several stages gives back."""
    return lambda held: tuple([take(held) for take in takes])


def _of_sum(backward: Backward) -> Backward:
    """A backward that begins with the sum of what several stages give back."""

    def summing(microbatch: int, parts: Sequence[Gradients]) -> Any:
        total, *others = reversed(parts)  # in which order autograd adds them up too
        for part in others:
            total = tuple(map(torch.add, total, part))
        return backward(microbatch, total)

    return summing


def _handed_to_each(act: Action, numbers: Sequence[int]) -> Action:
    """An F whose result several stages take."""
    first, *others = numbers

    def acting(held: Held) -> None:
        act(held)
        outputs = held.results[first]
        for number in others:
            held.results[number] = outputs

    return acting


def _handed_out(act: Action, numbers: Sequence[int]) -> Action:
    """A B that makes gradients for several stages."""

    def acting(held: Held) -> None:
        act(held)
        for_each: Any = held.results[numbers[0]]
        held.results.update(zip(numbers, for_each, strict=True))

    return acting


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
