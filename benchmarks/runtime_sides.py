"""The two runtimes that `runtime_overhead.py` compares, and the bare loop, each as a step."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from runtime_floor import BareLoop
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _Action, _PipelineScheduleRuntime

from models.sleep import PAYLOAD_BYTES, SleepStage, StageTimes, wait_until
from runtime.pipeline import Pipeline
from runtime.session import Session
from synth.op import Kind
from synth.schedule import Schedule

WIDTH = 32  # 32 rows of 32 numbers are the payload of a sleeping stage
_KINDS = {Kind.F: "F", Kind.B: "I", Kind.W: "W", Kind.BW: "B"}
Interval = tuple[float, float]
Runtime = tuple[Callable[[], Interval], Callable[[], None]]
"""A step that returns its first start and last end on this rank, and what closes it."""


class PaddedStage(PipelineStage):
    """torch's stage with every action padded to a deadline, and the moments noted."""

    def __init__(self, module: nn.Module, index: int, count: int, times: StageTimes | None) -> None:
        super().__init__(module, index, count, torch.device("cpu"))
        self.times = times
        self.ran: list[Interval] = []

    def forward_one_chunk(self, *given: Any, **named: Any) -> Any:
        return self._padded(super().forward_one_chunk, "forward_ms", given, named)

    def backward_one_chunk(self, *given: Any, **named: Any) -> Any:
        full = named.get("full_backward", True)
        wanted = "fused_ms" if full else "backward_act_ms"
        return self._padded(super().backward_one_chunk, wanted, given, named)

    def backward_weight_one_chunk(self, *given: Any, **named: Any) -> Any:
        return self._padded(super().backward_weight_one_chunk, "backward_wgt_ms", given, named)

    def _padded(
        self, action: Callable[..., Any], wanted: str, given: Sequence[Any], named: dict[str, Any]
    ) -> Any:
        start_s = time.monotonic()
        result = action(*given, **named)
        if self.times is not None:
            wait_until(start_s + getattr(self.times, wanted) / 1e3)
        self.ran.append((start_s, time.monotonic()))
        return result


@dataclass(frozen=True, slots=True)
class Model:
    """Stages that are all alike."""

    stage: Callable[[], nn.Module]
    samples: int
    """In a micro-batch."""
    sample: tuple[int, ...]
    """Its shape, between any two stages."""

    def batch(self, schedule: Schedule) -> tuple[Tensor, Tensor]:
        """Inputs and targets of a step."""
        count = schedule.problem.total_microbatches * self.samples
        return torch.zeros(count, *self.sample), torch.zeros(count)


TINY = Model(lambda: nn.Linear(WIDTH, WIDTH), WIDTH, (WIDTH,))
"""So small that what is measured is the runtime."""


def loss(output: Tensor, target: Tensor) -> Tensor:
    return output.sum()


def ours(
    schedule: Schedule,
    session: Session,
    times: list[StageTimes] | None = None,
    model: Model = TINY,
) -> Runtime:
    """This runtime, with sleeping stages or, without times, with a model."""
    problem = schedule.problem
    own = sorted({stage for _, stage in problem.held_stages(session.rank)})
    inputs, targets = model.batch(schedule)
    stages: dict[int, Any] = {stage: model.stage() for stage in own}
    if times is not None:
        last = len(problem.stages) - 1
        stages = {stage: SleepStage(times[stage], last=stage == last) for stage in own}
        inputs = torch.zeros(problem.total_microbatches, PAYLOAD_BYTES, dtype=torch.uint8)
        targets = torch.zeros(problem.total_microbatches)
    pipeline = Pipeline(stages, schedule, loss=loss, session=session)

    def step() -> Interval:
        ops = pipeline.step(inputs, targets).ops
        return ops[0].start_s, ops[-1].end_s

    return step, pipeline.close


def torchs(
    schedule: Schedule,
    session: Session,
    times: list[StageTimes] | None = None,
    model: Model = TINY,
) -> Runtime:
    """torch's runtime, with a model whose actions are padded if times are given."""
    problem = schedule.problem
    count = len(problem.stages)
    own = sorted({stage for _, stage in problem.held_stages(session.rank)})
    stages = [
        PaddedStage(model.stage(), s, count, None if times is None else times[s]) for s in own
    ]
    runtime = _PipelineScheduleRuntime(
        stages, n_microbatches=problem.total_microbatches, loss_fn=loss
    )
    rows = {
        rank: [_Action.from_str(f"{op.stage}{_KINDS[op.kind]}{op.microbatch}") for op in order]
        for rank, order in enumerate(schedule.orders)
    }
    runtime.pipeline_order = rows
    runtime._prepare_schedule_with_comms(rows)
    inputs, targets = model.batch(schedule)

    def step() -> Interval:
        for stage in stages:
            stage.ran.clear()
        given = (inputs,) if 0 in own else ()
        named = {"target": targets, "losses": []} if count - 1 in own else {}
        runtime.step(*given, return_outputs=False, **named)
        ran = [one for stage in stages for one in stage.ran]
        return min(start for start, _ in ran), max(end for _, end in ran)

    return step, lambda: None


def bare(schedule: Schedule, session: Session, times: list[StageTimes] | None) -> Runtime:
    """No runtime, with the tiny model whose ops are padded if times are given."""
    loop = BareLoop(schedule, session, WIDTH, times)
    return loop.step, loop.close
