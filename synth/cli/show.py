"""`pipesynth show`: a schedule as a timeline in the terminal."""

from __future__ import annotations

import argparse
import os
import shutil
import sys

from synth.model_options import whole

MIN_WIDTH = 20


def register(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb to the parser."""
    text = "draw a schedule in the terminal: devices as rows, time as columns"
    parser = verbs.add_parser("show", help=text, description=text, allow_abbrev=False)
    parser.add_argument("file", metavar="FILE", help="a schedule file")
    parser.add_argument(
        "--width", type=_width, metavar="N", help="columns (default the terminal's)"
    )
    parser.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="auto: on a terminal, unless NO_COLOR is set",
    )
    parser.set_defaults(command=command)


def _width(text: str) -> int:
    width = whole(text)
    if width < MIN_WIDTH:
        raise argparse.ArgumentTypeError(f"at least {MIN_WIDTH} columns are needed, got {width}")
    return width


def command(args: argparse.Namespace) -> int:
    """Print the figures and the timeline; 1 if the schedule is invalid."""
    from synth import files
    from synth.cli.figures import figures
    from synth.compare import summarize
    from synth.timeline import render
    from synth.verify import verify

    schedule = files.load(args.file)
    violations = verify(schedule)
    if violations:
        print(f"{args.file}: invalid: {violations[0]} ({len(violations)} in all)")
    else:
        print(figures(summarize(schedule)))
    width = args.width or max(MIN_WIDTH, shutil.get_terminal_size().columns)
    print()
    print(render(schedule, width=width, colour=_coloured(args.color)))
    return 1 if violations else 0


def _coloured(choice: str) -> bool:
    if choice != "auto":
        return choice == "always"
    return (
        sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    )
