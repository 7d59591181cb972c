"""What the runtime adds to a schedule, beside torch's own pipeline runtime on the same order.

    python benchmarks/runtime_overhead.py --devices 4 --microbatches 8

For every schedule all ranks run the same order of ops twice, in the same processes: once in this
runtime and once in torch's `_PipelineScheduleRuntime`. Every op is padded to a deadline of so many
milliseconds after its start, so that `measured / ideal` shows what is added between ops.

CPU time per op is that of all threads of all ranks, gloo's included, in steps of a tiny real model
without padding. Part of it no runtime can avoid: `floor` is the same messages and the same layers
in a bare loop (`runtime_floor.py`). `no model` is this runtime with stages that do nothing, which
torch's does not allow. The four take turns of a few steps, the first of which does not count, so
that whatever else the machine does meets all of them alike.

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
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from runtime_sides import Runtime, bare, ours, torchs

from models.sleep import StageTimes
from runtime.planned import planned_times, stage_times
from runtime.process import prefer_this_process, sharpen_sleep
from runtime.session import Session, connect
from synth.catalog import build
from synth.problem import make_problem
from synth.schedule import Schedule
from synth.solve import solve

_TURN = 5  # steps that count before another runtime has its turn


def measure(schedule: Schedule, session: Session, options: argparse.Namespace) -> dict[str, Any]:
    """All numbers of one schedule, in seconds; CPU times are per op."""
    times = stage_times(schedule.problem, None, options.tick_ms)
    idle = [StageTimes(0, 0, 0, 0)] * len(times)
    makespans = {
        name: makespan_s(make(schedule, session, times), session, options)
        for name, make in (("ours", ours), ("torch", torchs))
    }
    runtimes = {
        "floor": bare(schedule, session),
        "idle": ours(schedule, session, idle),
        "ours": ours(schedule, session, None),
        "torch": torchs(schedule, session, None),
    }
    ops = sum(map(len, schedule.orders))
    cpu = {name: used / ops for name, used in cpu_s(runtimes, session, options).items()}
    return {
        "ideal_s": planned_times(schedule, times)[0],
        "makespan_s": makespans,
        "cpu_per_op_s": cpu,
    }


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


def cpu_s(
    runtimes: dict[str, Runtime], session: Session, options: argparse.Namespace
) -> dict[str, float]:
    """Median CPU time of a step of each, of all ranks together."""
    used: dict[str, list[float]] = {name: [] for name in runtimes}
    for step, _ in runtimes.values():
        for _ in range(options.warmup):
            step()
    for _ in range(math.ceil(options.cpu_steps / _TURN)):
        for name, (step, _) in runtimes.items():
            for number in range(1 + _TURN):
                session.barrier()
                before = time.process_time()
                step()
                if number > 0:
                    used[name].append(time.process_time() - before)
    for _, close in runtimes.values():
        close()
    mine = tuple(statistics.median(times) for times in used.values())
    every = zip(*gathered(mine, session), strict=True)
    return dict(zip(used, map(sum, every), strict=True))


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
    ideal, cpu = found["ideal_s"], found["cpu_per_op_s"]
    ratios = [found["makespan_s"][who] / ideal for who in ("ours", "torch")]
    used = [cpu[who] for who in ("floor", "idle", "ours", "torch")]
    print(
        f"{name:<14}{ideal * 1e3:>7.0f}{ratios[0]:>8.3f}{ratios[1]:>8.3f}"
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
    parser.add_argument("--cpu-steps", type=int, default=40, help="steps for CPU time per op")
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
            f"{'':<14}{'ideal':>7}{'measured/ideal':>16}{'CPU us per op':>36}{'ours to':>9}\n"
            f"{'schedule':<14}{'ms':>7}{'ours':>8}{'torch':>8}"
            f"{'floor':>9}{'no model':>9}{'ours':>9}{'torch':>9}{'torch':>9}",
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
