"""The model that options name, for whoever runs, trains or profiles it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

import models
from models.sleep import StageTimes
from runtime.options import JobOptions
from synth.errors import UsageError
from synth.profile_options import ProfileOptions
from synth.stages import Needs

GPT_SIZES = ("layers", "width", "heads", "seq_len", "dtype")
"""The options that only the gpt reads."""


def model_options(
    options: JobOptions | ProfileOptions,
    stages: int,
    *,
    times: Sequence[StageTimes] = (),
    needs: Needs = (),
) -> models.Options:
    """The options of a model that is cut into so many stages."""
    return models.Options(
        layers=max(4, stages) if options.layers is None else options.layers,
        width=options.width,
        heads=options.heads,
        seq_len=options.seq_len,
        seed=options.seed,
        dtype=getattr(torch, options.dtype),
        times=times,
        cut=options.cut,
        input_shape=options.input_shape,
        needs=needs,
    )


@contextmanager
def refused_by(name: str) -> Iterator[None]:
    """Makes what a model or its data refuse an error of usage.

    Raises:
        UsageError: a ValueError came out of what is done here.
    """
    try:
        yield
    except ValueError as error:
        named = f"model {name}: "
        raise UsageError(named + str(error).removeprefix(named)) from None
