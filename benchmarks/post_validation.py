"""The time from step to step with the norm awaited and with early updates, beside the plan.

    python benchmarks/post_validation.py [-P 4] [-m 8] [--tick-ms 20] [--steps 20] [NAME ...]

Stages sleep for the prescribed times, every schedule takes `--tick-ms` per tick, and nothing but
the optimizer makes a rank wait for the others between steps. Synchronous steps follow each other
at the distance of the makespan, early ones at that of the span.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch
from forked_ranks import run_ranks

from models.sleep import PAYLOAD_BYTES, SleepStage
from runtime.clipping import ClippedOptimizer
from runtime.pipeline import Pipeline
from runtime.planned import stage_times
from runtime.post_validation import PostValidatedOptimizer
from runtime.process import prefer_this_process, sharpen_sleep
from runtime.session import Session
from synth import catalog
from synth.problem import make_problem
from synth.schedule import Certificate, Schedule, makespan
from synth.simulate import earliest

NAMES = ("zb-h2", "zb-v", "zb-h1", "1f1b")
WARMUP = 4
TIMEOUT_S = 60


def main(argv: Sequence[str]) -> int:
    """Prints one row per schedule; the exit code is that of the worst rank."""
    options = _parser().parse_args(argv)
    schedules = [_schedule(name, options.P, options.m) for name in options.names or NAMES]
    with TemporaryDirectory() as name:
        folder = Path(name)

        def rank(session: Session) -> None:
            times = [_measure(one, options, session) for one in schedules]
            (folder / f"{session.rank}.json").write_text(json.dumps(times))

        if not run_ranks(options.P, folder, rank, TIMEOUT_S):
            return 1
        ranks = [json.loads((folder / f"{r}.json").read_text()) for r in range(options.P)]
    print(f"{options.P} devices, {options.m} micro-batches, {options.tick_ms:g} ms per tick")
    print("schedule   makespan ms   synchronous    span ms     early   of span   of synchronous")
    for number, schedule in enumerate(schedules):
        # The slowest rank sets the pace.
        waiting, early = (max(rank[number][mode] for rank in ranks) * 1e3 for mode in (0, 1))
        span_ms = schedule.span * options.tick_ms
        print(
            f"{schedule.name:<10} {schedule.makespan * options.tick_ms:11.1f} {waiting:13.1f} "
            f"{span_ms:10.1f} {early:9.1f} {early / span_ms:9.3f} {early / waiting:16.3f}"
        )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="of the catalogue")
    parser.add_argument("-P", type=int, default=4, help="devices")
    parser.add_argument("-m", type=int, default=8, help="micro-batches")
    parser.add_argument("--tick-ms", type=float, default=20.0)
    parser.add_argument("--steps", type=int, default=20, help=f"after {WARMUP} of warm-up")
    return parser


def _schedule(name: str, devices: int, microbatches: int) -> Schedule:
    family = catalog.family(name)
    problem = make_problem(devices, microbatches, placement=family.placement)
    timeline = earliest(problem, family.orders(problem))
    return Schedule(name, problem, timeline, Certificate(makespan(timeline), 0, "none"))


def _measure(schedule: Schedule, options: argparse.Namespace, session: Session) -> list[float]:
    """Seconds from step to step on this rank, in both modes."""
    sharpen_sleep()
    found = []
    for make in (ClippedOptimizer, PostValidatedOptimizer):
        pipeline = _pipeline(schedule, options.tick_ms, session)
        optimizer: Any = make(pipeline, None, max_norm=1.0)
        batch = torch.zeros(options.m, PAYLOAD_BYTES, dtype=torch.uint8)
        starts = []
        for step in range(WARMUP + options.steps + 1):
            if step == 1:
                prefer_this_process()  # the first step starts threads
            starts.append(pipeline.step(batch, batch).ops[0].start_s)
            optimizer.step()
        optimizer.settle()
        pipeline.close()
        own = starts[WARMUP:]
        found.append(median(after - before for before, after in pairwise(own)))
    return found


def _pipeline(schedule: Schedule, tick_ms: float, session: Session) -> Pipeline:
    times = stage_times(schedule.problem, None, tick_ms)
    last = len(times) - 1
    own = {stage for _, stage in schedule.problem.held_stages(session.rank)}
    stages = {stage: SleepStage(times[stage], last=stage == last) for stage in own}
    return Pipeline(stages, schedule, session=session)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
