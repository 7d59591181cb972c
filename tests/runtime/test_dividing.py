"""Cutting a sequence of modules into stages."""

from __future__ import annotations

import itertools
import random

import pytest
from torch import nn

from runtime.dividing import divide
from synth.errors import UsageError


def layers(*sizes: int) -> nn.Sequential:
    return nn.Sequential(*(nn.Linear(1, size, bias=False) for size in sizes))


def sizes(stages: list[nn.Module]) -> list[list[int]]:
    return [[layer.numel() for layer in stage.parameters()] for stage in stages]


def test_the_largest_stage_is_as_small_as_it_can_be() -> None:
    choose = random.Random(1)
    for _ in range(30):
        given = [choose.randint(1, 9) for _ in range(choose.randint(2, 7))]
        stages = choose.randint(1, len(given))
        found = sizes(divide(layers(*given), stages))
        assert [size for stage in found for size in stage] == given
        assert all(found)
        largest = max(map(sum, found))
        for cuts in itertools.combinations(range(1, len(given)), stages - 1):
            bounds = [0, *cuts, len(given)]
            parts = [sum(given[a:b]) for a, b in itertools.pairwise(bounds)]
            assert largest <= max(parts)


def test_what_cannot_be_cut_is_refused() -> None:
    with pytest.raises(UsageError, match="2 layers cannot fill 3 stages"):
        divide(layers(1, 1), 3)
    with pytest.raises(UsageError, match="a Linear cannot be cut into stages by itself"):
        divide(nn.Linear(1, 1), 2)
