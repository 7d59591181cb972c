"""The command line of `python -m runtime`, read without torch; and what `train` shares with it."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import NoReturn, TypeVar

from runtime.profiled_model import profiled_model
from synth.errors import UsageError
from synth.model_options import add_model_options, require_model
from synth.outputs import check_output

MODELS = ("gpt", "sleep")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """What a run and a training have in common: which schedule, which model, on what."""

    file: Path
    profile: Path | None
    """The costs file whose model this is."""
    model: str
    input_shape: tuple[int, ...] | None
    """Of one sample, for a factory that brings no data."""
    layers: int | None
    width: int
    heads: int
    seq_len: int
    dtype: str
    cut: tuple[int, ...]
    """Layers per stage; empty for an even cut."""
    sleep_ms: tuple[float, float, float] | None
    tick_ms: float
    steps: int
    batch: int
    """Samples per micro-batch."""
    lr: float
    seed: int
    device: str
    timeout: float
    dry_run: bool
    json: bool

    def __post_init__(self) -> None:
        require_model(self.model, MODELS)
        require_counts(self, "steps", "batch", "seq_len", "width", "heads", "layers")
        require_positive(self, "lr", "timeout", "tick_ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions(JobOptions):
    """What to run, on what, and what to keep of it."""

    run_file: Path | None
    warmup: int
    """Of the steps, the first that timing leaves out."""
    check: bool

    def __post_init__(self) -> None:
        JobOptions.__post_init__(self)  # super() does not find its way in a class with slots
        if not 0 <= self.warmup < self.steps:
            raise UsageError(
                f"--warmup {self.warmup} must be below --steps {self.steps}, which include it"
            )
        # Found out before the run rather than after it.
        check_output(self.run_file)
        if self.check and self.model == "sleep":
            raise UsageError("--check needs a model with gradients, not sleep")


def parse(argv: Sequence[str]) -> RunOptions:
    """Reads the command line of a run.

    Raises:
        UsageError: it makes no sense.
        FileError: the costs file that it names cannot be read.
    """
    return read_options(RunOptions, _parser(), argv)


Job = TypeVar("Job", bound=JobOptions)


def read_options(kind: type[Job], parser: Parser, argv: Sequence[str]) -> Job:
    """Reads options of a kind; what a profile says of its model counts where the line does not.

    Raises:
        UsageError: the command line makes no sense.
        FileError: the costs file that it names cannot be read.
    """
    values = parser.parse_args(argv)
    if values.profile is not None:
        profiled = profiled_model(values.profile)
        parser.set_defaults(**profiled)
        values = parser.parse_args(argv)
        if values.model != profiled["model"]:
            raise UsageError(
                f"--profile {values.profile} is of model {profiled['model']}, not of "
                f"{values.model}; leave out one of --profile and --model"
            )
    return kind(**{field.name: getattr(values, field.name) for field in fields(kind)})


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
        raise UsageError(f"{message}; see `{self.prog} --help`")


def job_parser(prog: str, description: str, failures: str, steps: int) -> Parser:
    """A parser with the options of `JobOptions`.

    Args:
        prog: how the command is called.
        description: what it does.
        failures: what exit code 1 means.
        steps: how many there are by default.
    """
    parser = Parser(
        prog=prog,
        description=f"{description} Under torchrun it is one rank of the job; started by itself "
        "it starts torchrun on this machine.",
        epilog=f"exit codes: 0 done, 1 {failures}, 2 wrong usage or unreadable input",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("file", type=Path, metavar="FILE", help="schedule file")
    add("--dry-run", action="store_true", help="lower, check, print the programs and stop")
    add("--json", action="store_true", help="print one JSON object")
    add("--device", choices=("auto", "cpu", "cuda"), default="auto")
    add("--timeout", type=float, default=60.0, metavar="S", help="give a peer up after S seconds")
    add("--steps", type=int, default=steps, metavar="N", help=f"steps (default {steps})")
    add("--lr", type=float, default=1e-3, help="of AdamW (default 0.001)")
    add_model_options(parser, MODELS)
    model = parser.add_argument_group("other models")
    model.add_argument(
        "--profile",
        type=Path,
        metavar="COSTS.json",
        help="the model that this costs file is of, its sizes and its cut",
    )
    model.add_argument(
        "--sleep-ms", type=_three, metavar="F,B,W", help="sleep: times of every stage"
    )
    model.add_argument(
        "--tick-ms", type=float, default=20.0, help="sleep: length of a tick of the schedule"
    )
    return parser


def _parser() -> Parser:
    parser = job_parser(
        "python -m runtime", "Runs a schedule.", "the run failed or gradients differ", 10
    )
    parser.add_argument("--run-file", type=Path, metavar="OUT", help="write what was measured")
    parser.add_argument("--check", action="store_true", help="compare the first step with autograd")
    parser.add_argument(
        "--warmup", type=int, default=0, metavar="N", help="first steps that timing leaves out"
    )
    return parser


def _three(text: str) -> tuple[float, float, float]:
    try:
        forward, act, wgt = (float(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not three numbers F,B,W") from None
    if not all(0 <= value < math.inf for value in (forward, act, wgt)):
        raise argparse.ArgumentTypeError(f"{text!r} holds a number below 0 or not finite")
    return forward, act, wgt
