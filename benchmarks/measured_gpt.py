"""A GPT on two processes: profile it, solve under a byte limit, run, compare with the plan.

    python benchmarks/measured_gpt.py [FOLDER]

The solved schedule and 1F1B run in turn, so that both meet the same machine, with a profile before
and behind every turn: the plan of a turn is the mean of what its two profiles say, since a shared
machine is not as fast now as it was a minute ago.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from commands import answer, pipesynth

DEVICES, MICROBATCHES, TURNS = 2, 4, 5
GPT = ("--layers", 6, "--width", 192, "--batch", 4)
ROOM = 3.5  # micro-batches that fit beside what is static
PROFILE = ("--rounds", 10, "--warmup", 3)
RUN = ("--steps", 14, "--warmup", 4)


def main(folder: Path) -> None:
    sizes = ("-P", DEVICES, "-m", MICROBATCHES)
    costs = profile(folder, 0)
    stages = json.loads(costs.read_text())["stages"]
    static = ("parameter_bytes", "gradient_bytes", "optimizer_bytes")
    need = [
        sum(stage[name] for name in static) + ROOM * stage["activation_bytes"] for stage in stages
    ]
    limit = f"{max(need) / 2**30:.6f}"
    plans = {"solved": folder / "solved.json", "1f1b": folder / "1f1b.json"}
    known = ("--profile", costs, *sizes, "--memory-gib", limit)
    print(pipesynth("solve", *known, "--time-limit", 15, "-q", "-o", plans["solved"]))
    pipesynth("baseline", "1f1b", *known, "-o", plans["1f1b"])

    planned = [retimed(plans, costs, sizes)]
    measured: list[dict[str, float]] = []
    for turn in range(TURNS):
        measured.append({name: step_ms(plan, folder) for name, plan in plans.items()})
        planned.append(retimed(plans, profile(folder, turn + 1), sizes))
    ratios: dict[str, list[float]] = {name: [] for name in plans}
    print("turn  schedule  planned ms  measured ms  ratio")
    for turn, steps in enumerate(measured):
        for name, step in steps.items():
            plan = (planned[turn][name] + planned[turn + 1][name]) / 2
            ratios[name].append(step / plan)
            print(f"{turn:4}  {name:8}  {plan:10.1f}  {step:11.1f}  {step / plan:5.3f}")
    for name, found in ratios.items():
        print(f"{name}: median of measured over planned {median(found):.3f}")
    shown = [
        median(turn["solved"] / turn["1f1b"] for turn in turns) for turns in (measured, planned)
    ]
    print(f"solved over 1f1b: measured {shown[0]:.3f}, planned {shown[1]:.3f}")


def profile(folder: Path, number: int) -> Path:
    """Measures the model; the costs file."""
    costs = folder / f"costs.{number}.json"
    pipesynth("profile", "--model", "gpt", *GPT, *PROFILE, "-P", DEVICES, "-o", costs)
    return costs


def retimed(plans: dict[str, Path], costs: Path, sizes: Sequence[object]) -> dict[str, float]:
    """What the orders of the plans take by a profile, in milliseconds."""
    rows = answer("compare", *plans.values(), "--profile", costs, *sizes)["rows"]
    return {Path(row["name"]).stem: row["makespan"] for row in rows}


def step_ms(plan: Path, folder: Path) -> float:
    """What a step takes, in milliseconds."""
    run = folder / "run.json"
    pipesynth("run", plan, "--model", "gpt", *GPT, *RUN, "--run-file", run)
    return 1e3 * float(json.loads(run.read_text())["measured"]["makespan_s"])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
        main(Path(sys.argv[1]).resolve())
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
