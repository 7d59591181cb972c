"""Two replicas of a pipeline on forked ranks, compared with one process; a script.

    python replicas_worker.py DEVICES REPLICAS FOLDER DEVICE

Reads FOLDER/*.json and leaves FOLDER/results/RANK.jsonl.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # see forked_ranks
from forked_ranks import error, make_batch, make_stage, mean_square, open_store, run_ranks
from torch import Tensor

from runtime.clipping import ClippedOptimizer, apply, judge, square_norms
from runtime.pipeline import Pipeline
from runtime.post_validation import PostValidatedOptimizer
from runtime.reference import reference_step
from runtime.replicas import join
from runtime.session import Session
from runtime.ties import Tie
from synth.errors import UsageError
from synth.files import load
from synth.schedule import Schedule

STEPS = 4
MAX_NORM = 0.3
SAMPLES = 2


def alone(schedule: Schedule, replicas: int) -> dict[str, Tensor]:
    """The parameters after all steps in one process that sees the data of all replicas."""
    stages = len(schedule.problem.stages)
    modules = {stage: make_stage(stage) for stage in range(stages)}
    parameters = {stage: list(module.parameters()) for stage, module in modules.items()}
    flat = [parameter for own in parameters.values() for parameter in own]
    adam = torch.optim.AdamW(flat, lr=0.01)
    count = schedule.problem.total_microbatches * replicas
    for step in range(STEPS):
        found = reference_step(
            list(modules.values()), *make_batch(step, SAMPLES * count), count, mean_square
        )
        for stage, module in modules.items():
            for name, parameter in module.named_parameters():
                parameter.grad = found.gradients[f"{stage}.{name}"]
        apply(judge(square_norms(parameters, stages), MAX_NORM), adam, flat)
    return {
        f"{stage}.{name}": value
        for stage, module in modules.items()
        for name, value in module.state_dict().items()
    }


def train(schedule: Schedule, session: Session, *, early: bool) -> dict[str, Any]:
    own = {stage for _, stage in schedule.problem.held_stages(session.rank)}
    modules = {stage: make_stage(stage) for stage in own}
    pipeline = Pipeline(modules, schedule, loss=mean_square, session=session)
    adam = torch.optim.AdamW(pipeline.parameters(), lr=0.01)
    kind = PostValidatedOptimizer if early else ClippedOptimizer
    optimizer = kind(pipeline, adam, max_norm=MAX_NORM)
    count = pipeline.plan.microbatches
    samples = count * SAMPLES
    mine = slice(session.replica * samples, (session.replica + 1) * samples)
    for step in range(STEPS):
        inputs, targets = make_batch(step, samples * session.replicas)
        pipeline.step(inputs[mine], targets[mine])
        optimizer.step()
    optimizer.settle()
    pipeline.close()
    wanted = alone(schedule, session.replicas)
    errors = [
        error(value, wanted[f"{stage}.{name}"])
        for stage, module in modules.items()
        for name, value in module.state_dict().items()
    ]
    return {"error": max(errors), "reductions": len(pipeline.program.replicas)}


def tied(schedule: Schedule, session: Session) -> float:
    """The squared norm of the gradient of a tied weight after a step."""
    own = {stage for _, stage in schedule.problem.held_stages(session.rank)}
    modules = {stage: make_stage(stage) for stage in own}
    last = len(schedule.problem.stages) - 1
    tie = Tie(((0, "0.weight"), (last, "0.weight")))
    pipeline = Pipeline(modules, schedule, loss=mean_square, session=session, ties=[tie])
    samples = pipeline.plan.microbatches * SAMPLES
    mine = slice(session.replica * samples, (session.replica + 1) * samples)
    inputs, targets = make_batch(0, samples * session.replicas)
    pipeline.step(inputs[mine], targets[mine])
    copies = [p for bound in pipeline.tied.values() for p in bound.values()]
    pipeline.close()
    return sum(float(copy.grad.square().sum()) for copy in copies if copy.grad is not None)


def differing_copies(schedule: Schedule, session: Session) -> str:
    """What is said of the two holders of a stage when they start with different weights."""
    own = {stage for _, stage in schedule.problem.held_stages(session.rank)}
    modules = {stage: make_stage(10 * session.rank + stage) for stage in own}
    try:
        Pipeline(modules, schedule, loss=mean_square, session=session)
    except UsageError as refusal:
        return str(refusal)
    return ""


def run_rank(rank: int, devices: int, replicas: int, folder: Path, device: str) -> None:
    store = open_store(rank, folder)
    try:
        join(devices, replicas + 1, device=device, timeout_s=20, store=store)
    except UsageError as refusal:
        refused = str(refusal)
    session = join(devices, replicas, device=device, timeout_s=20, store=store)
    with (folder / "results" / f"{rank}.jsonl").open("w") as output:
        for path in sorted(folder.glob("*.json")):
            schedule = load(path)
            for early in (False, True):
                found = train(schedule, session, early=early)
                output.write(json.dumps({"name": path.stem, "early": early, **found}) + "\n")
            if path.stem == "chimera":
                said = differing_copies(schedule, session)
                output.write(json.dumps({"name": path.stem, "said": said}) + "\n")
            if len(schedule.problem.stages) > 1:
                of_tie = {"name": path.stem, "tied": tied(schedule, session), "refused": refused}
                output.write(json.dumps(of_tie) + "\n")
    session.barrier()
    store.set(f"done/{rank}", "")
    if rank == 0:  # the store is here, and is no more once this rank ends
        store.wait([f"done/{other}" for other in range(devices * replicas)])
    session.close()


if __name__ == "__main__":
    sizes, place, kind = (int(sys.argv[1]), int(sys.argv[2])), Path(sys.argv[3]), sys.argv[4]
    count = sizes[0] * sizes[1]
    sys.exit(run_ranks(count, place, lambda rank: run_rank(rank, *sizes, place, kind)))
