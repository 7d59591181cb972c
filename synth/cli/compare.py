"""`pipesynth compare`: schedules side by side on the same costs, with what was measured."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING

from synth.cli.options import add_problem_options, problem_options_given
from synth.cli.output import print_json
from synth.cli.profiled import read_any_problem
from synth.errors import InfeasibleError, PipesynthError, ProblemError, UsageError

if TYPE_CHECKING:
    from synth.cli.rows import Line
    from synth.compare import Row
    from synth.costs import Costs
    from synth.problem import Problem
    from synth.runs import MeasuredRun
    from synth.schedule import Schedule

SORTS = (
    *("schedule", "makespan", "span", "bubble", "formula", "peak", "parameters", "messages"),
    *("bytes", "gap", "measured", "of plan", "valid", "sync"),
)


def register(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb to the parser."""
    text = "set schedules side by side on the same costs"
    parser = verbs.add_parser(
        "compare",
        help=text,
        description=f"{text}: those of the problem options if -P and -m are given, else those of "
        "the first file",
        allow_abbrev=False,
    )
    parser.add_argument(
        "schedules", nargs="*", metavar="FILE|NAME", help="schedule files and names of baselines"
    )
    parser.add_argument(
        "--baselines",
        metavar="NAME,...|all",
        help="further baselines; all: those that fit the devices and micro-batches",
    )
    parser.add_argument(
        "--all", action="store_true", help="also those of --baselines all that do not fit, and why"
    )
    parser.add_argument(
        "--run",
        action="append",
        default=[],
        metavar="RUN.json",
        help="a run file, whose measured step time joins the row of its schedule; repeatable",
    )
    parser.add_argument("--sort", choices=SORTS, metavar="COLUMN", help=f"{', '.join(SORTS)}")
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="print one JSON object")
    shape.add_argument("--csv", action="store_true", help="print comma-separated values")
    shape.add_argument("--markdown", action="store_true", help="print a Markdown table")
    add_problem_options(parser)
    _add_profile_options(parser)
    parser.set_defaults(command=command)


def _add_profile_options(parser: argparse.ArgumentParser) -> None:
    """Not --memory-gib: what it leaves for activations differs between placements."""
    add = parser.add_argument_group("profiled model").add_argument
    add(
        "--profile",
        metavar="COSTS.json",
        help="measured costs, for the bytes of messages and, with -P and -m, for the times",
    )
    add("--balance", action="store_true", help="cut the profiled layers anew, with -P and -m")
    parser.set_defaults(memory_gib=None)


def command(args: argparse.Namespace) -> int:
    """Print one row per schedule."""
    from synth.cli.rows import Line
    from synth.files import load
    from synth.runs import load_run

    labels = _labels(args)
    files = {label: load(label) for label in labels if not _is_baseline(label)}
    reference = _reference(args, files)
    labels, refused = _fitting(args, labels, reference)
    sizes = _sizes(args)
    entries = [_entry(label, files, reference, sizes) for label in labels]
    schedules = [schedule for _, schedule in entries]
    runs = _assign([load_run(path) for path in args.run], schedules)
    lines = [Line(row, tuple(runs[index])) for index, (row, _) in enumerate(entries)]
    _print(args, reference, lines, refused)
    if not (args.json or args.csv):
        from synth.cli.deviations import sections

        for section in dict.fromkeys(sections(runs, schedules)):
            print(f"\n{section}")
    return 0


def _print(
    args: argparse.Namespace, reference: Problem, lines: list[Line], refused: Sequence[str]
) -> None:
    from synth.cli.columns import WIDTH, as_markdown, as_text, ordered
    from synth.cli.rows import as_csv, reference_fields, row_fields, title

    lines = ordered(lines, args.sort)
    if args.json:
        rows = list(map(row_fields, lines))
        print_json({"reference": reference_fields(reference), "rows": rows, "left_out": refused})
        return
    if args.csv:
        print(as_csv(lines))
        return
    head = fill(title(reference), WIDTH)
    print(f"{head}\n\n{as_markdown(lines) if args.markdown else as_text(lines)}")
    if refused:
        text = f"left out, as they do not fit: {', '.join(refused)}; --all shows why"
        print(f"- {text}" if args.markdown else fill(text, WIDTH, subsequent_indent="  "))


