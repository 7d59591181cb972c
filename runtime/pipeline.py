"""Pipeline: training steps of one rank under a schedule."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from runtime.actions import Setup
from runtime.agreement import agree, schedule_facts, stage_facts
from runtime.ahead import post_ahead
from runtime.device import Clock, make_clock
from runtime.dividing import divide
from runtime.executor import Batch, Executor, StepResult
from runtime.gate import Gate
from runtime.plan import RankPlan, plan_rank
from runtime.replicas import ReplicaTransport
from runtime.session import Session, connect
from runtime.stage import Loss, ModuleStage, Stage, gradient_of
from runtime.supported import require_chain
from runtime.ties import Tie, bind
from runtime.transport import GroupTransport, Transport
from runtime.values import Values, as_values, by_stage, cut, layout, samples, shape_of, tensors
from synth.errors import UsageError
from synth.load import load_valid
from synth.lower import Program, Reduce, lower
from synth.problem import Problem
from synth.rendezvous import check_program
from synth.schedule import Schedule

Stages = Sequence[nn.Module | Stage] | Mapping[int, nn.Module | Stage]
MakeTransport = Callable[[Session, Program], Transport]


class Pipeline:
    """Runs one rank's part of a schedule, step after step.

        pipeline = Pipeline(model, "schedule.json", loss=loss)
        optimizer = ClippedOptimizer(pipeline, AdamW(pipeline.parameters()), max_norm=1.0)
        for batch in data:
            pipeline.step(batch)
            optimizer.step()

    A step adds to the gradients of the parameters that this rank holds; its loss is the mean over
    the micro-batches. Where several ranks hold a stage or a tied parameter, all of them have the
    same gradients after it; these have to be zeroed before it.
    """

    def __init__(
        self,
        stages: nn.Module | Stages,
        schedule: Schedule | str | Path,
        *,
        loss: Loss | None = None,
        session: Session | None = None,
        ties: Sequence[Tie] = (),
        autocast: torch.dtype | None = None,
        transport: MakeTransport | None = None,
    ) -> None:
        """Lowers the schedule, proves that its program cannot deadlock and sets up the channels.

        Args:
            stages: all stages in order, those of this rank by number, or an nn.Sequential that is
                to be cut into stages.
            schedule: a valid schedule for as many devices as the session has ranks, or its file.
            loss: mean loss of (output, target), applied after a last stage that is a module.
            session: this rank's job, by default the one in which this process was started.
            ties: parameters that several stages share.
            autocast: the type in which modules compute where torch.autocast thinks it safe.
            transport: makes what carries the messages, by default torch's process groups.

        Raises:
            InvalidScheduleError: the program could deadlock.
            PeerError: another rank is gone or does not come in time.
            UsageError: ranks differ in the schedule or in their copy of a stage; a stage of this
                rank, or a tied parameter, is missing.
        """
        if not isinstance(schedule, Schedule):
            schedule = load_valid(Path(schedule))
        if session is None:
            session = connect(schedule.problem.devices)
        if isinstance(stages, nn.Module):
            require_chain(schedule.problem)
            stages = divide(stages, len(schedule.problem.stages))
        self.schedule = schedule
        self.session = session
        replicated = session.replicas > 1
        self.program = lower(schedule, [tie.stages for tie in ties], replicated=replicated)
        check_program(self.program)
        self.stages = _own_stages(stages, schedule.problem, session, loss, autocast)
        self._agree()
        self.plan: RankPlan = plan_rank(schedule, self.program, session.rank)
        self._first_stages = schedule.problem.first_stages
        self._clock: Clock = make_clock(session.device)
        make = transport or (ReplicaTransport if replicated else GroupTransport)
        self._transport: Transport = make(session, self.program)
        self._gate: Gate | None = None
        self._executor: Executor | None = None
        self.tied = bind(ties, self.modules)
        """This rank's tied parameters, by the stages that they connect."""
        self._forgotten = 0
        self._signatures: dict[Hashable, str] = {}
        self._align_ties()

    @property
    def modules(self) -> dict[int, nn.Module]:
        """This rank's stages that are modules, by number."""
        return {
            number: stage.module
            for number, stage in self.stages.items()
            if isinstance(stage, ModuleStage)
        }

    @property
    def gate(self) -> Gate | None:
        """Where a step can be sent back to its start; see `post_validation`."""
        return self._gate

    @gate.setter
    def gate(self, gate: Gate | None) -> None:
        self._gate = gate
        self._executor = None  # what it does before the gate depends on where that is

    def parameters(self) -> list[nn.Parameter]:
        """The parameters of this rank's stages, each once."""
        return list(dict.fromkeys(p for m in self.modules.values() for p in m.parameters()))

    def step(self, inputs: Any, targets: Any = None, *, loss_scale: float = 1.0) -> StepResult:
        """Runs the program once.

        Every rank has to be given tensors of the same shapes; their contents are read where needed.

        Args:
            inputs: the whole batch, samples along dimension 0: a tensor, or a tuple or dict of
                tensors, the arguments of the first stage. Where several stages need no other, a
                dict of these by the number of the stage. Read where a first stage is held.
            targets: likewise, the loss's second argument. Read where a last stage is held. Without
                it `inputs` is a pair of inputs and targets.
            loss_scale: makes every gradient this much larger; for gradient scalers.

        Raises:
            PeerError: another rank is gone or does not answer in time.
            PlanError: shapes changed, or more is held than the plan allows.
            UsageError: fewer samples than micro-batches.
        """
        if targets is None:
            inputs, targets = inputs
        given, wanted = by_stage(inputs, self._first_stages), as_values(targets, "targets")
        signature = self._signature((*given.values(), wanted))
        cut_inputs = [part for n in self.plan.first_stages for part in self._cut(given[n])]
        cut_targets: list[Any] = self._cut(wanted) if self.plan.reads_targets else []
        if isinstance(targets, Tensor):
            cut_targets = [tensors(values)[0] for values in cut_targets]
        if self._executor is None:
            self._executor = self._make_executor()
        return self._executor.step(Batch(cut_inputs, cut_targets, loss_scale, signature))

    def _signature(self, batch: Sequence[Values]) -> str:
        """What the shapes inside a step depend on, as text.

        Raises:
            UsageError: fewer samples than micro-batches, or tensors that do not agree.
        """
        layouts = tuple(map(layout, batch))
        if (found := self._signatures.get(layouts)) is not None:
            return found
        count = self.plan.microbatches
        for values in batch:
            if samples(values) < count:
                raise UsageError(f"{samples(values)} samples cannot fill {count} micro-batches")
        shapes = " ".join(map(shape_of, batch))
        signature = self._signatures[layouts] = f"{self._forgotten} {shapes}"
        return signature

    def forget_shapes(self) -> None:
        """Makes the next step find out the shapes of all messages; to be called on every rank.

        Needed where they depend on more than the shapes of the batch, such as on what is frozen.
        """
        self._forgotten += 1
        self._signatures.clear()

    def close(self) -> None:
        """Gives the channels back; for jobs that make several pipelines one after another."""
        self._transport.close()

    def _make_executor(self) -> Executor:
        plan = self.plan
        if self._transport.ahead:
            kept = 0 if self.gate is None else self.gate.cut.position
            plan = post_ahead(plan, self._transport.ahead, kept)
        setup = Setup(plan, self.stages, self._transport, self._clock, self._shared)
        return Executor(setup, self.gate)

    def _cut(self, values: Values) -> list[Values]:
        return cut(values, self.plan.microbatches, self.session.device)

    def _shared(self, reduce: Reduce) -> Sequence[Tensor]:
        """This rank's gradients that a reduction adds up."""
        if len(reduce.stages) == 1:
            return self.stages[reduce.stages[0]].weight_gradients()
        return [gradient_of(p) for p in self.tied[reduce.stages].values() if p.requires_grad]

    def _agree(self) -> None:
        """Finds out whether all ranks run the same schedule, and replicas start out equal."""
        problem, session = self.schedule.problem, self.session
        holders = {n: {s.route[n] for s in problem.streams} for n in range(len(problem.stages))}
        copied = {n: module for n, module in self.modules.items() if len(holders[n]) > 1}
        facts = {**schedule_facts(self.schedule), **stage_facts(copied)}
        agree(session.pipeline_store(), "pipeline", session.rank, session.world, facts)

    @torch.no_grad()
    def _align_ties(self) -> None:
        """Gives tied parameters the value they have in their first use."""
        streams, own = self.schedule.problem.streams, self.session.rank
        for stage in self.stages.values():
            if isinstance(stage, ModuleStage):
                stage.elsewhere.update(p for tied in self.tied.values() for p in tied.values())
        for step in self.plan.steps:
            if isinstance(step, Reduce) and len(step.stages) > 1:
                tied = self.tied[step.stages]
                for tie, parameter in tied.items():
                    # The others add nothing to the sum.
                    if own != min(stream.route[tie.uses[0][0]] for stream in streams):
                        parameter.zero_()
                self._transport.reduce(step.ranks, [p.data for p in tied.values()])
        self._transport.finish()


def _own_stages(
    stages: Stages,
    problem: Problem,
    session: Session,
    loss: Loss | None,
    autocast: torch.dtype | None,
) -> dict[int, Stage]:
    """This rank's stages; modules are moved to its device and the last one closed by the loss."""
    by_number = stages if isinstance(stages, Mapping) else dict(enumerate(stages))
    context = None if autocast is None else torch.autocast(session.device.type, autocast)
    own: dict[int, Stage] = {}
    for number in range(len(problem.stages)):
        if session.rank not in {stream.route[number] for stream in problem.streams}:
            continue
        if number not in by_number:
            raise UsageError(f"rank {session.rank} needs stage {number}, which was not given")
        stage = by_number[number]
        if isinstance(stage, nn.Module):
            closing = loss if number == len(problem.stages) - 1 else None
            joins = len(problem.before(number)) > 1
            stage = ModuleStage(stage.to(session.device), closing, context, joins=joins)
        own[number] = stage
    return own
