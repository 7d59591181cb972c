"""The profiler: bytes by hand, and whole profiles from the command line."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from runtime import profile_command
from runtime.device import HostClock
from runtime.measure import KINDS, SliceMeter
from runtime.planned import measured_times
from synth import catalog
from synth.cli import main, profile_
from synth.costs import Costs, loads
from synth.problem import Units, make_problem

FLOAT = 4
RUNS = re.compile("profile_command|spawn_main")

Until = Callable[[Callable[[], bool]], None]
Members = Callable[[int], list[str]]


def test_bytes_of_a_small_slice() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2, bias=False))
    inputs = [(torch.randn(5, 3, requires_grad=True),) for _ in range(2)]
    meter = SliceMeter(module, None, inputs, [None] * 2, HostClock())
    samples = meter.round()
    assert {kind: len(samples[kind]) for kind in KINDS} == dict.fromkeys(KINDS, 2)
    held = meter.weigh()
    parameters = 3 * 4 + 4 + 4 * 2
    assert held.parameter_bytes == held.gradient_bytes == FLOAT * parameters
    assert held.optimizer_bytes == FLOAT * (2 * parameters + 3)  # two moments, a count each
    assert held.output_bytes == FLOAT * 5 * 2
    # F keeps the input, the output of tanh (which the second layer reads too) and the output.
    assert held.activation_bytes == FLOAT * 5 * (3 + 4 + 2)
    # B leaves each layer's input and the gradient of its output.
    assert held.context_bytes == FLOAT * 5 * (3 + 4 + 4 + 2)


def test_a_last_slice_ends_in_the_loss() -> None:
    inputs = [(torch.randn(5, 3),)]
    target = [torch.randn(5, 2)]
    meter = SliceMeter(nn.Linear(3, 2), nn.functional.mse_loss, inputs, target, HostClock())
    meter.round()
    assert meter.outputs[0][0].shape == ()
    assert meter.weigh().output_bytes == FLOAT


def test_a_plan_of_measured_costs_is_known_in_seconds() -> None:
    problem = make_problem(2, 3)
    assert measured_times(catalog.build("1f1b", problem)) is None
    in_ms = replace(problem, units=Units("ms", 1000, "MiB", 2**20))
    assert measured_times(catalog.build("1f1b", in_ms)) == pytest.approx((12e-6, 12e-6))


def start(folder: Path, *arguments: str, before: Path | None = None) -> subprocess.Popen[str]:
    """Starts the command in a process group of its own; modules in `before` hide others."""
    root = str(Path(__file__).resolve().parents[2])
    path = root if before is None else f"{before}{os.pathsep}{root}"
    return subprocess.Popen(
        [sys.executable, "-m", "synth", "profile", *arguments],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def profile(
    folder: Path, *arguments: str, before: Path | None = None
) -> subprocess.CompletedProcess[str]:
    job = start(folder, *arguments, before=before)
    out, err = job.communicate(timeout=150)
    return subprocess.CompletedProcess(job.args, job.returncode, out, err)


def read(path: Path) -> Costs:
    return loads(path.read_bytes(), str(path))


SMALL = ("--rounds", "2", "--warmup", "0", "--in-flight", "2", "--batch", "1", "--seq-len", "8")
TINY_GPT = ("--layers", "2", "--width", "16", "--heads", "2")


@pytest.mark.dist
def test_a_profile_of_the_gpt(tmp_path: Path) -> None:
    done = profile(
        tmp_path, "-P", "2", "-o", "costs.json", *SMALL, *TINY_GPT, "--balance", "-m", "2"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("gpt on cpu")
    costs = read(tmp_path / "costs.json")
    assert [layer.name for layer in costs.layers] == ["embedding", "layer0", "layer1", "head"]
    assert sum(costs.cut) == 4
    assert costs.environment.processes == 2
    assert (costs.environment.threads, costs.method.rounds) == (1, 2)
    assert costs.hops[0].bytes == 1 * 8 * 16 * FLOAT
    assert costs.stages[0].static_bytes > costs.stages[0].parameter_bytes > 0


MODEL = """
from torch import nn, zeros

