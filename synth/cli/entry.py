"""The parser of the `pipesynth` command, and its way from the words typed to the exit code."""

from __future__ import annotations

import argparse
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
from synth.ending import guarded
from synth.errors import UsageError

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

    def command() -> int:
        args = build_parser().parse_args(argv)
        chosen: Callable[[argparse.Namespace], int] = args.command
        return chosen(args)

    return guarded(command)
