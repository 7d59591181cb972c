"""Models as layers: cuts, and factories of other people."""

from __future__ import annotations

from dataclasses import replace

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

class Difference(nn.Module):
    def forward(self, one, two):
        return two - one

def joined():
    return [nn.Identity(), nn.Identity(), Difference(), Double()]

class Double(nn.Module):
    def forward(self, one):
        return 2 * one

def sequential():
    return nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))

def listed():
    return [nn.Linear(3, 4), nn.Linear(4, 2)]

def whole():
    def make_batch(step, samples):
        return randn(samples, 3), zeros(samples, 2)
    return sequential(), nn.functional.mse_loss, make_batch

def built():
    return [lambda: nn.Linear(3, 4), nn.Tanh, lambda: nn.Linear(4, 2)]

def odd():
    return [lambda: nn.Linear(3, 4), dict]

def tied():
    first, last = nn.Linear(3, 3), nn.Linear(3, 3)
    last.weight = first.weight
    last.bias = first.bias
    last.bias.requires_grad = False
    return [first, nn.Linear(3, 3), last]

def loud():
    return sequential(), nn.functional.mse_loss, lambda step, samples: (randn(2, 3), zeros(2))

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
    model, even = build_layered(f"my_models:{name}", Options(input_shape=(3,)))
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


@pytest.mark.usefixtures("factories")
@pytest.mark.parametrize(("name", "layers"), [("sequential", 2), ("whole", 2), ("built", 3)])
def test_every_process_has_the_weights_and_data_of_the_seed(name: str, layers: int) -> None:
    """Whichever stages it builds, in whatever order, and however often."""

    def weights(seed: int, cut: tuple[int, ...], order: list[int]) -> dict[str, torch.Tensor]:
        options = Options(input_shape=(3,), seed=seed, cut=cut)
        model = build(f"my_models:{name}", len(cut), options)
        stages: dict[str, torch.Tensor] = {}
        for index in order:
            stage = model.make_stage(index)
            assert isinstance(stage, nn.Module)
            stages |= dict(stage.named_parameters())
        return stages

    whole = weights(1, (layers,), [0])
    apart = weights(1, (1, layers - 1), [1, 0, 1])
    assert whole.keys() == apart.keys()
    assert all(torch.equal(whole[key], apart[key]) for key in whole)
    other = weights(2, (layers,), [0])
    assert not any(torch.equal(whole[key], other[key]) for key in whole)
    first, second = (
        build(f"my_models:{name}", 1, Options(input_shape=(3,), seed=1)).make_batch(4, 2)[0]
        for _ in range(2)
    )
    assert torch.equal(first, second)


@pytest.mark.usefixtures("factories")
def test_layers_of_stages_that_are_not_a_chain() -> None:
    options = Options(input_shape=(3,), needs=((), (), (1, 0)))
    with pytest.raises(
        ValueError, match="say with --cut how many of the 4 layers each of the 3 stages"
    ):
        build("my_models:joined", 3, options)
    for cut in ((1, 2, 1), (1, 1, 2)):
        model = build("my_models:joined", 3, replace(options, cut=cut))
        join = model.make_stage(2)
        names = [f"layer{number}" for number in range(4 - cut[2], 4)]
        assert [name for name, _ in join.named_children()] == names
    assert join(torch.ones(2), torch.full((2,), 3.0)).tolist() == [4, 4]


@pytest.mark.usefixtures("factories")
def test_stages_are_new_each_time() -> None:
    """A reference beside a pipeline must not train the same parameters."""
    model = build("my_models:listed", 2, Options(input_shape=(3,)))
    first, second = (model.make_stage(0) for _ in range(2))
    assert isinstance(first, nn.Module)
    assert isinstance(second, nn.Module)
    for one, other in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(one, other)
        assert one is not other


@pytest.mark.usefixtures("factories")
def test_what_stages_share_is_known() -> None:
    options = Options(input_shape=(3,))
    assert build("my_models:tied", 3, options).shared == (
        ((0, "layer0.weight"), (2, "layer2.weight")),  # the bias is not trained
    )
    within = build("my_models:tied", 1, options)
    assert within.shared == ()
    stage = within.make_stage(0)
    assert isinstance(stage, nn.Module)
    assert stage.get_parameter("layer0.weight") is stage.get_parameter("layer2.weight")


@pytest.mark.usefixtures("factories")
def test_what_a_factory_makes_is_checked() -> None:
    with pytest.raises(ValueError, match="layer 1 is a dict, not a module"):
        build("my_models:odd", 1, Options(input_shape=(3,))).make_stage(0)
    with pytest.raises(ValueError, match="two tensors, inputs and targets, with 5 samples"):
        build("my_models:loud", 1, Options()).make_batch(0, 5)
