"""A model whose head is worth several of its layers."""

from __future__ import annotations

from torch import nn

WIDTH, HEAD, LAYERS = 256, 4096, 9


def make() -> list[nn.Module]:
    """Nine equal layers and a head that is worth several of them."""
    layers: list[nn.Module] = [
        nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))
        for _ in range(LAYERS)
    ]
    return [*layers, nn.Linear(WIDTH, HEAD)]
