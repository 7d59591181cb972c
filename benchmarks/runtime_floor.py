"""What a step costs without any runtime: its messages on gloo and its layers, in one bare loop.

Every instruction of the program is a prepared call. Messages arrive in buffers of their own, whose
sizes are known beforehand, and nothing is checked or counted. F is a module call that
records its graph, and BW what autograd makes of it. B and W are the three products and sums of a
linear layer on their own, which is less than what any autograd does.

With times, every op is padded to them as the stages of the two runtimes are: what such a step takes
beyond its plan is the host's, gloo's and Python's part of what a runtime is seen to add.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from models.sleep import StageTimes, wait_until
from runtime.autograd import backward
from runtime.plan import Task, plan_rank
from runtime.session import Session
from synth.lower import Message, Receive, Send, lower
from synth.op import Kind, Op
from synth.schedule import Schedule


class BareLoop:
    """One rank's program over square linear stages; `step` runs it once."""

    def __init__(
        self,
        schedule: Schedule,
        session: Session,
        width: int,
        times: Sequence[StageTimes] | None = None,
    ) -> None:
        self._times = times
        self._ran: list[tuple[float, float]] = []
        self._group = dist.new_group()
        self._gloo = self._group._get_backend(session.device)
        program = lower(schedule)
        self._tags = {channel: number for number, channel in enumerate(program.channels)}
        self._rows = torch.zeros(width, width)
        self._works: dict[Message, Any] = {}
        self._buffers: dict[Message, Tensor] = {}
        self._results: dict[Op, Tensor] = {}
        self._kept: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
        stages = {stage for _, stage in schedule.problem.held_stages(session.rank)}
        self._layers = {stage: nn.Linear(width, width) for stage in stages}
        for parameter in (p for layer in self._layers.values() for p in layer.parameters()):
            parameter.grad = torch.zeros_like(parameter)
        plan = plan_rank(schedule, program, session.rank)
        self._calls = [self._call(step) for step in plan.steps]

    def step(self) -> tuple[float, float]:
        """Runs the program once; returns when the first op started and the last one ended."""
        self._ran.clear()
        for call in self._calls:
            call()
        for work in self._works.values():
            work.wait()
        self._works.clear()
        self._results.clear()
        return self._ran[0][0], self._ran[-1][1]

    def close(self) -> None:
        """Gives the communicator back; all ranks have to."""
        dist.destroy_process_group(self._group)

    def _call(self, step: Any) -> Callable[[], None]:
        if isinstance(step, Task):
            return self._compute(step)
        message: Message = step.message
        channel, tag = message.channel, self._tags[message.channel]
        if isinstance(step, Receive):
            self._buffers[message] = buffer = torch.zeros_like(self._rows)

            def receive() -> None:
                self._works[message] = self._gloo.recv([buffer], channel.source, tag)

            return receive
        assert isinstance(step, Send), "there is nothing to reduce"

        def send() -> None:
            result = self._results.pop(message.producer)
            self._works[message] = self._gloo.send([result], channel.target, tag)

        return send

    def _compute(self, task: Task) -> Callable[[], None]:
        kinds: dict[Kind, tuple[Callable[..., Tensor | None], str]] = {
            Kind.F: (self._forward, "forward_ms"),
            Kind.B: (self._inputs, "backward_act_ms"),
            Kind.W: (self._weights, "backward_wgt_ms"),
            Kind.BW: (self._fused, "fused_ms"),
        }
        run, prescribed = kinds[task.op.kind]
        layer, key = self._layers[task.op.stage], (task.microbatch, task.op.stage)
        padded_s = 0.0
        if self._times is not None:
            padded_s = getattr(self._times[task.op.stage], prescribed) / 1e3

        def call() -> None:
            given = self._rows
            for feed in task.feeds:  # at most one, in a chain
                if feed.message is None:
                    given = self._results.pop(feed.producer)
                    continue
                self._works.pop(feed.message).wait()
                given = self._buffers[feed.message]
                for sent in feed.released:
                    self._works.pop(sent).wait()
            start_s = time.monotonic()
            result = run(task, layer, key, given)
            if padded_s > 0:
                wait_until(start_s + padded_s)
            self._ran.append((start_s, time.monotonic()))
            if result is not None:
                self._results[task.node] = result

        return call

    def _forward(self, task: Task, layer: nn.Linear, key: tuple[int, int], given: Tensor) -> Tensor:
        given = given.detach().requires_grad_(task.reads is None)
        output = layer(given)
        if task.last:
            output = output.sum()
        self._kept[key] = given, output
        return output.detach()

    def _fused(
        self, task: Task, layer: nn.Linear, key: tuple[int, int], given: Tensor
    ) -> Tensor | None:
        layer_input, output = self._kept.pop(key)
        backward((output,), (torch.ones_like(output) if task.last else given,))
        return layer_input.grad

    @torch.no_grad()
    def _inputs(
        self, task: Task, layer: nn.Linear, key: tuple[int, int], given: Tensor
    ) -> Tensor | None:
        layer_input, _ = self._kept[key]
        gradient = torch.ones_like(self._rows) if task.last else given
        self._kept[key] = layer_input, gradient
        return gradient.mm(layer.weight) if task.consumers else None

    @torch.no_grad()
    def _weights(self, task: Task, layer: nn.Linear, key: tuple[int, int], given: Tensor) -> None:
        layer_input, gradient = self._kept.pop(key)
        assert layer.weight.grad is not None
        assert layer.bias.grad is not None
        layer.weight.grad.add_(gradient.t().mm(layer_input))
        layer.bias.grad.add_(gradient.sum(0))
