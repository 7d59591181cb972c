"""What the runtime adds to a schedule, beside torch's own pipeline runtime on the same order.

    python benchmarks/runtime_overhead.py --devices 4 --microbatches 8

For every schedule all ranks run the same order of ops in the same processes, in this runtime and in
torch's `_PipelineScheduleRuntime`. Every op is padded to a deadline of so many milliseconds after
its start, so that `measured / ideal` shows what is added between ops. Part of it no runtime can
avoid on a given host: `floor` is the same messages and the same layers in a bare loop
(`runtime_floor.py`), padded alike.

CPU time per op is that of all threads of all ranks, gloo's included, in steps of a tiny real model
without padding; `floor` is the bare loop again, and `no model` is this runtime with stages that do
nothing, which torch's does not allow.

All take turns of a few steps, the first of which does not count, so that whatever else the machine
does meets all of them alike.

Makespans are medians over the measured steps, from the first start to the last end on any rank.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from forked_ranks import run_ranks
from runtime_sides import Runtime, bare, ours, torchs

from models.sleep import StageTimes
from runtime.planned import planned_times, stage_times
from runtime.process import prefer_this_process, sharpen_sleep
from runtime.session import Session
from synth.catalog import build
from synth.problem import make_problem
from synth.schedule import Schedule
from synth.solve import solve

TIMEOUT_S = 60
_TURN = 5  # steps that count before another runtime has its turn


class Ran(NamedTuple):
    """One step on one rank."""

    start_s: float
    end_s: float
    cpu_s: float


def measure(schedule: Schedule, session: Session, options: argparse.Namespace) -> dict[str, Any]:
    """All numbers of one schedule, in seconds; CPU times are per op."""
    times = stage_times(schedule.problem, None, options.tick_ms)
    idle = [StageTimes(0, 0, 0, 0)] * len(times)
    padded = in_turns(
        {
            "floor": bare(schedule, session, times),
            "ours": ours(schedule, session, times),
            "torch": torchs(schedule, session, times),
        },
        session,
        warmup=options.warmup,
        steps=options.steps,
    )
    unpadded = in_turns(
        {
            "floor": bare(schedule, session, None),
            "idle": ours(schedule, session, idle),
            "ours": ours(schedule, session, None),
            "torch": torchs(schedule, session, None),
        },
        session,
        warmup=options.warmup,
        steps=options.cpu_steps,
    )
    ops = sum(map(len, schedule.orders))
    return {
        "ideal_s": planned_times(schedule, times)[0],
        "makespan_s": {name: makespan_s(ran, session) for name, ran in padded.items()},
        "cpu_per_op_s": {name: cpu_s(ran, session) / ops for name, ran in unpadded.items()},
    }


def in_turns(
    runtimes: dict[str, Runtime], session: Session, *, warmup: int, steps: int
) -> dict[str, list[Ran]]:
    """Some steps of each, and closes them."""
    ran: dict[str, list[Ran]] = {name: [] for name in runtimes}
    for step, _ in runtimes.values():
        for _ in range(warmup):
            step()
    for _ in range(math.ceil(steps / _TURN)):
        for name, (step, _) in runtimes.items():
            for number in range(1 + _TURN):
                session.barrier()
                before_s = time.process_time()
                start_s, end_s = step()
                if number > 0:
                    ran[name].append(Ran(start_s, end_s, time.process_time() - before_s))
    for _, close in runtimes.values():
        close()
    return ran


def makespan_s(ran: Sequence[Ran], session: Session) -> float:
    """Median over the steps, all ranks together."""
    starts = gathered([one.start_s for one in ran], session).amin(0)
    ends = gathered([one.end_s for one in ran], session).amax(0)
    return statistics.median((ends - starts).tolist())


def cpu_s(ran: Sequence[Ran], session: Session) -> float:
    """Median of a step on each rank, summed over ranks."""
    return float(gathered([one.cpu_s for one in ran], session).quantile(0.5, dim=1).sum())


def gathered(mine: Sequence[float], session: Session) -> torch.Tensor:
    """Every rank's numbers, (ranks, numbers)."""
    numbers = torch.tensor(mine, dtype=torch.float64)
    every = [torch.empty_like(numbers) for _ in range(session.world)]
    dist.all_gather(every, numbers)
    return torch.stack(every)


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


def run_rank(session: Session, chosen: dict[str, Schedule], options: argparse.Namespace) -> None:
    sharpen_sleep()
    prefer_this_process()
    for name, schedule in chosen.items():
        found = measure(schedule, session, options)
        if session.rank == 0:
            report(name, found, as_json=options.json)


def report(name: str, found: dict[str, Any], *, as_json: bool) -> None:
    """One row."""
    if as_json:
        print(json.dumps({"schedule": name, **found}), flush=True)
        return
    ideal, cpu = found["ideal_s"], found["cpu_per_op_s"]
    ratios = [found["makespan_s"][who] / ideal for who in ("floor", "ours", "torch")]
    used = [cpu[who] for who in ("floor", "idle", "ours", "torch")]
    print(
        f"{name:<14}{ideal * 1e3:>7.0f}"
        + "".join(f"{one:>8.3f}" for one in ratios)
        + "".join(f"{1e6 * one:>9.0f}" for one in used)
        + f"{cpu['ours'] / cpu['torch']:>9.2f}",
        flush=True,
    )


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--devices", type=int, default=4)
    parser.add_argument("--microbatches", type=int, default=8)
    parser.add_argument("--tick-ms", type=float, default=20.0)
    parser.add_argument("--steps", type=int, default=10, help="measured steps")
    parser.add_argument("--cpu-steps", type=int, default=100, help="steps for CPU time per op")
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--schedules", default="1f1b,zb-h1,zb-v,interleaved:2,solved")
    parser.add_argument("--json", action="store_true", help="one JSON object per schedule")
    options = parser.parse_args(argv)
    chosen = schedules(options)
    if not options.json:
        print(
            f"P={options.devices} m={options.microbatches}, a tick is {options.tick_ms:g} ms; "
            f"torch {torch.__version__}, {os.cpu_count()} CPUs\n"
            f"{'':<14}{'ideal':>7}{'measured/ideal':>24}{'CPU us per op':>36}{'ours to':>9}\n"
            f"{'schedule':<14}{'ms':>7}{'floor':>8}{'ours':>8}{'torch':>8}"
            f"{'floor':>9}{'no model':>9}{'ours':>9}{'torch':>9}{'torch':>9}",
            flush=True,
        )
    with tempfile.TemporaryDirectory() as folder:
        fine = run_ranks(
            options.devices,
            Path(folder),
            lambda session: run_rank(session, chosen, options),
            TIMEOUT_S,
        )
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
