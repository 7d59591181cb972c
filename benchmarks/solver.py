"""What the solver finds and proves, next to what is published.

    python benchmarks/solver.py [--group NAME ...] [--rows TEXT] [--time-limit S] [--json FILE]

A Markdown table for each group of rows; every row is solved in a process of its own, whose peak
memory is given. "ours" and "bound" are values of the objective, or bubble rates where rates are
published; "against" says whether ours is better than, equal to or worse than what is published.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent))

from solver_rows import GROUPS, Row

from synth.cli.output import silent_libraries
from synth.fusing import fuse
from synth.problem import Problem
from synth.schedule import value
from synth.simulate import retime
from synth.solve import solve

ROUNDED = 0.00005  # half of a published rate's last digit


@dataclass(frozen=True, slots=True)
class Answer:
    """A solved row; value and bound as the row is published, `target` None where nothing is."""

    group: str
    name: str
    placement: str
    objective: str
    value: float | None
    bound: float | None
    gap: float | None
    proof: str
    target: float | None
    note: str
    rate: bool
    seconds: float
    peak_mib: float

    @property
    def proved(self) -> bool:
        """Whether the value is proved to be the best."""
        return self.gap == 0.0

    @property
    def against(self) -> str:
        """Ours against what is published, in one word."""
        if self.value is None or self.target is None:
            return "-"
        close = ROUNDED if self.rate else 1e-9
        if abs(self.value - self.target) <= close:
            return "equal"
        return "better" if self.value < self.target else "WORSE"


def answer(group: str, row: Row, time_limit_s: float, seed: int) -> Answer:
    """Solve a row."""
    problem = row.problem
    with silent_libraries():
        target = _by_medians(problem, time_limit_s, seed) if row.medians else row.target
        result = solve(problem, time_limit_s=time_limit_s, seed=seed)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    found, gap = None, None
    if result.schedule is not None:
        certificate = fuse(result.schedule).certificate
        found, gap = certificate.value, certificate.gap
    return Answer(
        group=group,
        name=row.name,
        placement=problem.placement,
        objective=str(problem.objective),
        value=_shown(row, found),
        bound=_shown(row, result.bound),
        gap=gap,
        proof=result.proof,
        target=target,
        note=row.note,
        rate=row.rate,
        seconds=result.seconds,
        peak_mib=peak,
    )


def _shown(row: Row, ticks: int | None) -> float | None:
    """Ticks as the bubble rate of the busiest device, or in units of time."""
    problem = row.problem
    if ticks is None:
        return None
    if not row.rate:
        return problem.units.ticks(ticks)
    return 1 - max(map(problem.work, range(problem.devices))) / ticks


def _by_medians(problem: Problem, time_limit_s: float, seed: int) -> float | None:
    """What the schedule takes whose order was found for the median costs of all stages."""
    middle = {
        name: int(median(getattr(stage, name) for stage in problem.stages))
        for name in problem.stages[0].__slots__
    }
    stages = tuple(replace(stage, **middle) for stage in problem.stages)
    found = solve(replace(problem, stages=stages), time_limit_s=time_limit_s, seed=seed).schedule
    if found is None:
        return None
    return problem.units.ticks(value(retime(problem, found.orders), problem.objective))


def cells(found: Answer) -> list[str]:
    """A row of the table."""
    return [
        found.name,
        _number(found.value, found.rate),
        _number(found.bound, found.rate),
        "-" if found.gap is None else "0" if found.proved else f"{100 * found.gap:.2f}%",
        "-" if found.target is None else f"{_number(found.target, found.rate)} ({found.note})",
        found.against,
        found.proof.partition(":")[0],
        f"{found.seconds:.1f}",
        f"{found.peak_mib:.0f}",
    ]


HEADERS = ["row", "ours", "bound", "gap", "published", "against", "proof", "s", "MiB"]


def _number(number: float | None, rate: bool) -> str:
    if number is None:
        return "-"
    return f"{number:.4f}" if rate else f"{number:.4f}".rstrip("0").rstrip(".")


def summary(found: Sequence[Answer]) -> str:
    """The rows of a group in one line."""
    gaps = [entry.gap for entry in found if entry.gap is not None]
    worse = [entry.name for entry in found if entry.against == "WORSE"]
    missing = sum(entry.value is None for entry in found)
    parts = [
        f"{sum(entry.proved for entry in found)} of {len(found)} proved optimal",
        f"gap median {100 * median(gaps):.2f}%, largest {100 * max(gaps):.2f}%" if gaps else "",
        f"longest {max(entry.seconds for entry in found):.1f} s",
        f"most memory {max(entry.peak_mib for entry in found):.0f} MiB",
        f"worse than published: {', '.join(worse) or 'none'}",
        f"{missing} without a schedule" if missing else "",
    ]
    return "; ".join(part for part in parts if part)


def run(group: str, rows: Sequence[Row], time_limit_s: float, seed: int) -> list[Answer]:
    """Solve and print one group."""
    heading = (GROUPS[group].__doc__ or "").strip()
    print(f"\n### {group}\n\n{heading}\n")
    print("| " + " | ".join(HEADERS) + " |")
    print("| --- |" + " ---: |" * 3 + " --- |" * 3 + " ---: |" * 2, flush=True)
    found = []
    for row in rows:
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=spawn) as alone:
            found.append(alone.submit(answer, group, row, time_limit_s, seed).result())
        print("| " + " | ".join(cells(found[-1])) + " |", flush=True)
    print(f"\n{summary(found)}.", flush=True)
    return found


def main() -> None:
    """Solve the groups asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--group", action="append", choices=GROUPS, help="default all")
    parser.add_argument("--rows", default="", metavar="TEXT", help="only rows whose name has it")
    parser.add_argument("--time-limit", type=float, default=60.0, metavar="S", help="a row")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all answers here too")
    args = parser.parse_args()
    found: list[Answer] = []
    for group in args.group or GROUPS:
        rows = [row for row in GROUPS[group]() if args.rows in row.name]
        if rows:
            found += run(group, rows, args.time_limit, args.seed)
    if len({entry.group for entry in found}) > 1:
        print(f"\nAll rows: {summary(found)}.")
    if args.json is not None:
        args.json.write_text(json.dumps([asdict(entry) for entry in found], indent=1) + "\n")


if __name__ == "__main__":
    main()
