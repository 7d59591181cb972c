"""The options that describe a problem, shared by every verb that takes one."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from synth.errors import InfeasibleError, ProblemError, UsageError

if TYPE_CHECKING:
    from fractions import Fraction

    from synth.placement import Placement
    from synth.problem import Problem


def add_problem_options(parser: argparse.ArgumentParser, *, automatic: bool = False) -> None:
    """Add the options from which `read_problem` builds a problem.

    Every default is None, so that a verb can tell what was asked for. A verb that is `automatic`
    reads the placement `auto` itself.
    """
    group = parser.add_argument_group("problem")
    add = group.add_argument
    add(
        "--problem",
        metavar="FILE",
        help="a problem file, instead of the options below; --memory (none: no limit) and "
        "--objective go before what it says",
    )
    add("-P", "--devices", type=int, metavar="N", help="number of devices")
    add("-m", "--microbatches", type=int, metavar="N", help="micro-batches per step")
    add(
        "--placement",
        metavar="NAME",
        help="where the stages live (default linear, or what a baseline needs)"
        + ("; auto: the best of several that fit" if automatic else ""),
    )
    add(
        "--costs",
        metavar="F,B,W[,COMM]",
        help="times of one P-th of the model, and of a hop (default 1,1,1,0)",
    )
    add(
        "--fused-cost",
        metavar="BW",
        help="time of a fused backward (default B + W)",
    )
    add(
        "--overlap-gain",
        metavar="G",
        help="part of F + BW that overlapping two micro-batches' F and BW saves (default 0)",
    )
    add(
        "--activation",
        metavar="A_F,A_W",
        help="memory held from F to B and from B to W, in activation units (default 1,1)",
    )
    add(
        "--memory",
        metavar="K[,K...]",
        help="limit in activation units, for all devices or one each (default none)",
    )
    add(
        "--parameters",
        metavar="A",
        help="what a P-th of the model keeps all the time (parameters, gradients, optimizer), in "
        "activation units; taken off the limit for every copy a device holds (default 0)",
    )
    add(
        "--objective",
        metavar="NAME",
        help="makespan (first start to last end, the default) or span (the longest of the "
        "devices' own)",
    )


def problem_options_given(args: argparse.Namespace) -> bool:
    """Whether any option of `add_problem_options` was typed."""
    names = (
        *("devices", "microbatches", "placement", "costs", "activation"),
        *("fused_cost", "overlap_gain"),
        *("memory", "parameters", "objective", "problem"),
    )
    return any(getattr(args, name) is not None for name in names)


def read_problem(args: argparse.Namespace, *, placement: str | Placement = "linear") -> Problem:
    """The problem that the options describe, in `placement` where they name none.

    Raises UsageError, ProblemError, and for a problem file FileError or InfeasibleError.
    """
    from synth.problem import make_problem

    if args.problem is not None:
        return _stated(args)
    devices, microbatches = args.devices, args.microbatches
    if devices is None or microbatches is None:
        raise UsageError("a problem needs -P (devices) and -m (micro-batches)")
    costs = _amounts(args.costs or "1,1,1", "--costs", (3, 4))
    if any(float(cost) == 0 for cost in costs[:3]):
        raise UsageError(f"--costs {args.costs}: F, B and W must be above 0")
    activation = _amounts(args.activation or "1,1", "--activation", (2,))
    fused, pair = _together(args, costs)
    _check_size(devices, microbatches)
    problem = make_problem(
        devices,
        microbatches,
        placement=args.placement or placement,
        costs=costs[:3],
        comm=costs[3] if len(costs) == 4 else 0,
        fused=fused,
        pair=pair,
        activation=activation,
        memory=_room(args, args.placement or placement),
        objective=args.objective or "makespan",
    )
    _check_size(len(problem.stages), problem.total_microbatches)
    return problem


_STATED = (
    *("devices", "microbatches", "placement", "costs", "activation"),
    *("fused_cost", "overlap_gain", "parameters"),
)


def _stated(args: argparse.Namespace) -> Problem:
    """The problem of a problem file."""
    from synth.problem_maker import load_problem

    twice = [name for name in _STATED if getattr(args, name) is not None]
    if twice:
        option = {"devices": "-P", "microbatches": "-m"}.get(twice[0])
        option = option or f"--{twice[0].replace('_', '-')}"
        raise UsageError(
            f"{option} and --problem both describe the problem; edit {args.problem} instead"
        )
    memory = None
    if args.memory is not None:
        memory = [None if part.strip() == "none" else part for part in args.memory.split(",")]
        for part in filter(None, memory):
            check_amount(part.strip(), f"--memory {args.memory}")
    return load_problem(args.problem, memory=memory, objective=args.objective)


def _together(args: argparse.Namespace, costs: list[str]) -> tuple[Fraction, Fraction]:
    """What a fused backward takes, and an F that overlaps one."""
    from fractions import Fraction

    forward, act, wgt = (Fraction(cost) for cost in costs[:3])
    fused = act + wgt
    if args.fused_cost is not None:
        fused = Fraction(_amounts(args.fused_cost, "--fused-cost", (1,))[0])
    gain = Fraction(_amounts(args.overlap_gain or "0", "--overlap-gain", (1,))[0])
    pair = (1 - gain) * (forward + fused)
    if fused < act or pair < max(forward, fused):
        raise UsageError(
            "--fused-cost must not be below B, and --overlap-gain must leave a pair at least as "
            "long as the longer of F and BW"
        )
    return fused, pair


def _check_size(stages: int, microbatches: int) -> None:
    """Refuse what would not fit in memory before it is built."""
    from synth.problem import MAX_OPS

    ops = 3 * stages * microbatches
    if stages > 0 and microbatches > 0 and ops > MAX_OPS:
        raise ProblemError(
            f"{stages} stages and {microbatches} micro-batches make {ops} ops, more than the "
            f"{MAX_OPS} that are handled; use fewer of either"
        )


def _room(args: argparse.Namespace, placement: str | Placement) -> list[Fraction] | None:
    """Each device's limit less what its stages keep all the time, None where there is no limit."""
    if args.memory is None:
        return None
    from fractions import Fraction

    from synth.placement import parse_placement

    devices: int = args.devices
    limits = [Fraction(part) for part in _amounts(args.memory, "--memory", (1, devices))]
    limits *= devices // len(limits)
    if args.parameters is None:
        return limits
    (kept,) = map(Fraction, _amounts(args.parameters, "--parameters", (1,)))
    where = parse_placement(placement, devices) if isinstance(placement, str) else placement
    room = []
    for device, limit in enumerate(limits):
        share = kept * Fraction(_held(where, device) * devices, where.stages)
        if share > limit:
            raise InfeasibleError(
                f"infeasible: parameters, gradients and optimizer of device {device} take "
                f"{float(share):g} activation units, its limit is {float(limit):g}"
            )
        room.append(limit - share)
    return room


