"""`python -m runtime`: one rank under torchrun, the launcher of all ranks otherwise.

`python -m runtime FILE` measures a few steps, `python -m runtime train FILE` trains.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from runtime.options import parse
from runtime.supported import require_even, require_one_loss
from synth.errors import PipesynthError, UsageError
from synth.load import load_valid


def main(argv: Sequence[str]) -> int:
    """Runs the command and returns its exit code."""
    try:
        if argv[:1] == ["train"]:
            return _train(argv)
        options = parse(argv)
        if _under_torchrun():
            _require_torch()
            from runtime import worker

            return worker.main(options)
        sleeps = options.model == "sleep" and options.sleep_ms is None
        how = {"dry_run": options.dry_run, "as_json": options.json, "sleeps": sleeps}
        return _start(argv, options.file, 1, **how)
    except PipesynthError as error:
        if os.environ.get("RANK", "0") == "0":  # all ranks read the same command line
            print(f"pipesynth: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        if not _under_torchrun():  # before the launcher could say so
            print("pipesynth: interrupted", file=sys.stderr)
        return 130


def _train(argv: Sequence[str]) -> int:
    from runtime import train_options

    options = train_options.parse(argv[1:])
    if _under_torchrun():
        _require_torch()
        from runtime import training

        training.main(options)
        return 0
    replicas, as_json = options.replicas, options.json
    sleeps = options.model == "sleep" and options.sleep_ms is None
    how = {"dry_run": options.dry_run, "as_json": as_json, "sleeps": sleeps}
    return _start(argv, options.file, replicas, **how)


def _start(
    argv: Sequence[str],
    file: Path,
    replicas: int,
    *,
    dry_run: bool,
    as_json: bool,
    sleeps: bool,
) -> int:
    """Starts all ranks on this machine, or just shows what they would do."""
    schedule = load_valid(file)
    if dry_run:
        from runtime import dry_run as dry

        return dry.show(schedule, as_json=as_json)
    require_one_loss(schedule.problem)
    if sleeps:
        require_even(schedule.problem)
    _require_torch()
    from runtime import launch

    return launch.main(argv, schedule.problem.devices * replicas)


def _under_torchrun() -> bool:
    return "RANK" in os.environ


def _require_torch() -> None:
    try:
        import torch  # noqa: F401
    except ImportError:
        raise UsageError(
            "running a schedule needs torch, which is not installed; "
            "install it with: pip install 'pipesynth[torch]'"
        ) from None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
