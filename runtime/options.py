"""The command line of `python -m runtime`, read without torch."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import NoReturn, Protocol

from synth.errors import UsageError

MODELS = ("gpt", "sleep")
DTYPES = ("float32", "float64", "bfloat16")


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What to run, on what, and what to keep of it."""

    file: Path
    model: str
    run_file: Path | None
    steps: int
    warmup: int
    """Of the steps, the first that timing leaves out."""
    lr: float
    seed: int
    batch: int
    """Sequences per micro-batch."""
    seq_len: int
    layers: int | None
    width: int
    heads: int
    dtype: str
    sleep_ms: tuple[float, float, float] | None
    tick_ms: float
    cut: tuple[int, ...]
    """Layers per stage; empty for an even cut."""
    check: bool
    device: str
    timeout: float
    dry_run: bool
    json: bool

    def __post_init__(self) -> None:
        require_counts(self, "steps", "batch", "seq_len", "width", "heads", "layers")
        if not 0 <= self.warmup < self.steps:
            raise UsageError(
                f"--warmup {self.warmup} must be below --steps {self.steps}, which include it"
            )
        require_positive(self, "lr", "timeout", "tick_ms")
        # Found out before the run rather than after it.
        if self.run_file is not None and not os.access(self.run_file.absolute().parent, os.W_OK):
            raise UsageError(f"--run-file {self.run_file}: its folder does not exist or is closed")
        if self.check and self.model == "sleep":
            raise UsageError("--check needs a model with gradients, not sleep")


def parse(argv: Sequence[str]) -> RunOptions:
    """Reads the command line.

    Raises:
        UsageError: it makes no sense.
    """
    values = vars(_parser().parse_args(argv))
    return RunOptions(**{field.name: values[field.name] for field in fields(RunOptions)})


class ModelChoice(Protocol):
    """The options that decide which model is built."""

    @property
    def model(self) -> str: ...
    @property
    def layers(self) -> int | None: ...
    @property
    def width(self) -> int: ...
    @property
    def heads(self) -> int: ...
    @property
    def seq_len(self) -> int: ...
    @property
    def seed(self) -> int: ...
    @property
    def dtype(self) -> str: ...
    @property
    def sleep_ms(self) -> tuple[float, float, float] | None: ...
    @property
    def tick_ms(self) -> float: ...
    @property
    def cut(self) -> tuple[int, ...]: ...


def require_counts(options: object, *names: str) -> None:
    """Refuses numbers below 1.

    Raises:
        UsageError: one of the options is such a number.
    """
    for name in names:
        value = getattr(options, name)
        if value is not None and value < 1:
            raise UsageError(f"--{name.replace('_', '-')} must be at least 1")


def require_positive(options: object, *names: str) -> None:
    """Refuses numbers that are not positive and finite.

    Raises:
        UsageError: one of the options is such a number.
    """
    for name in names:
        value = getattr(options, name)
        if value is not None and not 0 < value < math.inf:
            raise UsageError(f"--{name.replace('_', '-')} must be a positive number")


class Parser(argparse.ArgumentParser):
    """Raises what is wrong instead of printing it and leaving."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see `python -m runtime --help`")


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="python -m runtime",
        description="Runs a schedule. Under torchrun it is one rank of the job; started by itself "
        "it starts torchrun on this machine.",
        epilog="exit codes: 0 done, 1 the run failed or gradients differ, 2 wrong usage or "
        "unreadable input",
        allow_abbrev=False,
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="schedule file")
    parser.add_argument("--run-file", type=Path, metavar="OUT", help="write what was measured")
    parser.add_argument("--check", action="store_true", help="compare the first step with autograd")
    parser.add_argument(
        "--dry-run", action="store_true", help="lower, check, print the programs and stop"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument(
        "--timeout", type=float, default=60.0, metavar="S", help="give a peer up after S seconds"
    )
    _add_training(parser)
    add_model(parser)
    return parser


def _add_training(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("training")
    group.add_argument("--steps", type=int, default=10, metavar="N", help="steps (default 10)")
    group.add_argument(
        "--warmup", type=int, default=0, metavar="N", help="first steps that timing leaves out"
    )
    group.add_argument("--lr", type=float, default=1e-3, help="of AdamW (default 0.001)")
    group.add_argument("--seed", type=int, default=0, metavar="N", help="of weights and data")
    group.add_argument(
        "--batch", type=int, default=4, metavar="N", help="sequences per micro-batch (default 4)"
    )


def add_model(parser: argparse.ArgumentParser) -> None:
    """Adds the options that decide which model is built."""
    group = parser.add_argument_group("model")
    group.add_argument("--model", choices=MODELS, default="gpt")
    group.add_argument("--layers", type=int, metavar="N", help="default: 4, or one per stage")
    group.add_argument("--width", type=int, default=64, metavar="N")
    group.add_argument("--heads", type=int, default=4, metavar="N")
    group.add_argument("--seq-len", type=int, default=64, metavar="N", help="tokens per sequence")
    group.add_argument("--dtype", choices=DTYPES, default="float32")
    group.add_argument(
        "--cut",
        type=_counts,
        default=(),
        metavar="N,N,...",
        help="layers per stage, embedding and head counted (default even)",
    )
    group.add_argument(
        "--sleep-ms", type=_three, metavar="F,B,W", help="sleep: times of every stage"
    )
    group.add_argument(
        "--tick-ms", type=float, default=20.0, help="sleep: length of a tick of the schedule"
    )


def _counts(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _three(text: str) -> tuple[float, float, float]:
    try:
        forward, act, wgt = (float(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not three numbers F,B,W") from None
    if not all(0 <= value < math.inf for value in (forward, act, wgt)):
        raise argparse.ArgumentTypeError(f"{text!r} holds a number below 0 or not finite")
    return forward, act, wgt
