"""Deferred W: the same gradients as an ordinary backward, later, and with less held in between."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from models import gpt
from runtime.deferred import Deferral, unsplit


class Tied(nn.Module):
    """One table used as embedding and as projection."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 6, padding_idx=2)
        self.scale = nn.Parameter(torch.ones(6))

    def forward(self, tokens: Tensor) -> Tensor:
        return functional.linear(self.table(tokens) * self.scale, self.table.weight)


class SelfAttention(nn.Module):
    """torch's own attention, query, key and value from one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        mixed: Tensor = self.attention(x, x, x, need_weights=False)[0]
        return mixed


class Products(nn.Module):
    """Matrix products with parameters on either side, transposed, batched, and with a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.right = nn.Parameter(torch.randn(8, 8))
        self.left = nn.Parameter(torch.randn(5, 5))
        self.turned = nn.Parameter(torch.randn(8, 8))
        self.left_turned = nn.Parameter(torch.randn(5, 5))
        self.linear = nn.Parameter(torch.randn(8, 8))
        self.several = nn.Parameter(torch.randn(2, 8, 8))
        self.several_left = nn.Parameter(torch.randn(2, 5, 5))
        self.bias = nn.Parameter(torch.randn(8))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.matmul(self.left, (x @ self.right).tanh()).tanh()
        x = (self.left_turned.t() @ x.matmul(self.turned.T)).tanh()
        x = torch.bmm(functional.linear(x, self.linear.t()), self.several).tanh()
        x = (self.several_left @ x).tanh()
        rows = x.reshape(-1, 8).mm(self.right).tanh()
        return torch.addmm(self.bias, rows, self.turned).view_as(x)


class Recomputing(nn.Module):
    """A layer that keeps nothing and runs its forward again in the backward."""

    reentrant = False

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))

    def forward(self, x: Tensor) -> Tensor:
        again: Tensor = checkpoint(self.inner, x, use_reentrant=self.reentrant)
        return again


