"""What the runtime adds to a schedule, beside torch's own pipeline runtime on the same order.

    python benchmarks/runtime_overhead.py --devices 4 --microbatches 8

For every schedule all ranks run the same order of ops twice, in the same processes: once in this
runtime and once in torch's `_PipelineScheduleRuntime`. Every op is padded to a deadline of so many
milliseconds after its start, so that `measured / ideal` shows what is added between ops. CPU time
per op is that of all threads of all ranks in steps of a tiny real model without padding; `no model`
is this runtime with stages that do nothing, which torch's does not allow.

Makespans are medians over the measured steps, from the first start to the last end on any rank.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _Action, _PipelineScheduleRuntime

from models.sleep import PAYLOAD_BYTES, SleepStage, StageTimes, wait_until
from runtime.pipeline import Pipeline
from runtime.planned import planned_times, stage_times
from runtime.process import prefer_this_process, sharpen_sleep
from runtime.session import Session, connect
from synth.catalog import build
from synth.op import Kind
from synth.problem import make_problem
from synth.schedule import Schedule
from synth.solve import solve

WIDTH = 32  # 32 rows of 32 numbers are the payload of a sleeping stage
_KINDS = {Kind.F: "F", Kind.B: "I", Kind.W: "W", Kind.BW: "B"}
Interval = tuple[float, float]
Runtime = tuple[Callable[[], Interval], Callable[[], None]]
"""A step that returns its first start and last end on this rank, and what closes it."""


class PaddedStage(PipelineStage):
    """torch's stage with every action padded to a deadline, and the moments noted."""

    def __init__(self, module: nn.Module, index: int, count: int, times: StageTimes | None) -> None:
        super().__init__(module, index, count, torch.device("cpu"))
        self.times = times
        self.ran: list[Interval] = []

    def forward_one_chunk(self, *given: Any, **named: Any) -> Any:
        return self._padded(super().forward_one_chunk, "forward_ms", given, named)

    def backward_one_chunk(self, *given: Any, **named: Any) -> Any:
        full = named.get("full_backward", True)
        wanted = "fused_ms" if full else "backward_act_ms"
        return self._padded(super().backward_one_chunk, wanted, given, named)

    def backward_weight_one_chunk(self, *given: Any, **named: Any) -> Any:
        return self._padded(super().backward_weight_one_chunk, "backward_wgt_ms", given, named)

    def _padded(
        self, action: Callable[..., Any], wanted: str, given: Sequence[Any], named: dict[str, Any]
    ) -> Any:
        start_s = time.monotonic()
        result = action(*given, **named)
        if self.times is not None:
            wait_until(start_s + getattr(self.times, wanted) / 1e3)
        self.ran.append((start_s, time.monotonic()))
        return result


def tiny() -> nn.Module:
    """A model so small that what is measured is the runtime."""
    return nn.Linear(WIDTH, WIDTH)


def loss(output: Tensor, target: Tensor) -> Tensor:
    return output.sum()


def batch(schedule: Schedule) -> tuple[Tensor, Tensor]:
    rows = schedule.problem.total_microbatches * WIDTH
    return torch.zeros(rows, WIDTH), torch.zeros(rows)


def ours(schedule: Schedule, session: Session, times: list[StageTimes] | None) -> Runtime:
    """This runtime, with sleeping stages or, without times, with a tiny model."""
    problem = schedule.problem
    own = sorted({stage for _, stage in problem.held_stages(session.rank)})
    inputs, targets = batch(schedule)
    stages: dict[int, Any] = {stage: tiny() for stage in own}
    if times is not None:
        last = len(problem.stages) - 1
        stages = {stage: SleepStage(times[stage], last=stage == last) for stage in own}
        inputs = torch.zeros(problem.total_microbatches, PAYLOAD_BYTES, dtype=torch.uint8)
        targets = torch.zeros(problem.total_microbatches)
    pipeline = Pipeline(stages, schedule, loss=loss, session=session)

    def step() -> Interval:
        ops = pipeline.step(inputs, targets).ops
        return ops[0].start_s, ops[-1].end_s

    return step, pipeline.close


def torchs(schedule: Schedule, session: Session, times: list[StageTimes] | None) -> Runtime:
    """torch's runtime, with a tiny model whose actions are padded if times are given."""
    problem = schedule.problem
    count = len(problem.stages)
    own = sorted({stage for _, stage in problem.held_stages(session.rank)})
    stages = [PaddedStage(tiny(), s, count, None if times is None else times[s]) for s in own]
    runtime = _PipelineScheduleRuntime(
        stages, n_microbatches=problem.total_microbatches, loss_fn=loss
    )
    rows = {
        rank: [_Action.from_str(f"{op.stage}{_KINDS[op.kind]}{op.microbatch}") for op in order]
        for rank, order in enumerate(schedule.orders)
    }
    runtime.pipeline_order = rows
    runtime._prepare_schedule_with_comms(rows)
    inputs, targets = batch(schedule)

    def step() -> Interval:
        for stage in stages:
            stage.ran.clear()
        given = (inputs,) if 0 in own else ()
        named = {"target": targets, "losses": []} if count - 1 in own else {}
        runtime.step(*given, return_outputs=False, **named)
        ran = [one for stage in stages for one in stage.ran]
        return min(start for start, _ in ran), max(end for _, end in ran)

    return step, lambda: None