def _held(placement: Placement, device: int) -> int:
    """How many stages a device holds; one that several streams bring is held once."""
    routes = (route for _, route in placement.routes)
    return len({s for route in routes for s, there in enumerate(route) if there == device})


def _amounts(text: str, option: str, counts: Sequence[int]) -> list[str]:
    """The comma-separated numbers of an option, each still as typed."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) not in counts:
        wanted = " or ".join(str(count) for count in dict.fromkeys(counts))
        raise UsageError(f"{option} {text}: needs {wanted} numbers, got {len(parts)}")
    for part in parts:
        check_amount(part, f"{option} {text}")
    return parts


def check_amount(text: str, where: str) -> None:
    """Refuse what is no number from 0 up, or needs more digits than exact arithmetic is good for.

    Raises UsageError.
    """
    from decimal import Decimal, InvalidOperation

    try:
        value = Decimal(text)
    except InvalidOperation:
        raise UsageError(f"{where}: {text!r} is not a number") from None
    if not value.is_finite():
        raise UsageError(f"{where}: {text} is not a finite number")
    if value < 0:
        raise UsageError(f"{where}: {text} is negative")
    # An exponent of a billion would be written out in full by exact arithmetic.
    if value and not -9 <= value.adjusted() <= 15:
        raise UsageError(f"{where}: {text} is too large or too small; use 1e-9 to 1e15")
