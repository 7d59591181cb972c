"""Runs CSVs in torch's own pipeline runtime and compares gradients with one process; a script.

    torchrun --nproc-per-node 4 torch_worker.py FOLDER

Reads FOLDER/*.csv with their sidecars and leaves FOLDER/RANK.json: the error of each by name.
"""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

from runtime.reference import parameter_names, reference_step, relative_error
from synth.exchange import sidecar

WIDTH, SAMPLES = 8, 2


def layer(stage: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stage)
        return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH)).double()


def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (output - target).square().mean()


def error_of(path: Path, rank: int) -> float:
    _, problem = sidecar.loads(Path(f"{path}.json").read_bytes(), str(path))
    (stream,) = problem.streams
    own = [stage for stage, device in enumerate(stream.route) if device == rank]
    modules = {stage: layer(stage) for stage in own}
    count = len(problem.stages)
    stages = [
        PipelineStage(modules[stage], stage, count, torch.device("cpu"), group=dist.group.WORLD)
        for stage in own
    ]
    runtime = _PipelineScheduleRuntime(stages, stream.microbatches, loss_fn=loss)
    form = "compute_comms" if path.stem.endswith("comms") else "compute_only"
    runtime._load_csv(str(path), format=form)
    torch.manual_seed(1000)
    shape = (SAMPLES * stream.microbatches, WIDTH)
    inputs, targets = torch.randn(shape).double(), torch.randn(shape).double()
    first, last = stream.route[0] == rank, stream.route[-1] == rank
    arguments = (inputs,) if first else ()
    if last:
        runtime.step(*arguments, target=targets, losses=[], return_outputs=False)
    else:
        runtime.step(*arguments, return_outputs=False)
    whole = [layer(stage) for stage in range(count)]
    reference = reference_step(whole, inputs, targets, stream.microbatches, loss)
    return max(
        relative_error(parameter.grad, reference.gradients[name])
        for stage, module in modules.items()
        for name, parameter in parameter_names(stage, module)
    )


def main() -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank = dist.get_rank()
    folder = Path(sys.argv[1])
    errors = {path.stem: error_of(path, rank) for path in sorted(folder.glob("*.csv"))}
    (folder / f"{rank}.json").write_text(json.dumps(errors))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