def _labels(args: argparse.Namespace) -> list[str]:
    """What to compare, in the order typed and each once: names of baselines and paths of files."""
    from synth import catalog

    more = list(catalog.names()) if args.baselines == "all" else _split(args.baselines)
    unknown = [name for name in more if not _is_baseline(name)]
    unknown += [n for n in args.schedules if not _is_baseline(n) and not os.path.exists(n)]
    if unknown:
        raise UsageError(
            f"{unknown[0]}: no such file or baseline; `pipesynth baseline --list` names those known"
        )
    labels = list(dict.fromkeys((*args.schedules, *more)))
    if not labels:
        raise UsageError("compare needs a FILE or the NAME of a baseline")
    return labels


def _fitting(
    args: argparse.Namespace, labels: list[str], reference: Problem
) -> tuple[list[str], list[str]]:
    """What to show, and which of all baselines do not fit and were not asked for by name."""
    if args.baselines != "all" or args.all:
        return labels, []
    refused = [n for n in labels if n not in args.schedules and not _fits(n, reference)]
    return [label for label in labels if label not in refused], refused


def _fits(name: str, reference: Problem) -> bool:
    from synth import catalog
    from synth.recut import recut

    chosen = catalog.family(name)
    try:
        return chosen.refuses(recut(reference, chosen.placement)) is None
    except ProblemError:
        return False


def _sizes(args: argparse.Namespace) -> Costs | None:
    from synth.costs import loads
    from synth.files import read_bytes

    return None if args.profile is None else loads(read_bytes(args.profile), args.profile)


def _split(names: str | None) -> list[str]:
    return [] if names is None else names.split(",")


def _is_baseline(label: str) -> bool:
    from synth import catalog

    try:
        catalog.family(label)
    except UsageError:
        return False
    return True


def _reference(args: argparse.Namespace, files: Mapping[str, Schedule]) -> Problem:
    """The problem on whose costs all are compared."""
    if problem_options_given(args) or args.balance:
        return read_any_problem(args)[0]
    if not files:
        raise UsageError("baselines alone have no costs; give -P and -m, or a FILE to compare with")
    return next(iter(files.values())).problem


def _entry(
    label: str, files: Mapping[str, Schedule], reference: Problem, sizes: Costs | None
) -> tuple[Row, Schedule | None]:
    from synth import catalog
    from synth.compare import Row, compare

    if label in files:
        return compare(label, files[label], reference, sizes=sizes), files[label]
    try:
        schedule = _baseline(label, reference)
    except PipesynthError as error:
        return Row(label, None, str(error).removeprefix(f"{label} ")), None
    named = catalog.family(label)
    return compare(label, schedule, reference, named=named, sizes=sizes), schedule


def _baseline(name: str, reference: Problem) -> Schedule:
    """A handcrafted schedule in its own placement, on the costs of the reference.

    One that needs more memory than there is answers the problem without limits, and no bound is
    looked for.
    """
    from dataclasses import replace

    from synth import catalog
    from synth.recut import recut
    from synth.schedule import Certificate, Schedule, value
    from synth.simulate import retime

    chosen = catalog.family(name)
    problem = recut(reference, chosen.placement)
    try:
        return catalog.build(name, problem)
    except InfeasibleError:
        problem = replace(problem, limits_quanta=())
        timeline = retime(problem, chosen.orders(problem))
        reached = value(timeline, problem.objective)
        return Schedule(name, problem, timeline, Certificate(reached, 0, "none"))


def _assign(
    runs: Sequence[MeasuredRun], schedules: Sequence[Schedule | None]
) -> Mapping[int, list[MeasuredRun]]:
    """The runs of each schedule, by its index. A run that fits none is an error."""
    indices = [index for index, schedule in enumerate(schedules) if schedule is not None]
    candidates = [schedule for schedule in schedules if schedule is not None]
    assigned: dict[int, list[MeasuredRun]] = {index: [] for index in range(len(schedules))}
    for run in runs:
        matches = run.ran(candidates)
        if not matches:
            raise UsageError(
                f"{run.path}: is a run of {run.schedule!r}, which is not among the schedules; "
                "add its file to the comparison"
            )
        for match in matches:
            assigned[indices[match]].append(run)
    return assigned
