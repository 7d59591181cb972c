"""A rank's plan as functions: what does not change from step to step is looked up before the first.

With small stages the questions would take longer than the answers, so a step asks none: each of its
actions is bound to its stage, its message and the place of its result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from runtime.device import Clock
from runtime.errors import PlanError
from runtime.plan import Feed, RankPlan, Task
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


class Held:
    """What a run of the program holds. Actions keep it, so it is one object for all runs."""

    def __init__(self) -> None:
        self.results: dict[int, Values] = {}
        """By number, one per node that needs a result: what is still to be sent or handed over."""
        self.marks: list[Any] = []
        """Start and end of every op in turn, on the clock."""
        self.begin((), (), 1.0)

    def begin(
        self, inputs: Sequence[Values], targets: Sequence[Values | Tensor], loss_gradient: float
    ) -> None:
        """Starts a run, whatever became of the one before.

        Args:
            inputs: by first stage of this rank and micro-batch.
            targets: by micro-batch.
            loss_gradient: what the last stage's backwards start with.
        """
        self.inputs, self.targets, self.loss_gradient = inputs, targets, loss_gradient
        self.losses: dict[int, Tensor] = {}
        self.results.clear()
        self.marks.clear()
        self.until_backward = self.most_until_backward = 0
        self.until_weights = self.most_until_weights = 0

    def add(self) -> None:
        """Counts one more micro-batch."""
        self.until_backward += 1
        self.until_weights += 1
        if self.until_backward > self.most_until_backward:
            self.most_until_backward = self.until_backward
        if self.until_weights > self.most_until_weights:
            self.most_until_weights = self.until_weights


Action = Callable[[], None]
Backward = Callable[[int, Any], Any]
Take = Callable[[], Any]
"""Gets the input of an op: received from another rank, or handed over on this one."""


def prepare(setup: Setup, held: Held) -> tuple[Action, ...]:
    """One action per step of the plan."""
    preparation = _Preparation(setup, held)
    return tuple(map(preparation.action, setup.plan.steps))


class _Preparation:
    """Makes actions."""

    def __init__(self, setup: Setup, held: Held) -> None:
        self._setup = setup
        self._held = held
        self._numbers: dict[tuple[Op, Op], int] = {}

    def action(self, step: Task | Send | Receive | Reduce) -> Action:
        """What a step of the plan does."""
        transport = self._setup.transport
        if isinstance(step, Send):
            send, pop = transport.sender(step.message).send, self._held.results.pop
            number = self._number(step.message.producer, step.message.consumer)
            return lambda: send(pop(number))
        if isinstance(step, Receive):
            return transport.receiver(step.message).post
        if isinstance(step, Reduce):
            reduce, shared = transport.reduce, self._setup.shared
            return lambda: reduce(step.ranks, shared(step))
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
            return partial(self._held.results.pop, self._number(feed.producer, consumer))
        transport = self._setup.transport
        wait = transport.receiver(feed.message).wait
        if not feed.released:
            return wait
        releases = [transport.sender(sent).release for sent in feed.released]

        def take() -> Values:
            values = wait()
            for release in releases:
                release()
            return values

        return take

    def _read(self, place: int) -> Take:
        """What a first stage takes from the batch."""
        held = self._held
        return lambda: held.inputs[place]

    def _loss_gradient(self, microbatch: int) -> Take:
        """What the last stage's backward of a micro-batch starts with."""
        held = self._held
        return lambda: (torch.full_like(held.losses[microbatch], held.loss_gradient),)

    def _forward(self, task: Task) -> Action:
        forward, limits = self._setup.stages[task.op.stage].forward, self._setup.plan.in_flight
        held, mark, keep = self._held, self._setup.clock.mark, self._held.marks.append
        microbatch, last, split = task.microbatch, task.last, task.split
        numbers = self._numbers_of(task)
        result = numbers[0] if numbers else None
        take = self._read(task.reads) if task.reads is not None else _joined(self._takes(task))

        def act() -> None:
            inputs = take()
            target = held.targets[microbatch] if last else None
            held.add()
            if (
                held.until_backward > limits.until_backward
                or held.until_weights > limits.until_weights
            ):
                raise self._over_plan()
            keep(mark())
            outputs = forward(microbatch, inputs, target, split=split)
            keep(mark())
            if result is None:
                (loss,) = tensors(outputs)
                held.losses[microbatch] = loss.detach()
            else:
                held.results[result] = outputs

        return act if len(numbers) < 2 else self._handed_to_each(act, numbers)

    def _backward(self, task: Task) -> Action:
        stage, fused = self._setup.stages[task.op.stage], task.op.kind is Kind.BW
        backward: Backward = stage.backward if fused else stage.backward_act
        held, mark, keep = self._held, self._setup.clock.mark, self._held.marks.append
        microbatch = task.microbatch
        numbers = self._numbers_of(task)
        result = numbers[0] if numbers else None
        takes = [self._loss_gradient(microbatch)] if task.last else self._takes(task)
        take = takes[0]
        if len(takes) > 1:
            take, backward = _all(takes), _of_sum(backward)

        def act() -> None:
            gradients: Gradients = take()
            keep(mark())
            passed_on = backward(microbatch, gradients)
            keep(mark())
            held.until_backward -= 1
            held.until_weights -= fused
            if result is not None:
                held.results[result] = passed_on

        return act if len(numbers) < 2 else self._handed_out(act, numbers)

    def _weights(self, task: Task) -> Action:
        backward_wgt = self._setup.stages[task.op.stage].backward_wgt
        held, mark, keep = self._held, self._setup.clock.mark, self._held.marks.append
        microbatch = task.microbatch

        def act() -> None:
            keep(mark())
            backward_wgt(microbatch)
            keep(mark())
            held.until_weights -= 1

        return act

    def _handed_to_each(self, act: Action, numbers: Sequence[int]) -> Action:
        """An F whose result several stages take."""
        results, (first, *others) = self._held.results, numbers

        def acting() -> None:
            act()
            for number in others:
                results[number] = results[first]

        return acting

    def _handed_out(self, act: Action, numbers: Sequence[int]) -> Action:
        """A B that makes gradients for several stages."""
        results = self._held.results

        def acting() -> None:
            act()
            for_each: Any = results[numbers[0]]
            results.update(zip(numbers, for_each, strict=True))

        return acting

    def _over_plan(self) -> PlanError:
        plan, held = self._setup.plan, self._held
        return PlanError(
            f"rank {plan.rank} holds {held.until_weights} micro-batches, "
            f"{held.until_backward} of them before their B; its plan allows "
            f"{plan.in_flight.until_weights} and {plan.in_flight.until_backward}"
        )


def _joined(takes: Sequence[Take]) -> Take:
    """What the stage before gives; of several an argument each."""
    if len(takes) == 1:
        return takes[0]
    return lambda: tuple([as_argument(take()) for take in takes])


def _all(takes: Sequence[Take]) -> Take:
    """What each of several stages gives back."""
    return lambda: tuple([take() for take in takes])


def _of_sum(backward: Backward) -> Backward:
    """A backward that begins with the sum of what several stages give back."""

    def summing(microbatch: int, parts: Sequence[Gradients]) -> Any:
        total, *others = reversed(parts)  # in which order autograd adds them up too
        for part in others:
            total = tuple(map(torch.add, total, part))
        return backward(microbatch, total)

    return summing
