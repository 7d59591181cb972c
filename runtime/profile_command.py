"""What `pipesynth profile` turns into; measures once it is clear that torch is there."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from multiprocessing import resource_tracker
from typing import NoReturn

import msgspec

from runtime.errors import RunError, describe
from runtime.process import take_signals
from runtime.supported import require_torch
from synth.costs import Costs, dumps
from synth.ending import INTERRUPTED, guarded
from synth.errors import PipesynthError
from synth.outputs import write_output
from synth.profile_options import ProfileOptions


def main(argv: Sequence[str]) -> int:
    """Runs what `pipesynth profile` handed over, its options as JSON; returns the exit code."""
    options = msgspec.json.decode(argv[0], type=ProfileOptions)
    return guarded(lambda: _report(options))


def _report(options: ProfileOptions) -> int:
    """Measures, writes and prints.

    Raises:
        RunError: something went wrong that nobody foresaw, such as in the user's own model.
        UsageError: there is no torch, or the model cannot be built or cut as asked.
    """
    resource_tracker.ensure_running()  # which would let Ctrl-C through again, if it came later
    with tempfile.TemporaryDirectory(prefix="pipesynth-") as folder:
        take_signals({signal.SIGINT: partial(_interrupted, folder)})  # before torch makes threads
        require_torch()
        costs = _measured(options, folder)
    from runtime.profile_report import as_table

    write_output(options.output, dumps(costs))
    print(dumps(costs) if options.json else as_table(costs, options.output))
    return 0


def _measured(options: ProfileOptions, folder: str) -> Costs:
    from runtime.profiler import profile

    try:
        return profile(options, folder)
    except PipesynthError:
        raise
    except Exception as error:
        raise RunError(describe(error)) from error


def _interrupted(folder: str) -> NoReturn:
    """Ends this process at once, and so the others."""
    print("pipesynth: interrupted", file=sys.stderr, flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
