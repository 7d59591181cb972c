"""Models that are not ours train under any schedule as they do in one process."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from models import causal_lm
from runtime.pipeline import MakeTransport, Pipeline
from runtime.session import Session
from runtime.ties import Tie
from synth import catalog
from synth.files import save
from synth.problem import make_problem
from synth.schedule import Schedule
from synth.solve import solve

OnThreads = Callable[..., list[Any]]
WORKER = Path(__file__).with_name("foreign_worker.py")
DEVICES = 2
MICROBATCHES = 4
FEW, MANY = 4, 20
"""Steps."""
MODELS = ("cnn", "untied", "tied")


@cache
def schedules() -> dict[str, Schedule]:
    """Both with a stage per device, and one with two."""
    found = {"zb-h1": catalog.build("zb-h1", make_problem(DEVICES, MICROBATCHES))}
    for placement in ("bidirectional", "v"):
        problem = make_problem(DEVICES, MICROBATCHES, placement=placement, costs=(2, 3, 1))
        solved = solve(problem, time_limit_s=1).schedule
        assert solved is not None
        found[f"solved {placement}"] = solved
    return found


@dataclass(frozen=True)
class Foreign:
    """A model whole and cut, with its data."""

    whole: nn.Module
    whole_loss: Callable[[Any, Tensor], Tensor]
    stages: Callable[[int], list[nn.Module]]
    """As many of them as asked for, with weights of their own."""
    loss: Callable[[Any, Tensor], Tensor]
    batches: list[tuple[Tensor, Tensor]]
    ties: Callable[[int], list[Tie]] = lambda count: []


def build(name: str, steps: int) -> Foreign:
    return convolutional(steps) if name == "cnn" else causal(steps, tied=name == "tied")


def convolutional(steps: int) -> Foreign:
    """A small CNN in four parts, with batch norm and an activation in place."""
    torch.manual_seed(3)
    parts = [
        nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(inplace=True)),
        nn.Sequential(nn.Conv2d(6, 6, 3, groups=2), nn.MaxPool2d(2), nn.ReLU()),
        nn.Sequential(nn.Conv2d(6, 8, 3, padding="same", bias=False), nn.BatchNorm2d(8), nn.SiLU()),
        nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)),
    ]
    whole = nn.Sequential(*parts).to(torch.float64)
    start = copy.deepcopy(whole)
    images = torch.randn(2 * MICROBATCHES, 3, 8, 8, dtype=torch.float64)
    labels = torch.randint(0, 5, (2 * MICROBATCHES,))

    def stages(count: int) -> list[nn.Module]:
        own, each = copy.deepcopy(start), 4 // count
        return [own[index * each : (index + 1) * each] for index in range(count)]

    batches = [(images.roll(step, 0), labels.roll(step, 0)) for step in range(steps)]
    return Foreign(whole, functional.cross_entropy, stages, functional.cross_entropy, batches)


def causal(steps: int, *, tied: bool) -> Foreign:
    """A Llama of Hugging Face's transformers, whose head may be its embedding."""
    import transformers

    torch.manual_seed(5)
    config = transformers.LlamaConfig(
        vocab_size=23,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=16,
        tie_word_embeddings=tied,
    )
    whole = transformers.LlamaForCausalLM(config).to(torch.float64)
    start = copy.deepcopy(whole)
    tokens = torch.randint(0, 23, (2 * MICROBATCHES, 6))

    def whole_loss(output: Any, labels: Tensor) -> Tensor:
        return causal_lm.loss(output.logits, labels)

    def stages(count: int) -> list[nn.Module]:
        cut = (4 // count,) * count
        return [copy.deepcopy(causal_lm.stage(start, cut, index)) for index in range(count)]

    def ties(count: int) -> list[Tie]:
        return [Tie(uses) for uses in causal_lm.ties(start, count)]

    batches = [(tokens.roll(step, 0), tokens.roll(step, 0)) for step in range(steps)]
    return Foreign(whole, whole_loss, stages, causal_lm.loss, batches, ties)


def in_one_process(model: Foreign) -> list[float]:
    """Losses of plain training with gradients added up over micro-batches."""
    optimizer = torch.optim.SGD(model.whole.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for batch in model.batches:
        optimizer.zero_grad()
        total = 0.0
        parts = zip(*(values.tensor_split(MICROBATCHES) for values in batch), strict=True)
        for part, target in parts:
            value = model.whole_loss(model.whole(part), target)
            (value / MICROBATCHES).backward()
            total += value.item() / MICROBATCHES
        optimizer.step()
        losses.append(total)
    return losses


def on_one_rank(
    model: Foreign, schedule: Schedule, session: Session, transport: MakeTransport | None = None
) -> list[float]:
    """This rank's share of the losses of training under a schedule."""
    count = len(schedule.problem.stages)
    pipeline = Pipeline(
        model.stages(count),
        schedule,
        loss=model.loss,
        session=session,
        ties=model.ties(count),
        transport=transport,
    )
    optimizer = torch.optim.SGD(pipeline.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for inputs, targets in model.batches:
        optimizer.zero_grad()
        result = pipeline.step(inputs, targets)
        losses.append(sum(loss.item() for loss in result.losses.values()) / MICROBATCHES)
        optimizer.step()
    pipeline.close()
    return losses


def added_up(ranks: Sequence[Sequence[float]]) -> list[float]:
    """Losses of whole steps: a rank knows those of the micro-batches that end there."""
    return [sum(step) for step in zip(*ranks, strict=True)]


@pytest.mark.parametrize("name", MODELS)
def test_models_train_as_in_one_process_where_ranks_meet_strictly(
    name: str, on_threads: OnThreads
) -> None:
    if name != "cnn":
        pytest.importorskip("transformers")
    expected = in_one_process(build(name, FEW))
    models = [build(name, FEW) for _ in range(DEVICES)]
    for plan, schedule in schedules().items():
        assert len(models[0].ties(len(schedule.problem.stages))) == (name == "tied")
        ranks = on_threads(
            DEVICES, lambda own, make, run=schedule: on_one_rank(models[own.rank], run, own, make)
        )
        assert added_up(ranks) == pytest.approx(expected, rel=1e-9), plan


def on_processes(
    names: Sequence[str], steps: int, device: str
) -> dict[str, dict[str, list[float]]]:
    """By model, and by schedule or "alone", the losses; one launch for all."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        for plan, schedule in schedules().items():
            save(schedule, folder / f"{plan}.json")
        subprocess.run(
            [sys.executable, str(WORKER), str(DEVICES), str(steps), name, device, *names],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            check=True,
            timeout=150,
        )
        files = [folder / "results" / f"{rank}.json" for rank in range(DEVICES)]
        ranks = [json.loads(file.read_text()) for file in files]
    alone = {model: plans.pop("alone") for model, plans in ranks[0].items()}
    return {
        model: {plan: added_up([rank[model][plan] for rank in ranks]) for plan in plans}
        | {"alone": alone[model]}
        for model, plans in ranks[0].items()
    }


@pytest.mark.dist
@pytest.mark.parametrize("devices", [DEVICES])
@pytest.mark.parametrize(
    ("names", "steps"), [(MODELS[:1], FEW), pytest.param(MODELS, MANY, marks=pytest.mark.slow)]
)
def test_models_train_as_in_one_process_on_ranks_of_their_own(
    names: Sequence[str], steps: int, devices: int, device: str
) -> None:
    if len(names) > 1:
        pytest.importorskip("transformers")
    for name, found in on_processes(names, steps, device).items():
        alone = found.pop("alone")
        assert list(found) == sorted(schedules())
        assert len(alone) == steps
        assert alone[-1] < (0.98 if steps == FEW else 0.9) * alone[0]
        for plan, losses in found.items():
            assert losses == pytest.approx(alone, rel=1e-9), (name, plan)


def test_masks_travel_with_the_hidden_states_and_wrong_cuts_are_refused() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=9,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=3,
        num_attention_heads=2,
        num_key_value_heads=2,
    )
    model = transformers.LlamaForCausalLM(config)
    tokens = torch.tensor([[1, 2, 3], [4, 5, 0]])
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]])
    passed: Any = {"tokens": tokens, "attention_mask": mask}
    for index in range(2):
        passed = causal_lm.stage(model, (1, 2), index)(**passed)
    assert torch.equal(passed, model(tokens, attention_mask=mask).logits)
    with pytest.raises(ValueError, match=r"\[1, 1\] layers per stage for a model of 3 layers"):
        causal_lm.stage(model, (1, 1), 0)
    with pytest.raises(ValueError, match="Linear has no lm_head"):
        causal_lm.stage(nn.Linear(1, 1), (1,), 0)
