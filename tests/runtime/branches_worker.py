"""Runs stages that are not a chain on forked ranks; a script.

    python branches_worker.py WORLD FOLDER

Reads FOLDER/*.json and leaves FOLDER/results/RANK.json: by schedule how this rank's steps compare
with those of one process, on gloo and with a communicator per channel as on NCCL, and whether early
updates lead to other parameters than late ones.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import torch
from forked_ranks import open_store, run_ranks
from test_branches import Part, make_batch, mean_square
from torch import Tensor

from runtime.clipping import ClippedOptimizer
from runtime.pipeline import Pipeline
from runtime.post_validation import PostValidatedOptimizer
from runtime.reference import parameter_names, reference_step, relative_error
from runtime.session import Session, connect
from synth.files import load
from synth.schedule import Schedule

SAMPLES = (7, 9, 7, 12)
"""Of one step each: the first of a number finds the shapes out, another one knows them."""
TRAINED = 8
"""Samples of each step of a training."""


def own_stages(schedule: Schedule, rank: int) -> dict[int, Part]:
    problem = schedule.problem
    return {stage: Part(problem, stage) for _, stage in problem.held_stages(rank)}


def largest_error(schedule: Schedule, session: Session) -> float:
    """Of the losses and gradients of some steps, against one process."""
    problem = schedule.problem
    own = own_stages(schedule, session.rank)
    pipeline = Pipeline(own, schedule, loss=mean_square, session=session)
    count = problem.total_microbatches
    errors = [0.0]
    for step, samples in enumerate(SAMPLES):
        inputs, targets = make_batch(problem, samples, seed=step)
        result = pipeline.step(inputs, targets)
        assert result.in_flight == pipeline.plan.in_flight
        modules = [Part(problem, stage) for stage in range(len(problem.stages))]
        reference = reference_step(modules, inputs, targets, count, mean_square, problem.needs)
        errors += [relative_error(loss, reference.losses[n]) for n, loss in result.losses.items()]
        for number, module in own.items():
            for name, parameter in parameter_names(number, module):
                errors.append(relative_error(parameter.grad, reference.gradients[name]))
                parameter.grad = None
    pipeline.close()
    return max(errors)


def first_norm(schedule: Schedule) -> float:
    """Of the gradient of the first step of a training."""
    problem = schedule.problem
    modules = [Part(problem, stage) for stage in range(len(problem.stages))]
    batch = make_batch(problem, TRAINED)
    count = problem.total_microbatches
    gradients = reference_step(modules, *batch, count, mean_square, problem.needs).gradients
    return sum(gradient.square().sum().item() for gradient in gradients.values()) ** 0.5


def trained(schedule: Schedule, session: Session, *, early: bool) -> tuple[list[Tensor], int]:
    """This rank's parameters after some steps, and how many updates were taken back."""
    own = own_stages(schedule, session.rank)
    pipeline = Pipeline(own, schedule, loss=mean_square, session=session)
    adam = torch.optim.AdamW(pipeline.parameters())
    kind = PostValidatedOptimizer if early else ClippedOptimizer
    # So that the first update is one to be taken back, by all ranks but the last.
    optimizer = kind(pipeline, adam, max_norm=0.99 * first_norm(schedule))
    for step in range(4):
        pipeline.step(*make_batch(schedule.problem, TRAINED, seed=step))
        optimizer.step()
    optimizer.settle()
    pipeline.close()
    return [p.detach() for p in pipeline.parameters()], getattr(optimizer, "taken_back", 0)


def run_rank(rank: int, world: int, folder: Path) -> None:
    session = connect(world, device="cpu", timeout_s=20, store=open_store(rank, folder))
    pairs = replace(session, backend="pairs")  # a backend that is not known to have tags
    found = {}
    for path in sorted(folder.glob("*.json")):
        schedule = load(path)
        late, _ = trained(schedule, session, early=False)
        early, taken_back = trained(schedule, session, early=True)
        found[path.stem] = {
            "errors": [largest_error(schedule, session), largest_error(schedule, pairs)],
            "same": all(map(torch.equal, late, early)),
            "taken_back": taken_back,
        }
    (folder / "results" / f"{rank}.json").write_text(json.dumps(found))
    session.barrier()
    session.close()


if __name__ == "__main__":
    ranks, place = int(sys.argv[1]), Path(sys.argv[2])
    sys.exit(run_ranks(ranks, place, lambda rank: run_rank(rank, ranks, place)))
