"""What one device can show, a CPU or a GPU: several chunks on it, split W, and planned memory."""

from __future__ import annotations

import copy
import json
import math
import os
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from models import gpt
from runtime.device import make_clock
from runtime.measure import SliceMeter
from runtime.pipeline import Pipeline
from runtime.reference import parameter_names, reference_step, relative_error
from runtime.session import connect
from runtime.stage import ModuleStage
from synth import catalog
from synth.costs import loads
from synth.errors import ProblemError
from synth.op import Kind, Op
from synth.placement import parse_placement
from synth.problem import Problem, StageCost, make_problem, share_out
from synth.profiled import UNITS
from synth.schedule import Certificate, Schedule, makespan
from synth.simulate import earliest, peaks

TOKENS = 8
SIZES = {"cpu": (64, 8), "cuda": (512, 256)}
"""Width and tokens; on a GPU memory comes in blocks of 512 bytes, beside which they are large."""


def timed(problem: Problem, orders: Any) -> Schedule:
    timeline = earliest(problem, orders)
    return Schedule("by hand", problem, timeline, Certificate(makespan(timeline), 0, "none"))


def handcrafted(microbatches: int) -> Iterator[tuple[str, Schedule]]:
    """On one device, a schedule for every placement; most have several chunks there."""
    families = {family.placement: family for family in map(catalog.family, catalog.names())}
    for name, family in families.items():
        try:
            problem = make_problem(1, microbatches, placement=family.placement)
        except ProblemError:
            continue
        if family.refuses(problem) is None:
            yield name, timed(problem, family.orders(problem))


def batch(samples: int, length: int = TOKENS) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, gpt.VOCABULARY, (2, samples, length), generator=generator)
    return tokens[0], tokens[1]


def test_schedules_give_the_gradients_of_one_process(device: str) -> None:
    """The reference is computed on the CPU, in double precision."""
    chunks = set()
    for name, schedule in handcrafted(3):
        count = len(schedule.problem.stages)
        config = gpt.GPTConfig(
            layers=count, width=8, heads=2, context=TOKENS, dtype=torch.float64, seed=1
        )
        modules = [gpt.stage(config, count, index) for index in range(count)]
        reference = reference_step(modules, *batch(5), 3, gpt.loss)
        session = connect(1, device=device)
        pipeline = Pipeline(copy.deepcopy(modules), schedule, loss=gpt.loss, session=session)
        result = pipeline.step(*batch(5))
        assert result.in_flight == pipeline.plan.in_flight, name
        errors = [
            relative_error(loss.cpu(), reference.losses[number])
            for number, loss in result.losses.items()
        ]
        for number, module in pipeline.modules.items():
            for parameter_name, parameter in parameter_names(number, module):
                assert parameter.grad is not None
                assert parameter.device.type == device
                wanted = reference.gradients[parameter_name]
                errors.append(relative_error(parameter.grad.cpu(), wanted))
        assert max(errors) <= 1e-12, name
        chunks.add(count)
    assert max(chunks) >= 4


class Checkpointed(nn.Module):
    """A block that computes its inside again in B."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Any:
        return checkpoint(self.inner, x, use_reentrant=False)


def test_layers_that_run_again_in_b_are_split_wherever_b_runs(device: str) -> None:
    """On a GPU the backward runs in a thread of its own."""
    torch.manual_seed(2)
    inner = [nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6)) for _ in range(2)]
    modules: list[nn.Module] = [Checkpointed(one).double() for one in inner]
    values = torch.randn(6, 6, dtype=torch.float64)
    reference = reference_step(modules, values, values, 3, nn.functional.mse_loss)
    problem = make_problem(1, 3, placement="interleaved:2")
    schedule = all_at_once(problem, 3)
    session = connect(1, device=device)
    own = copy.deepcopy(modules)
    pipeline = Pipeline(own, schedule, loss=nn.functional.mse_loss, session=session)
    pipeline.step(values, values)
    for number, module in pipeline.modules.items():
        stage = pipeline.stages[number]
        assert isinstance(stage, ModuleStage)
        assert stage.unsplit == ()
        for name, parameter in parameter_names(number, module):
            assert parameter.grad is not None
            assert relative_error(parameter.grad.cpu(), reference.gradients[name]) <= 1e-12


def test_bfloat16_is_as_exact_as_without_a_pipeline(device: str) -> None:
    torch.manual_seed(4)
    modules = [nn.Sequential(nn.Linear(32, 32), nn.GELU()).to(device) for _ in range(2)]
    values = torch.randn(6, 32, device=device)
    plain = copy.deepcopy(modules)
    with torch.autocast(device, torch.bfloat16):
        reference = reference_step(plain, values, values, 3, nn.functional.mse_loss)
    schedule = all_at_once(make_problem(1, 3, placement="interleaved:2"), 3)
    pipeline = Pipeline(
        modules,
        schedule,
        loss=nn.functional.mse_loss,
        session=connect(1, device=device),
        autocast=torch.bfloat16,
    )
    pipeline.step(values, values)
    for number, module in pipeline.modules.items():
        for name, parameter in parameter_names(number, module):
            assert relative_error(parameter.grad, reference.gradients[name]) <= 2e-2


# What is held ------------------------------------------------------------------------------------


class PeakBytes(TorchDispatchMode):
    """The most bytes alive at once, of all memory made while it is on; on the CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.peak = 0
        self._now = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given = {t.untyped_storage()._cdata for t in tree_leaves(args) if isinstance(t, Tensor)}
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                address = storage._cdata
                if address not in given and address not in self._known:
                    self._known.add(address)
                    self._now += storage.nbytes()
                    weakref.finalize(storage, self._free, address, storage.nbytes())
        self.peak = max(self.peak, self._now)
        return result

    def _free(self, address: int, size: int) -> None:
        self._known.remove(address)
        self._now -= size


