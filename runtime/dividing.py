"""Cuts a model that is a sequence of modules into stages."""

from __future__ import annotations

from itertools import accumulate

from torch import nn

from synth.errors import UsageError


def divide(model: nn.Module, stages: int) -> list[nn.Module]:
    """Consecutive layers of an nn.Sequential, so that the largest stage has the least parameters.

    Raises:
        UsageError: the model is no sequence, or has fewer layers than there are to be stages.
    """
    if not isinstance(model, nn.Sequential):
        raise UsageError(
            f"a {type(model).__name__} cannot be cut into stages by itself; give a list of "
            f"{stages} modules, or an nn.Sequential"
        )
    layers = list(model)
    if len(layers) < stages:
        raise UsageError(f"{len(layers)} layers cannot fill {stages} stages")
    sizes = [sum(parameter.numel() for parameter in layer.parameters()) for layer in layers]
    bounds = [0, *_cuts(sizes, stages), len(layers)]
    return [model[bounds[stage] : bounds[stage + 1]] for stage in range(stages)]


def _cuts(sizes: list[int], parts: int) -> list[int]:
    """Where to cut; the least largest part, by dynamic programming over (parts, layers)."""
    before = [0, *accumulate(sizes)]
    best = list(before)
    choices: list[list[int]] = []
    for part in range(1, parts):
        found, chosen = [0] * len(before), [0] * len(before)
        for end in range(part + 1, len(before)):
            found[end], chosen[end] = min(
                (max(best[cut], before[end] - before[cut]), cut) for cut in range(part, end)
            )
        best = found
        choices.append(chosen)
    cuts: list[int] = []
    end = len(sizes)
    for chosen in reversed(choices):
        end = chosen[end]
        cuts.append(end)
    return cuts[::-1]
