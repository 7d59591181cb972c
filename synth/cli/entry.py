"""The parser, the error line and the exit codes of the `pipesynth` command."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import NoReturn

from synth import __version__
from synth.cli import (
    baseline,
    calibrate,
    compare,
    explain,
    export,
    frontier,
    graph,
    import_,
    playground,
    plot,
    profile_,
    run,
    schema,
    show,
    solve,
    verify,
    view,
)
from synth.errors import PipesynthError, UsageError

INTERRUPTED = 130  # what shells report after Ctrl-C
BROKEN_PIPE = 141  # and after a reader that went away
VERBS = (
    *(solve, frontier, baseline, verify, compare, explain, show, view, playground, plot, graph),
    *(profile_, calibrate, run, export, import_, schema),
)


class _Parser(argparse.ArgumentParser):
    """An argument parser whose every error is one line that says where to look."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see `{self.prog} --help`")


@cache
def build_parser() -> argparse.ArgumentParser:
    """The parser of all verbs, made once; each sets `command`, the function that runs it."""
    parser = _Parser(
        prog="pipesynth",
        description="Find, prove, check, compare and run pipeline-parallel training schedules.",
        epilog="exit codes: 0 done, 1 the answer is no, 2 wrong usage or unreadable input, "
        "3 nothing found in the time given",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"pipesynth {__version__}")
    verbs = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for verb in VERBS:
        verb.register(verbs)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    try:
        args = build_parser().parse_args(argv)
        command: Callable[[argparse.Namespace], int] = args.command
        code = command(args)
        sys.stdout.flush()
        return code
    except PipesynthError as error:
        return _fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        return _fail("interrupted", INTERRUPTED)
    except MemoryError:
        return _fail("not enough memory for a problem of this size; use fewer -P or -m", 2)
    except BrokenPipeError:
        _forget_stdout()
        return BROKEN_PIPE
    except OSError as error:
        if error.filename is None:
            _forget_stdout()
        where = error.filename or "the output cannot be written"
        return _fail(f"{where}: {error.strerror or error}", 2)


def _fail(text: str, code: int) -> int:
    print(f"pipesynth: {' '.join(text.split())}", file=sys.stderr)
    return code


def _forget_stdout() -> None:
    """Keep the interpreter from reporting once more, at its end, what stdout could not take."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    os.close(devnull)
