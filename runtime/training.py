"""One rank of a training, from the command line to the last checkpoint."""

from __future__ import annotations

import json
import logging
import os
from dataclasses import fields
from typing import Any

import torch
from torch import nn

from runtime import checkpoint, progress
from runtime.agreement import agree, schedule_facts, stage_facts
from runtime.chosen import refused_by
from runtime.clipping import ClippedOptimizer
from runtime.faults import FaultReporter
from runtime.pipeline import Pipeline
from runtime.post_validation import PostValidatedOptimizer
from runtime.process import prepare
from runtime.progress import Recorder, Stretch, logger, set_up_logging
from runtime.replicas import join
from runtime.session import Session, open_store
from runtime.train_options import TrainOptions
from runtime.worker import build_model, ties_of
from synth.errors import UsageError
from synth.load import load_valid
from synth.schedule import Schedule

Updater = ClippedOptimizer | PostValidatedOptimizer


def main(options: TrainOptions) -> None:
    """Runs this rank; on any failure it ends the process with one message for the whole job."""
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    reporter = FaultReporter(rank, world)
    prepare(reporter.terminate)
    try:
        store = open_store(options.timeout)
        reporter.connect(store.clone())
        set_up_logging(rank, options.log_folder)
        schedule = load_valid(options.file)
        agree(store, "start", rank, world, {**schedule_facts(schedule), **_option_facts(options)})
        session = join(
            schedule.problem.devices,
            options.replicas,
            device="cpu" if options.model == "sleep" else options.device,
            timeout_s=options.timeout,
            store=store,
        )
        _Training(options, schedule, session, store, reporter).run()
        session.close()
    except BaseException as error:
        _log_to_file(error)
        reporter.fail(error)


