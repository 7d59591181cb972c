"""`python -m runtime`: one rank under torchrun, the launcher of all ranks otherwise."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from runtime.load import load_valid
from runtime.options import parse
from synth.errors import PipesynthError, UsageError


def main(argv: Sequence[str]) -> int:
    """Runs the command and returns its exit code."""
    under_torchrun = "RANK" in os.environ
    try:
        options = parse(argv)
        if under_torchrun:
            _require_torch()
            from runtime import worker

            return worker.main(options)
        schedule = load_valid(options.file)
        if options.dry_run:
            from runtime import dry_run

            return dry_run.show(schedule, as_json=options.json)
        _require_torch()
        from runtime import launch

        return launch.main(argv, schedule.problem.devices)
    except PipesynthError as error:
        if os.environ.get("RANK", "0") == "0":  # all ranks read the same command line
            print(f"pipesynth: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130


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
