"""Family: one handcrafted schedule of the literature, as a value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from synth.placement import parse_placement
from synth.problem import Objective, Problem
from synth.schedule import Orders, Schedule

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ClosedForm(Generic[T]):
    """A published or measured formula: its text, where it holds, and its value for a problem.

    `value` answers None outside the region. In the texts P is the number of devices, m the
    micro-batches of all streams, r a device, V the chunks per device; F, B, W, BW, FB the durations
    of ops on a chunk, c the latency of a hop, A and C what a chunk's activation and W context take.
    """

    text: str
    region: str
    value: Callable[[Problem], T | None]


@dataclass(frozen=True, slots=True)
class Family:
    """One schedule family: where it comes from, what it needs, its order rule and its formulas.

    `orders` may be called only for problems that `refuses` answers with None; `needs` says which
    these are. `bubble` is the idle
    time in ticks of the most idle device within the makespan, `span_bubble` within its own span;
    `peak` is what each device holds at most, in quanta. `synchronous` is False where an iteration's
    gradients do not all come from the same weights; then `steady` is the ticks per m micro-batches
    of a pipeline that never drains, and `weight_versions` the copies of its weights that each
    device keeps.
    """

    name: str
    title: str
    source: str
    placement: str
    orders: Callable[[Problem], Orders]
    when: str
    needs: str = "any P and m"
    constraint: Callable[[Problem], str | None] = lambda problem: None
    bubble: ClosedForm[int] | None = None
    span_bubble: ClosedForm[int] | None = None
    peak: ClosedForm[tuple[int, ...]] | None = None
    note: str = ""
    synchronous: bool = True
    steady: ClosedForm[int] | None = None
    weight_versions: ClosedForm[tuple[int, ...]] | None = None

    @property
    def messages(self) -> ClosedForm[int]:
        """Point-to-point messages of a step: a micro-batch crosses each boundary there and back."""
        kind = self.placement.partition(":")[0]
        texts = {"linear": "2m(P-1)", "bidirectional": "2m(P-1)", "interleaved": "2m(VP-1)"}
        region = "P > 1" if kind == "interleaved" else "always"
        return ClosedForm(texts.get(kind, "2mV(P-1)"), region, partial(_messages, kind))

    @property
    def parameters(self) -> int:
        """Replicas of the model that the devices hold together."""
        return len(parse_placement(self.placement, 2).routes)

    def refuses(self, problem: Problem) -> str | None:
        """The constraint that the problem breaks, as one line, or None when the family fits."""
        wanted = parse_placement(self.placement, problem.devices)
        routes = tuple((stream.name, stream.route) for stream in problem.streams)
        if routes != wanted.routes:
            return f"needs placement {self.placement}, the problem has {problem.placement}"
        if not problem.is_chain:
            return "needs stages that are a chain, the problem's are not"
        return self.constraint(problem)

    def predicted_idle(self, problem: Problem) -> int | None:
        """What the closed form says `most_idle` finds, or None where none holds."""
        form = self.bubble if problem.objective is Objective.MAKESPAN else self.span_bubble
        return None if form is None else form.value(problem)


@dataclass(frozen=True, slots=True)
class Uniform:
    """What closed forms are made of: the numbers of a problem whose stages all cost the same."""

    devices: int
    microbatches: int
    forward: int
    act: int
    wgt: int
    fused: int
    pair: int
    comm: int
    activation: int
    context: int


def uniform(problem: Problem) -> Uniform | None:
    """The numbers closed forms are made of, or None when stages or hops differ."""
    if len(problem.costs) > 1 or problem.links:
        return None
    (cost,) = problem.costs
    return Uniform(
        devices=problem.devices,
        microbatches=problem.total_microbatches,
        forward=cost.forward_ticks,
        act=cost.backward_act_ticks,
        wgt=cost.backward_wgt_ticks,
        fused=cost.fused_ticks,
        pair=cost.pair_ticks,
        comm=problem.comm_ticks,
        activation=cost.activation_quanta,
        context=cost.context_quanta,
    )


def even(problem: Problem) -> Uniform | None:
    """The same, where F = B = W and a hop takes no time."""
    costs = uniform(problem)
    if costs is None or costs.comm or len({costs.forward, costs.act, costs.wgt}) > 1:
        return None
    return costs


def held_until_wgt(problem: Problem) -> Uniform | None:
    """The same, where everything a chunk keeps is kept until its W is done."""
    costs = uniform(problem)
    return None if costs is None or costs.context != costs.activation else costs


def unequal_streams(problem: Problem) -> str | None:
    """What to say when streams that mirror each other do not carry the same micro-batches."""
    if len({stream.microbatches for stream in problem.streams}) > 1:
        return "needs the same number of micro-batches in every stream"
    return None


def _messages(kind: str, problem: Problem) -> int | None:
    devices, stages = problem.devices, len(problem.stages)
    if kind == "interleaved":
        boundaries = stages - 1
        if devices == 1:
            return None
    else:  # the turns of a V or a wave stay on their device
        boundaries = stages // devices * (devices - 1)
    return 2 * problem.total_microbatches * boundaries


def parameter_factor(problem: Problem) -> float:
    """Most model replicas' worth of parameters on a device, 1 being a P-th of the model.

    Streams that bring a device the same stage share its parameters.
    """
    held = [
        {stage for _, stage in problem.held_stages(device)} for device in range(problem.devices)
    ]
    return max(len(stages) for stages in held) * problem.devices / len(problem.stages)


def most_idle(schedule: Schedule) -> int:
    """Idle ticks of the most idle device in the time that the objective counts."""
    whole = schedule.problem.objective is Objective.MAKESPAN
    return max(
        (schedule.makespan if whole else span) - sum(timed.end - timed.start for timed in ops)
        for span, ops in zip(schedule.spans, schedule.devices, strict=True)
    )
