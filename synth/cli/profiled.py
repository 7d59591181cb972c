"""The options that take a problem's costs from a profile."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from synth.cli.options import check_amount, read_problem
from synth.errors import UsageError

if TYPE_CHECKING:
    from synth.problem import Problem

_ABSTRACT = ("costs", "activation", "memory", "parameters")


def add_profile_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that `read_any_problem` reads besides those of a problem."""
    add = parser.add_argument_group("profiled model").add_argument
    add("--profile", metavar="COSTS.json", help="measured costs, by `pipesynth profile`")
    add(
        "--memory-gib",
        metavar="G[,G...]",
        help="what a device has, parameters, gradients and optimizer included, for all or one each",
    )
    add(
        "--balance",
        action="store_true",
        help="cut the profiled layers anew, into the stages of the fastest schedule",
    )


def read_any_problem(
    args: argparse.Namespace, *, placement: str = "linear"
) -> tuple[Problem, list[int] | None]:
    """The problem that the options describe, and with --balance its cut.

    Raises UsageError, ProblemError, FileError or InfeasibleError.
    """
    if args.profile is not None and args.problem is not None:
        raise UsageError("--profile and --problem both give costs; use one of them")
    if args.profile is None:
        if args.memory_gib is not None or args.balance:
            raise UsageError("--memory-gib and --balance need --profile COSTS.json")
        return read_problem(args, placement=placement), None
    abstract = [f"--{name}" for name in _ABSTRACT if getattr(args, name) is not None]
    if abstract:
        raise UsageError(f"{abstract[0]} and --profile both give costs or limits; use one of them")
    if args.devices is None or args.microbatches is None:
        raise UsageError("a problem needs -P (devices) and -m (micro-batches)")
    return _profiled(args, args.placement or placement)


def _profiled(args: argparse.Namespace, place: str) -> tuple[Problem, list[int] | None]:
    from synth.costs import loads
    from synth.files import read_bytes
    from synth.placement import parse_placement
    from synth.profiled import joined, make_profiled

    costs = loads(read_bytes(args.profile), args.profile)
    placement = parse_placement(place, args.devices)
    limits = _limits(args.memory_gib, args.devices)

    def make(cut: Sequence[int]) -> Problem:
        return make_profiled(
            costs,
            args.devices,
            args.microbatches,
            placement=placement,
            limit_bytes=limits,
            objective=args.objective or "makespan",
            stages=costs.stages if tuple(cut) == costs.cut else joined(costs.layers, cut),
        )

    if not args.balance:
        return make(costs.cut), None
    from synth.balance import balance

    cut = balance(costs.layers, placement.stages, make).cut
    return make(cut), list(cut)


def _limits(text: str | None, devices: int) -> list[int | None]:
    """Bytes per device."""
    from synth.profiled import gib

    if text is None:
        return [None] * devices
    parts = text.split(",")
    if len(parts) not in (1, devices):
        raise UsageError(f"--memory-gib {text}: needs 1 or {devices} numbers, got {len(parts)}")
    for part in parts:
        check_amount(part.strip(), f"--memory-gib {text}")
    limits = [gib(part) for part in parts]
    return [*(limits if len(limits) == devices else limits * devices)]
