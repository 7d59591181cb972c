"""Models as layers: cuts, and factories of other people."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from models import Options, build, build_layered, gpt
from models.layered import check_cut, even_cut, load_factory


@pytest.mark.parametrize(
    ("layers", "stages", "cut"),
    [(4, 2, (2, 2)), (5, 2, (3, 2)), (7, 3, (2, 3, 2)), (3, 3, (1, 1, 1))],
)
def test_even_cuts(layers: int, stages: int, cut: tuple[int, ...]) -> None:
    assert even_cut(layers, stages) == cut


def test_cuts_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="cannot cut 2 layers into 3 stages"):
        even_cut(2, 3)
    for cut in ((1, 1), (1, 1, 1), (3, 0)):
        with pytest.raises(ValueError, match="does not make 2 stages of 3 layers"):
            check_cut(cut, 3, 2)


def test_every_cut_of_the_gpt_has_the_same_weights() -> None:
    config = gpt.GPTConfig(layers=3, width=8, heads=2, context=4)
    whole = dict(gpt.stage(config, 1, 0).named_parameters())
    for cut in ((1, 4), (3, 2), (4, 1)):
        parts: dict[str, torch.Tensor] = {}
        for index in range(2):
            parts |= dict(gpt.stage(config, 2, index, cut).named_parameters())
        assert parts.keys() == whole.keys()
        assert all(torch.equal(parts[name], whole[name]) for name in whole)
    with pytest.raises(ValueError, match="does not make 2 stages of 5 layers"):
        gpt.stage(config, 2, 0, (2, 2))


def test_the_registry_takes_a_cut() -> None:
    model = build("gpt", 2, Options(layers=2, width=8, heads=2, seq_len=4, cut=(1, 3)))
    stages = [model.make_stage(index) for index in range(2)]
    assert all(isinstance(stage, nn.Sequential) for stage in stages)
    assert [len(list(stage.children())) for stage in stages] == [1, 3]  # type: ignore[union-attr]


FACTORIES = """
from torch import nn, randn, zeros

def sequential():
    return nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))

def listed():
    return [nn.Linear(3, 4), nn.Linear(4, 2)]

def whole():
    def make_batch(step, samples):
        return randn(samples, 3), zeros(samples, 2)
    return sequential(), nn.functional.mse_loss, make_batch

def uncut():
    return nn.Linear(3, 4)

def empty():
    return []
"""


@pytest.fixture
def factories(tmp_path, monkeypatch):
    (tmp_path / "my_models.py").write_text(FACTORIES)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("factories")
@pytest.mark.parametrize("name", ["sequential", "listed", "whole"])
def test_factories(name: str) -> None:
    model, even = build_layered(f"my_models:{name}", Options(), (3,))
    inputs, targets = model.make_batch(0, 5)
    value = model.loss(model.stage(0, 2)(inputs), targets)
    assert value.shape == ()
    assert even(2) == (1, 1)
    assert len(model.stage(1, 1)) == 1


@pytest.mark.usefixtures("factories")
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("my_models:nothing", "has no attribute 'nothing'"),
        ("my_moddels:listed", "No module named 'my_moddels'"),
        ("my_models:uncut", "returned a Linear, which cannot be cut"),
        ("my_models:empty", "has no layers"),
    ],
)
def test_factories_that_cannot_be_used(name: str, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        load_factory(name, (3,))


@pytest.mark.usefixtures("factories")
def test_a_factory_needs_data() -> None:
    with pytest.raises(ValueError, match="give --input-shape, or return"):
        load_factory("my_models:listed", None)
    with pytest.raises(ValueError, match="has no layers to cut; use gpt"):
        build_layered("sleep", Options())
