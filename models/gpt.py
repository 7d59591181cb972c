"""A byte-level GPT and how it is cut into pipeline stages.

Parameter names carry the number of the layer in the whole model, so a parameter has the same name
and, for the same seed, the same value whatever the cut.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from models import layered
from models.layered import Layer

VOCABULARY = 256
"""Tokens are bytes."""


@dataclass(frozen=True, slots=True)
class GPTConfig:
    """Shape and seed of one model.

    Raises:
        ValueError: a size is below 1, or the heads do not divide the width.
    """

    layers: int
    width: int
    """Numbers per token."""
    heads: int
    context: int
    """Longest sequence, in tokens."""
    seed: int = 0
    dtype: torch.dtype = torch.float32

    def __post_init__(self) -> None:
        for name in ("layers", "width", "heads", "context"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, it must be at least 1")
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of the {self.heads} heads")


class Attention(nn.Module):
    """Causal self-attention: (batch, tokens, width) to the same shape."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.out = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        split = self.qkv(x).view(batch, tokens, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        joined: Tensor = self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))
        return joined


class Block(nn.Module):
    """Pre-norm transformer block: (batch, tokens, width) to the same shape."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(config.width)
        self.attention = Attention(config)
        self.norm2 = nn.LayerNorm(config.width)
        self.mlp = nn.Sequential(
            nn.Linear(config.width, 4 * config.width),
            nn.GELU(),
            nn.Linear(4 * config.width, config.width),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        grown: Tensor = x + self.mlp(self.norm2(x))
        return grown


class Embedding(nn.Module):
    """Token plus position embedding: (batch, tokens) int64 to (batch, tokens, width)."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, config.width)
        self.position = nn.Embedding(config.context, config.width)

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[-1], device=tokens.device)
        embedded: Tensor = self.token(tokens) + self.position(positions)
        return embedded


class Head(nn.Module):
    """Final norm and projection: (batch, tokens, width) to logits (batch, tokens, 256)."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.width)
        self.project = nn.Linear(config.width, VOCABULARY, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.project(self.norm(x))
        return logits


def layers(config: GPTConfig) -> tuple[Layer, ...]:
    """What a cut may go between: the embedding, every block, the head."""
    blocks = (
        Layer(f"layer{number}", partial(_seeded, config, number + 1, Block))
        for number in range(config.layers)
    )
    return (
        Layer("embedding", partial(_seeded, config, 0, Embedding)),
        *blocks,
        Layer("head", partial(_seeded, config, config.layers + 1, Head)),
    )


def even_cut(config: GPTConfig, count: int) -> tuple[int, ...]:
    """Layers per stage, embedding and head counted, with the blocks shared out evenly.

    When the blocks do not divide evenly the stages in the middle take the extra ones, because the
    first and the last have the embedding and the head to do as well.

    Raises:
        ValueError: `count` is below 1 or above the number of blocks.
    """
    check_cut(config, count)
    blocks = layered.even_cut(config.layers, count)
    ends = (0, count - 1)
    return tuple(size + ends.count(stage) for stage, size in enumerate(blocks))


def stage(config: GPTConfig, count: int, index: int, cut: Sequence[int] = ()) -> nn.Module:
    """Builds stage `index` of the model cut into `count` stages.

    Args:
        config: the model.
        count: number of stages.
        index: the stage to build.
        cut: layers per stage, embedding and head counted; by default `even_cut`.

    Raises:
        ValueError: the cut makes no sense, or there is no such stage.
    """
    whole = layers(config)
    sizes = tuple(cut) or even_cut(config, count)
    layered.check_cut(sizes, len(whole), count)
    if not 0 <= index < count:
        raise ValueError(f"stage {index} is not one of the {count} stages 0 to {count - 1}")
    first = sum(sizes[:index])
    module = nn.Sequential()
    for layer in whole[first : first + sizes[index]]:
        module.add_module(layer.name, layer.build())
    return module


def check_cut(config: GPTConfig, count: int) -> None:
    """Refuses a cut that would leave a stage without a layer.

    Raises:
        ValueError: `count` is below 1 or above the number of layers.
    """
    if not 1 <= count <= config.layers:
        raise ValueError(
            f"cannot cut {config.layers} layers into {count} stages: "
            "every stage needs at least one layer"
        )


def loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean cross entropy in nats: logits (batch, tokens, 256), targets (batch, tokens) int64."""
    return functional.cross_entropy(logits.flatten(0, -2), targets.flatten())


def _seeded(config: GPTConfig, part: int, build: Callable[[GPTConfig], nn.Module]) -> nn.Module:
    """Builds one part from its own seed, so that its weights depend on nothing built before it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed * 1_000_003 + part)
        return build(config).to(config.dtype)
