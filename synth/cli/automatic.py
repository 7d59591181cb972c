"""`--placement auto`: solve on every placement that fits, and what was tried, in words."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from synth.cli.output import number, percent, table
from synth.errors import InfeasibleError, NothingFoundError, ProblemError

if TYPE_CHECKING:
    from synth.auto import Choice, Search, Tried
    from synth.problem import Problem

AUTO = "auto"


def with_placement(args: argparse.Namespace, placement: str) -> argparse.Namespace:
    """The options with another placement."""
    return argparse.Namespace(**{**vars(args), "placement": placement})


def choose_placement(
    args: argparse.Namespace, search: Search
) -> tuple[Choice, dict[str, list[int] | None]]:
    """What was tried, and for each placement the cut that --balance made.

    Raises ProblemError where the options make no problem on any placement.
    """
    from synth.auto import choose
    from synth.cli.profiled import read_any_problem

    cuts: dict[str, list[int] | None] = {}

    def make(placement: str) -> Problem:
        problem, cuts[placement] = read_any_problem(with_placement(args, placement))
        return problem

    choice = choose(make, search, time_limit_s=args.time_limit)
    if all(entry.problem is None and entry.result is None for entry in choice.tried):
        raise ProblemError(choice.tried[0].reason)
    return choice, cuts


def no_choice(choice: Choice, time_limit_s: float) -> InfeasibleError | NothingFoundError:
    """Why no placement has a schedule."""
    if choice.infeasible:
        reasons: dict[str, list[str]] = {}
        for entry in choice.tried:
            reasons.setdefault(entry.reason, []).append(entry.placement)
        text = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in reasons.items())
        return InfeasibleError(f"infeasible: {text}")
    return NothingFoundError(
        f"no schedule found on any placement in {time_limit_s:g} s; raise --time-limit or the "
        "memory limit"
    )


def tried_table(choice: Choice) -> str:
    """A row for each placement."""
    headers = ["placement", "parameters", "value", "bound", "gap", "bubble", "peak", "seconds", ""]
    return table(headers, [_row(entry, entry is choice.best) for entry in choice.tried])


def _row(entry: Tried, best: bool) -> list[str]:
    fields = tried_fields(entry)
    factor = "-" if entry.parameters is None else f"{float(entry.parameters):g}x"
    return [
        entry.placement,
        factor,
        number(fields["value"]),
        number(fields["bound"]),
        percent(fields["gap"]),
        percent(fields["bubble"]),
        number(fields["peak_memory"]),
        "-" if fields["seconds"] is None else f"{fields['seconds']:.2f}",
        "best" if best else entry.reason,
    ]


def tried_fields(entry: Tried) -> dict[str, Any]:
    """A placement as `--json` prints it; null for what it does not have."""
    from synth.compare import summarize

    problem, result = entry.problem, entry.result
    fields: dict[str, Any] = {
        "placement": entry.placement,
        "parameters": None if entry.parameters is None else float(entry.parameters),
        "status": "not searched" if result is None else str(result.status),
        **dict.fromkeys(("value", "bound", "gap", "bubble", "peak_memory")),
        "seconds": None if result is None else round(result.seconds, 3),
        "reason": entry.reason or None,
    }
    if problem is not None and entry.bound is not None:
        fields["bound"] = problem.units.ticks(entry.bound)
    if result is not None and result.schedule is not None:
        summary = summarize(result.schedule)
        fields |= {name: getattr(summary, name) for name in ("value", "bound", "gap", "bubble")}
        fields["peak_memory"] = max(summary.peak_memory)
    return fields
