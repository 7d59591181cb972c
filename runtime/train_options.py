"""The command line of `python -m runtime train`, read without torch."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from runtime.options import Parser, add_model, require_counts, require_positive
from synth.errors import UsageError


@dataclass(frozen=True, slots=True)
class TrainOptions:
    """What to train, how, and what to keep of it."""

    file: Path
    replicas: int
    """Pipelines that train side by side on different data."""
    model: str
    layers: int | None
    width: int
    heads: int
    seq_len: int
    dtype: str
    sleep_ms: tuple[float, float, float] | None
    tick_ms: float
    cut: tuple[int, ...]
    steps: int
    """Of the whole training, those before a resumed checkpoint included."""
    batch: int
    """Samples per micro-batch."""
    lr: float
    seed: int
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
    device: str
    timeout: float
    dry_run: bool
    json: bool

    def __post_init__(self) -> None:
        require_counts(self, "replicas", "layers", "width", "heads", "seq_len", "steps", "batch")
        require_counts(self, "checkpoint_every", "keep", "log_every")
        require_positive(self, "lr", "clip", "timeout", "tick_ms")
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
    """
    values = vars(_parser().parse_args(argv))
    return TrainOptions(**{field.name: values[field.name] for field in fields(TrainOptions)})


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="python -m runtime train",
        description="Trains a model under a schedule. Under torchrun it is one rank of the job; "
        "started by itself it starts torchrun on this machine.",
        epilog="exit codes: 0 done, 1 the training failed, 2 wrong usage or unreadable input",
        allow_abbrev=False,
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="schedule file")
    parser.add_argument(
        "--dry-run", action="store_true", help="lower, check, print the programs and stop"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument(
        "--timeout", type=float, default=60.0, metavar="S", help="give a peer up after S seconds"
    )
    parser.add_argument(
        "--replicas", type=int, default=1, metavar="D", help="pipelines side by side (default 1)"
    )
    _add_training(parser)
    _add_records(parser)
    add_model(parser)
    return parser


def _add_training(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("training")
    group.add_argument("--steps", type=int, default=100, metavar="N", help="default 100")
    group.add_argument("--lr", type=float, default=1e-3, help="of AdamW (default 0.001)")
    group.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of weights, data and dropout"
    )
    group.add_argument(
        "--batch", type=int, default=4, metavar="N", help="sequences per micro-batch (default 4)"
    )
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
