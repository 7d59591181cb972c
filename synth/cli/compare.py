"""`pipesynth compare`: schedules side by side on the same costs, with what was measured."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from synth.cli.options import add_problem_options, problem_options_given, read_problem
from synth.cli.output import number, percent, print_json, table
from synth.errors import InfeasibleError, PipesynthError, UsageError

if TYPE_CHECKING:
    from synth.compare import Row
    from synth.problem import Problem, StageCost
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
    from synth.files import load
    from synth.runs import load_run

    labels = _labels(args)
    files = {label: load(label) for label in labels if not _is_baseline(label)}
    reference = _reference(args, files)
    entries = [_entry(label, files, reference) for label in labels]
    runs = _assign([load_run(path) for path in args.run], [schedule for _, schedule in entries])
    lines = [_Line(row, tuple(runs[index])) for index, (row, _) in enumerate(entries)]
    if args.json:
        print_json({"reference": _reference_fields(reference), "rows": list(map(_fields, lines))})
    else:
        print(f"{_title(reference)}\n\n{_table(lines, markdown=args.markdown)}")
    return 0


@dataclass(frozen=True, slots=True)
class _Line:
    """A row of the comparison with the runs of its schedule."""

    row: Row
    runs: tuple[MeasuredRun, ...]

    def measured_s(self, objective: str) -> float | None:
        """Median over the runs of the step time that the objective counts."""
        return median(run.step_s(objective) for run in self.runs) if self.runs else None

    def of_plan(self, objective: str) -> float | None:
        """Median over the runs of measured over planned time."""
        ratios = [run.of_plan(objective) for run in self.runs]
        known = [ratio for ratio in ratios if ratio is not None]
        return median(known) if known else None


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


def _title(reference: Problem) -> str:
    from synth.cli.figures import limit_text
    from synth.compare import shared_limit

    ticks = reference.units.ticks
    costs = " | ".join(
        ",".join(number(ticks(time)) for time in _times(cost))
        for cost in dict.fromkeys(reference.stages)
    )
    return (
        f"{reference.devices} devices, {reference.total_microbatches} micro-batches, "
        f"F,B,W {costs}, hop {number(ticks(reference.comm_ticks))}, "
        f"{limit_text(shared_limit(reference))}, objective {reference.objective}"
    )


def _times(cost: StageCost) -> tuple[int, int, int]:
    return cost.forward_ticks, cost.backward_act_ticks, cost.backward_wgt_ticks


def _table(lines: Sequence[_Line], *, markdown: bool) -> str:
    headers = ["schedule", "makespan", "span", "bubble", "peak", "messages", "gap"]
    with_runs = any(line.runs for line in lines)
    if with_runs:
        headers += ["measured ms", "of plan"]
    headers.append("valid")
    return table(headers, [_cells(line, with_runs) for line in lines], markdown=markdown)


def _cells(line: _Line, with_runs: bool) -> list[str]:
    row, summary = line.row, line.row.summary
    if summary is None:
        figures = ["-"] * 6 + (["-"] * 2 if with_runs else [])
        return [row.name, *figures, f"no: {row.reason}"]
    cells = [
        row.name,
        number(summary.makespan),
        number(summary.span),
        percent(summary.bubble),
        number(max(summary.peak_memory)),
        str(summary.messages),
        percent(row.gap),
    ]
    if with_runs:
        step, ratio = line.measured_s(summary.objective), line.of_plan(summary.objective)
        cells += ["-" if step is None else f"{1e3 * step:.1f}", number(ratio)]
    return [*cells, "yes" if row.valid else f"no: {row.reason}"]


def _reference_fields(reference: Problem) -> dict[str, Any]:
    from synth.compare import shared_limit

    ticks = reference.units.ticks
    return {
        "devices": reference.devices,
        "microbatches": reference.total_microbatches,
        "costs": [[ticks(time) for time in _times(cost)] for cost in reference.stages],
        "comm": ticks(reference.comm_ticks),
        "objective": str(reference.objective),
        "limit": shared_limit(reference),
    }


def _fields(line: _Line) -> dict[str, Any]:
    row, summary = line.row, line.row.summary
    fields: dict[str, Any] = {"name": row.name, "valid": row.valid, "reason": row.reason or None}
    if summary is None:
        return fields
    return {
        **fields,
        "makespan": summary.makespan,
        "span": summary.span,
        "bubble": summary.bubble,
        "peak": max(summary.peak_memory),
        "messages": summary.messages,
        "gap": row.gap,
        "placement": summary.placement,
        "measured_s": line.measured_s(summary.objective),
        "of_plan": line.of_plan(summary.objective),
    }
