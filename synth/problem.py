"""Problem: everything a schedule has to answer to, in whole ticks and quanta.

All arithmetic is on integers so that a proof is a proof: times are ticks, memory is quanta, and
`Units` says how many of them make one unit of what the user typed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from math import lcm

from synth.errors import ProblemError
from synth.op import Kind, Op
from synth.placement import Placement, parse_placement

MAX_TOTAL_TICKS = 2**53  # JSON numbers stay exact up to here
MAX_OPS = 3_000_000  # about a gigabyte of ops; far above any schedule that is run


class Objective(StrEnum):
    """What is minimised."""

    MAKESPAN = "makespan"  # first start to last end over all devices: synchronous optimizer step
    SPAN = "span"  # longest of the devices' own first start to last end: unsynchronised step


@dataclass(frozen=True, slots=True)
class Units:
    """How ticks and quanta translate into what the user typed."""

    time: str = "unit"
    ticks_per_unit: int = 1
    memory: str = "activation"
    quanta_per_unit: int = 1

    def __post_init__(self) -> None:
        if self.ticks_per_unit < 1 or self.quanta_per_unit < 1:
            raise ProblemError(f"units need at least one tick and one quantum, got {self}")

    def ticks(self, ticks: int) -> int | float:
        """Ticks as the user's time units; an int where it is whole."""
        return _number(ticks, self.ticks_per_unit)

    def time_text(self, ticks: int) -> str:
        """Ticks as a text with their unit: `15 units`, `1.2 ms`."""
        amount = self.ticks(ticks)
        shown = f"{amount:.6g}" if isinstance(amount, float) else str(amount)
        plural = "s" if self.time == "unit" and amount != 1 else ""
        return f"{shown} {self.time}{plural}"

    def quanta(self, quanta: int) -> int | float:
        """Quanta as the user's memory units; an int where it is whole."""
        return _number(quanta, self.quanta_per_unit)


def _number(count: int, per_unit: int) -> int | float:
    return count // per_unit if count % per_unit == 0 else count / per_unit


@dataclass(frozen=True, slots=True)
class StageCost:
    """What one micro-batch costs on one stage.

    Activation is held from the start of F to the end of B, the W context from there to the end of
    W. `fused_ticks` is the duration of BW; `pair_ticks` that of an F overlapped with a BW.
    """

    forward_ticks: int
    backward_act_ticks: int
    backward_wgt_ticks: int
    fused_ticks: int
    pair_ticks: int
    activation_quanta: int
    context_quanta: int

    def __post_init__(self) -> None:
        durations = (
            self.forward_ticks,
            self.backward_act_ticks,
            self.backward_wgt_ticks,
            self.fused_ticks,
            self.pair_ticks,
        )
        if min(durations) <= 0:
            raise ProblemError(f"every duration must be positive, got {self}")
        if self.fused_ticks < self.backward_act_ticks:
            raise ProblemError(f"a fused backward cannot take less than B alone, got {self}")
        if self.pair_ticks < max(self.forward_ticks, self.fused_ticks):
            raise ProblemError(f"a pair cannot take less than its longer op, got {self}")
        if min(self.activation_quanta, self.context_quanta) < 0:
            raise ProblemError(f"held memory must not be negative, got {self}")

    @property
    def work_ticks(self) -> int:
        """F + B + W."""
        return self.forward_ticks + self.backward_act_ticks + self.backward_wgt_ticks

    @property
    def pair_gain_ticks(self) -> int:
        """What overlapping an F with a BW saves over running one after the other."""
        return self.forward_ticks + self.fused_ticks - self.pair_ticks

    @property
    def least_work_ticks(self) -> int:
        """The least a device can be busy with a micro-batch: fused or paired where that is less."""
        apart = self.backward_act_ticks + self.backward_wgt_ticks
        return self.forward_ticks + min(apart, self.fused_ticks) - max(0, self.pair_gain_ticks)

    @property
    def split_is_best(self) -> bool:
        """Whether separate F, B and W are never slower than fused or paired ops."""
        return self.least_work_ticks == self.work_ticks


@dataclass(frozen=True, slots=True)
class Stream:
    """Micro-batches that take the same route: `route[s]` is the device that runs stage s."""

    name: str
    microbatches: int
    route: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.microbatches < 1:
            raise ProblemError(
                f"every stream needs at least 1 micro-batch, got {self.microbatches}"
                + (f" for stream {self.name!r}" if self.name else "")
            )


