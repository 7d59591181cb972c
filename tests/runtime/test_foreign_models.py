"""Models that are not ours train under any schedule as they do in one process."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
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
from synth.problem import make_problem
from synth.schedule import Schedule
from synth.solve import solve

OnThreads = Callable[..., list[Any]]
STEPS = 20
DEVICES = 2
MICROBATCHES = 4


def schedules() -> dict[str, Schedule]:
    """Both with a stage per device, and one with two."""
    found = {"zb-h1": catalog.build("zb-h1", make_problem(DEVICES, MICROBATCHES))}
    for placement in ("bidirectional", "v"):
        problem = make_problem(DEVICES, MICROBATCHES, placement=placement, costs=(2, 3, 1))
        solved = solve(problem, time_limit_s=1).schedule
        assert solved is not None
        found[f"solved {placement}"] = solved
    return found


def one_process(
    model: Callable[..., Any], modules: Sequence[nn.Module], batches: Sequence[Any], loss: Any
) -> list[float]:
    """Losses of plain training with gradients added up over micro-batches."""
    every = dict.fromkeys(p for module in modules for p in module.parameters())
    optimizer = torch.optim.SGD(every, lr=0.05, momentum=0.9)
    losses = []
    for inputs, targets in batches:
        optimizer.zero_grad()
        total = 0.0
        parts = zip(
            inputs.tensor_split(MICROBATCHES), targets.tensor_split(MICROBATCHES), strict=True
        )
        for part, target in parts:
            value = loss(model(part), target)
            (value / MICROBATCHES).backward()
            total += value.item() / MICROBATCHES
        optimizer.step()
        losses.append(total)
    return losses


def pipelined(
    modules: Sequence[nn.Module],
    schedule: Schedule,
    batches: Sequence[Any],
    loss: Any,
    on_threads: OnThreads,
    ties: Sequence[Tie] = (),
) -> list[float]:
    """Losses of training on one rank per device."""
    count = len(schedule.problem.stages)
    own = [
        {stage: copy.deepcopy(modules[stage]) for stage in range(count)}
        for _ in range(schedule.problem.devices)
    ]

    def body(session: Session, transport: MakeTransport) -> list[dict[int, float]]:
        pipeline = Pipeline(
            own[session.rank],
            schedule,
            loss=loss,
            session=session,
            ties=ties,
            transport=transport,
        )
        optimizer = torch.optim.SGD(pipeline.parameters(), lr=0.05, momentum=0.9)
        losses = []
        for inputs, targets in batches:
            optimizer.zero_grad()
            result = pipeline.step(inputs, targets)
            losses.append({number: loss.item() for number, loss in result.losses.items()})
            optimizer.step()
        return losses

    ranks = on_threads(schedule.problem.devices, body)
    steps = [
        {n: x for losses in step for n, x in losses.items()} for step in zip(*ranks, strict=True)
    ]
    return [sum(step.values()) / MICROBATCHES for step in steps]


def convolutional() -> list[nn.Module]:
    """A small CNN in four parts, with batch norm and an activation in place."""
    torch.manual_seed(3)
    parts = [
        nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(inplace=True)),
        nn.Sequential(nn.Conv2d(6, 6, 3, groups=2), nn.MaxPool2d(2), nn.ReLU()),
        nn.Sequential(nn.Conv2d(6, 8, 3, padding="same", bias=False), nn.BatchNorm2d(8), nn.SiLU()),
        nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)),
    ]
    return [part.to(torch.float64) for part in parts]


def joined(parts: Sequence[nn.Module], count: int) -> list[nn.Module]:
    """The parts as `count` stages."""
    each = len(parts) // count
    return [nn.Sequential(*parts[index * each : (index + 1) * each]) for index in range(count)]


def test_a_cnn_trains_as_in_one_process(on_threads: OnThreads) -> None:
    chance = torch.Generator().manual_seed(1)
    images = torch.randn(2 * MICROBATCHES, 3, 8, 8, generator=chance, dtype=torch.float64)
    labels = torch.randint(0, 5, (2 * MICROBATCHES,), generator=chance)
    batches = [(images.roll(step, 0), labels.roll(step, 0)) for step in range(STEPS)]
    parts = convolutional()
    whole = nn.Sequential(*parts)
    start = copy.deepcopy(parts)
    expected = one_process(whole, [whole], batches, functional.cross_entropy)
    assert expected[-1] < 0.7 * expected[0]
    for name, schedule in schedules().items():
        stages = joined(start, len(schedule.problem.stages))
        found = pipelined(stages, schedule, batches, functional.cross_entropy, on_threads)
        assert found == pytest.approx(expected, rel=1e-9), name


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
def test_a_transformers_causal_lm_trains_as_in_one_process(
    tied: bool, on_threads: OnThreads
) -> None:
    transformers = pytest.importorskip("transformers")
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
    model = transformers.LlamaForCausalLM(config).to(torch.float64)
    start = copy.deepcopy(model)
    tokens = torch.randint(0, 23, (2 * MICROBATCHES, 6))
    batches = [(tokens.roll(step, 0), tokens.roll(step, 0)) for step in range(STEPS)]

    def own_loss(output: Any, labels: Tensor) -> Tensor:
        return causal_lm.loss(output.logits, labels)

    expected = one_process(model, [model], batches, own_loss)
    assert expected[-1] < 0.9 * expected[0]
    for name, schedule in schedules().items():
        count = len(schedule.problem.stages)
        stages = [causal_lm.stage(start, (4 // count,) * count, index) for index in range(count)]
        ties = [Tie(uses) for uses in causal_lm.ties(start, count)]
        assert len(ties) == tied
        found = pipelined(stages, schedule, batches, causal_lm.loss, on_threads, ties)
        assert found == pytest.approx(expected, rel=1e-9), name


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
