"""A model whose head outweighs its layers: balance and solve against the even cut and 1F1B.

    python benchmarks/large_head.py [FOLDER]

The stages sleep for the profiled times, stretched, so that four of them can be timed on few cores.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from statistics import median

from commands import pipesynth
from large_head_model import WIDTH

DEVICES, MICROBATCHES, TURNS = 4, 8, 3
MEAN_F_MS = 25.0
RUN = ("--model", "sleep", "--steps", 12, "--warmup", 3)


def main(folder: Path) -> None:
    costs, sizes = folder / "costs.json", ("-P", DEVICES, "-m", MICROBATCHES)
    mine = ("--model", "benchmarks.large_head_model:make", "--input-shape", WIDTH, "--batch", 128)
    print(pipesynth("profile", *mine, "-P", DEVICES, "--processes", 2, "-o", costs))
    plans = {"balanced + solved": folder / "solved.json", "even + 1f1b": folder / "1f1b.json"}
    known = ("--profile", costs, *sizes)
    solved = ("--balance", "--time-limit", 20, "-q", "-o", folder / "solved.json")
    print(pipesynth("solve", *known, *solved))
    print(pipesynth("baseline", "1f1b", *known, "-o", folder / "1f1b.json"))
    stages = json.loads(costs.read_text())["stages"]
    mean_ns = sum(stage["forward"]["median_ns"] for stage in stages) / len(stages)
    tick_ms = MEAN_F_MS / (mean_ns / 1000)
    measured: dict[str, list[float]] = {name: [] for name in plans}
    planned: dict[str, float] = {}
    for _ in range(TURNS):
        for name, plan in plans.items():
            run = folder / "run.json"
            pipesynth("run", plan, *RUN, "--tick-ms", f"{tick_ms:.6f}", "--run-file", run)
            found = json.loads(run.read_text())
            measured[name].append(found["measured"]["makespan_s"])
            planned[name] = found["planned"]["makespan_s"]
    for name, steps in measured.items():
        shown = " ".join(f"{1e3 * step:.1f}" for step in steps)
        print(f"{name:<18} planned {1e3 * planned[name]:.1f} ms, measured {shown} ms")
    first, second = plans
    ratio = median(a / b for a, b in zip(measured[first], measured[second], strict=True))
    plan = planned[first] / planned[second]
    print(f"ratio: planned {plan:.4f}, measured {ratio:.4f}, {100 * (ratio / plan - 1):+.1f}%")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
        main(Path(sys.argv[1]).resolve())
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
