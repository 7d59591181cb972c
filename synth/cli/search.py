"""The options of a search, and the search itself, shared by the verbs that solve."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from synth.model_options import seed

if TYPE_CHECKING:
    from synth.problem import Problem
    from synth.solve import SolveResult
    from synth.solve.report import Progress


def add_search_options(
    parser: argparse.ArgumentParser, *, time_limit_s: float = 60.0, what: str = "seconds to search"
) -> None:
    """Add the options that `search` reads, and how to answer."""
    add = parser.add_argument
    add(
        "--time-limit",
        type=_seconds,
        default=time_limit_s,
        metavar="S",
        help=f"{what} (default {time_limit_s:g})",
    )
    add(
        "--solver",
        choices=("auto", "highs", "cbc"),
        default="auto",
        help="what solves the integer program (default auto, which is HiGHS)",
    )
    add("--seed", type=seed, default=0, metavar="N", help="of the solver (default 0)")
    add("--json", action="store_true", help="print one JSON object")
    add("-q", "--quiet", action="store_true", help="no progress on stderr")


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"must be a positive number of seconds, got {text}")
    return seconds


def search(args: argparse.Namespace, problem: Problem, seconds: float | None = None) -> SolveResult:
    """Solve in the seconds given, or those typed, and fuse B and W where that is faster.

    Ctrl-C ends it with the best schedule so far.
    """
    from synth.solve import solve

    with _shown(args.quiet) as progress:
        result = solve(
            problem,
            time_limit_s=args.time_limit if seconds is None else seconds,
            seed=args.seed,
            backend=args.solver,
            progress=progress,
            apart=True,
        )
        return _fused(result)


@contextmanager
def _shown(quiet: bool) -> Iterator[Progress | None]:
    """What shows the progress on stderr; None for nothing."""
    from synth.cli.progress import ProgressLine, log_news, updates_in_place

    if quiet:
        yield None
    elif updates_in_place():
        with ProgressLine() as line:
            yield line
    else:
        yield log_news


def _fused(result: SolveResult) -> SolveResult:
    from synth.fusing import fuse
    from synth.solve import Status

    if result.schedule is None:
        return result
    try:
        schedule = fuse(result.schedule)
    except KeyboardInterrupt:
        return replace(result, interrupted=True)
    optimal = schedule.certificate.optimal
    return replace(result, schedule=schedule, status=Status.OPTIMAL if optimal else Status.FEASIBLE)
