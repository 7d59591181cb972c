"""Problem: everything a schedule has to answer to, in whole ticks and quanta.

All arithmetic is on integers so that a proof is a proof: times are ticks, memory is quanta, and
`Units` says how many of them make one unit of what the user typed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from math import lcm

from synth.errors import ProblemError
from synth.op import Kind, Op
from synth.placement import Placement, parse_placement
from synth.rules import check, check_totals
from synth.stages import DeviceCost, Link, Needs, StageCost, ancestors, chain, consumers
from synth.units import MAX_TOTAL_TICKS, Amount, Units, amount

__all__ = [
    "MAX_OPS",
    "MAX_TOTAL_TICKS",
    "Amount",
    "DeviceCost",
    "Link",
    "Objective",
    "Problem",
    "StageCost",
    "Stream",
    "Units",
    "make_problem",
    "parse_objective",
    "share_out",
]

MAX_OPS = 3_000_000  # about a gigabyte of ops; far above any schedule that is run


class Objective(StrEnum):
    """What is minimised."""

    MAKESPAN = "makespan"  # first start to last end over all devices: synchronous optimizer step
    SPAN = "span"  # longest of the devices' own first start to last end: unsynchronised step


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

    `stages` are the costs of each stage, `device_costs` what some of them cost on some devices
    instead. `needs` says for each stage whose outputs its forward takes; empty, the stages are a
    chain. `comm_ticks` is the latency of a hop between two different devices, `links` that of some
    hops instead. `limits_quanta` has one entry per device, None for no limit. `kept_quanta` is what
    a device keeps all the time of each stage that it holds; the limits are without it already, and
    only those of another placement depend on it. A single stream has the empty name.

    Equal problems compare equal however they are written: what says nothing new in `needs`,
    `device_costs`, `links` and `kept_quanta` is left out, and the rest is sorted. Raises
    ProblemError when a rule is broken.
    """

    devices: int
    placement: str
    stages: tuple[StageCost, ...]
    streams: tuple[Stream, ...]
    comm_ticks: int = 0
    limits_quanta: tuple[int | None, ...] = ()
    objective: Objective = Objective.MAKESPAN
    units: Units = field(default_factory=Units)
    needs: Needs = ()
    device_costs: tuple[DeviceCost, ...] = ()
    links: tuple[Link, ...] = ()
    kept_quanta: tuple[int, ...] = ()
    _by_name: dict[str, Stream] = field(init=False, repr=False, compare=False, hash=False)
    _costs: dict[str, tuple[StageCost, ...]] = field(
        init=False, repr=False, compare=False, hash=False
    )
    _lags: dict[tuple[int, int], int] = field(init=False, repr=False, compare=False, hash=False)
    _before: Needs = field(init=False, repr=False, compare=False, hash=False)
    _behind: Needs = field(init=False, repr=False, compare=False, hash=False)

    def __post_init__(self) -> None:
        if not self.limits_quanta:
            self._set(limits_quanta=(None,) * max(self.devices, 1))
        check(self)
        line = chain(len(self.stages))
        before = self.needs or line
        links = (link for link in self.links if link.lag_ticks != self.comm_ticks)
        own = (entry for entry in self.device_costs if entry.cost != self.stages[entry.stage])
        self._set(
            needs=() if before == line else before,
            kept_quanta=self.kept_quanta if any(self.kept_quanta) else (),
            links=tuple(sorted(links, key=lambda link: (link.source, link.target))),
            device_costs=tuple(sorted(own, key=lambda entry: (entry.device, entry.stage))),
            _by_name={stream.name: stream for stream in self.streams},
            _before=before,
            _behind=consumers(before),
        )
        costs = {(entry.device, entry.stage): entry.cost for entry in self.device_costs}
        self._set(
            _lags={(link.source, link.target): link.lag_ticks for link in self.links},
            _costs={
                stream.name: tuple(
                    costs.get((device, stage), self.stages[stage])
                    for stage, device in enumerate(stream.route)
                )
                for stream in self.streams
            },
        )
        check_totals(self)

    def _set(self, **values: object) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def stream(self, name: str) -> Stream:
        """The stream of that name. Raises KeyError when there is none."""
        return self._by_name[name]

    def device(self, op: Op) -> int:
        """The device that runs an op."""
        return self._by_name[op.stream].route[op.stage]

    def cost(self, stream: str, stage: int) -> StageCost:
        """What a stage costs on the device where a stream runs it."""
        return self._costs[stream][stage]

    def costs_of(self, stream: str) -> tuple[StageCost, ...]:
        """What each stage costs where a stream runs it."""
        return self._costs[stream]

    @property
    def costs(self) -> frozenset[StageCost]:
        """Every cost that some device has to pay."""
        return frozenset(cost for costs in self._costs.values() for cost in costs)

    @property
    def split_is_best(self) -> bool:
        """Whether separate F, B and W are never slower than fused or paired ops."""
        return all(cost.split_is_best for cost in self.costs)

    @property
    def is_chain(self) -> bool:
        """Whether every stage needs just the one before it."""
        return not self.needs

    def before(self, stage: int) -> tuple[int, ...]:
        """The stages whose outputs a stage's forward takes, in that order."""
        return self._before[stage]

    def behind(self, stage: int) -> tuple[int, ...]:
        """The stages that take a stage's output, in ascending order."""
        return self._behind[stage]

    @property
    def first_stages(self) -> tuple[int, ...]:
        """The stages that read the batch, as they need no other."""
        return tuple(stage for stage, sources in enumerate(self._before) if not sources)

    @property
    def last_stages(self) -> tuple[int, ...]:
        """The stages that end in a loss, as no other needs them."""
        return tuple(stage for stage, takers in enumerate(self._behind) if not takers)

    def ancestors(self) -> Needs:
        """For each stage all that have to run F before it, and B behind it, in ascending order."""
        return ancestors(self._before)

    def duration(self, op: Op) -> int:
        """Ticks an op takes.

        A pair of two stages gains over running its ops apart the mean of what each stage's own
        pair gains, rounded down, and never ends before the longer of the two would.
        """
        cost = self._costs[op.stream][op.stage]
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
        other = self.cost(op.partner.stream, op.partner.stage)
        gain = (cost.pair_gain_ticks + other.pair_gain_ticks) // 2
        return max(cost.forward_ticks + backward - gain, cost.forward_ticks, backward)

    def lag(self, source: int, destination: int) -> int:
        """Ticks between an op's end on one device and its result's arrival on another."""
        if source == destination:
            return 0
        return self._lags.get((source, destination), self.comm_ticks)

    def held_stages(self, device: int) -> tuple[tuple[Stream, int], ...]:
        """The (stream, stage) pairs that a device runs, by stream and stage."""
        return tuple(
            (stream, stage)
            for stream in self.streams
            for stage, holder in enumerate(stream.route)
            if holder == device
        )

    def kept(self, device: int) -> int:
        """Quanta a device keeps all the time: of each stage once, whatever streams bring it."""
        if not self.kept_quanta:
            return 0
        return sum(self.kept_quanta[stage] for stage in {s for _, s in self.held_stages(device)})

    def work(self, device: int) -> int:
        """The least ticks a device has to be busy."""
        return sum(
            stream.microbatches * self.cost(stream.name, stage).least_work_ticks
            for stream, stage in self.held_stages(device)
        )

    @property
    def total_microbatches(self) -> int:
        """Micro-batches of all streams together."""
        return sum(stream.microbatches for stream in self.streams)


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
    forward, act, wgt = (amount(cost, "costs") * share for cost in costs)
    fused_time = act + wgt if fused is None else amount(fused, "fused cost") * share
    pair_time = forward + fused_time if pair is None else amount(pair, "pair cost") * share
    lag = amount(comm, "comm")
    ticks = lcm(*(t.denominator for t in (forward, act, wgt, fused_time, pair_time, lag)))

    held = [amount(part, "activation") * share for part in activation]
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
        objective=parse_objective(objective),
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
        return tuple(None if part is None else amount(part, "memory") for part in memory)
    return (amount(memory, "memory"),) * devices


def parse_objective(name: str) -> Objective:
    """Read an objective from its name. Raises ProblemError for a name that is not one."""
    try:
        return Objective(name)
    except ValueError:
        raise ProblemError(f"objective {name!r} is not known; use makespan or span") from None
