"""Runs schedules on forked ranks and reports how they compare with one process; a script.

    python gradients_worker.py WORLD FOLDER DEVICE

Reads FOLDER/*.json, runs each on WORLD ranks and leaves FOLDER/results/RANK.jsonl. DEVICE is cpu
for gloo, cuda for NCCL, and pairs for gloo as NCCL is used: a group of two ranks per channel.
"""

from __future__ import annotations

import copy
import gc
import json
import os
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import torch
from forked_ranks import error, open_store, run_ranks
from torch import Tensor, nn

from models import gpt
from runtime.errors import PeerError, PlanError
from runtime.pipeline import Pipeline
from runtime.reference import Reference, parameter_names, reference_step
from runtime.session import Session, connect
from runtime.stage import ModuleStage
from runtime.values import Values
from synth.files import load
from synth.op import Kind, Op
from synth.problem import Problem, make_problem
from synth.schedule import Certificate, Schedule
from synth.simulate import earliest

SAMPLES_PER_MICROBATCH = 1
TOKENS = 4
PAIRS = "pairs"
STEPS = 2  # the first finds the shapes out, the second knows them


class Clock:
    """The logical time of one rank, and when each of its ops ran."""

    def __init__(self) -> None:
        self.now = 0
        self.ran: list[tuple[str, int, int]] = []


class ClockStage:
    """Computes when an op would run: the messages carry the end of the op that sent them."""

    def __init__(self, problem: Problem, stage: int, clock: Clock, device: torch.device) -> None:
        self.problem, self.stage, self.clock, self.device = problem, stage, clock, device
        # Micro-batches are numbered across streams.
        self.own = [(s, index) for s in problem.streams for index in range(s.microbatches)]

    def forward(
        self, microbatch: int, inputs: Values, target: Tensor | None, *, split: bool
    ) -> Values:
        return (self._run(Kind.F, microbatch, self._arrival(microbatch, -1, inputs)),)

    def backward_act(self, microbatch: int, gradients: Values) -> Values:
        return self._backward(Kind.B, microbatch, gradients)

    def backward(self, microbatch: int, gradients: Values) -> Values:
        return self._backward(Kind.BW, microbatch, gradients)

    def backward_wgt(self, microbatch: int) -> None:
        self._run(Kind.W, microbatch, 0)

    def weight_gradients(self) -> list[Tensor]:
        return []

    def _backward(self, kind: Kind, microbatch: int, gradients: Values) -> Values:
        return (self._run(kind, microbatch, self._arrival(microbatch, 1, gradients)),)

    def _arrival(self, microbatch: int, neighbour: int, values: Values) -> int:
        route = self.own[microbatch][0].route
        sender = self.stage + neighbour
        if not 0 <= sender < len(route):
            return 0
        return int(values[0].item()) + self.problem.lag(route[sender], route[self.stage])

    def _run(self, kind: Kind, microbatch: int, arrival: int) -> Tensor:
        stream, index = self.own[microbatch]
        op = Op(kind, index, self.stage, stream.name)
        start = max(self.clock.now, arrival)
        self.clock.now = start + self.problem.duration(op)
        self.clock.ran.append((str(op), start, self.clock.now))
        now = float(self.clock.now)
        return torch.tensor(now, dtype=torch.float64, device=self.device, requires_grad=True)


def gradients(schedule: Schedule, session: Session) -> dict[str, object]:
    """Runs a GPT under the schedule and compares it with the reference."""
    problem = schedule.problem
    count = len(problem.stages)
    own = {stage for _, stage in problem.held_stages(session.rank)}
    stages = {stage: gpt.stage(_config(count), count, stage) for stage in own}
    pipeline = Pipeline(stages, schedule, loss=gpt.loss, session=session)
    worst = 0.0
    for step in range(STEPS):
        result = pipeline.step(*_batch(step, problem.total_microbatches))
        reference = _reference(step, problem.total_microbatches, count)
        for stage, module in pipeline.modules.items():
            for name, parameter in parameter_names(stage, module):
                worst = max(worst, error(parameter.grad, reference.gradients[name]))
                parameter.grad = None
        for microbatch, loss in result.losses.items():
            worst = max(worst, error(loss, reference.losses[microbatch]))
    pipeline.close()
    held = [s.held for s in pipeline.stages.values() if isinstance(s, ModuleStage)]
    return {
        "error": worst,
        "losses": len(result.losses),
        "in_flight": [result.in_flight.until_backward, result.in_flight.until_weights],
        "planned": [pipeline.plan.in_flight.until_backward, pipeline.plan.in_flight.until_weights],
        "left": sum(held),
    }


