"""The script that shows what GPUs can show: what it says where there are none, and of failures."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("torch")
ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "scripts" / "gpu_check.sh"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gpu_check", SCRIPT.with_suffix(".py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["gpu_check"] = module  # where dataclasses look
    spec.loader.exec_module(module)
    return module


def check(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SCRIPT, *arguments],
        env={**os.environ, "PYTHON": sys.executable, **more},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )


def test_without_a_gpu_one_line_says_so() -> None:
    done = check(CUDA_VISIBLE_DEVICES="")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "gpu_check: everything is skipped: no CUDA device here\n"


def test_what_it_does_not_know_is_wrong_usage() -> None:
    done = check("everything")
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        "everything is not a step; these are chunks, streams, profile, train, nccl" in done.stderr
    )


@pytest.mark.slow
def test_the_table_says_what_was_skipped_and_results_stay(tmp_path: Path) -> None:
    nothing = {"OUT": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""}
    done = check("--device", "cpu", "streams", "profile", "train", **nothing)
    assert done.returncode == 0, done.stdout
    assert (tmp_path / "summary.txt").read_text() == done.stdout
    _, streams, _, profile, _, train, _ = done.stdout.splitlines()
    assert streams.startswith("streams")
    assert streams.endswith("skipped: no CUDA device here")
    assert profile.startswith("profile")
    assert profile.endswith("passed")
    assert train.startswith("train")
    assert train.endswith("passed")
    assert {"costs.json", "run.json", "gpu_check.log"} < {path.name for path in tmp_path.iterdir()}


@pytest.mark.parametrize(
    ("code", "said", "verdict"),
    [
        (0, "gradients  equal to one process\n", "passed"),
        (0, "....\n4 passed in 3.20s\n", "4 passed"),
        (
            0,
            "SKIPPED [2] tests/conftest.py:46: needs 4 CUDA devices, 2 here\n"
            "5 passed, 2 skipped, 7 deselected in 9.01s\n",
            "5 passed, 2 skipped: needs 4 CUDA devices, 2 here",
        ),
        (1, "F\n1 failed, 2 passed in 0.10s\n", "FAILED: 1 failed, 2 passed in 0.10s"),
        (1, "Duplicate GPU detected : rank 0 and 1", "skipped: NCCL refuses two ranks on one GPU"),
        (2, "", "FAILED: exit code 2"),
        (None, "....", "FAILED: it ran out of time"),
    ],
)
def test_verdicts(script: ModuleType, code: int | None, said: str, verdict: str) -> None:
    assert script.verdict(code, said) == verdict


def test_every_step_has_commands_whatever_the_machine(script: ModuleType, tmp_path: Path) -> None:
    for device, gpus in (("cpu", 0), ("cuda", 1), ("cuda", 2), ("cuda", 8)):
        steps = script.steps(device, gpus, tmp_path, tmp_path)
        assert [step.name for step in steps] == ["chunks", "streams", "profile", "train", "nccl"]
        files = [
            word for step in steps for one in step.commands for word in one if "tests/" in word
        ]
        assert all((ROOT / file).exists() for file in files)
        shared = "PIPESYNTH_SHARE_GPU" in steps[-1].environment
        assert shared == (gpus == 1)


def test_a_command_ends_when_the_time_is_up_with_what_it_started(script: ModuleType) -> None:
    """The one in the background would keep the output open for ever."""
    code, _ = script.call(("sh", "-c", "sleep 100000 & wait"), {}, time.monotonic())
    assert code is None
