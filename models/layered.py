"""Models as a row of layers that a cut may go between, ours or somebody else's."""

from __future__ import annotations

import copy
import importlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

Loss = Callable[[Any, Any], Tensor]
Batch = tuple[Tensor | dict[int, Tensor], Tensor]
"""Inputs and targets, samples along dimension 0; where several stages read the batch, the inputs of
each by its number."""
Shared = tuple[tuple[int, str], ...]
"""One parameter: the stages that use it, and its name in each."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer: its name, unique in the model, and what builds it."""

    name: str
    build: Callable[[], nn.Module]


class Joining(nn.Sequential):
    """Layers of which the first takes what several stages give, an argument each."""

    def forward(self, *inputs: Any) -> Any:
        first, *others = self
        value = first(*inputs)
        for layer in others:
            value = layer(value)
        return value


@dataclass(frozen=True, slots=True)
class Layered:
    """A model before it is cut."""

    name: str
    layers: tuple[Layer, ...]
    loss: Loss
    """Mean loss of (output, target)."""
    make_batch: Callable[[int, int], Batch]
    """(step, samples) to inputs and targets, samples along dimension 0."""

    whole: nn.Sequential | None = None
    """All layers, where they are there from the beginning rather than built one by one."""

    def stage(self, first: int, count: int, *, joins: bool = False) -> nn.Sequential:
        """Builds the stage of `count` layers from `first` on, a new one each time.

        Where it joins what several stages give, its first layer takes an argument from each.
        """
        module = Joining() if joins else nn.Sequential()
        for layer in self.layers[first : first + count]:
            module.add_module(layer.name, layer.build())
        # Copied as a whole, so that what its layers share they still share.
        return module if self.whole is None else copy.deepcopy(module)

    def shared(self, cut: Sequence[int]) -> tuple[Shared, ...]:
        """The trained parameters that stages of a cut share, such as that of embedding and head."""
        if self.whole is None:
            return ()
        stages = [stage for stage, count in enumerate(cut) for _ in range(count)]
        uses: dict[nn.Parameter, list[tuple[int, str]]] = {}
        for stage, (name, layer) in zip(stages, self.whole._modules.items(), strict=True):
            for inner, parameter in layer.named_parameters(remove_duplicate=False):
                if parameter.requires_grad:
                    uses.setdefault(parameter, []).append((stage, f"{name}.{inner}"))
        return tuple(tuple(use) for use in uses.values() if len({stage for stage, _ in use}) > 1)


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


def load_factory(name: str, input_shape: Sequence[int] | None, seed: int = 0) -> Layered:
    """The model that `package:factory` returns.

    The factory takes no arguments. It returns the layers: a Sequential, a list of modules, or a
    list of functions that build one module each, of which a process calls those that it needs. Or
    it returns a tuple of these, a mean loss of (output, target), and a function of (step, samples)
    that draws inputs and targets, tensors with a sample each along dimension 0. Without the latter,
    inputs are random numbers of `input_shape` per sample and the loss is the mean square of the
    output. All of them start from a seed, so that every process has the same weights and data.

    Where stages are not a chain, the layers are those of one stage after the other, and where
    several stages read the batch, its inputs are a dict of tensors by their numbers.

    Raises:
        ValueError: there is no such factory, or what it returns cannot be cut.
    """
    with _seeded(seed), _importable(os.getcwd()):
        made = _factory(name)()
    loss: Loss = _mean_square
    draw: Callable[[int, int], Batch] | None = None
    if isinstance(made, tuple) and len(made) == 3:
        made, loss, draw = made
    if draw is None:
        if input_shape is None:
            raise ValueError(
                f"model {name}: give --input-shape, or return (layers, loss, make_batch)"
            )
        draw = partial(_random_batch, tuple(input_shape))
    layers, whole = _layers(name, made, seed)
    return Layered(name, layers, loss, partial(_batch, name, draw, seed), whole)


@contextmanager
def _importable(folder: str) -> Iterator[None]:
    """Lets modules in a folder be imported."""
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


def _factory(name: str) -> Callable[[], Any]:
    """What `package:factory` names."""
    module_name, _, attribute = name.partition(":")
    try:
        factory = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError, SyntaxError) as error:
        raise ValueError(f"model {name}: {error}") from None
    if not callable(factory):
        raise ValueError(f"model {name}: is a {type(factory).__name__}, not a function")
    found: Callable[[], Any] = factory
    return found


def _layers(name: str, made: object, seed: int) -> tuple[tuple[Layer, ...], nn.Sequential | None]:
    whole: nn.Sequential | None = None
    if isinstance(made, nn.Sequential):
        whole = made
    elif isinstance(made, Sequence) and all(isinstance(one, nn.Module) for one in made):
        whole = nn.Sequential()
        for number, one in enumerate(made):
            whole.add_module(f"layer{number}", one)
    elif isinstance(made, Sequence) and all(callable(one) for one in made):
        return tuple(
            Layer(f"layer{number}", partial(_built, name, one, seed, number))
            for number, one in enumerate(made)
        ), None
    else:
        raise ValueError(
            f"model {name}: the factory returned a {type(made).__name__}, which cannot be cut; "
            "return a Sequential or a list of modules"
        )
    if not len(whole):
        raise ValueError(f"model {name}: has no layers")
    pairs = list(whole._modules.items())  # named_children() leaves out a layer that is there twice
    return tuple(Layer(of, partial(_itself, one)) for of, one in pairs), whole


def _itself(module: nn.Module) -> nn.Module:
    return module


def _built(name: str, build: Callable[[], nn.Module], seed: int, number: int) -> nn.Module:
    """A layer whose weights depend on nothing that was built before it."""
    with _seeded(seed, number + 1):
        module = build()
    if not isinstance(module, nn.Module):
        raise ValueError(f"model {name}: layer {number} is a {type(module).__name__}, not a module")
    return module


def _mean_square(output: Tensor, target: object) -> Tensor:
    return output.float().square().mean()


def _random_batch(shape: tuple[int, ...], step: int, samples: int) -> Batch:
    return torch.randn((samples, *shape)), torch.zeros(samples)


def _batch(
    name: str, draw: Callable[[int, int], Batch], seed: int, step: int, samples: int
) -> Batch:
    """The batch of a step; every process that asks for it gets the same."""
    with _seeded(seed, step):
        batch = draw(step, samples)
    if not _fits(batch, samples):
        raise ValueError(
            f"model {name}: make_batch must return two tensors, inputs and targets, with "
            f"{samples} samples along dimension 0"
        )
    return batch


def _fits(batch: object, samples: int) -> bool:
    """Whether inputs and targets are there, tensors with as many samples each."""
    if not isinstance(batch, Sequence) or len(batch) != 2:
        return False
    inputs, targets = batch
    read = inputs.values() if isinstance(inputs, dict) else (inputs,)
    return all(
        isinstance(one, Tensor) and one.ndim and len(one) == samples for one in (*read, targets)
    )


@contextmanager
def _seeded(seed: int, part: int = 0) -> Iterator[None]:
    """Random numbers that depend on these alone, and leave those of the caller as they are."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed * 1_000_003 + part)
        yield