class _Training:
    """A training on this rank."""

    def __init__(
        self,
        options: TrainOptions,
        schedule: Schedule,
        session: Session,
        store: Any,
        reporter: FaultReporter,
    ) -> None:
        self.options = options
        self.session = session
        self.store = store
        self.rank = int(os.environ["RANK"])
        self.world = int(os.environ["WORLD_SIZE"])
        self.reporter = reporter
        self.model = build_model(options, schedule)
        own = sorted({stage for _, stage in schedule.problem.held_stages(session.rank)})
        stages = {stage: self.model.make_stage(stage) for stage in own}
        modules = {n: stage for n, stage in stages.items() if isinstance(stage, nn.Module)}
        if session.replicas > 1:
            agree(store, "stages", self.rank, self.world, stage_facts(modules))
        self.pipeline = Pipeline(
            stages, schedule, loss=self.model.loss, session=session, ties=ties_of(self.model)
        )
        parameters = [p for p in self.pipeline.parameters() if p.requires_grad]
        self.adam = torch.optim.AdamW(parameters, lr=options.lr) if parameters else None
        kind = PostValidatedOptimizer if options.early_updates else ClippedOptimizer
        self.updater: Updater = kind(self.pipeline, self.adam, max_norm=options.clip)
        self.stretches: list[Stretch] = []
        self.unread: int | None = None
        """The stretch that rank 0 reads next; a stretch late, so that it waits for nobody."""

    def run(self) -> None:
        """Trains, from the last checkpoint if there is one to go on from."""
        done = self._resume()
        logger.info(
            "rank %d of %d: stages %s on %s, steps %d to %d",
            *(self.rank, self.world, list(self.pipeline.stages), self.session.device),
            *(done + 1, self.options.steps),
        )
        recorder = Recorder()
        for step in range(done, self.options.steps):
            self._step(step, recorder)
            last = step + 1 == self.options.steps
            if last or (step + 1) % self.options.checkpoint_every == 0:
                self._save(step + 1)
            if last or (step + 1) % self.options.log_every == 0:
                self._report(step + 1, recorder)
        self.updater.settle()
        if self.rank == 0:
            self._read()
            self._print(done)
        self.session.barrier()

    def _step(self, step: int, recorder: Recorder) -> None:
        options, session = self.options, self.session
        # Random numbers depend on the step only, so that a resumed training draws the same.
        seeds = (options.seed, step, session.replica, session.rank)
        torch.manual_seed(hash(seeds) & 0x7FFF_FFFF)
        samples = options.batch * self.pipeline.plan.microbatches
        with refused_by(self.model.name):
            inputs, targets = self.model.make_batch(step, samples * session.replicas)
        own = slice(session.replica * samples, (session.replica + 1) * samples)
        if isinstance(inputs, dict):
            inputs = {stage: read[own] for stage, read in inputs.items()}
        else:
            inputs = inputs[own]
        recorder.note(self.pipeline.step(inputs, targets[own]))
        self.updater.step()

    def _resume(self) -> int:
        """The steps done before; reads their result."""
        options, folder = self.options, self.options.checkpoint
        if folder is None:
            return 0
        if self.rank == 0:
            checkpoint.prepare(folder)
        last = checkpoint.latest(folder)
        agree(self.store, "resume", self.rank, self.world, {"the last checkpoint": str(last)})
        if last is None:
            return 0
        if not options.resume and os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0":
            raise UsageError(
                f"{folder} holds {last.name} of an earlier training; go on from it with --resume, "
                "or choose another folder"
            )
        modules = self.pipeline.modules
        done = checkpoint.load(last, modules, self.adam, _checkpoint_facts(options), self.session)
        logger.info("resumed from %s", last)
        return done

    def _save(self, step: int) -> None:
        folder = self.options.checkpoint
        if folder is None:
            return
        self.updater.settle()
        if self.session.replica > 0:
            return
        self.reporter.unfinished = checkpoint.unfinished(folder, step)
        saved = checkpoint.save(
            folder,
            step,
            self.pipeline.modules,
            self.adam,
            _checkpoint_facts(self.options),
            self.session,
            keep=self.options.keep,
        )
        self.reporter.unfinished = None
        logger.info("saved %s", saved)

    def _report(self, step: int, recorder: Recorder) -> None:
        share = recorder.take()
        progress.publish(self.store, self.rank, step, share)
        if self.rank == 0:
            self._read()
            self.unread = step
        else:
            _log_share(step, share)

    def _read(self) -> None:
        if self.unread is None:
            return
        stretch = progress.collect(self.store, self.world, self.unread)
        self.unread = None
        self.stretches.append(stretch)
        logger.info(progress.describe(stretch, self.options.steps, *self._amount()))

    def _amount(self) -> tuple[int, str]:
        """What a step works through."""
        samples = self.options.batch * self.pipeline.plan.microbatches * self.options.replicas
        if self.model.name == "gpt":
            return samples * self.options.seq_len, "tokens"
        return samples, "samples"

    def _print(self, done: int) -> None:
        losses = [loss for stretch in self.stretches for loss in stretch.losses]
        folder = self.options.checkpoint
        last = None if folder is None else checkpoint.latest(folder)
        if self.options.json:
            found = {
                "first_step": done + 1,
                "steps": self.options.steps,
                "losses": losses,
                "step_s": self.stretches[-1].step_s if self.stretches else None,
                "bubble": self.stretches[-1].bubble if self.stretches else None,
                "checkpoint": None if last is None else str(last),
            }
            print(json.dumps(found))
            return
        if not losses:
            print(f"nothing to do: all {self.options.steps} steps are done")
            return
        print(f"steps      {done + 1} to {self.options.steps}")
        print(f"loss       {losses[0]:.4f} -> {losses[-1]:.4f}")
        if last is not None:
            print(f"checkpoint {last}")


def _option_facts(options: TrainOptions) -> dict[str, str]:
    """Every option that all ranks have to share."""
    own = ("file", "profile", "log_folder", "json", "dry_run", "device")
    names = [field.name for field in fields(options) if field.name not in own]
    return {f"--{name.replace('_', '-')}": str(getattr(options, name)) for name in names}


def _checkpoint_facts(options: TrainOptions) -> dict[str, Any]:
    """The options that a training cannot change on its way."""
    names = ("model", "layers", "width", "heads", "seq_len", "dtype", "seed", "batch", "replicas")
    return {name: getattr(options, name) for name in names}


def _log_share(step: int, share: progress.Share) -> None:
    losses = [value for values in share.losses[-1:] for value in values]
    loss = f"loss {sum(losses) / len(losses):.4f}  " if losses else ""
    steps = len(share.losses)
    logger.info(
        "step %d  %s%.1f ms per step  busy %.1f%%",
        *(step, loss, share.wall_s / steps * 1e3, 100 * share.busy_s / share.wall_s),
    )


def _log_to_file(error: BaseException) -> None:
    """The console gets the one message of the job instead."""
    for handler in logger.handlers:
        if isinstance(handler, logging.FileHandler):
            text = f"ended by {type(error).__name__}: {error}"
            handler.emit(logger.makeRecord(logger.name, logging.ERROR, "", 0, text, (), None))
