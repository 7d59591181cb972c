"""`python -m runtime`: one rank under torchrun, the launcher of all ranks otherwise.

`python -m runtime FILE` measures a few steps, `python -m runtime train FILE` trains.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from runtime.options import JobOptions, parse
from runtime.supported import require_even, require_one_loss, require_torch
from synth.ending import INTERRUPTED, guarded
from synth.load import load_valid


def main(argv: Sequence[str]) -> int:
    """Runs the command and returns its exit code."""
    # All ranks read the same command line, so one of them says what is wrong with it.
    speaks = not _under_torchrun() or os.environ["RANK"] == "0"
    return guarded(lambda: _rank(argv) if _under_torchrun() else _launcher(argv), speaks=speaks)


def _rank(argv: Sequence[str]) -> int:
    """Runs one rank of a job."""
    try:
        if argv[:1] == ["train"]:
            from runtime import train_options

            training_options = train_options.parse(argv[1:])
            require_torch()
            from runtime import training

            training.main(training_options)
            return 0
        options = parse(argv)
        require_torch()
        from runtime import worker

        return worker.main(options)
    except KeyboardInterrupt:
        return INTERRUPTED  # the launcher says so


def _launcher(argv: Sequence[str]) -> int:
    """Starts all ranks on this machine, or just shows what they would do."""
    options: JobOptions
    replicas = 1
    if argv[:1] == ["train"]:
        from runtime import train_options

        options = training = train_options.parse(argv[1:])
        replicas = training.replicas
    else:
        options = parse(argv)
    schedule = load_valid(options.file)
    if options.dry_run:
        from runtime import dry_run

        return dry_run.show(schedule, as_json=options.json)
    require_one_loss(schedule.problem)
    if options.model == "sleep" and options.sleep_ms is None:
        require_even(schedule.problem)
    require_torch()
    from runtime import launch

    return launch.main(argv, schedule.problem.devices * replicas)


def _under_torchrun() -> bool:
    return {"RANK", "WORLD_SIZE"} <= os.environ.keys()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