@dataclass(frozen=True, slots=True)
class Problem:
    """Devices, streams, costs, memory limits and objective.

    `comm_ticks` is the latency of a hop between two different devices; `limits_quanta` has one
    entry per device, None for no limit. A single stream has the empty name. Raises ProblemError
    when a rule is broken.
    """

    devices: int
    placement: str
    stages: tuple[StageCost, ...]
    streams: tuple[Stream, ...]
    comm_ticks: int = 0
    limits_quanta: tuple[int | None, ...] = ()
    objective: Objective = Objective.MAKESPAN
    units: Units = Units()
    _by_name: dict[str, Stream] = field(init=False, repr=False, compare=False, hash=False)

    def __post_init__(self) -> None:
        if not self.limits_quanta:
            object.__setattr__(self, "limits_quanta", (None,) * max(self.devices, 1))
        object.__setattr__(self, "_by_name", {stream.name: stream for stream in self.streams})
        _check(self)

    def stream(self, name: str) -> Stream:
        """The stream of that name. Raises KeyError when there is none."""
        return self._by_name[name]

    def device(self, op: Op) -> int:
        """The device that runs an op."""
        return self._by_name[op.stream].route[op.stage]

    def duration(self, op: Op) -> int:
        """Ticks an op takes.

        A pair of two stages gains over running its ops apart the mean of what each stage's own
        pair gains, rounded down, and never ends before the longer of the two would.
        """
        cost = self.stages[op.stage]
        if op.kind is Kind.F:
            return cost.forward_ticks
        if op.kind is Kind.B:
            return cost.backward_act_ticks
        if op.kind is Kind.W:
            return cost.backward_wgt_ticks
        if op.kind is Kind.BW:
            return cost.fused_ticks
        assert op.partner is not None
        backward = self.duration(op.partner)
        gain = (cost.pair_gain_ticks + self.stages[op.partner.stage].pair_gain_ticks) // 2
        return max(cost.forward_ticks + backward - gain, cost.forward_ticks, backward)

    def lag(self, source: int, destination: int) -> int:
        """Ticks between an op's end on one device and its result's arrival on another."""
        return 0 if source == destination else self.comm_ticks

    def held_stages(self, device: int) -> tuple[tuple[Stream, int], ...]:
        """The (stream, stage) pairs that a device runs, by stream and stage."""
        return tuple(
            (stream, stage)
            for stream in self.streams
            for stage, holder in enumerate(stream.route)
            if holder == device
        )

    def work(self, device: int) -> int:
        """The least ticks a device has to be busy."""
        return sum(
            stream.microbatches * self.stages[stage].least_work_ticks
            for stream, stage in self.held_stages(device)
        )

    @property
    def total_microbatches(self) -> int:
        """Micro-batches of all streams together."""
        return sum(stream.microbatches for stream in self.streams)


def _check(problem: Problem) -> None:
    if problem.devices < 1:
        raise ProblemError(f"devices must be at least 1, got {problem.devices}")
    if not problem.stages or not problem.streams:
        raise ProblemError("a problem needs at least one stage and one stream")
    if problem.comm_ticks < 0:
        raise ProblemError(f"comm must not be negative, got {problem.comm_ticks} ticks")
    if len(problem.limits_quanta) != problem.devices:
        raise ProblemError(
            f"{len(problem.limits_quanta)} memory limits for {problem.devices} devices; "
            "give one number or one per device"
        )
    if any(limit is not None and limit < 0 for limit in problem.limits_quanta):
        raise ProblemError("a memory limit must not be negative")
    _check_streams(problem)
    total = sum(problem.work(device) for device in range(problem.devices))
    hops = 2 * len(problem.stages) * problem.total_microbatches
    if total + hops * problem.comm_ticks >= MAX_TOTAL_TICKS:
        raise ProblemError("the costs are too large: all work together must stay below 2**53 ticks")
    _check_memory_numbers(problem)


def _check_memory_numbers(problem: Problem) -> None:
    held = sum(
        stream.microbatches * max(cost.activation_quanta, cost.context_quanta)
        for stream in problem.streams
        for cost in problem.stages
    )
    limits = (limit for limit in problem.limits_quanta if limit is not None)
    if max(held, *limits, 0) >= MAX_TOTAL_TICKS:
        raise ProblemError(
            "the memory numbers are too large: limits and all that is held together must stay "
            "below 2**53 quanta"
        )
    if max(problem.units.ticks_per_unit, problem.units.quanta_per_unit) >= MAX_TOTAL_TICKS:
        raise ProblemError("the numbers are too fine: a unit must have fewer than 2**53 parts")


def _check_streams(problem: Problem) -> None:
    names = [stream.name for stream in problem.streams]
    if names != [""] and not all(re.fullmatch(r"[a-z][a-z0-9_-]*", name) for name in names):
        raise ProblemError(
            "with several streams each needs a lower-case name; a single one has none"
        )
    if len(set(names)) != len(names):
        raise ProblemError(f"stream names must differ, got {names}")
    for stream in problem.streams:
        if len(stream.route) != len(problem.stages):
            raise ProblemError(
                f"stream {stream.name!r} names devices for {len(stream.route)} stages, "
                f"the model has {len(problem.stages)}"
            )
        if not all(0 <= device < problem.devices for device in stream.route):
            raise ProblemError(
                f"stream {stream.name!r} names a device outside 0..{problem.devices - 1}"
            )
    idle = set(range(problem.devices)) - {d for stream in problem.streams for d in stream.route}
    if idle:
        raise ProblemError(f"device {min(idle)} holds no stage; use fewer devices")