def peak_of(step: Callable[[], object], device: str) -> int:
    """How many bytes more are held during a step than before it, at most."""
    if device == "cpu":
        meter = PeakBytes()
        with meter:
            step()
        return meter.peak
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def all_at_once(problem: Problem, group: int) -> Schedule:
    """F of `group` micro-batches through both chunks, then their B, then their W."""
    order: list[Op] = []
    for first in range(0, problem.total_microbatches, group):
        numbers = range(first, first + group)
        order += [Op(Kind.F, number, stage) for number in numbers for stage in (0, 1)]
        order += [Op(Kind.B, number, stage) for number in numbers for stage in (1, 0)]
        order += [Op(Kind.W, number, stage) for number in numbers for stage in (1, 0)]
    return timed(problem, (tuple(order),))


def test_measured_peak_memory_is_what_the_plan_of_a_profile_says(device: str) -> None:
    """By how much the peak grows with the micro-batches in flight.

    The growth has none of what an op needs for a moment, of gradients and of parameters.
    """
    microbatches, samples, (width, length) = 4, 2, SIZES[device]
    config = gpt.GPTConfig(layers=4, width=width, heads=4, context=length, seed=1)
    modules = [gpt.stage(config, 2, index).to(device) for index in (0, 1)]
    inputs, targets = batch(microbatches * samples, length)
    costs = []
    given: Any = [(inputs[:samples].to(device),)]
    for module, loss in zip(modules, (None, gpt.loss), strict=True):
        wanted = [targets[:samples].to(device)]
        meter = SliceMeter(module, loss, given, wanted, make_clock(torch.device(device)))
        meter.round()
        held = meter.weigh()
        costs.append(StageCost(1, 1, 1, 2, 3, held.activation_bytes, held.context_bytes))
        given = meter.outputs
    streams = share_out(parse_placement("interleaved:2", 1), microbatches)
    problem = Problem(1, "interleaved:2", tuple(costs), streams, units=UNITS)
    planned, measured = {}, {}
    for group in (1, 2, 4):
        schedule = all_at_once(problem, group)
        (planned[group],) = peaks(problem, schedule.devices)
        own = copy.deepcopy(modules)
        session = connect(1, device=device)
        pipeline = Pipeline(own, schedule, loss=gpt.loss, session=session)
        pipeline.step(inputs, targets)  # makes the gradients
        measured[group] = peak_of(lambda run=pipeline.step: run(inputs, targets), device)
        for stage in pipeline.stages.values():
            assert isinstance(stage, ModuleStage)
            assert stage.held == 0
    # What one chunk hands to the other on the same device counts in the plan of both.
    handed_on = samples * length * width * 4
    for group in (2, 4):
        growth = measured[group] - measured[1]
        wanted = planned[group] - planned[1] - (group - 1) * handed_on
        assert growth == pytest.approx(wanted, rel=0.03)


# Commands ----------------------------------------------------------------------------------------


MODELS = {
    "cpu": ("--layers", "2", "--width", "16", "--heads", "2", "--seq-len", "8", "--batch", "1"),
    # As large as GPT-2.
    "cuda": ("--layers", "12", "--width", "768", "--heads", "12", "--seq-len", "512"),
}


def pipesynth(folder: Path, *arguments: str) -> str:
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "-m", "synth", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.dist
@pytest.mark.slow
def test_a_profile_a_plan_and_a_checked_run(device: str, tmp_path: Path) -> None:
    chunks = ("-P", "1", "--placement", "interleaved:2")
    measure = ("--device", device, "--processes", "1", "--rounds", "3", "--warmup", "1")
    shown = pipesynth(tmp_path, "profile", *chunks, *measure, *MODELS[device], "-o", "costs.json")
    assert shown.startswith(f"gpt on {device}")
    costs = loads((tmp_path / "costs.json").read_bytes(), "costs.json")
    assert costs.environment.device == device
    for layer in costs.layers:
        assert layer.forward.median_ns > 0
        assert layer.backward_act.median_ns > 0
        assert layer.activation_bytes > 0
    problem = (*chunks, "-m", "4", "--profile", "costs.json", "--time-limit", "5")
    pipesynth(tmp_path, "solve", *problem, "-o", "plan.json")
    run = ("--check", "--steps", "2", "--warmup", "1", "--device", device, "--run-file", "run.json")
    pipesynth(tmp_path, "run", "plan.json", "--profile", "costs.json", *run)
    written = json.loads((tmp_path / "run.json").read_text())
    assert written["environment"]["device"] == device
    assert all(map(math.isfinite, written["losses"]))
    (rank,) = written["ranks"]
    assert rank["in_flight"] == rank["planned_in_flight"]