def measure(schedule: Schedule, session: Session, options: argparse.Namespace) -> dict[str, Any]:
    """All numbers of one schedule."""
    times = stage_times(schedule.problem, None, options.tick_ms)
    idle = [StageTimes(0, 0, 0, 0)] * len(times)
    found: dict[str, Any] = {"ideal_s": planned_times(schedule, times)[0]}
    for name, make in (("ours", ours), ("torch", torchs)):
        found[name] = {
            "makespan_s": makespan_s(make(schedule, session, times), session, options),
            "cpu_per_op_s": cpu_s(make(schedule, session, None), session, options)
            / sum(map(len, schedule.orders)),
        }
    found["ours"]["idle_cpu_per_op_s"] = cpu_s(ours(schedule, session, idle), session, options) / (
        sum(map(len, schedule.orders))
    )
    return found


def makespan_s(runtime: Runtime, session: Session, options: argparse.Namespace) -> float:
    """Median time of a step."""
    step, close = runtime
    found = []
    for number in range(options.warmup + options.steps):
        session.barrier()
        span = gathered(step(), session)
        if number >= options.warmup:
            found.append(max(end for _, end in span) - min(start for start, _ in span))
    close()
    return statistics.median(found)


def cpu_s(runtime: Runtime, session: Session, options: argparse.Namespace) -> float:
    """Median CPU time of a step, of all ranks together."""
    step, close = runtime
    used = []
    for number in range(options.warmup + options.cpu_steps):
        session.barrier()
        before = time.process_time()
        step()
        if number >= options.warmup:
            used.append(time.process_time() - before)
    close()
    return sum(one for (one,) in gathered((statistics.median(used),), session))


def gathered(mine: tuple[float, ...], session: Session) -> list[tuple[float, ...]]:
    """Every rank's numbers."""
    numbers = torch.tensor(mine, dtype=torch.float64)
    every = [torch.empty_like(numbers) for _ in range(session.world)]
    dist.all_gather(every, numbers)
    return [tuple(one.tolist()) for one in every]


def schedules(options: argparse.Namespace) -> dict[str, Schedule]:
    """What is compared: handcrafted schedules, and a solved one within 1F1B's memory."""
    placements = {"zb-v": "v", "interleaved:2": "interleaved:2"}
    found: dict[str, Schedule] = {}
    for name in options.schedules.split(","):
        problem = make_problem(
            options.devices, options.microbatches, placement=placements.get(name, "linear")
        )
        if name != "solved":
            found[name] = build(name, problem)
            continue
        tight = make_problem(options.devices, options.microbatches, memory=options.devices)
        solved = solve(tight, time_limit_s=10).schedule
        assert solved is not None, "a limit of P activation units can be kept"
        found[name] = replace(solved, name="solved")
    return found


def run_rank(
    rank: int, chosen: dict[str, Schedule], options: argparse.Namespace, out: Path
) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(options.devices))
    store = dist.FileStore(str(out / "store"), options.devices)
    session = connect(options.devices, device="cpu", timeout_s=60, store=store)
    sharpen_sleep()
    prefer_this_process()
    for name, schedule in chosen.items():
        found = measure(schedule, session, options)
        if rank == 0:
            report(name, found, as_json=options.json)
    session.barrier()
    session.close()


def report(name: str, found: dict[str, Any], *, as_json: bool) -> None:
    """One row."""
    if as_json:
        print(json.dumps({"schedule": name, **found}), flush=True)
        return
    ideal, mine, theirs = found["ideal_s"], found["ours"], found["torch"]
    ratios = [one["makespan_s"] / ideal for one in (mine, theirs)]
    cpu = [mine["idle_cpu_per_op_s"], mine["cpu_per_op_s"], theirs["cpu_per_op_s"]]
    print(
        f"{name:<14}{ideal * 1e3:>9.0f}{ratios[0]:>9.3f}{ratios[1]:>9.3f}"
        + "".join(f"{1e6 * one:>9.0f}" for one in cpu)
        + f"{cpu[1] / cpu[2]:>9.2f}",
        flush=True,
    )


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--devices", type=int, default=4)
    parser.add_argument("--microbatches", type=int, default=8)
    parser.add_argument("--tick-ms", type=float, default=20.0)
    parser.add_argument("--steps", type=int, default=10, help="measured steps")
    parser.add_argument("--cpu-steps", type=int, default=20, help="steps for CPU time per op")
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--schedules", default="1f1b,zb-h1,zb-v,interleaved:2,solved")
    parser.add_argument("--json", action="store_true", help="one JSON object per schedule")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    chosen = schedules(options)
    if not options.json:
        print(
            f"P={options.devices} m={options.microbatches}, a tick is {options.tick_ms:g} ms; "
            f"torch {torch.__version__}, {os.cpu_count()} CPUs\n"
            f"{'':<14}{'ideal':>9}{'measured / ideal':>18}{'CPU us per op':>27}{'ours to':>9}\n"
            f"{'schedule':<14}{'ms':>9}{'ours':>9}{'torch':>9}"
            f"{'no model':>9}{'ours':>9}{'torch':>9}{'torch':>9}",
            flush=True,
        )
    with tempfile.TemporaryDirectory() as folder:
        # torch is imported once and the ranks are forks.
        children = [fork(rank, chosen, options, Path(folder)) for rank in range(options.devices)]
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    return max(code != 0 for code in codes)


def fork(rank: int, chosen: dict[str, Schedule], options: argparse.Namespace, out: Path) -> int:
    child = os.fork()
    if child:
        return child
    try:
        run_rank(rank, chosen, options, out)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