Amount = int | float | str | Fraction | Decimal


def make_problem(
    devices: int,
    microbatches: int,
    *,
    placement: str | Placement = "linear",
    costs: Sequence[Amount] = (1, 1, 1),
    comm: Amount = 0,
    activation: Sequence[Amount] = (1, 1),
    memory: Amount | Sequence[Amount | None] | None = None,
    objective: str = "makespan",
    fused: Amount | None = None,
    pair: Amount | None = None,
) -> Problem:
    """Build a problem from the numbers a user types.

    `costs` are the times of F, B and W, `fused` that of BW (default B + W), `pair` that of an F
    overlapped with a BW (default F + BW), all for one P-th of the model; a device that holds V
    chunks spends a V-th of them on each. `comm` is the latency of a hop. `activation` is what a
    micro-batch holds on a device from F to B and from B to W, `memory` the limit per device (one
    for all, or one each), both in activation units. Ticks and quanta are chosen so that every
    number is whole.

    Raises ProblemError for anything that is not a sensible number.
    """
    if devices < 1:
        raise ProblemError(f"devices must be at least 1, got {devices}")
    if microbatches < 1:
        raise ProblemError(f"micro-batches must be at least 1, got {microbatches}")
    if isinstance(placement, str):
        placement = parse_placement(placement, devices)
    share = Fraction(devices, placement.stages)
    if len(costs) != 3:
        raise ProblemError(f"costs are three numbers F,B,W, got {len(costs)}")
    if len(activation) != 2:
        raise ProblemError(f"activation is two numbers A_F,A_W, got {len(activation)}")
    forward, act, wgt = (_amount(cost, "costs") * share for cost in costs)
    fused_time = act + wgt if fused is None else _amount(fused, "fused cost") * share
    pair_time = forward + fused_time if pair is None else _amount(pair, "pair cost") * share
    lag = _amount(comm, "comm")
    ticks = lcm(*(t.denominator for t in (forward, act, wgt, fused_time, pair_time, lag)))

    held = [_amount(part, "activation") * share for part in activation]
    limits = _limits(memory, devices)
    quanta = lcm(*(q.denominator for q in (*held, *(q for q in limits if q is not None))))

    stage = StageCost(
        *(int(t * ticks) for t in (forward, act, wgt, fused_time, pair_time)),
        *(int(q * quanta) for q in held),
    )
    return Problem(
        devices=devices,
        placement=placement.name,
        stages=(stage,) * placement.stages,
        streams=share_out(placement, microbatches),
        comm_ticks=int(lag * ticks),
        limits_quanta=tuple(None if q is None else int(q * quanta) for q in limits),
        objective=_objective(objective),
        units=Units(ticks_per_unit=ticks, quanta_per_unit=quanta),
    )


def share_out(placement: Placement, microbatches: int) -> tuple[Stream, ...]:
    """Share the micro-batches out: the first streams take one more where it does not divide."""
    count = len(placement.routes)
    if microbatches < count:
        raise ProblemError(
            f"placement {placement.name} needs at least {count} micro-batches, got {microbatches}"
        )
    return tuple(
        Stream(name, (microbatches + count - 1 - index) // count, route)
        for index, (name, route) in enumerate(placement.routes)
    )


def _limits(
    memory: Amount | Sequence[Amount | None] | None, devices: int
) -> tuple[Fraction | None, ...]:
    if memory is None:
        return (None,) * devices
    if isinstance(memory, Sequence) and not isinstance(memory, str):
        return tuple(None if part is None else _amount(part, "memory") for part in memory)
    return (_amount(memory, "memory"),) * devices


def _objective(name: str) -> Objective:
    try:
        return Objective(name)
    except ValueError:
        raise ProblemError(f"objective {name!r} is not known; use makespan or span") from None


def _amount(value: Amount, what: str) -> Fraction:
    """A number exactly as typed: 18.522 is 18522/1000, not the nearest binary fraction."""
    extreme = f"{what}: {value!r} is too large or has more than 9 decimals"
    try:
        exact = value if isinstance(value, (int, Fraction)) else str(value)
        exponent = re.search(r"[eE]([-+]?[\d_]+)\s*$", exact) if isinstance(exact, str) else None
        if exponent is not None and abs(int(exponent[1])) > 99:
            raise ProblemError(extreme)  # a billion digits would take forever to write out
        number = Fraction(exact)
    except (ValueError, OverflowError, ZeroDivisionError):
        raise ProblemError(f"{what}: {value!r} is not a finite number") from None
    if number < 0:
        raise ProblemError(f"{what}: {value!r} is negative")
    if number > MAX_TOTAL_TICKS or number.denominator > 10**9:
        raise ProblemError(extreme)
    return number
