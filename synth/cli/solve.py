"""`pipesynth solve`: the best schedule of a problem, with a proof of how good it is."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from synth.cli.automatic import AUTO, choose_placement, no_choice, tried_fields, tried_table
from synth.cli.options import add_problem_options
from synth.cli.output import print_json, silent_libraries
from synth.cli.profiled import add_profile_options, read_any_problem
from synth.cli.search import add_search_options, search
from synth.errors import InfeasibleError, NothingFoundError, PipesynthError
from synth.outputs import check_output, write_output

if TYPE_CHECKING:
    from synth.problem import Problem
    from synth.schedule import Schedule
    from synth.solve import SolveResult


def register(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb to the parser."""
    text = "find the best schedule of a problem and prove how good it is"
    parser = verbs.add_parser("solve", help=text, description=text, allow_abbrev=False)
    add_problem_options(parser, automatic=True)
    add_profile_options(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="write the schedule here")
    add_search_options(parser)
    parser.set_defaults(command=command)


def command(args: argparse.Namespace) -> int:
    """Solve, write the schedule and print what was found."""
    check_output(args.output)

    if args.placement == AUTO:
        return _command_auto(args)
    with silent_libraries():
        problem, cut = read_any_problem(args)
        result = search(args, problem)
    return _answer(args, problem, result, {"cut": cut}, _failure(result, args.time_limit))


def _command_auto(args: argparse.Namespace) -> int:
    """Solve on every placement; the table of what was tried goes to stderr."""
    with silent_libraries():
        choice, cuts = choose_placement(args, lambda problem, s: search(args, problem, s))
    if not args.quiet and not args.json:
        print(tried_table(choice), file=sys.stderr)
    failure = None if choice.best is not None else no_choice(choice, args.time_limit)
    shown = [entry for entry in (choice.best, *choice.tried) if entry is not None]
    for entry in shown:
        if entry.problem is not None and entry.result is not None:
            extra = {"cut": cuts[entry.placement], "tried": [*map(tried_fields, choice.tried)]}
            return _answer(args, entry.problem, entry.result, extra, failure)
    raise failure or AssertionError("a choice has a problem and a result")


def _answer(
    args: argparse.Namespace,
    problem: Problem,
    result: SolveResult,
    extra: dict[str, Any],
    failure: PipesynthError | None,
) -> int:
    """Write and print what was found. Raises the failure where nothing was."""
    from synth.files import dumps

    if result.schedule is not None and args.output is not None:
        write_output(args.output, dumps(result.schedule))
    if args.json:
        print_json({**_fields(problem, result, args.output), **extra})
    if result.schedule is None:
        assert failure is not None
        if args.json:
            return failure.exit_code
        raise failure
    if not args.json:
        _print(result.schedule, result.seconds, args.output)
        if extra["cut"] is not None:
            cut = ",".join(map(str, extra["cut"]))
            print(f"{'cut':<12} {cut}: layers per stage; run it with --cut")
    return 0


def _failure(result: SolveResult, time_limit_s: float) -> PipesynthError | None:
    """Why there is no schedule; None where there is one."""
    from synth.solve import Status

    if result.schedule is not None:
        return None
    if result.status is Status.INFEASIBLE:
        return InfeasibleError(f"infeasible: {result.proof}")
    if result.interrupted:
        raise KeyboardInterrupt  # with nothing to show for it
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
