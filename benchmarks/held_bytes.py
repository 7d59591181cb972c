"""What a step holds on every rank, beside torch's own pipeline runtime on the same order.

    python benchmarks/held_bytes.py --devices 4 --microbatches 8

Every stage is two transformer blocks. Counted is everything that is allocated beside the parameters
and their gradients at the fullest moment of a step: activations, what W needs, messages with their
buffers, and what an op needs while it runs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from allocations import taken
from forked_ranks import run_ranks
from runtime_overhead import gathered, schedules
from runtime_sides import Model, Runtime, ours, torchs
from torch import nn

from models.gpt import Block, GPTConfig
from runtime.session import Session
from synth.schedule import Schedule

WIDTH, TOKENS, SAMPLES = 128, 128, 2
MIB = 2**20
TIMEOUT_S = 60


def stage() -> nn.Module:
    config = GPTConfig(layers=2, width=WIDTH, heads=4, context=TOKENS)
    return nn.Sequential(Block(config), Block(config))


MODEL = Model(stage, SAMPLES, (TOKENS, WIDTH))


def peak_bytes(make: Callable[[], Runtime], own_bytes: int) -> int:
    """The most that a step takes once everything is set up, beside what is the stages' own."""
    made: list[Runtime] = []

    def set_up() -> None:
        made.append(make())
        for _ in range(2):
            made[0][0]()

    found = taken(set_up, lambda: made[0][0]())
    made[0][1]()
    return found.peak - own_bytes


def report(schedule: Schedule, session: Session) -> None:
    """One row: the fullest rank, and all ranks together."""
    held = len({stage for _, stage in schedule.problem.held_stages(session.rank)})
    parameters = held * sum(parameter.nbytes for parameter in stage().parameters())
    own_bytes = 2 * parameters + sum(tensor.nbytes for tensor in MODEL.batch(schedule))
    peaks: list[list[float]] = []
    for side in (ours, torchs):
        mine = peak_bytes(partial(side, schedule, session, model=MODEL), own_bytes)
        peaks.append(gathered([mine / MIB], session).flatten().tolist())
    if session.rank == 0:
        (our_most, our_sum), (their_most, their_sum) = ((max(one), sum(one)) for one in peaks)
        print(
            f"{schedule.name:<14}{our_most:>9.1f}{their_most:>8.1f}{our_most / their_most:>8.2f}"
            f"{our_sum:>11.1f}{their_sum:>8.1f}{our_sum / their_sum:>8.2f}",
            flush=True,
        )


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--devices", type=int, default=4)
    parser.add_argument("--microbatches", type=int, default=8)
    parser.add_argument("--schedules", default="1f1b,zb-h1,zb-v,interleaved:2,solved")
    options = parser.parse_args(argv)
    chosen = schedules(options)
    print(
        f"P={options.devices} m={options.microbatches}, MiB beside parameters and gradients\n"
        f"{'':<14}{'fullest rank':>25}{'all ranks':>27}\n"
        f"{'schedule':<14}"
        + f"{'ours':>9}{'torch':>8}{'ratio':>8}"
        + f"{'ours':>11}{'torch':>8}{'ratio':>8}",
        flush=True,
    )

    def body(session: Session) -> None:
        for schedule in chosen.values():
            report(schedule, session)

    with tempfile.TemporaryDirectory() as folder:
        fine = run_ranks(options.devices, Path(folder), body, TIMEOUT_S)
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