def make():
    return [nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6)]

def several():
    return make(), nn.functional.mse_loss, lambda step, n: ({0: zeros(n, 6), 1: zeros(n)}, zeros(n))

nothing = 3

def no_batch():
    return make(), nn.functional.mse_loss, lambda step, n: None

def fails():
    raise RuntimeError("something of the user's,\\nin two lines")

def misfit():
    return [nn.Linear(6, 6), nn.Linear(5, 6)]
"""


@pytest.mark.dist
def test_a_profile_of_a_factory(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MODEL)
    arguments = ("-P", "1", "-o", "c.json", "--model", "mine:make", "--input-shape", "6")
    done = profile(tmp_path, *arguments, "--rounds", "1", "--processes", "1")
    assert (done.returncode, done.stderr) == (0, "")
    costs = read(tmp_path / "c.json")
    assert (costs.cut, costs.hops) == ((3,), ())
    assert costs.model["name"] == "mine:make"


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--cut", "1,1"], 2, "the cut 1,1 does not make 2 stages of 4 layers"),
        (["--model", "nothing:here"], 2, "No module named 'nothing'"),
        (["--placement", "sideways"], 2, "placement 'sideways' is not known"),
        (["--device", "cuda"], 2, "this machine has no GPU"),
        (["--model", "mine:nothing"], 2, "model mine:nothing: is a int, not a function"),
        (
            ["--model", "mine:no_batch"],
            2,
            "model mine:no_batch: make_batch must return two tensors",
        ),
        (["--model", "broken:f"], 2, "model broken:f: invalid syntax"),
        (["--seq-len", "3000000"], 2, "a sequence of 3000000 tokens does not fit"),
        (
            ["--model", "mine:several"],
            2,
            "several stages of mine:several read the batch; only layers",
        ),
        (
            ["--model", "mine:fails"],
            1,
            "RuntimeError: something of the user's, in two lines (mine.py",
        ),
        (
            ["--model", "mine:misfit", "--input-shape", "6"],
            1,
            "RuntimeError: mat1 and mat2 shapes cannot be multiplied",
        ),
    ],
)
def test_profiles_that_cannot_be(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    text: str,
) -> None:
    """In this process: the profile's `main` is called where the command would turn into it."""
    if "cuda" in arguments and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    (tmp_path / "mine.py").write_text(MODEL)
    (tmp_path / "broken.py").write_text("def f(:\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(profile_command, "take_signals", lambda _: None)  # those of the tests
    monkeypatch.setattr(
        profile_, "become", lambda _, handed: sys.exit(profile_command.main(handed))
    )
    command = ("profile", "-P", "2", "-o", str(tmp_path / "c.json"), "--processes", "1")
    with pytest.raises(SystemExit) as left:
        main([*command, *TINY_GPT, *arguments])
    out, err = capsys.readouterr()
    assert (left.value.code, out, err.count("\n")) == (code, "", 1)
    assert text in err
    assert not (tmp_path / "c.json").exists()
    sys.modules.pop("mine", None)


def test_without_torch_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')")
    done = profile(tmp_path, "-P", "2", "-o", "c.json", before=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "install it with: pip install 'pipesynth[torch]'" in done.stderr


@pytest.mark.dist
@pytest.mark.parametrize("processes", [1, 2], ids=["before it measures", "while it measures"])
def test_ctrl_c_is_one_line(tmp_path: Path, processes: int, until: Until, members: Members) -> None:
    job = start(tmp_path, "-P", "2", "-o", "c.json", "--processes", "2", "--rounds", "100000")
    try:
        until(lambda: len([of for of in members(job.pid) if RUNS.search(of)]) >= processes)
        time.sleep(1)
        os.killpg(job.pid, signal.SIGINT)
        out, err = job.communicate(timeout=30)
    finally:
        job.kill()
        job.communicate()
    assert (job.returncode, out, err) == (130, "", "pipesynth: interrupted\n")
    until(lambda: not members(job.pid))
