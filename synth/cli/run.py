"""`pipesynth run`: start torchrun on this machine, one process per device of the schedule."""

from __future__ import annotations

import argparse
from typing import NoReturn

from synth.cli.process import become


def register(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb to the parser."""
    text = "run a schedule on this machine, one process per device"
    parser = verbs.add_parser(
        "run",
        help=text,
        description=f"{text}; on several machines start `torchrun ... -m runtime FILE ...` on each",
        allow_abbrev=False,
    )
    parser.add_argument("file", metavar="FILE", help="a schedule file")
    rest = parser.add_argument(
        "arguments",
        nargs=argparse.REMAINDER,
        metavar="...",
        help="options of the runtime, such as --model gpt --steps 30 --run-file run.json; "
        "`pipesynth run FILE --help` lists them",
    )
    rest.required = False  # or an error would ask for it
    parser.set_defaults(command=command)


def command(args: argparse.Namespace) -> NoReturn:
    """Let the launcher of the runtime take the place of this process."""
    become("runtime", [args.file, *args.arguments])
