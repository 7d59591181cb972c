"""`pipesynth plot`: schedules as a picture for a paper."""

from __future__ import annotations

import argparse
from pathlib import Path

from synth.errors import UsageError
from synth.outputs import check_output, write_output

WIDTH_MM = 178.0  # two columns of a paper; one is 86


def register(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb to the parser."""
    text = "draw schedules as SVG or PNG: timelines on one time axis, or their comparison"
    parser = verbs.add_parser("plot", help=text, description=text, allow_abbrev=False)
    parser.add_argument("files", nargs="+", metavar="FILE", help="a schedule file")
    parser.add_argument(
        "--what",
        choices=("timeline", "bars", "frontier"),
        default="timeline",
        help="timeline (the default); bars: busy and idle time by cause, and memory; frontier: "
        "bubble against memory",
    )
    parser.add_argument(
        "--width", type=float, default=WIDTH_MM, metavar="MM", help="default 178; a column is 86"
    )
    parser.add_argument(
        "--memory", action="store_true", help="timeline: what each device holds, under its row"
    )
    parser.add_argument(
        "-o", "--output", required=True, metavar="PICTURE", help="x.svg, or x.png with matplotlib"
    )
    parser.set_defaults(command=command)


def command(args: argparse.Namespace) -> int:
    """Draw and write the picture."""
    from synth.load import load_valid
    from synth.plot import bars, frontier, png, svg, timeline

    check_output(args.output)
    form = Path(args.output).suffix
    if form not in (".svg", ".png"):
        raise UsageError(f"{args.output}: name a picture that ends in .svg or .png")
    if not 40 <= args.width <= 2000:
        raise UsageError(f"--width {args.width:g}: give 40 to 2000 millimetres")
    schedules = [load_valid(path) for path in args.files]
    if args.what == "timeline":
        scene = timeline(schedules, args.width, memory=args.memory)
    else:
        scene = (bars if args.what == "bars" else frontier)(schedules, args.width)
    if form == ".svg":
        write_output(args.output, svg(scene))
    else:
        png(scene, args.output)
    print(f"written to   {args.output}")
    return 0
