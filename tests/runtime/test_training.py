"""`python -m runtime train` and the Python API: what they say, write and refuse."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from runtime.executor import InFlight, RanOp, StepResult
from runtime.progress import Recorder, collect, describe, publish, set_up_logging
from runtime.train_options import parse
from synth import catalog
from synth.errors import FileError, UsageError
from synth.files import save
from synth.op import Kind, Op
from synth.problem import make_problem

ROOT = Path(__file__).resolve().parents[2]
SMALL = ("--width", "8", "--heads", "2", "--seq-len", "8", "--batch", "1", "--steps", "6")


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    save(catalog.build("zb-h1", make_problem(2, 4)), path)
    return path


def start(command: list[object]) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != "RANK"}
    return subprocess.run(
        [sys.executable, *map(str, command)],
        env=environment | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def train(plan: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return start(["-m", "runtime", "train", plan, *SMALL, *arguments])


# Without ranks -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--steps", "0"], "--steps must be at least 1"),
        (["--replicas", "0"], "--replicas must be at least 1"),
        (["--clip", "-1"], "--clip must be a positive number"),
        (["--clip", "nan"], "--clip must be a positive number"),
        (["--resume"], "--resume needs --checkpoint DIR"),
        (["--checkpoint", __file__], "is a file, not a folder"),
        (["--checkpoint", "new", "--model", "sleep"], "--checkpoint needs a model with parameters"),
        (["--frobnicate"], "unrecognized arguments: --frobnicate"),
    ],
)
def test_wrong_usage_is_refused(arguments: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        parse(["plan.json", *arguments])


def test_dry_run_needs_no_ranks(plan: Path) -> None:
    shown = train(plan, "--dry-run")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "cannot deadlock" in shown.stdout


class Store(dict[str, str]):
    """As much of a store as one process needs."""

    def set(self, key: str, value: str) -> None:
        self[key] = value

    def delete_key(self, key: str) -> None:
        del self[key]


def test_progress_puts_the_ranks_together() -> None:
    store, recorders = Store(), [Recorder(start_s=0), Recorder(start_s=0)]
    op = Op(Kind.F, 0, 0)
    for step in range(2):
        losses = {0: torch.tensor(1.0 + step), 1: torch.tensor(2.0 + step)}
        ran = (RanOp(op, 5.0, 7.0),)
        recorders[0].note(StepResult({}, ran, InFlight(1, 1)))
        recorders[1].note(StepResult(losses, (*ran, *ran), InFlight(1, 1)))
    shares = [recorder.take() for recorder in recorders]
    for rank, share in enumerate(shares):
        publish(store, rank, 2, share)
    stretch = collect(store, 2, 2)
    assert stretch.losses == [1.5, 2.5]
    wall_s = max(share.wall_s for share in shares)
    assert stretch.step_s == wall_s / 2
    assert stretch.bubble == pytest.approx(max(0, 1 - 12 / (2 * wall_s)))
    assert not store
    assert recorders[0].losses == []
    line = describe(stretch, 9, 64, "tokens")
    assert line.startswith("step 2/9  loss 2.5000  ")
    assert re.search(r" ms per step  [\d,]+ tokens/s  bubble [\d.]+%$", line)


# With ranks --------------------------------------------------------------------------------------


@pytest.mark.dist
def test_a_training_says_and_writes_what_it_does(plan: Path, tmp_path: Path) -> None:
    checkpoints, logs = tmp_path / "new" / "checkpoints", tmp_path / "logs"
    folders = ("--checkpoint", checkpoints, "--log-folder", logs)
    done = train(plan, *folders, "--clip", 1, "--early-updates", "--log-every", 4)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in checkpoints.iterdir()] == ["step-00000006"]
    first, loss, last = done.stdout.splitlines()
    assert first == "steps      1 to 6"
    assert re.fullmatch(r"loss       \d\.\d{4} -> \d\.\d{4}", loss)
    assert last == f"checkpoint {checkpoints / 'step-00000006'}"
    assert re.search(r"^step 4/6  loss \S+  \S+ ms per step  \S+ tokens/s", done.stderr, re.M)
    texts = {path.name: path.read_text() for path in logs.iterdir()}
    assert sorted(texts) == ["rank-0.log", "rank-1.log"]
    assert "[rank 0] rank 0 of 2: stages [0] on cpu, steps 1 to 6" in texts["rank-0.log"]
    assert re.search(r"\[rank 1\] step 4  loss \S+  \S+ ms per step  busy", texts["rank-1.log"])


@pytest.mark.dist
@pytest.mark.slow
def test_a_training_in_two_parts_is_that_in_one(plan: Path, tmp_path: Path) -> None:
    """The first part updates early, the second waits for the norm: the losses show no seam."""
    checkpoints = tmp_path / "checkpoints"
    common = ("--clip", 1, "--json")
    first = train(plan, *common, "--checkpoint", checkpoints, "--steps", 4, "--early-updates")
    assert first.returncode == 0, first.stderr
    more = ("--checkpoint", checkpoints, "--resume", "--checkpoint-every", 5)
    second = train(plan, *common, *more)
    assert second.returncode == 0, second.stderr
    one, two = json.loads(first.stdout), json.loads(second.stdout)
    assert (one["first_step"], two["first_step"]) == (1, 5)
    kept = sorted(path.name for path in checkpoints.iterdir())
    assert kept == ["step-00000005", "step-00000006"]
    whole = json.loads(train(plan, *common).stdout)
    assert one["losses"] + two["losses"] == whole["losses"]
    assert len(whole["losses"]) == 6


@pytest.mark.dist
def test_checkpoints_that_cannot_be_written_stop_the_training_before_its_first_step(
    plan: Path,
) -> None:
    refused = train(plan, "--checkpoint", plan / "below", "--log-every", 1)
    assert refused.returncode == 2
    assert refused.stderr == (
        f"pipesynth: {plan}/below: checkpoints cannot be written there: Not a directory; "
        "choose another folder\n"
    )


@pytest.mark.dist
@pytest.mark.slow
def test_checkpoints_of_another_training_are_refused(plan: Path, tmp_path: Path) -> None:
    folder = ("--checkpoint", tmp_path / "checkpoints")
    done = train(plan, *folder)
    assert done.returncode == 0
    again = train(plan, *folder)
    assert again.returncode == 2
    assert again.stderr.startswith(
        f"pipesynth: {tmp_path}/checkpoints holds step-00000006 of an earlier training; go on from "
        "it with --resume"
    )
    other = train(plan, *folder, "--resume", "--seed", 1)
    assert other.returncode == 2
    assert "was made with seed 0, now it is 1" in other.stderr


@pytest.mark.dist
@pytest.mark.slow
def test_replicas_train_on_their_share_of_the_batch(plan: Path) -> None:
    """Two replicas of a micro-batch of one sample see what one pipeline sees in two samples."""
    double = train(plan, "--json", "--dtype", "float64", "--replicas", 2, "--clip", 1)
    assert double.returncode == 0, double.stderr
    single = train(plan, "--json", "--dtype", "float64", "--batch", 2, "--clip", 1)
    wanted = json.loads(single.stdout)["losses"]
    assert json.loads(double.stdout)["losses"] == pytest.approx(wanted, rel=1e-9)


@pytest.mark.dist
@pytest.mark.slow
def test_sleeping_stages_train_too(plan: Path) -> None:
    done = train(plan, "--model", "sleep", "--sleep-ms", "1,1,1", "--early-updates")
    assert done.returncode == 0, done.stderr
    assert "samples/s" in done.stderr


@pytest.mark.dist
@pytest.mark.slow
def test_five_lines_are_enough(plan: Path) -> None:
    script = Path(__file__).with_name("five_lines.py")
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2]
    done = start([*launcher, script, plan])
    assert done.returncode == 0, done.stderr
    found = [float(line) for line in done.stdout.split()]
    assert found == pytest.approx(alone(), rel=1e-5)


def alone() -> list[float]:
    """The losses of the last step without a pipeline."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(6)))
    data = [(torch.randn(8, 4), torch.randn(8, 4)) for _ in range(3)]
    optimizer = torch.optim.AdamW(model.parameters())
    for inputs, targets in data:
        pairs = zip(inputs.tensor_split(4), targets.tensor_split(4), strict=True)
        losses = [nn.functional.mse_loss(model(part), target) for part, target in pairs]
        torch.stack(losses).mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return [loss.item() for loss in losses]


def test_a_log_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileError, match=r"--log-folder .*/file/logs: cannot be written: Not a dir"):
        set_up_logging(1, tmp_path / "file" / "logs")
