"""The options that say which model is measured, run or trained: alike for all three."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from synth.errors import UsageError

DTYPES = ("float32", "float64", "bfloat16")


def add_model_options(parser: argparse.ArgumentParser, known: Sequence[str]) -> None:
    """Adds the options of a model; `known` are the names of those that come with pipesynth."""
    add = parser.add_argument_group("model").add_argument
    add(
        "--model",
        default="gpt",
        metavar="|".join((*known, "PACKAGE:FACTORY")),
        help="default gpt; your own is a function that returns its layers in a row",
    )
    add("--layers", type=int, metavar="N", help="gpt: blocks (default 4, or one per stage)")
    add("--width", type=int, default=64, metavar="N", help="gpt: numbers per token (default 64)")
    add("--heads", type=int, default=4, metavar="N", help="gpt: of attention (default 4)")
    add("--seq-len", type=int, default=64, metavar="N", help="gpt: tokens per sequence")
    add("--dtype", choices=DTYPES, default="float32", help="gpt: of weights (default float32)")
    add(
        "--input-shape",
        type=counts,
        metavar="N,N,...",
        help="of one sample, for a factory that brings no data",
    )
    add(
        "--cut",
        type=counts,
        default=(),
        metavar="N,N,...",
        help="layers per stage, embedding and head counted (default even)",
    )
    add("--seed", type=seed, default=0, metavar="N", help="of weights, data and dropout")
    add("--batch", type=int, default=4, metavar="N", help="samples per micro-batch (default 4)")


def whole(text: str) -> int:
    """A whole number, for argparse."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def seed(text: str) -> int:
    """A seed that every generator of random numbers takes, for argparse."""
    found = whole(text)
    if not 0 <= found < 2**31:
        raise argparse.ArgumentTypeError(f"must be between 0 and 2147483647, got {text}")
    return found


def require_model(name: str, known: Sequence[str]) -> None:
    """Refuses a name that is neither known nor a factory's.

    Raises:
        UsageError: it is such a name.
    """
    package, colon, factory = name.partition(":")
    if name not in known and not (colon and package and factory):
        raise UsageError(f"--model {name}: use {', '.join(known)}, or package:factory for your own")


def counts(text: str) -> tuple[int, ...]:
    """Numbers from 1 up with commas between them, for argparse."""
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a row of whole numbers") from None
    if min(found) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} holds a number below 1")
    return found
