"""One rank of a run, from the command line to the run file."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from typing import Any

import torch

import models
from models.sleep import StageTimes
from runtime import runfile
from runtime.check import compare
from runtime.chosen import GPT_SIZES, model_options, refused_by
from runtime.clocks import clock_offset
from runtime.device import device_name
from runtime.executor import StepResult
from runtime.faults import FaultReporter
from runtime.latency import SlowTransport
from runtime.options import JobOptions, RunOptions
from runtime.pipeline import MakeTransport, Pipeline
from runtime.plan import plan_rank
from runtime.planned import latency_ms, measured_times, planned_times, stage_times
from runtime.process import prefer_this_process, prepare, sharpen_sleep
from runtime.profiled_model import require_profile_of
from runtime.report import print_run
from runtime.runfile import Planned, RankRecord, Run
from runtime.session import Session, connect, open_store
from runtime.stage import ModuleStage
from runtime.ties import Tie
from runtime.transport import GroupTransport
from synth.load import load_valid
from synth.problem import Problem
from synth.schedule import Schedule


def main(options: RunOptions) -> int:
    """Runs this rank; on any failure it ends the process with one message for the whole job."""
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    reporter = FaultReporter(rank, world)
    prepare(reporter.terminate)
    try:
        store = open_store(options.timeout)
        reporter.connect(store.clone())
        schedule = load_valid(options.file)
        device = "cpu" if options.model == "sleep" else options.device
        session = connect(
            schedule.problem.devices, device=device, timeout_s=options.timeout, store=store
        )
        run(options, schedule, session)
        session.close()
    except BaseException as error:
        reporter.fail(error)
    return 0


def run(options: RunOptions, schedule: Schedule, session: Session) -> None:
    """Trains, measures and reports."""
    model = build_model(options, schedule)
    problem = schedule.problem
    own = sorted({stage for _, stage in problem.held_stages(session.rank)})
    stages = {stage: model.make_stage(stage) for stage in own}
    pipeline = Pipeline(
        stages,
        schedule,
        loss=model.loss,
        session=session,
        transport=_transport(options, problem),
        ties=ties_of(model),
    )
    record = RankRecord(session.rank, [], [], [0, 0], [])
    checked = _train(options, model, pipeline, record)
    for number, stage in pipeline.stages.items():
        if isinstance(stage, ModuleStage):
            record.unsplit.extend(f"{number}.{name}" for name in stage.unsplit or ())
    session.store.set(f"record/{session.rank}", json.dumps(asdict(record)))
    if session.rank == 0:
        records = [
            RankRecord(**json.loads(session.store.get(f"record/{rank}")))
            for rank in range(session.world)
        ]
        finished = _finish(options, pipeline, model, records)
        if options.run_file is not None:
            runfile.write(finished, options.run_file)
        print_run(finished, checked, as_json=options.json)
    session.barrier()


def _transport(options: RunOptions, problem: Problem) -> MakeTransport:
    """What carries the messages: between sleeping stages they take as long as the costs say."""
    latency_s = latency_ms(problem, options.tick_ms) / 1e3
    if options.model != "sleep" or latency_s == 0:
        return GroupTransport
    return lambda session, program: SlowTransport(GroupTransport(session, program), latency_s)


def _train(
    options: RunOptions, model: models.Model, pipeline: Pipeline, record: RankRecord
) -> float | None:
    """Runs all steps; returns the largest error against the reference if it was asked for."""
    parameters = pipeline.parameters()
    optimizer = torch.optim.AdamW(parameters, lr=options.lr) if parameters else None
    samples = options.batch * pipeline.plan.microbatches
    checked: float | None = None
    offset_s = clock_offset(pipeline.session)
    sharpen_sleep()
    for number in range(options.steps):
        with refused_by(model.name):
            inputs, targets = model.make_batch(number, samples)
        if number == options.warmup and options.model == "sleep":
            prefer_this_process()
        pipeline.session.barrier()
        result = pipeline.step(inputs, targets)
        _note(record, result, offset_s)
        if options.check and number == 0:
            checked = compare(pipeline, model, inputs, targets, result)
        if optimizer is not None:
            optimizer.step()
            optimizer.zero_grad()
    return checked


def _note(record: RankRecord, result: StepResult, offset_s: float) -> None:
    record.ops.append(
        [(str(ran.op), ran.start_s + offset_s, ran.end_s + offset_s) for ran in result.ops]
    )
    record.losses.append({str(number): loss.item() for number, loss in result.losses.items()})
    record.in_flight[:] = [
        max(record.in_flight[0], result.in_flight.until_backward),
        max(record.in_flight[1], result.in_flight.until_weights),
    ]


def build_model(options: JobOptions, schedule: Schedule) -> models.Model:
    """The model that the options name, cut into the stages of the schedule.

    Raises:
        UsageError: it cannot be cut like that, or is not what the schedule was made for.
    """
    stages = len(schedule.problem.stages)
    times: list[StageTimes] = []
    if options.model == "sleep":
        times = stage_times(schedule.problem, options.sleep_ms, options.tick_ms)
    needs = schedule.problem.needs
    with refused_by(options.model):
        chosen = model_options(options, stages, times=times, needs=needs)
        model = models.build(options.model, stages, chosen)
    if options.profile is not None:
        require_profile_of(schedule, options.profile, model.cut)
    return model


def ties_of(model: models.Model) -> list[Tie]:
    """What the stages of a model share."""
    return [Tie(uses) for uses in model.shared]


def _finish(
    options: RunOptions, pipeline: Pipeline, model: models.Model, records: list[RankRecord]
) -> Run:
    schedule, session = pipeline.schedule, pipeline.session
    makespan_s, span_s = measured_times(schedule) or (None, None)
    if options.model == "sleep":
        times = stage_times(schedule.problem, options.sleep_ms, options.tick_ms)
        message_ms = latency_ms(schedule.problem, options.tick_ms)
        makespan_s, span_s = planned_times(schedule, times, message_ms)
    held = [plan_rank(schedule, pipeline.program, rank).in_flight for rank in range(session.world)]
    return Run(
        schedule=schedule,
        model=_model_facts(options, model),
        environment={
            "backend": session.backend,
            "device": session.device.type,
            "device_name": device_name(session.device),
            "threads": torch.get_num_threads(),
            "cpus": os.cpu_count(),
            "torch": torch.__version__,
        },
        warmup=options.warmup,
        planned=Planned(
            makespan_s, span_s, [(one.until_backward, one.until_weights) for one in held]
        ),
        steps=runfile.merge_steps(records, with_loss=options.model != "sleep"),
        records=records,
    )


def _model_facts(options: RunOptions, model: models.Model) -> dict[str, Any]:
    """The model as it was built, for whoever reads the run file."""
    facts: dict[str, Any] = {"name": model.name, "stages": model.stages, "seed": options.seed}
    if options.model == "sleep":
        return {**facts, "sleep_ms": options.sleep_ms, "tick_ms": options.tick_ms}
    names = ["batch", "lr"]
    names += GPT_SIZES if model.name == "gpt" else []
    return {**facts, "cut": model.cut, **{name: getattr(options, name) for name in names}}