def _config(count: int) -> gpt.GPTConfig:
    """A layer for every stage."""
    return gpt.GPTConfig(
        layers=count, width=8, heads=2, context=TOKENS, dtype=torch.float64, seed=1
    )


def _batch(step: int, microbatches: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(step)
    shape = (2, microbatches * SAMPLES_PER_MICROBATCH, TOKENS)
    inputs, targets = torch.randint(0, gpt.VOCABULARY, shape, generator=generator)
    return inputs, targets


@cache
def _reference(step: int, microbatches: int, count: int) -> Reference:
    """The same for every schedule of as many stages."""
    modules = [gpt.stage(_config(count), count, stage) for stage in range(count)]
    return reference_step(modules, *_batch(step, microbatches), microbatches, gpt.loss)


def clock(schedule: Schedule, session: Session) -> list[tuple[str, int, int]]:
    """When every op of this rank runs, in logical time."""
    own = {stage for _, stage in schedule.problem.held_stages(session.rank)}
    own_time = Clock()
    stages = {stage: ClockStage(schedule.problem, stage, own_time, session.device) for stage in own}
    pipeline = Pipeline(stages, schedule, session=session)
    for _ in range(STEPS):
        own_time.now, own_time.ran = 0, []
        batch = torch.zeros(schedule.problem.total_microbatches)
        pipeline.step(batch, batch)
    pipeline.close()
    return own_time.ran


class Sender(nn.Module):
    """Several tensors by name, of several types, with and without a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2, dtype=torch.float64)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        hidden = self.linear(x)
        return {
            "single": hidden.float(),
            "count": torch.arange(len(x)),
            "hidden": hidden,
            "positive": x > 0,
            "phase": torch.complex(x, -x),
        }


class Receiver(nn.Module):
    """Takes them in another order."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2, dtype=torch.float64)

    def forward(
        self, hidden: Tensor, single: Tensor, count: Tensor, positive: Tensor, phase: Tensor
    ) -> Tensor:
        rows = self.linear(hidden * count[:, None] + single.double())
        return torch.where(positive, rows, phase.imag)


class Growing(nn.Module):
    """Returns more rows when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2, dtype=torch.float64)
        self.copies = 1

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x).repeat(self.copies, 1)


def mean_square(output: Tensor, target: Tensor) -> Tensor:
    return ((output - target.mean()) ** 2).mean()


def one_stage_per_rank(session: Session, microbatches: int) -> Schedule:
    """All F, then all B with their W."""
    problem = make_problem(session.world, microbatches)
    orders = tuple(
        (
            *(Op(Kind.F, index, stage) for index in range(microbatches)),
            *(Op(k, index, stage) for index in range(microbatches) for k in (Kind.B, Kind.W)),
        )
        for stage in range(session.world)
    )
    return Schedule("by hand", problem, earliest(problem, orders), Certificate(0, 0, "none"))


def changing_batches(modules: list[nn.Module], session: Session) -> float:
    """Largest error over steps whose batches have different shapes, some of them seen before."""
    own = copy.deepcopy(modules[session.rank])
    schedule = one_stage_per_rank(session, 2)
    pipeline = Pipeline({session.rank: own}, schedule, loss=mean_square, session=session)
    worst = 0.0
    for samples in (3, 5, 3, 8, 5):
        inputs = torch.randn(samples, 2, generator=torch.Generator().manual_seed(samples)).double()
        pipeline.step(inputs, inputs)
        reference = reference_step(modules, inputs, inputs, 2, mean_square)
        for name, parameter in parameter_names(session.rank, own):
            worst = max(worst, error(parameter.grad, reference.gradients[name]))
            parameter.grad = None
    pipeline.close()
    return worst


def changing_outputs(session: Session) -> str:
    """What the first rank says when its output changes although the batch does not."""
    modules: list[nn.Module] = [Growing() for _ in range(session.world)]
    schedule = one_stage_per_rank(session, 1)
    pipeline = Pipeline(modules, schedule, loss=mean_square, session=session)
    batch = torch.zeros(3, 2, dtype=torch.float64)
    pipeline.step(batch, batch)
    for module in modules:
        module.copies = 2
    pipeline.forget_shapes()
    pipeline.step(batch, batch)
    if session.rank == 0:
        modules[0].copies = 3
        try:
            pipeline.step(batch, batch)
        except PlanError as refusal:
            return str(refusal)
    return ""


def differing_batches(session: Session) -> str:
    """What the last rank says when the ranks are given batches of different shapes."""
    modules = [nn.Linear(2, 2) for _ in range(session.world)]
    schedule = one_stage_per_rank(session, 1)
    session = replace(session, timeout_s=2)
    pipeline = Pipeline(modules, schedule, loss=mean_square, session=session)
    for samples in (3, 4):  # both are known afterwards
        pipeline.step(torch.zeros(samples, 2), torch.zeros(samples))
    samples = 3 + session.rank
    try:
        pipeline.step(torch.zeros(samples, 2), torch.zeros(samples))
    except PeerError as refusal:
        return str(refusal)
    return ""


def resident_growth(session: Session) -> dict[str, int]:
    """Bytes by which the process grows over 200 steps, and how far the pools were exceeded."""
    modules = [nn.Sequential(nn.Linear(64, 64), nn.GELU()) for _ in range(session.world)]
    schedule = one_stage_per_rank(session, 3)
    pipeline = Pipeline(modules, schedule, loss=mean_square, session=session)
    inputs = torch.randn(3 * 64, 64)  # a message is 16 KiB
    resident = []
    for step in range(230):
        pipeline.step(inputs, inputs)
        for parameter in pipeline.parameters():
            parameter.grad = None
        if step in (29, 229):
            gc.collect()
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            resident.append(pages * os.sysconf("SC_PAGE_SIZE"))
    pools = pipeline._transport.pools.values()
    planned = sum(pool.size for pool in pools) * 64 * 64 * 4
    unplanned = sum(pool.unplanned for pool in pools)
    pipeline.close()
    return {
        "grown": resident[1] - resident[0],
        "unplanned": unplanned,
        "over": sum(pool.held_bytes for pool in pools) - planned,
    }


def run_rank(rank: int, world: int, folder: Path, device: str) -> None:
    kind = "cpu" if device == PAIRS else device
    session = connect(world, device=kind, timeout_s=20, store=open_store(rank, folder))
    if device == PAIRS:
        session = replace(session, backend=PAIRS)  # a backend that is not known to have tags
    lines = []
    for path in sorted(folder.glob("*.json")):
        schedule = load(path)
        result = gradients(schedule, session)
        result["ran"] = clock(schedule, session)
        lines.append(json.dumps({"name": path.stem, **result}))
    (folder / "results" / f"{rank}.jsonl").write_text("\n".join(lines))
    if world == 2:
        two_ranks(session, folder / "results" / f"{rank}.json")
    session.barrier()
    session.close()


def two_ranks(session: Session, output: Path) -> None:
    """What needs two ranks and one launch: messages of all kinds, memory, and mistakes."""
    torch.manual_seed(0)
    named: list[nn.Module] = [Sender(), Receiver()]
    frozen = [Growing(), Growing()]
    frozen[0].requires_grad_(False)
    found = {
        "named": changing_batches(named, session),
        "frozen": changing_batches(list(frozen), session),
        "memory": resident_growth(session),
        "outputs": changing_outputs(session),
    }
    session.barrier()
    if session.backend == "gloo":  # NCCL has no tags; there its watchdog would end the process
        found["differing"] = differing_batches(session)
    output.write_text(json.dumps(found))


if __name__ == "__main__":
    ranks, place, kind = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    sys.exit(run_ranks(ranks, place, lambda rank: run_rank(rank, ranks, place, kind)))
