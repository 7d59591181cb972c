"""Pipeline: training steps of one rank under a schedule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from runtime.device import Clock, make_clock
from runtime.executor import Batch, StepResult, run_step
from runtime.plan import RankPlan, plan_rank
from runtime.session import Session
from runtime.stage import Loss, ModuleStage, Stage
from runtime.transport import GroupTransport, Transport
from synth.errors import UsageError
from synth.lower import lower
from synth.problem import Problem
from synth.rendezvous import check_program
from synth.schedule import Schedule

Stages = Sequence[nn.Module | Stage] | Mapping[int, nn.Module | Stage]


class Pipeline:
    """Runs one rank's part of a schedule, step after step.

        session = connect(schedule.problem.devices)
        pipeline = Pipeline(stages, schedule, loss=loss, session=session)
        optimizer = AdamW(pipeline.parameters())
        for inputs, targets in data:
            pipeline.step(inputs, targets)
            optimizer.step()
            optimizer.zero_grad()

    A step adds to the gradients of the parameters that this rank holds; its loss is the mean over
    the micro-batches. Where several ranks hold a stage, all of them have the same gradients after
    it; the gradients have to be zeroed before it.
    """

    def __init__(
        self, stages: Stages, schedule: Schedule, *, loss: Loss | None = None, session: Session
    ) -> None:
        """Lowers the schedule, proves that its program cannot deadlock and sets up the channels.

        Args:
            stages: all stages in order, or those of this rank by number.
            schedule: a valid schedule for as many devices as the session has ranks.
            loss: mean loss of (output, target), applied after a last stage that is a module.
            session: this rank's job.

        Raises:
            InvalidScheduleError: the program could deadlock.
            UsageError: a stage of this rank is missing.
        """
        self.schedule = schedule
        self.session = session
        self.program = lower(schedule)
        check_program(self.program)
        self.stages = _own_stages(stages, schedule.problem, session, loss)
        self.plan: RankPlan = plan_rank(schedule, self.program, session.rank)
        self._clock: Clock = make_clock(session.device)
        self._transport: Transport = GroupTransport(
            session.rank,
            self.program,
            session.pipeline_store(),
            session.device,
        )

    @property
    def modules(self) -> dict[int, nn.Module]:
        """This rank's stages that are modules, by number."""
        return {
            number: stage.module
            for number, stage in self.stages.items()
            if isinstance(stage, ModuleStage)
        }

    def parameters(self) -> list[nn.Parameter]:
        """The parameters of this rank's stages."""
        return [p for module in self.modules.values() for p in module.parameters()]

    def step(self, inputs: Tensor, targets: Tensor) -> StepResult:
        """Runs the program once.

        Args:
            inputs: the whole batch, samples along dimension 0; read where a first stage is held.
            targets: likewise; read where a last stage is held.

        Raises:
            PeerError: another rank is gone or does not answer in time.
            PlanError: shapes changed, or more is held than the plan allows.
            UsageError: fewer samples than micro-batches.
        """
        count, device = self.plan.microbatches, self.session.device
        if len(inputs) < count:
            raise UsageError(f"{len(inputs)} samples cannot fill {count} micro-batches")
        batch = Batch(inputs.to(device).tensor_split(count), targets.to(device).tensor_split(count))
        return run_step(self.plan, self.stages, self._transport, self._clock, batch)

    def close(self) -> None:
        """Gives the channels back; for jobs that make several pipelines one after another."""
        self._transport.close()


def _own_stages(
    stages: Stages, problem: Problem, session: Session, loss: Loss | None
) -> dict[int, Stage]:
    """This rank's stages; modules are moved to its device and the last one closed by the loss."""
    by_number = stages if isinstance(stages, Mapping) else dict(enumerate(stages))
    own: dict[int, Stage] = {}
    for number in range(len(problem.stages)):
        if session.rank not in {stream.route[number] for stream in problem.streams}:
            continue
        if number not in by_number:
            raise UsageError(f"rank {session.rank} needs stage {number}, which was not given")
        stage = by_number[number]
        if isinstance(stage, nn.Module):
            closing = loss if number == len(problem.stages) - 1 else None
            stage = ModuleStage(stage.to(session.device), closing)
        own[number] = stage
    return own
