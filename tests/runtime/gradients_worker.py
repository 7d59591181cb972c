"""Runs schedules on forked ranks and reports how they compare with one process; a script.

    python gradients_worker.py WORLD FOLDER

Reads FOLDER/*.json, runs each on WORLD ranks over gloo and leaves FOLDER/results/RANK.jsonl.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn

from models import gpt
from runtime.errors import PlanError
from runtime.pipeline import Pipeline
from runtime.reference import Reference, parameter_names, reference_step, relative_error
from runtime.session import Session, connect
from runtime.stage import ModuleStage, Values
from synth.files import load
from synth.op import Kind, Op
from synth.problem import Problem, make_problem
from synth.schedule import Certificate, Schedule
from synth.simulate import earliest

SAMPLES_PER_MICROBATCH = 1
TOKENS = 4
STEPS = 2  # the first finds the shapes out, the second knows them


class Clock:
    """The logical time of one rank, and when each of its ops ran."""

    def __init__(self) -> None:
        self.now = 0
        self.ran: list[tuple[str, int, int]] = []


class ClockStage:
    """Computes when an op would run: the messages carry the end of the op that sent them."""

    def __init__(self, problem: Problem, stage: int, clock: Clock) -> None:
        self.problem, self.stage, self.clock = problem, stage, clock
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
        return torch.tensor(float(self.clock.now), dtype=torch.float64, requires_grad=True)


def gradients(schedule: Schedule, session: Session) -> dict[str, object]:
    """Runs a GPT under the schedule and compares it with the reference."""
    problem = schedule.problem
    count = len(problem.stages)
    config = gpt.GPTConfig(
        layers=count, width=8, heads=2, context=TOKENS, dtype=torch.float64, seed=1
    )
    own = {stage for _, stage in problem.held_stages(session.rank)}
    stages = {stage: gpt.stage(config, count, stage) for stage in own}
    pipeline = Pipeline(stages, schedule, loss=gpt.loss, session=session)
    worst = 0.0
    for step in range(STEPS):
        generator = torch.Generator().manual_seed(step)
        shape = (problem.total_microbatches * SAMPLES_PER_MICROBATCH, TOKENS)
        inputs = torch.randint(0, gpt.VOCABULARY, shape, generator=generator)
        targets = torch.randint(0, gpt.VOCABULARY, shape, generator=generator)
        result = pipeline.step(inputs, targets)
        reference = _reference(config, count, problem.total_microbatches, inputs, targets)
        for stage, module in pipeline.modules.items():
            for name, parameter in parameter_names(stage, module):
                worst = max(worst, relative_error(parameter.grad, reference.gradients[name]))
                parameter.grad = None
        for microbatch, loss in result.losses.items():
            worst = max(worst, relative_error(loss, reference.losses[microbatch]))
    pipeline.close()
    held = [s.held for s in pipeline.stages.values() if isinstance(s, ModuleStage)]
    return {
        "error": worst,
        "losses": len(result.losses),
        "in_flight": [result.in_flight.until_backward, result.in_flight.until_weights],
        "planned": [pipeline.plan.in_flight.until_backward, pipeline.plan.in_flight.until_weights],
        "left": sum(held),
    }


def _reference(
    config: gpt.GPTConfig, count: int, microbatches: int, inputs: Tensor, targets: Tensor
) -> Reference:
    modules = [gpt.stage(config, count, stage) for stage in range(count)]
    return reference_step(modules, inputs, targets, microbatches, gpt.loss)


def clock(schedule: Schedule, session: Session) -> list[tuple[str, int, int]]:
    """When every op of this rank runs, in logical time."""
    own = {stage for _, stage in schedule.problem.held_stages(session.rank)}
    own_time = Clock()
    stages = {stage: ClockStage(schedule.problem, stage, own_time) for stage in own}
    pipeline = Pipeline(stages, schedule, session=session)
    for _ in range(STEPS):
        own_time.now, own_time.ran = 0, []
        batch = torch.zeros(schedule.problem.total_microbatches)
        pipeline.step(batch, batch)
    pipeline.close()
    return own_time.ran


def changing_shapes(session: Session) -> str:
    """What the first rank says when its output has another shape than in the first step."""
    problem = make_problem(session.world, 1)
    nodes = [(Op(Kind.F, 0, s), Op(Kind.BW, 0, s)) for s in range(session.world)]
    timeline = earliest(problem, tuple(nodes))
    schedule = Schedule("few", problem, timeline, Certificate(0, 0, "none"))
    stages = [nn.Linear(2, 2) for _ in range(session.world)]
    pipeline = Pipeline(stages, schedule, loss=lambda output, target: output.sum(), session=session)
    pipeline.step(torch.zeros(3, 2), torch.zeros(3))
    if session.rank == 0:
        try:
            pipeline.step(torch.zeros(4, 2), torch.zeros(4))
        except PlanError as error:
            return str(error)
    return ""


def open_store(rank: int, folder: Path) -> dist.TCPStore:
    """A store on a free port, which rank 0 picks and leaves in a file."""
    port = folder / "port"
    if rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        (folder / "port.new").write_text(str(store.port))
        (folder / "port.new").rename(port)
        return store
    while not port.exists():
        time.sleep(0.01)
    return dist.TCPStore("127.0.0.1", int(port.read_text()), is_master=False)


def run_rank(rank: int, world: int, folder: Path) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world))
    session = connect(world, device="cpu", timeout_s=20, store=open_store(rank, folder))
    lines = []
    for path in sorted(folder.glob("*.json")):
        schedule = load(path)
        result = gradients(schedule, session)
        result["ran"] = clock(schedule, session)
        lines.append(json.dumps({"name": path.stem, **result}))
    (folder / "results" / f"{rank}.jsonl").write_text("\n".join(lines))
    if world > 1:
        session.barrier()
        (folder / "results" / f"{rank}.txt").write_text(changing_shapes(session))
    session.barrier()
    session.close()


def main(world: int, folder: Path) -> int:
    (folder / "results").mkdir()
    torch.set_num_threads(1)
    # torch is imported once and the ranks are forks, which saves seconds per rank.
    children = []
    for rank in range(world):
        child = os.fork()
        if child == 0:
            try:
                run_rank(rank, world, folder)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        children.append(child)
    return max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0 for child in children)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), Path(sys.argv[2])))
