"""The command line of `python -m runtime train`, read without torch."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from runtime.options import (
    JobOptions,
    Parser,
    job_parser,
    read_options,
    require_counts,
    require_positive,
)
from synth.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOptions(JobOptions):
    """What to train, how, and what to keep of it.

    The steps are those of the whole training, those before a resumed checkpoint included.
    """

    replicas: int
    """Pipelines that train side by side on different data."""
    clip: float | None
    """Largest norm of the gradient over all ranks."""
    early_updates: bool
    """Update before the norm is known, and take back what was wrong."""
    checkpoint: Path | None
    checkpoint_every: int
    keep: int
    """Checkpoints to keep."""
    resume: bool
    log_folder: Path | None
    log_every: int

    def __post_init__(self) -> None:
        JobOptions.__post_init__(self)
        require_counts(self, "replicas", "checkpoint_every", "keep", "log_every")
        require_positive(self, "clip")
        if self.resume and self.checkpoint is None:
            raise UsageError("--resume needs --checkpoint DIR, which says from where")
        if self.checkpoint is not None and self.model == "sleep":
            raise UsageError("--checkpoint needs a model with parameters, not sleep")
        for option, folder in (
            ("--checkpoint", self.checkpoint),
            ("--log-folder", self.log_folder),
        ):
            if folder is not None and folder.exists() and not folder.is_dir():
                raise UsageError(f"{option} {folder}: is a file, not a folder")


def parse(argv: Sequence[str]) -> TrainOptions:
    """Reads the command line.

    Raises:
        UsageError: it makes no sense.
        FileError: the costs file that it names cannot be read.
    """
    return read_options(TrainOptions, _parser(), argv)


def _parser() -> Parser:
    parser = job_parser(
        "python -m runtime train", "Trains a model under a schedule.", "the training failed", 100
    )
    parser.add_argument(
        "--replicas", type=int, default=1, metavar="D", help="pipelines side by side (default 1)"
    )
    _add_updates(parser)
    _add_records(parser)
    return parser


def _add_updates(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("updates")
    group.add_argument(
        "--clip", type=float, metavar="NORM", help="largest norm of the gradient over all ranks"
    )
    group.add_argument(
        "--early-updates",
        action="store_true",
        help="update before the norm over all ranks is known, and take back what was wrong: the "
        "same parameters, and no rank waits for the others between steps",
    )


def _add_records(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("records")
    group.add_argument(
        "--checkpoint",
        type=Path,
        metavar="DIR",
        help="where checkpoints go; on several machines a folder that all of them see",
    )
    group.add_argument(
        "--checkpoint-every", type=int, default=100, metavar="N", help="steps (default 100)"
    )
    group.add_argument(
        "--keep", type=int, default=2, metavar="N", help="checkpoints to keep (default 2)"
    )
    group.add_argument(
        "--resume",
        action="store_true",
        help="go on from the last checkpoint, if there is one; restarts by torchrun do so anyway",
    )
    group.add_argument("--log-folder", type=Path, metavar="DIR", help="a log file per rank")
    group.add_argument(
        "--log-every", type=int, default=10, metavar="N", help="steps per line (default 10)"
    )
