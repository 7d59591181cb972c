"""The whole idea on one machine: find a schedule, prove it, train with it, measure and compare.

Every step is a `pipesynth` command that is shown before it runs. Files go to out/demo.
"""

import json
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOLDER = Path("out/demo")
PROBLEM = ["-P", "4", "-m", "8", "--objective", "span"]
PLANS = {
    "solved": ["solve", *PROBLEM, "--memory", "4"],
    "1f1b": ["baseline", "1f1b", *PROBLEM, "--memory", "4"],
    "tight": ["solve", *PROBLEM, "--memory", "3"],
}
TRAINED = ("solved", "1f1b")
STEPS = 30


def say(text: str) -> None:
    print(f"\n\n== {text}", flush=True)


def pipesynth(*arguments: str) -> None:
    """Show a command and run it; the demo ends with the first that fails."""
    print(f"\n$ pipesynth {shlex.join(arguments)}", flush=True)
    done = subprocess.run([sys.executable, "-m", "synth", *arguments], cwd=ROOT, check=False)
    if done.returncode:
        sys.exit(done.returncode)


def plan(name: str) -> str:
    return str(FOLDER / f"{name}.json")


def run_file(name: str, model: str) -> str:
    return str(FOLDER / f"{name}-{model}.run.json")


def run(name: str, model: str, *options: str) -> dict[str, Any]:
    """Run a plan with one process per device and return what was measured."""
    pipesynth("run", plan(name), "--model", model, *options, "--run-file", run_file(name, model))
    measured: dict[str, Any] = json.loads((ROOT / run_file(name, model)).read_text())
    return measured


def make_plans() -> None:
    say("4 devices, 8 micro-batches, no more activation memory than 1F1B: the best schedule")
    pipesynth(*PLANS["solved"], "-o", plan("solved"))
    pipesynth("verify", plan("solved"))
    pipesynth("show", plan("solved"))
    say("1F1B, the handcrafted schedule that most training runs use")
    pipesynth(*PLANS["1f1b"], "-o", plan("1f1b"))
    pipesynth("show", plan("1f1b"))
    say("With room for 3 micro-batches even 1F1B does not fit; the solver still beats it")
    pipesynth(*PLANS["tight"], "-o", plan("tight"))


def train() -> None:
    say("A GPT on 4 processes; the first step's gradients are checked against a single process")
    options = ("--steps", str(STEPS), "--check")
    solved, handcrafted = (run(name, "gpt", *options)["losses"] for name in TRAINED)
    print(f"\n{'step':>4}  {'solved':>12}  {'1f1b':>12}")
    for step in range(0, STEPS, 5):
        print(f"{step:>4}  {solved[step]:>12.8f}  {handcrafted[step]:>12.8f}")
    apart = max(abs(a - b) for a, b in zip(solved, handcrafted, strict=True))
    print(f"largest difference over {STEPS} steps: {apart:.1e}")


def measure() -> None:
    say("Stages that sleep for 20 ms per unit: how close to its plan a step comes")
    options = ("--tick-ms", "20", "--steps", "10", "--warmup", "2")
    runs = {name: run(name, "sleep", *options) for name in PLANS}
    say("All together, on the same costs")
    run_files = [f"--run={run_file(name, 'sleep')}" for name in PLANS]
    pipesynth("compare", *map(plan, PLANS), "--baselines", "gpipe,zb-h1,zb-h2", *run_files)
    for what in ("measured", "planned"):
        solved, handcrafted = (runs[name][what]["span_s"] for name in TRAINED)
        print(f"solved / 1f1b, {what}: {solved / handcrafted:.3f}")


def main() -> None:
    begin = time.monotonic()
    (ROOT / FOLDER).mkdir(parents=True, exist_ok=True)
    make_plans()
    train()
    measure()
    print(f"\nDone in {time.monotonic() - begin:.0f} s; the files are in {FOLDER}")


if __name__ == "__main__":
    main()
