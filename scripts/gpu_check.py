"""What a machine with GPUs can show of the runtime, as a table; gpu_check.sh starts it.

Exit codes: 0 everything passed or was skipped, 1 something failed, 2 wrong usage. Where the
environment variable OUT names a folder, the table, the log and the measured files are left there.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMIT_S = 510.0
"""For all steps together; what is left of it is what a step may take."""
SIZES = {
    "cuda": ("--layers", "12", "--width", "768", "--heads", "12", "--seq-len", "512"),  # GPT-2's
    "cpu": ("--layers", "2", "--width", "16", "--heads", "2", "--seq-len", "8"),
}
REFUSED = "Duplicate GPU detected"
"""What NCCL says to several ranks on one GPU."""


@dataclass(frozen=True, slots=True)
class Step:
    """Commands that show one thing; the first that fails ends it."""

    name: str
    shows: str
    commands: tuple[tuple[str, ...], ...]
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Row:
    """What came of a step."""

    step: Step
    result: str
    seconds: float

    @property
    def failed(self) -> bool:
        return self.result.startswith("FAILED")


def steps(device: str, gpus: int, out: Path, scratch: Path) -> tuple[Step, ...]:
    """Everything that can be shown on this many GPUs."""
    return (
        Step(
            "chunks",
            "several chunks on one device: gradients, split W, planned against measured memory",
            (pytest("test_one_device.py", "-m", "not dist", "-k", device),),
        ),
        Step(
            "streams",
            "W on a stream of its own, the clock of the GPU, NCCL from a rank to itself",
            (pytest("test_gpu.py"),),
        ),
        Step(
            "profile",
            "a GPT measured, planned, and trained against one process",
            profile(device, out),
        ),
        Step(
            "train",
            "training with updates ahead of the norm, a checkpoint, and going on from it",
            train(device, scratch),
        ),
        nccl(device, gpus, out),
    )


def profile(device: str, out: Path) -> tuple[tuple[str, ...], ...]:
    costs, plan = str(out / "costs.json"), str(out / "plan.json")
    chunks, on = ("-P", "1", "--placement", "interleaved:2"), ("--device", device)
    measure = ("profile", "--model", "gpt", *chunks, *SIZES[device], *on, "--processes", "1")
    solve = ("solve", *chunks, "-m", "4", "--profile", costs, "--time-limit", "10")
    run = ("run", plan, "--profile", costs, *on, "--check", "--steps", "6", "--warmup", "2")
    return (
        pipesynth(*measure, "-o", costs),
        pipesynth(*solve, "-o", plan),
        pipesynth(*run, "--run-file", str(out / "run.json")),
    )


def train(device: str, scratch: Path) -> tuple[tuple[str, ...], ...]:
    plan, folder = str(scratch / "plan.json"), str(scratch / "checkpoints")
    own = ("train", plan, *SIZES["cpu"], "--device", device, "--clip", "0.5", "--early-updates")
    command = (sys.executable, "-m", "runtime", *own, "--checkpoint", folder)
    return (
        pipesynth("baseline", "zb-v", "-P", "1", "-m", "4", "-o", plan),
        (*command, "--checkpoint-every", "2", "--steps", "4"),
        (*command, "--resume", "--steps", "6"),
    )


def nccl(device: str, gpus: int, out: Path) -> Step:
    """Several ranks: on GPUs of their own, or two of them on the only one."""
    if device == "cuda" and gpus == 1:
        return Step(
            "nccl",
            "gradients of two ranks on NCCL, which share the GPU as if on two hosts",
            (pytest("test_gradients.py", "-k", "cuda and 2 and not 4"),),
            {"PIPESYNTH_SHARE_GPU": "1"},
        )
    ranks, plan = str(min(max(gpus, 2), 4)), str(out / "ranks.json")
    names = ("gradients", "replicas", "post_validation", "foreign_models")
    return Step(
        "nccl",
        f"{ranks} ranks: the tests of gloo, and a checked run, on {device}",
        (
            pipesynth("baseline", "zb-h1", "-P", ranks, "-m", "8", "-o", plan),
            pipesynth("run", plan, "--device", device, "--check", "--steps", "3", "--warmup", "1"),
            pytest(*(f"test_{name}.py" for name in names), "-k", device),
        ),
    )


def pytest(*arguments: str) -> tuple[str, ...]:
    files = [f"tests/runtime/{name}" if name.endswith(".py") else name for name in arguments]
    return (sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", *files)


def pipesynth(*arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "synth", *arguments)


def run(step: Step, log: Path, deadline: float) -> Row:
    """Runs the commands of a step; their output goes to the end of the log."""
    begin, said = time.monotonic(), ""
    for command in step.commands:
        code, text = call(command, step.environment, deadline)
        with log.open("a") as end:
            end.write(f"\n$ {' '.join(command)}\n{text}")
        said += text
        if code:
            break
    return Row(step, verdict(code, said), time.monotonic() - begin)


def call(command: Sequence[str], more: dict[str, str], deadline: float) -> tuple[int | None, str]:
    """Exit code and output; no code where the time was up."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = {"OMP_NUM_THREADS": "1", **os.environ, "PYTHONPATH": path, **more}
    job = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        text, _ = job.communicate(timeout=max(1.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)  # with the ranks it has started
        text, _ = job.communicate()
        return None, text
    return job.returncode, text


def verdict(code: int | None, said: str) -> str:
    """What the exit code and the output of a step come down to, in a line."""
    passed, skipped = (
        sum(int(number) for number in re.findall(rf"(\d+) {word}\b", said))
        for word in ("passed", "skipped")
    )
    reasons = dict.fromkeys(re.findall(r"^SKIPPED \[\d+\] \S+: (.*)$", said, re.MULTILINE))
    if REFUSED in said:
        return "skipped: NCCL refuses two ranks on one GPU"
    if code is None:
        return "FAILED: it ran out of time"
    if code:
        last = [line for line in said.splitlines() if line.strip()]
        return f"FAILED: {last[-1].strip('= ') if last else f'exit code {code}'}"
    parts = [f"{passed} passed"] * bool(passed)
    parts += [f"{skipped} skipped: {', '.join(reasons)}"] * bool(skipped)
    return ", ".join(parts) or "passed"


def table(rows: Sequence[Row]) -> str:
    lines = [
        f"{row.step.name:<8}  {row.seconds:5.0f} s  {row.result}\n{'':19}{row.step.shows}"
        for row in rows
    ]
    return "\n".join(lines)


def main() -> int:
    names = [step.name for step in steps("cpu", 0, ROOT, ROOT)]
    parser = argparse.ArgumentParser("gpu_check", description=__doc__)
    parser.add_argument(
        "--device",
        choices=("cuda", "cpu"),
        default="cuda",
        help=("cpu runs the same commands without a GPU, to try them out"),
    )
    parser.add_argument("steps", nargs="*", metavar="STEP", help=f"of {', '.join(names)}")
    options = parser.parse_args()
    if unknown := [name for name in options.steps if name not in names]:
        parser.error(f"{unknown[0]} is not a step; these are {', '.join(names)}")
    import torch  # slow: wrong usage and help do without

    gpus = torch.cuda.device_count()
    if options.device == "cuda" and not gpus:
        print("gpu_check: everything is skipped: no CUDA device here", file=sys.stderr)
        return 0
    out = Path(os.environ.get("OUT") or ROOT / "out" / "gpu-check-results").absolute()
    out.mkdir(parents=True, exist_ok=True)
    log = out / "gpu_check.log"
    log.write_text("")
    deadline = time.monotonic() + LIMIT_S
    rows = []
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as scratch:
        for step in steps(options.device, gpus, out, Path(scratch)):
            if not options.steps or step.name in options.steps:
                print(f"gpu_check: {step.name} ...", file=sys.stderr, flush=True)
                rows.append(run(step, log, deadline))
    where = torch.cuda.get_device_name(0) if options.device == "cuda" else "the CPU"
    text = f"{gpus} GPUs; torch {torch.__version__} on {where}\n{table(rows)}\n"
    (out / "summary.txt").write_text(text)
    print(text, end="")
    print(f"gpu_check: the log is {log}", file=sys.stderr)
    return int(any(row.failed for row in rows))


if __name__ == "__main__":
    sys.exit(main())
