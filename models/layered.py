"""Models as a row of layers that a cut may go between, ours or somebody else's."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

Loss = Callable[[Any, Any], Tensor]
Batch = tuple[Any, Any]


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer: its name, unique in the model, and what builds it."""

    name: str
    build: Callable[[], nn.Module]


@dataclass(frozen=True, slots=True)
class Layered:
    """A model before it is cut."""

    name: str
    layers: tuple[Layer, ...]
    loss: Loss
    """Mean loss of (output, target)."""
    make_batch: Callable[[int, int], Batch]
    """(step, samples) to inputs and targets, samples along dimension 0."""

    def stage(self, first: int, count: int) -> nn.Sequential:
        """Builds the stage of `count` layers from `first` on."""
        module = nn.Sequential()
        for layer in self.layers[first : first + count]:
            module.add_module(layer.name, layer.build())
        return module


def even_cut(layers: int, stages: int) -> tuple[int, ...]:
    """Layers per stage, as equal as they get; the stages in the middle take one more.

    Raises:
        ValueError: there are fewer layers than stages.
    """
    if not 1 <= stages <= layers:
        raise ValueError(
            f"cannot cut {layers} layers into {stages} stages: every stage needs at least one layer"
        )
    base, extra = divmod(layers, stages)
    nearest = sorted(range(stages), key=lambda stage: (abs(2 * stage - stages + 1), stage))
    chosen = set(nearest[:extra])
    return tuple(base + (stage in chosen) for stage in range(stages))


def check_cut(cut: Sequence[int], layers: int, stages: int) -> None:
    """Refuses a cut that does not fit.

    Raises:
        ValueError: it has another number of stages or of layers, or an empty stage.
    """
    if len(cut) != stages or sum(cut) != layers or min(cut) < 1:
        raise ValueError(
            f"the cut {','.join(map(str, cut))} does not make {stages} stages of {layers} layers"
        )


def load_factory(name: str, input_shape: Sequence[int] | None) -> Layered:
    """The model that `package:factory` returns.

    The factory takes no arguments. It returns a Sequential or a list of modules, the layers; or a
    tuple of these, a loss of (output, target) and a function of (step, samples) that draws inputs
    and targets. Without the latter, inputs are random numbers of `input_shape` per sample and the
    loss is the mean square of the output.

    Raises:
        ValueError: there is no such factory, or what it returns cannot be cut.
    """
    module_name, _, attribute = name.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        made = getattr(importlib.import_module(module_name), attribute)()
    except (ImportError, AttributeError) as error:
        raise ValueError(f"model {name}: {error}") from None
    finally:
        sys.path.remove(os.getcwd())
    loss: Loss = _mean_square
    make_batch: Callable[[int, int], Batch] | None = None
    if isinstance(made, tuple) and len(made) == 3:
        made, loss, make_batch = made
    if make_batch is None:
        if input_shape is None:
            raise ValueError(
                f"model {name}: give --input-shape, or return (layers, loss, make_batch)"
            )
        make_batch = _random_batches(tuple(input_shape))
    return Layered(name, _layers(name, made), loss, make_batch)


def _layers(name: str, made: object) -> tuple[Layer, ...]:
    if isinstance(made, nn.Sequential):
        pairs = list(made.named_children())
    elif isinstance(made, Sequence) and all(isinstance(one, nn.Module) for one in made):
        pairs = [(f"layer{number}", one) for number, one in enumerate(made)]
    else:
        raise ValueError(
            f"model {name}: the factory returned a {type(made).__name__}, which cannot be cut; "
            "return a Sequential or a list of modules"
        )
    if not pairs:
        raise ValueError(f"model {name}: has no layers")
    return tuple(Layer(of, partial(_itself, module)) for of, module in pairs)


def _itself(module: nn.Module) -> nn.Module:
    return module


def _mean_square(output: Tensor, target: object) -> Tensor:
    return output.float().square().mean()


def _random_batches(shape: tuple[int, ...]) -> Callable[[int, int], Batch]:
    def make_batch(step: int, samples: int) -> Batch:
        generator = torch.Generator().manual_seed(step)
        return torch.randn((samples, *shape), generator=generator), torch.zeros(samples)

    return make_batch
