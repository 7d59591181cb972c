"""The GPT: the cut must not change the model."""

import pytest
import torch
from torch import Tensor

from models import gpt

CONFIG = gpt.GPTConfig(layers=4, width=16, heads=2, context=8, seed=3, dtype=torch.float64)


def parameters(count: int) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for index in range(count):
        found.update(gpt.stage(CONFIG, count, index).named_parameters())
    return found


def run(count: int, tokens: Tensor) -> Tensor:
    value = tokens
    for index in range(count):
        value = gpt.stage(CONFIG, count, index)(value)
    return value


@pytest.mark.parametrize("count", [2, 3, 4])
def test_weights_and_outputs_do_not_depend_on_the_cut(count: int) -> None:
    whole, cut = parameters(1), parameters(count)
    assert whole.keys() == cut.keys()
    assert all(torch.equal(whole[name], cut[name]) for name in whole)
    tokens = torch.arange(16).view(2, 8)
    assert torch.equal(run(1, tokens), run(count, tokens))


def test_the_seed_decides_the_weights() -> None:
    torch.manual_seed(0)
    first = gpt.stage(CONFIG, 1, 0).state_dict()
    torch.manual_seed(1)
    second = gpt.stage(CONFIG, 1, 0).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize(
    ("layers", "count", "sizes"),
    [(4, 1, [4]), (4, 4, [1, 1, 1, 1]), (5, 4, [1, 2, 1, 1]), (6, 4, [1, 2, 2, 1]), (3, 2, [2, 1])],
)
def test_layers_are_balanced(layers: int, count: int, sizes: list[int]) -> None:
    config = gpt.GPTConfig(layers=layers, width=4, heads=1, context=4)
    held = [
        sum(
            name.startswith("layer") for name, _ in gpt.stage(config, count, index).named_children()
        )
        for index in range(count)
    ]
    assert held == sizes


def test_attention_does_not_look_ahead() -> None:
    tokens = torch.arange(8).view(1, 8)
    changed = tokens.clone()
    changed[0, -1] = 99
    assert torch.equal(run(1, tokens)[0, :-1], run(1, changed)[0, :-1])


@pytest.mark.parametrize("count", [0, 5])
def test_more_stages_than_layers_are_refused(count: int) -> None:
    with pytest.raises(ValueError, match=f"cannot cut 4 layers into {count} stages"):
        gpt.stage(CONFIG, count, 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layers": 0}, "layers is 0, it must be at least 1"),
        ({"heads": 3}, "width 16 is not a multiple of the 3 heads"),
    ],
)
def test_impossible_shapes_are_refused(change: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gpt.GPTConfig(**{"layers": 4, "width": 16, "heads": 2, "context": 8, **change})
