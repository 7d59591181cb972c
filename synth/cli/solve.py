"""`pipesynth solve`: the best schedule of a problem, with a proof of how good it is."""

from __future__ import annotations

import argparse
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from synth.cli.options import add_problem_options
from synth.cli.output import check_output, log, print_json, silent_libraries, write_output
from synth.cli.profiled import add_profile_options, read_any_problem
from synth.errors import InfeasibleError, NothingFoundError, PipesynthError

if TYPE_CHECKING:
    from synth.problem import Problem
    from synth.schedule import Schedule
    from synth.solve import SolveResult


def register(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb to the parser."""
    text = "find the best schedule of a problem and prove how good it is"
    parser = verbs.add_parser("solve", help=text, description=text, allow_abbrev=False)
    add_problem_options(parser)
    add_profile_options(parser)
    add = parser.add_argument
    add("-o", "--output", metavar="FILE", help="write the schedule here")
    add(
        "--time-limit",
        type=_seconds,
        default=60.0,
        metavar="S",
        help="seconds to search (default 60)",
    )
    add(
        "--solver",
        choices=("auto", "highs", "cbc"),
        default="auto",
        help="what solves the integer program (default auto, which is HiGHS)",
    )
    add("--seed", type=_seed, default=0, metavar="N", help="of the solver (default 0)")
    add("--json", action="store_true", help="print one JSON object")
    add("-q", "--quiet", action="store_true", help="no progress on stderr")
    parser.set_defaults(command=command)


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"must be a positive number of seconds, got {text}")
    return seconds


def _seed(text: str) -> int:
    seed = int(text)
    if not 0 <= seed < 2**31:
        raise argparse.ArgumentTypeError(f"must be between 0 and 2147483647, got {text}")
    return seed


def command(args: argparse.Namespace) -> int:
    """Solve, write the schedule and print what was found."""
    check_output(args.output)

    from synth.files import dumps
    from synth.solve import solve

    with silent_libraries():
        problem, cut = read_any_problem(args)
        result = solve(
            problem,
            time_limit_s=args.time_limit,
            seed=args.seed,
            backend=args.solver,
            progress=None if args.quiet else log,
        )
    result = _fused(result)
    if result.schedule is not None and args.output is not None:
        write_output(args.output, dumps(result.schedule))
    if args.json:
        print_json({**_fields(problem, result, args.output), "cut": cut})
    if result.schedule is None:
        failure = _failure(result, args.time_limit)
        if args.json:
            return failure.exit_code
        raise failure
    if not args.json:
        _print(result.schedule, result.seconds, args.output)
        if cut is not None:
            print(f"{'cut':<12} {','.join(map(str, cut))}: layers per stage; run it with --cut")
    return 0


def _fused(result: SolveResult) -> SolveResult:
    """The result with B and W fused where that is faster."""
    from synth.fusing import fuse
    from synth.solve import Status

    if result.schedule is None:
        return result
    schedule = fuse(result.schedule)
    optimal = schedule.certificate.optimal
    return replace(result, schedule=schedule, status=Status.OPTIMAL if optimal else Status.FEASIBLE)


def _failure(result: SolveResult, time_limit_s: float) -> PipesynthError:
    """Why there is no schedule."""
    from synth.solve import Status

    if result.status is Status.INFEASIBLE:
        return InfeasibleError(f"infeasible: {result.proof}")
    return NothingFoundError(
        f"no schedule found in {time_limit_s:g} s; raise --time-limit or the memory limit"
    )


def _fields(problem: Problem, result: SolveResult, path: str | None) -> dict[str, Any]:
    """What `--json` prints; null for what only a schedule has."""
    from synth.cli.figures import summary_fields
    from synth.compare import shared_limit, summarize

    if result.schedule is not None:
        figures = summary_fields(summarize(result.schedule))
    else:
        unknown = ("value", "gap", "makespan", "span", "bubble", "peak_memory")
        figures = {
            "objective": str(problem.objective),
            **dict.fromkeys(unknown),
            "bound": None if result.bound is None else problem.units.ticks(result.bound),
            "limit": shared_limit(problem),
            "placement": problem.placement,
            "proof": result.proof,
        }
    return {
        "status": str(result.status),
        **figures,
        "seconds": round(result.seconds, 3),
        "schedule": path if result.schedule is not None else None,
    }


def _print(schedule: Schedule, seconds: float, path: str | None) -> None:
    from synth.cli.figures import figures
    from synth.compare import summarize

    print(figures(summarize(schedule)))
    print(f"{'solved in':<12} {seconds:.2f} s")
    if path is not None:
        print(f"{'written to':<12} {path}")
