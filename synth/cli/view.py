"""`pipesynth view`: schedules as one interactive page."""

from __future__ import annotations

import argparse

from synth.cli.output import log
from synth.outputs import check_output, write_output


def register(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb to the parser."""
    text = "write one HTML page that shows schedules on one time axis"
    parser = verbs.add_parser("view", help=text, description=text, allow_abbrev=False)
    parser.add_argument("files", nargs="+", metavar="FILE", help="a schedule file")
    parser.add_argument(
        "--run",
        action="append",
        default=[],
        metavar="RUN.json",
        help="a run file, whose median step is drawn under its schedule; repeatable",
    )
    parser.add_argument("-o", "--output", required=True, metavar="PAGE.html", help="write it here")
    parser.set_defaults(command=command)


def command(args: argparse.Namespace) -> int:
    """Write the page; 1 if a schedule on it is invalid."""
    from synth import files
    from synth.cli.measured import assign
    from synth.view import payload, view_page

    check_output(args.output)
    schedules = [files.load(path) for path in args.files]
    steps = assign(args.run, schedules)
    payloads = [
        payload(schedule, path, step)
        for schedule, path, step in zip(schedules, args.files, steps, strict=True)
    ]
    title = ", ".join(dict.fromkeys(schedule.name for schedule in schedules))
    write_output(args.output, view_page(payloads, title))
    print(f"written to   {args.output}")
    invalid = [shown for shown in payloads if shown["invalid"]]
    for shown in invalid:
        log(f"{shown['label']}: invalid: {shown['violations'][0]} ({shown['invalid']} in all)")
    return 1 if invalid else 0
