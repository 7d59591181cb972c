"""Trains small models with both optimizers on forked ranks; a script.

    python optimizer_worker.py WORLD FOLDER DEVICE

Reads FOLDER/cases.json, a list of [schedule, steps, noisy], and FOLDER/SCHEDULE.json, and leaves
FOLDER/results/RANK.jsonl: for every case and optimizer the losses, the norms and digests of the
parameters after every step.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # see forked_ranks
from forked_ranks import make_batch, make_stage, mean_square, open_store, run_ranks
from torch import nn

from runtime.clipping import ClippedOptimizer, Update, apply, judge, square_norms
from runtime.pipeline import Pipeline
from runtime.post_validation import PostValidatedOptimizer
from runtime.reference import reference_step
from runtime.session import Session, connect
from synth.files import load
from synth.schedule import Schedule

MAX_NORM = 0.35  # exceeded in about a third of the steps
OVERFLOWS = {3: float("inf"), 4: float("nan"), 17: float("inf"), 50: float("nan"), 98: float("inf")}
SAMPLES = 3
LEARNING_RATE = 0.02


def stage_of(stage: int, *, noisy: bool) -> nn.Module:
    """A few layers; the noisy ones draw random numbers and keep running means."""
    return make_stage(stage, *([nn.BatchNorm1d(4), nn.Dropout(0.3)] if noisy else []))


def spoil(step: int, stages: Mapping[int, nn.Module], count: int) -> None:
    """Lets the gradient of one stage overflow in some steps."""
    module = stages.get(step % count)
    if step in OVERFLOWS and module is not None:
        gradient = next(module.parameters()).grad
        assert gradient is not None
        gradient.view(-1)[0] = OVERFLOWS[step]


def digests(stages: Mapping[int, nn.Module]) -> dict[str, str]:
    found = {}
    for number, module in stages.items():
        data = b"".join(value.cpu().numpy().tobytes() for value in module.state_dict().values())
        found[str(number)] = hashlib.sha256(data).hexdigest()[:16]
    return found


def train(
    schedule: Schedule, session: Session, *, steps: int, post: bool, noisy: bool
) -> dict[str, Any]:
    """All steps on this rank, with one of the optimizers."""
    torch.manual_seed(100 + session.rank)
    problem = schedule.problem
    own = {stage for _, stage in problem.held_stages(session.rank)}
    modules = {stage: stage_of(stage, noisy=noisy) for stage in own}
    pipeline = Pipeline(modules, schedule, loss=mean_square, session=session)
    # A step before there is an optimizer, and so a gate.
    pipeline.step(*make_batch(steps, SAMPLES * pipeline.plan.microbatches))
    for parameter in pipeline.parameters():
        parameter.grad = None
    parameters: list[dict[str, str]] = []
    updates: list[Update] = []

    def settled(update: Update) -> None:
        # Buffers belong to the next step by now.
        parameters.append(
            digests({s: nn.ParameterList(m.parameters()) for s, m in modules.items()})
        )
        updates.append(update)

    adam = torch.optim.AdamW(pipeline.parameters())
    optimizer: Any
    if post:
        optimizer = PostValidatedOptimizer(pipeline, adam, max_norm=MAX_NORM, on_settled=settled)
    else:
        optimizer = ClippedOptimizer(pipeline, adam, max_norm=MAX_NORM)
    losses = []
    for step in range(steps):
        result = pipeline.step(*make_batch(step, SAMPLES * pipeline.plan.microbatches))
        losses.append({str(number): loss.item() for number, loss in result.losses.items()})
        spoil(step, modules, len(problem.stages))
        adam.param_groups[0]["lr"] = LEARNING_RATE * 0.99**step
        update = optimizer.step()
        if update is not None:
            settled(update)
    optimizer.settle()
    pipeline.close()
    return {
        "losses": losses,
        "parameters": parameters,
        "updates": [[update.norm, update.factor] for update in updates],
        "taken_back": getattr(optimizer, "taken_back", 0),
        "gate": optimizer.cut.position if post else 0,
        "final": digests(modules),
    }


def train_alone(schedule: Schedule, steps: int) -> dict[str, Any]:
    """The same in one process without a pipeline."""
    count = len(schedule.problem.stages)
    modules = {stage: stage_of(stage, noisy=False) for stage in range(count)}
    parameters = {stage: list(module.parameters()) for stage, module in modules.items()}
    flat = [parameter for own in parameters.values() for parameter in own]
    adam = torch.optim.AdamW(flat)
    found: dict[str, list[Any]] = {"losses": [], "parameters": [], "updates": []}
    microbatches = schedule.problem.total_microbatches
    for step in range(steps):
        inputs, targets = make_batch(step, SAMPLES * microbatches)
        reference = reference_step(
            list(modules.values()), inputs, targets, microbatches, mean_square
        )
        for stage, module in modules.items():
            for name, parameter in module.named_parameters():
                parameter.grad = reference.gradients[f"{stage}.{name}"]
        spoil(step, modules, count)
        adam.param_groups[0]["lr"] = LEARNING_RATE * 0.99**step
        update = judge(square_norms(parameters, count), MAX_NORM)
        apply(update, adam, flat)
        found["losses"].append({str(n): loss.item() for n, loss in enumerate(reference.losses)})
        found["parameters"].append(digests({s: nn.ParameterList(p) for s, p in parameters.items()}))
        found["updates"].append([update.norm, update.factor])
    return found


def results(
    schedule: Schedule, session: Session, steps: int, *, noisy: bool
) -> Iterator[dict[str, Any]]:
    for post in (False, True):
        found = train(schedule, session, steps=steps, post=post, noisy=noisy)
        yield {"mode": "post" if post else "synchronous", **found}
    if session.rank == 0 and not noisy:
        yield {"mode": "alone", **train_alone(schedule, steps)}


def run_rank(rank: int, world: int, folder: Path, device: str) -> None:
    session = connect(world, device=device, timeout_s=20, store=open_store(rank, folder))
    with (folder / "results" / f"{rank}.jsonl").open("w") as output:
        for name, steps, noisy in json.loads((folder / "cases.json").read_text()):
            schedule = load(folder / f"{name}.json")
            for result in results(schedule, session, steps, noisy=noisy):
                case = {"name": name, "noisy": noisy, "rank": rank}
                output.write(json.dumps({**case, **result}) + "\n")
    session.barrier()
    session.close()


if __name__ == "__main__":
    ranks, place, kind = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    sys.exit(run_ranks(ranks, place, lambda rank: run_rank(rank, ranks, place, kind)))
