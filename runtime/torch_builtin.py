"""torch's own schedules as CSV: `python -m runtime.torch_builtin Interleaved1F1B -P 4 -m 8`."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from io import StringIO
from typing import Any
from unittest import mock

from runtime.options import Parser
from runtime.supported import require_torch
from synth.ending import guarded
from synth.errors import UsageError

NAMES = (
    "GPipe",
    "1F1B",
    "LoopedBFS",
    "Interleaved1F1B",
    "InterleavedZeroBubble",
    "ZBVZeroBubble",
    "DualPipeV",
)
_COMPUTE = ("F", "I", "W", "B", "OVERLAP_F_B")


def rows(name: str, devices: int, microbatches: int) -> list[list[str]]:
    """The computing actions of every rank, as torch spells them.

    Raises:
        ValueError: torch refuses the numbers.
    """
    from torch.distributed.pipelining import PipelineStage
    from torch.distributed.pipelining.schedules import (
        PipelineScheduleSingle,
        get_schedule_class,
    )

    stage: Any = mock.create_autospec(PipelineStage, instance=True)
    stage.group_rank, stage.group_size, stage.submod = 0, devices, None
    kind = get_schedule_class(name)
    single = issubclass(kind, PipelineScheduleSingle)
    chunks = 1 if single else 2
    stage.num_stages = chunks * devices
    schedule: Any = kind(stage if single else [stage] * chunks, microbatches)
    order = schedule._get_pipeline_order() if single else schedule.pipeline_order
    return [_row(order[rank], microbatches) for rank in range(devices)]


def _row(actions: Sequence[Any], microbatches: int) -> list[str]:
    kept = [a for a in actions if a is not None and a.computation_type.value in _COMPUTE]
    forwards = [a for a in kept if a.computation_type.value == "F"]
    if [a.microbatch_index for a in forwards] == list(range(1, microbatches + 1)):
        # The last row of torch's 1F1B counts its F from 1; the class itself runs them from 0.
        kept = [
            a._replace(microbatch_index=a.microbatch_index - 1) if a in forwards else a
            for a in kept
        ]
    return [str(action) for action in kept]


def main(argv: Sequence[str]) -> int:
    """Prints the CSV; returns the exit code."""
    parser = Parser(prog="python -m runtime.torch_builtin", allow_abbrev=False)
    parser.add_argument("name")
    parser.add_argument("-P", "--devices", type=int, required=True)
    parser.add_argument("-m", "--microbatches", type=int, required=True)

    def command() -> int:
        args = parser.parse_args(argv)
        print(as_csv(args.name, args.devices, args.microbatches), end="")
        return 0

    return guarded(command)


def as_csv(name: str, devices: int, microbatches: int) -> str:
    """The CSV of one of torch's schedules.

    Raises:
        UsageError: there is no torch, no such schedule, or torch refuses the numbers.
    """
    if name not in NAMES:
        raise UsageError(f"torch has no schedule {name!r}; use one of {', '.join(NAMES)}")
    if devices < 1 or microbatches < 1:
        raise UsageError(
            f"-P {devices} -m {microbatches}: give at least one device and one micro-batch"
        )
    require_torch()
    text = StringIO()
    try:
        csv.writer(text, lineterminator="\n").writerows(rows(name, devices, microbatches))
    except (ValueError, AssertionError, RuntimeError) as error:
        raise UsageError(f"torch has no {name} of that size: {error}") from None
    return text.getvalue()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
