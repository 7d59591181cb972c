"""The models that can be named on a command line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from models import gpt, sleep, text
from models.layered import Layered, check_cut, even_cut, load_factory

NAMES = ("gpt", "sleep")
"""What `build` knows."""

Loss = Callable[[Tensor, Tensor], Tensor]
Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True, slots=True)
class Model:
    """A model cut into stages, with the loss that closes it and the data that feeds it."""

    name: str
    stages: int
    make_stage: Callable[[int], nn.Module | sleep.SleepStage]
    """Builds one stage by its number; a rank builds only those that it runs."""
    loss: Loss | None
    """Mean loss of (output, target); None when the last stage brings its own."""
    make_batch: Callable[[int, int], Batch]
    """(step, samples) to inputs and targets, samples along dimension 0."""


@dataclass(frozen=True, slots=True)
class Options:
    """What can be chosen about a model; each model reads what concerns it."""

    layers: int = 4
    width: int = 64
    heads: int = 4
    seq_len: int = 64
    """Tokens per sequence."""
    seed: int = 0
    dtype: torch.dtype = torch.float32
    times: Sequence[sleep.StageTimes] = ()
    """Of the sleeping stages, one per stage."""
    cut: Sequence[int] = ()
    """Layers per stage; empty for what the model thinks even."""


def build(name: str, stages: int, options: Options) -> Model:
    """Builds a model by name.

    Raises:
        ValueError: the name is unknown or the options do not allow that many stages.
    """
    if name == "gpt":
        return _gpt(stages, options)
    if name == "sleep":
        return _sleep(stages, options)
    raise ValueError(f"no model is called {name!r}; known are {', '.join(NAMES)}")


def build_layered(
    name: str, options: Options, input_shape: Sequence[int] | None = None
) -> tuple[Layered, Callable[[int], tuple[int, ...]]]:
    """A model before it is cut, and how many layers per stage it gives to a number of stages.

    Args:
        name: "gpt", or `package:factory` as `load_factory` describes.
        options: of our own models.
        input_shape: of one sample, for factories that bring no data.

    Raises:
        ValueError: the name is unknown or the model cannot be cut.
    """
    if ":" in name:
        model = load_factory(name, input_shape)
        return model, partial(even_cut, len(model.layers))
    if name != "gpt":
        raise ValueError(f"model {name} has no layers to cut; use gpt or package:factory")
    config = _gpt_config(options)
    return Layered("gpt", gpt.layers(config), gpt.loss, _text_batches(options)), partial(
        gpt.even_cut, config
    )


def _gpt_config(options: Options) -> gpt.GPTConfig:
    return gpt.GPTConfig(
        layers=options.layers,
        width=options.width,
        heads=options.heads,
        context=options.seq_len,
        seed=options.seed,
        dtype=options.dtype,
    )


def _text_batches(options: Options) -> Callable[[int, int], Batch]:
    library = text.standard_library()

    def make_batch(step: int, samples: int) -> Batch:
        return library.batch(options.seed, step, samples, options.seq_len)

    return make_batch


def _gpt(stages: int, options: Options) -> Model:
    config = _gpt_config(options)
    cut = tuple(options.cut) or gpt.even_cut(config, stages)
    check_cut(cut, config.layers + 2, stages)
    return Model(
        name="gpt",
        stages=stages,
        make_stage=lambda index: gpt.stage(config, stages, index, cut),
        loss=gpt.loss,
        make_batch=_text_batches(options),
    )


def _sleep(stages: int, options: Options) -> Model:
    if len(options.times) != stages:
        raise ValueError(f"{len(options.times)} sets of sleep times for {stages} stages")

    def make_stage(index: int) -> sleep.SleepStage:
        return sleep.SleepStage(options.times[index], last=index == stages - 1)

    def make_batch(step: int, samples: int) -> Batch:
        payloads = torch.zeros(samples, sleep.PAYLOAD_BYTES, dtype=torch.uint8)
        return payloads, torch.zeros(samples)

    return Model("sleep", stages, make_stage, None, make_batch)
