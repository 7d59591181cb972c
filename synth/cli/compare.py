"""`pipesynth compare`: schedules side by side on the same costs, with what was measured."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from synth.cli.options import add_problem_options, problem_options_given, read_problem
from synth.cli.output import print_json
from synth.errors import InfeasibleError, PipesynthError, UsageError

if TYPE_CHECKING:
    from synth.compare import Row
    from synth.problem import Problem
    from synth.runs import MeasuredRun
    from synth.schedule import Schedule


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
    parser.add_argument("--baselines", metavar="NAME,...|all", help="further baselines")
    parser.add_argument(
        "--run",
        action="append",
        default=[],
        metavar="RUN.json",
        help="a run file, whose measured step time joins the row of its schedule; repeatable",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--markdown", action="store_true", help="print a Markdown table")
    add_problem_options(parser)
    parser.set_defaults(command=command)


def command(args: argparse.Namespace) -> int:
    """Print one row per schedule."""
    from synth.cli.deviations import sections
    from synth.cli.rows import Line, as_table, reference_fields, row_fields, title
    from synth.files import load
    from synth.runs import load_run

    labels = _labels(args)
    files = {label: load(label) for label in labels if not _is_baseline(label)}
    reference = _reference(args, files)
    entries = [_entry(label, files, reference) for label in labels]
    runs = _assign([load_run(path) for path in args.run], [schedule for _, schedule in entries])
    lines = [Line(row, tuple(runs[index])) for index, (row, _) in enumerate(entries)]
    if args.json:
        print_json({"reference": reference_fields(reference), "rows": list(map(row_fields, lines))})
    else:
        print(f"{title(reference)}\n\n{as_table(lines, markdown=args.markdown)}")
        for section in sections(runs, [schedule for _, schedule in entries]):
            print(f"\n{section}")
    return 0


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
    if problem_options_given(args):
        return read_problem(args)
    if not files:
        raise UsageError("baselines alone have no costs; give -P and -m, or a FILE to compare with")
    return next(iter(files.values())).problem


def _entry(
    label: str, files: Mapping[str, Schedule], reference: Problem
) -> tuple[Row, Schedule | None]:
    from synth.compare import Row, compare

    try:
        schedule = files[label] if label in files else _baseline(label, reference)
    except PipesynthError as error:
        return Row(label, None, str(error)), None
    return compare(label, schedule, reference), schedule


def _baseline(name: str, reference: Problem) -> Schedule:
    """A handcrafted schedule in its own placement, on the costs of the reference.

    One that needs more memory than there is answers the problem without limits.
    """
    from synth import catalog
    from synth.recut import recut

    problem = recut(reference, catalog.family(name).placement)
    try:
        return catalog.build(name, problem)
    except InfeasibleError:
        return catalog.build(name, problem, ignore_limits=True)


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
