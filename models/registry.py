"""The models that can be named on a command line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from models import gpt, sleep, text
from models.layered import Batch, Layered, Loss, Shared, check_cut, even_cut, load_factory

NAMES = ("gpt", "sleep")
"""Those that come with pipesynth; any other is `package:factory`."""


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
    cut: tuple[int, ...] = ()
    """Layers per stage; empty where there are none."""
    shared: tuple[Shared, ...] = ()
    """Parameters that several stages share."""


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
    input_shape: Sequence[int] | None = None
    """Of one sample, for factories that bring no data."""
    needs: Sequence[Sequence[int]] = ()
    """For each stage those whose outputs it takes; empty where the stages are a chain."""

    def inputs_of(self, stage: int) -> int:
        """How many stages a stage takes the outputs of; 1 for the first stage of a chain too."""
        return len(self.needs[stage]) if self.needs else 1

    @property
    def first_stages(self) -> tuple[int, ...]:
        """The stages that read the batch."""
        return tuple(n for n, sources in enumerate(self.needs) if not sources) or (0,)


def build(name: str, stages: int, options: Options) -> Model:
    """Builds a model by name, or `package:factory` as `load_factory` describes it.

    Raises:
        ValueError: the name is unknown or the options do not allow that many stages.
    """
    if name == "sleep":
        return _sleep(stages, options)
    if name not in NAMES and ":" not in name:
        raise ValueError(f"no model is called {name!r}; known are {', '.join(NAMES)}")
    if options.needs and ":" not in name:
        raise ValueError(
            f"the layers of {name} are a chain, which the stages of this schedule are not; "
            "use sleep or package:factory"
        )
    whole, even = build_layered(name, options)
    cut = tuple(options.cut) or even(stages)
    if options.needs and not options.cut and len(whole.layers) != stages:
        raise ValueError(
            f"say with --cut how many of the {len(whole.layers)} layers each of the {stages} "
            "stages has; they are not a chain, so nothing says which cut is even"
        )
    check_cut(cut, len(whole.layers), stages)

    def make_stage(index: int) -> nn.Module:
        return whole.stage(sum(cut[:index]), cut[index], joins=options.inputs_of(index) > 1)

    return Model(
        name=name,
        stages=stages,
        make_stage=make_stage,
        loss=whole.loss,
        make_batch=whole.make_batch,
        cut=cut,
        shared=whole.shared(cut),
    )


def build_layered(name: str, options: Options) -> tuple[Layered, Callable[[int], tuple[int, ...]]]:
    """A model before it is cut, and how many layers per stage it gives to a number of stages.

    Raises:
        ValueError: the name is unknown or the model cannot be cut.
    """
    if ":" in name:
        model = load_factory(name, options.input_shape, options.seed)
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


def _sleep(stages: int, options: Options) -> Model:
    if len(options.times) != stages:
        raise ValueError(f"{len(options.times)} sets of sleep times for {stages} stages")

    def make_stage(index: int) -> sleep.SleepStage:
        last, inputs = index == stages - 1, options.inputs_of(index)
        return sleep.SleepStage(options.times[index], last=last, inputs=inputs)

    def make_batch(step: int, samples: int) -> Batch:
        payloads = torch.zeros(samples, sleep.PAYLOAD_BYTES, dtype=torch.uint8)
        first = options.first_stages
        inputs = payloads if len(first) == 1 else dict.fromkeys(first, payloads)
        return inputs, torch.zeros(samples)

    return Model("sleep", stages, make_stage, None, make_batch)
