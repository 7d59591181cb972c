"""A GPT on two processes: profile it, solve under a byte limit, run, compare with the plan.

    python benchmarks/measured_gpt.py [FOLDER]

Runs the solved schedule and 1F1B in turn, so that both meet the same machine. On a machine that
does other work as well, start it with a real-time priority: `chrt -f 10 python ...`.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from statistics import median

from commands import answer, pipesynth

DEVICES, MICROBATCHES, TURNS = 2, 4, 3
GPT = ("--layers", 6, "--width", 192, "--batch", 4)
ROOM = 3.5  # micro-batches that fit beside what is static
PROFILE = ("--rounds", 10, "--warmup", 3)
RUN = ("--steps", 14, "--warmup", 4)


def main(folder: Path) -> None:
    costs, sizes = folder / "costs.json", ("-P", DEVICES, "-m", MICROBATCHES)
    print(pipesynth("profile", "--model", "gpt", *GPT, *PROFILE, "-P", DEVICES, "-o", costs))
    stages = json.loads(costs.read_text())["stages"]
    static = ("parameter_bytes", "gradient_bytes", "optimizer_bytes")
    need = [
        sum(stage[name] for name in static) + ROOM * stage["activation_bytes"] for stage in stages
    ]
    limit = f"{max(need) / 2**30:.6f}"
    plans = {"solved": folder / "solved.json", "1f1b": folder / "1f1b.json"}
    known = ("--profile", costs, *sizes, "--memory-gib", limit)
    pipesynth("solve", *known, "--time-limit", 15, "-q", "-o", plans["solved"])
    pipesynth("baseline", "1f1b", *known, "-o", plans["1f1b"])
    runs: dict[str, list[Path]] = {name: [] for name in plans}
    for turn in range(TURNS):
        for name, plan in plans.items():
            runs[name].append(folder / f"{name}.{turn}.run.json")
            pipesynth("run", plan, "--model", "gpt", *GPT, *RUN, "--run-file", runs[name][-1])
    files = [word for paths in runs.values() for path in paths for word in ("--run", path)]
    print(pipesynth("compare", *plans.values(), *files))
    rows = {
        Path(row["name"]).stem: row for row in answer("compare", *plans.values(), *files)["rows"]
    }
    for name, row in rows.items():
        steps = [json.loads(path.read_text())["measured"]["makespan_s"] for path in runs[name]]
        shown = " ".join(f"{1e3 * step:.1f}" for step in steps)
        print(f"{name}: {shown} ms, median over plan {row['of_plan']:.3f}")
    ratio = median(
        json.loads(a.read_text())["measured"]["makespan_s"]
        / json.loads(b.read_text())["measured"]["makespan_s"]
        for a, b in zip(runs["solved"], runs["1f1b"], strict=True)
    )
    planned = rows["solved"]["makespan"] / rows["1f1b"]["makespan"]
    print(f"solved over 1f1b: measured {ratio:.3f}, planned {planned:.3f}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
        main(Path(sys.argv[1]).resolve())
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