class InputAsWeight(nn.Module):
    """Uses its input where a layer has its weight."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Parameter(torch.randn(3, 8))

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(self.features, x)


def half_frozen() -> nn.Module:
    module = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.Linear(8, 8))
    module[0].weight.requires_grad_(False)
    module[2].bias.requires_grad_(False)
    module[3].requires_grad_(False)
    return module


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(4, 6, 3, padding="same", bias=False),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.Conv2d(6, 8, 3, stride=2, padding=1, groups=2),
        nn.ConvTranspose2d(8, 4, 3, stride=2, output_padding=1),
        nn.Conv2d(4, 2, 3, padding="same", dilation=2),
        nn.Flatten(2),
        nn.Conv1d(2, 3, 5, dilation=2, padding_mode="circular", padding=1),
        nn.Conv1d(3, 2, 2, padding="valid"),
    )


def block() -> nn.Module:
    config = gpt.GPTConfig(layers=1, width=8, heads=2, context=5, dtype=torch.float64)
    return gpt.stage(config, 1, 0)


TOKENS = torch.tensor([[1, 2, 3, 2, 9], [0, 2, 10, 10, 4]])
IMAGES = torch.randn(2, 4, 6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
ROWS = torch.randn(2, 5, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
MATRIX = ROWS[0]

CASES: dict[str, tuple[Callable[[], nn.Module], Tensor]] = {
    "mlp": (lambda: nn.Sequential(nn.Linear(8, 9), nn.GELU(), nn.Linear(9, 3, bias=False)), ROWS),
    "gpt": (block, TOKENS),
    "tied": (Tied, TOKENS),
    "attention": (SelfAttention, ROWS),
    "encoder layer": (lambda: nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), ROWS),
    "checkpoint": (Recomputing, ROWS),
    "products": (Products, ROWS),
    "convolutions": (convolutions, IMAGES),
    "half frozen": (half_frozen, ROWS),
    "input as weight": (InputAsWeight, MATRIX),
    "gru": (lambda: nn.GRU(8, 4), ROWS),
    "parameters only": (lambda: nn.LayerNorm(8), ROWS),
}


def first_output(output: Tensor | tuple[Tensor, ...]) -> Tensor:
    return output if isinstance(output, Tensor) else output[0]


def split_step(module: nn.Module, x: Tensor) -> Deferral:
    """F and B of one micro-batch with a loss that weighs every output differently."""
    deferral = Deferral()
    with deferral:
        output = first_output(module(x))
    gradient = torch.arange(output.numel(), dtype=output.dtype).view_as(output).cos()
    deferral.backward([output], [gradient])
    return deferral


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("with_input_gradient", [True, False], ids=["middle", "first"])
def test_gradients_are_those_of_an_ordinary_backward(case: str, with_input_gradient: bool) -> None:
    build, data = CASES[case]
    torch.manual_seed(0)
    module = build().to(torch.float64)
    plain = copy.deepcopy(module)
    inputs = []
    for _ in range(3):  # three micro-batches
        x = data.clone().requires_grad_(with_input_gradient and data.is_floating_point())
        y = x.detach().clone().requires_grad_(x.requires_grad)
        split_step(module, x).run()
        output = first_output(plain(y))
        output.backward(torch.arange(output.numel(), dtype=output.dtype).view_as(output).cos())
        inputs.append((x, y))
    for mine, theirs in inputs:
        assert mine.requires_grad is (theirs.grad is not None)
        assert mine.grad is None or torch.equal(mine.grad, theirs.grad)
    for (name, mine), theirs in zip(module.named_parameters(), plain.parameters(), strict=True):
        assert (mine.grad is None) == (theirs.grad is None), name
        assert mine.grad is None or torch.equal(mine.grad, theirs.grad), name
        assert mine.grad is None or not mine.grad.requires_grad, name


def test_weights_have_no_gradient_before_w_and_what_is_not_split_is_named() -> None:
    module = block()
    deferral = split_step(module, TOKENS)
    missing = {name for name, parameter in module.named_parameters() if parameter.grad is None}
    assert sorted(unsplit(module, deferral)) == [
        "head.norm.bias",
        "head.norm.weight",
        "layer0.norm1.bias",
        "layer0.norm1.weight",
        "layer0.norm2.bias",
        "layer0.norm2.weight",
    ]
    assert missing == dict(module.named_parameters()).keys() - set(unsplit(module, deferral))
    deferral.run()
    assert all(parameter.grad is not None for parameter in module.parameters())


def test_attention_projections_are_split_inside_torch_s_own_module() -> None:
    module = SelfAttention().to(torch.float64)
    assert unsplit(module, split_step(module, ROWS)) == []


def test_after_b_only_layer_inputs_and_output_gradients_are_held() -> None:
    module = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Softmax(-1), nn.Linear(8, 8), nn.GELU())
    module.to(torch.float64)
    seen: dict[str, weakref.ref[Tensor]] = {}

    def watch(name: str) -> Callable[..., None]:
        def hook(_module: nn.Module, _inputs: tuple[Tensor, ...], output: Tensor) -> None:
            seen[name] = weakref.ref(output.untyped_storage())

        return hook

    names = ("linear1", "gelu", "softmax", "linear2", "last")
    for name, layer in zip(names, module, strict=True):
        layer.register_forward_hook(watch(name))
    deferral = split_step(module, ROWS)
    held = {work.layer_input.data_ptr() for work in deferral.queue}
    assert len(deferral.queue) == 2
    assert {work.layer_input.shape for work in deferral.queue} == {ROWS.shape}
    assert all(work.layer_input.grad_fn is None for work in deferral.queue)
    # Of the activations only the input of the second linear (the softmax's output) is alive.
    alive = {name for name, storage in seen.items() if storage() is not None}
    assert alive == {"softmax"}
    assert ROWS.data_ptr() in held
    deferral.run()
    assert seen["softmax"]() is None


def test_of_what_autograd_saved_only_layer_inputs_outlive_b() -> None:
    module = block()
    saved: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    def watch(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        saved[storage.data_ptr()] = weakref.ref(storage)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(watch, lambda tensor: tensor):
        deferral = split_step(module, TOKENS)
    for parameter in module.parameters():
        saved.pop(parameter.data_ptr(), None)
    saved.pop(TOKENS.data_ptr())
    inputs = {work.layer_input.untyped_storage().data_ptr() for work in deferral.queue}
    alive = {start for start, storage in saved.items() if storage() is not None}
    assert len(deferral.queue) == 7  # two embeddings, four projections of the layer, the head
    assert len(alive) == 6  # positions, four inputs of projections, the head's input
    assert alive <= inputs
    assert len(saved) > 2 * len(alive)


def test_products_with_parameters_are_split_wherever_the_parameter_stands() -> None:
    module = Products().to(torch.float64)
    assert unsplit(module, split_step(module, ROWS)) == []


def test_products_that_sum_over_broadcast_sizes_stay_as_they_are() -> None:
    for weight, shape in (
        (nn.Parameter(torch.ones(8)), (2, 8)),
        (nn.Parameter(torch.ones(2, 8, 3)), (1, 5, 8)),
    ):
        deferral = Deferral()
        with deferral:
            output = torch.ones(shape) @ weight
        deferral.backward([output], [torch.ones_like(output)])
        assert deferral.queue == []
        assert weight.grad is not None


def test_a_convolution_padded_on_one_side_stays_as_it_is() -> None:
    module = nn.Conv1d(2, 2, 2, padding="same")
    with pytest.warns(UserWarning, match="even kernel lengths"):
        deferral = split_step(module, torch.ones(1, 2, 4))
    assert unsplit(module, deferral) == ["weight", "bias"]
    assert module.weight.grad is not None


@pytest.mark.parametrize("lower", [torch.bfloat16, torch.float16])
def test_inside_autocast_gradients_are_those_of_an_ordinary_backward(lower: torch.dtype) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Embedding(11, 8),
        nn.Linear(8, 8),
        nn.GELU(),
        Products(),
        nn.LayerNorm(8),
        Recomputing(),
        nn.Unflatten(1, (5, 1)),
        nn.Conv2d(5, 3, (1, 2)),
    )
    plain = copy.deepcopy(module)
    for _ in range(2):
        deferral = Deferral()
        with torch.autocast("cpu", lower), deferral:
            mine = module(TOKENS)
        with torch.autocast("cpu", lower):
            theirs = plain(TOKENS)
        assert mine.dtype is theirs.dtype is lower
        deferral.backward([mine], [torch.ones_like(mine)])
        theirs.backward(torch.ones_like(theirs))
        deferral.run()
    assert unsplit(module, deferral) == ["4.weight", "4.bias"]
    for (name, own), other in zip(module.named_parameters(), plain.parameters(), strict=True):
        assert own.grad.dtype is torch.float32, name
        assert torch.allclose(own.grad, other.grad, rtol=2e-2, atol=1e-3), name


def test_a_frozen_bias_and_inputs_that_need_no_gradient_are_left_alone() -> None:
    module = nn.Linear(8, 8)
    module.bias.requires_grad_(False)
    split_step(module, ROWS.float()).run()
    assert module.bias.grad is None
    assert module.weight.grad is not None


def test_a_checkpoint_recomputes_once_and_with_the_same_dropout() -> None:
    runs: list[Tensor] = []
    module = Recomputing()
    module.inner.append(nn.Dropout(0.5))
    module.inner.append(nn.Linear(8, 8))
    module.inner[3].register_forward_hook(lambda layer, given, output: runs.append(output.detach()))
    for reentrant in (False, True):
        module.reentrant = reentrant
        runs.clear()
        x = ROWS.float().requires_grad_()
        split_step(module, x).run()
        kept, again = runs  # F, and once in B whatever the number of parameters
        assert torch.equal(kept, again)


def test_what_runs_inside_a_transform_stays_as_it_is() -> None:
    class Mapped(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return torch.func.vmap(super().forward)(x)

    module = Mapped(8, 8)
    plain = copy.deepcopy(module)
    deferral = split_step(module, ROWS.float())
    output = plain(ROWS.float())
    output.backward(torch.arange(output.numel(), dtype=output.dtype).view_as(output).cos())
    assert unsplit(module, deferral) == ["weight", "bias"]
    assert torch.equal(module.weight.grad, plain.weight.grad)


def test_gradients_accumulate_in_place() -> None:
    module = nn.Linear(8, 8)
    split_step(module, ROWS.float()).run()
    first = module.weight.grad
    for _ in range(2):
        split_step(module, ROWS.float()).run()
    assert module.weight.grad is first


def test_without_gradients_nothing_is_queued() -> None:
    deferral = Deferral()
    with deferral, torch.no_grad():
        nn.Linear(8, 8)(ROWS.float())
    assert not deferral.split
