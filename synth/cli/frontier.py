"""`pipesynth frontier`: the least bubble for every memory limit, over placements."""

from __future__ import annotations

import argparse
import json
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from synth.cli.options import add_problem_options, check_amount
from synth.cli.output import log, number, percent, print_json, silent_libraries, table
from synth.cli.profiled import add_profile_options, read_any_problem
from synth.cli.search import add_search_options, search
from synth.errors import (
    InfeasibleError,
    NothingFoundError,
    PipesynthError,
    ProblemError,
    UsageError,
)
from synth.outputs import check_output, write_output

if TYPE_CHECKING:
    from synth.frontier import Point
    from synth.problem import Problem

WIDTH_MM = 178.0
_FORMS = (".svg", ".png", ".json")


def register(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb to the parser."""
    text = "bubble against memory limit for one problem over placements, each point with its proof"
    parser = verbs.add_parser("frontier", help=text, description=text, allow_abbrev=False)
    add_problem_options(parser)
    add_profile_options(parser)
    add = parser.add_argument
    add(
        "--placements",
        metavar="NAME,...",
        help="default linear,v,bidirectional",
    )
    add(
        "--limits",
        metavar="K,...",
        help="these limits only, in activation units or, with --profile, in GiB",
    )
    add(
        "--step",
        metavar="K",
        help="between limits (default what one micro-batch holds on a device)",
    )
    add_search_options(parser, time_limit_s=20.0, what="seconds to search for each point")
    add("-o", "--output", metavar="FILE", help="x.svg, x.png (with matplotlib) or x.json")
    add("--width", type=float, default=WIDTH_MM, metavar="MM", help="of the picture (default 178)")
    parser.set_defaults(command=command)


def command(args: argparse.Namespace) -> int:
    """Solve for every limit on every placement, print the table and draw it.

    Ctrl-C ends the run after the point being searched.
    """
    _check(args)
    lines, reasons = _lines(args)
    if not args.quiet:
        for placement, reason in reasons.items():
            log(f"{placement}: {reason}")
    document = _document(lines, reasons)
    found = {name: line for name, line in lines.items() if any(point.schedule for point in line)}
    if args.output is not None and (found or args.output.endswith(".json")):
        _write(args, found, document)
    if args.json:
        print_json(document)
    if not found:
        if args.json:
            return _nothing(lines, reasons).exit_code
        raise _nothing(lines, reasons)
    if not args.json:
        print(_table(document["points"]))
        if args.output is not None:
            print(f"written to   {args.output}")
    return 0


def _lines(args: argparse.Namespace) -> tuple[dict[str, list[Point]], dict[str, str]]:
    """The points of each placement, and why others have none.

    Raises ProblemError where the options make no problem on a placement that was asked for, or on
    any.
    """
    typed = args.placements or args.placement
    placements = (typed or "linear,v,bidirectional").split(",")
    if args.problem is not None:
        placements = typed = [_stated(args).placement]
    lines: dict[str, list[Point]] = {}
    reasons: dict[str, str] = {}
    refused: list[ProblemError] = []
    for placement in dict.fromkeys(placements):
        try:
            lines[placement] = _line(args, placement)
        except InfeasibleError as error:
            reasons[placement] = str(error)
        except ProblemError as error:
            refused.append(error)
            reasons[placement] = str(error)
            if typed or len(refused) == len(placements):
                raise
        except KeyboardInterrupt:
            if not lines:
                raise
            break
        else:
            if lines[placement][-1].result.interrupted:
                break
    return lines, reasons


def _check(args: argparse.Namespace) -> None:
    check_output(args.output)
    if args.memory is not None or args.memory_gib is not None:
        raise UsageError("frontier chooses the limits itself; name them with --limits")
    if args.placement is not None and args.placements is not None:
        raise UsageError("--placement and --placements both name placements; use one of them")
    if args.output is not None and Path(args.output).suffix not in _FORMS:
        raise UsageError(f"{args.output}: name a file that ends in .svg, .png or .json")
    if args.placements is not None and args.problem is not None:
        raise UsageError("--placements and --problem both say where stages live; use one of them")
    if not 40 <= args.width <= 2000:
        raise UsageError(f"--width {args.width:g}: give 40 to 2000 millimetres")
    if args.limits is not None and args.step is not None:
        raise UsageError("--limits and --step both choose the limits; use one of them")


def _line(args: argparse.Namespace, placement: str) -> list[Point]:
    """The points of one placement."""
    from synth.frontier import sweep

    def make(limit: Fraction | None) -> Problem:
        name = "memory" if args.profile is None else "memory_gib"
        typed = None if limit is None else f"{float(limit):.9g}"
        options = argparse.Namespace(**{**vars(args), "placement": placement, name: typed})
        if args.problem is not None:
            options.placement = args.placement
            options.memory = typed or "none"
        return read_any_problem(options)[0]

    limits = None if args.limits is None else _numbers(args.limits, "--limits")
    step = None if args.step is None else _numbers(args.step, "--step")[0]
    with silent_libraries():
        if step is None and args.profile is not None:
            step = _gib_step(make(None))
        points = sweep(make, lambda problem: search(args, problem), step=step, limits=limits)
    if not args.quiet:
        for point in points:
            log(f"{placement} within {number(float(point.limit))}: {point.result.status}")
    return list(points)


def _stated(args: argparse.Namespace) -> Problem:
    """The problem of a problem file without a limit."""
    return read_any_problem(argparse.Namespace(**{**vars(args), "memory": "none"}))[0]


def _nothing(lines: dict[str, list[Point]], reasons: dict[str, str]) -> PipesynthError:
    """Why no point has a schedule."""
    statuses = {str(point.result.status) for line in lines.values() for point in line}
    if "unknown" in statuses:
        return NothingFoundError("no schedule found at any limit; raise --time-limit")
    texts = reasons | {name: line[-1].result.proof for name, line in lines.items()}
    named = "; ".join(f"{name}: {text}" for name, text in texts.items())
    return InfeasibleError(f"infeasible: {named}")


def _gib_step(problem: Problem) -> Fraction:
    """About what one micro-batch of a profiled model holds on a device."""
    from synth.frontier import micro_batch_memory

    return Fraction(f"{float(micro_batch_memory(problem)) / 1024:.1g}")


def _numbers(text: str, option: str) -> list[Fraction]:
    """Comma-separated numbers above 0."""
    parts = [part.strip() for part in text.split(",")]
    for part in parts:
        check_amount(part, f"{option} {text}")
    numbers = [Fraction(part) for part in parts]
    if min(numbers) <= 0 or max(numbers) > 10**12:
        raise UsageError(f"{option} {text}: a limit is above 0 and at most 1e12")
    return numbers


def _document(lines: dict[str, list[Point]], reasons: dict[str, str]) -> dict[str, Any]:
    """What `--json` prints."""
    points = [_fields(name, point) for name, line in lines.items() for point in line]
    return {
        "points": points,
        "infeasible": [{"placement": name, "reason": text} for name, text in reasons.items()],
    }


def _fields(placement: str, point: Point) -> dict[str, Any]:
    from synth.compare import summarize

    result, schedule = point.result, point.schedule
    ticks = point.problem.units.ticks
    figures: dict[str, Any] = dict.fromkeys(
        ("value", "gap", "makespan", "span", "bubble", "peak_memory")
    )
    if schedule is not None:
        summary = summarize(schedule)
        figures = {name: getattr(summary, name) for name in figures}
    return {
        "placement": placement,
        "parameters": float(point.parameters),
        "limit": float(point.limit),
        "status": str(result.status),
        "objective": str(point.problem.objective),
        **figures,
        "bound": None if result.bound is None else ticks(result.bound),
        "least_bubble": _least_bubble(point),
        "proof": result.proof,
        "seconds": round(result.seconds, 3),
        "reused": point.reused,
    }


def _least_bubble(point: Point) -> float | None:
    """The bubble of a schedule as good as the bound."""
    schedule = point.schedule
    if schedule is None:
        return None
    certificate = schedule.certificate
    return max(0.0, 1 - (1 - schedule.bubble) * certificate.value / certificate.bound)


def _table(points: list[dict[str, Any]]) -> str:
    objective = points[0]["objective"]
    headers = ["placement", "parameters", "limit", objective, "bound", "gap", "bubble", "peak"]
    rows = [
        [
            point["placement"],
            f"{point['parameters']:g}x",
            number(point["limit"]),
            number(point["value"]),
            number(point["bound"]),
            percent(point["gap"]),
            percent(point["bubble"]),
            number(max(point["peak_memory"], default=0)) if point["peak_memory"] else "-",
            "reused" if point["reused"] else f"{point['seconds']:.2f}",
            "" if point["value"] is not None else point["proof"],
        ]
        for point in points
    ]
    return table([*headers, "seconds", ""], rows)


def _write(args: argparse.Namespace, lines: dict[str, list[Point]], found: dict[str, Any]) -> None:
    """The picture or the JSON."""
    form = Path(args.output).suffix
    if form == ".json":
        write_output(args.output, json.dumps(found, indent=2, allow_nan=False) + "\n")
        return
    from synth.plot import png, svg
    from synth.plot.limits import Level, limits

    levels: dict[str, list[Level]] = {name: [] for name in lines}
    for point in found["points"]:
        if point["value"] is not None:
            level = Level(point["limit"], point["bubble"], point["least_bubble"])
            levels[point["placement"]].append(level)
    memory = "activation units" if args.profile is None else "GiB"
    if args.problem is not None:
        unit = _stated(args).units.memory
        memory = memory if unit == "activation" else unit
    scene = limits(levels, memory, args.width)
    if form == ".svg":
        write_output(args.output, svg(scene))
    else:
        png(scene, args.output)
