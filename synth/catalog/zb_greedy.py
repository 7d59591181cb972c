"""ZB-1p and ZB-2p: zero-bubble orders found greedily for the costs at hand (Qi et al. 2023,
arXiv:2401.10241, section 3).

The limit is K times the P activations that 1F1B holds; K = 1 is the paper's ZB-1p, K = 2 its ZB-2p.
Devices fill with forwards up to the limit or the first backward, and then take a B and an F per
round. A W goes where it costs least: into a gap that holds it, before an F that memory has no room
for, and into a smaller gap where waiting would make the device the one that has idled most.
"""

from __future__ import annotations

from functools import partial

from synth.catalog.family import Family
from synth.op import Kind, Op
from synth.problem import Problem, StageCost
from synth.schedule import Orders, value
from synth.simulate import earliest


def orders(problem: Problem, factor: int) -> Orders:
    """The best of the variants: with or without an F that delays the first B, and small gaps."""
    variants = [
        _search(problem, factor, eager=eager, small=small)
        for eager in (False, True)
        for small in (True, False)
    ]
    return min(variants, key=lambda orders: value(earliest(problem, orders), problem.objective))


def _search(problem: Problem, factor: int, *, eager: bool, small: bool) -> Orders:
    most = max(cost.activation_quanta for cost in problem.costs)
    line = _Line(problem, factor * problem.devices * most, small)
    devices = range(problem.devices)
    for device in devices:
        line.take(device, Kind.F)
    for device, arrival in enumerate(line.first_backwards()):
        line.fill(device, arrival, eager)
    while line.unfinished():
        for device in reversed(devices):
            line.take(device, Kind.B)
        for device in devices:
            line.take(device, Kind.F)
    for device in devices:
        line.flush(device)
    return tuple(tuple(order) for order in line.orders)


class _Line:
    """The devices in a row while their orders grow."""

    def __init__(self, problem: Problem, limit: int, small: bool) -> None:
        self._problem, self._limit, self._small = problem, limit, small
        (stream,) = problem.streams
        self._costs = problem.costs_of(stream.name)
        count = problem.devices
        self.orders: list[list[Op]] = [[] for _ in range(count)]
        self._ends: list[dict[Kind, list[int]]] = [
            {Kind.F: [], Kind.B: [], Kind.W: []} for _ in range(count)
        ]
        self._clock = [0] * count
        self._held = [0] * count
        self._idle = [0] * count

    def unfinished(self) -> bool:
        """Whether any B is left."""
        total = self._problem.total_microbatches
        return any(len(ends[Kind.B]) < total for ends in self._ends)

    def first_backwards(self) -> list[int]:
        """When the first B could reach each device."""
        arrivals, time = [], self._clock[-1]
        for device, cost in reversed(list(enumerate(self._costs))):
            arrivals.append(time)
            time += cost.backward_act_ticks + self._problem.lag(device, max(0, device - 1))
        return arrivals[::-1]

    def fill(self, device: int, arrival: int, eager: bool) -> None:
        """Run F's until the first B arrives, fewer than the device in front unless that ran all."""
        forwards = self._ends[device][Kind.F]
        cost, most = self._costs[device], self._problem.total_microbatches
        if device > 0:
            in_front = len(self._ends[device - 1][Kind.F])
            most = in_front if in_front == most else in_front - 1
        while len(forwards) < most:
            ready = self._arrival(device, Kind.F)
            if ready is None or self._held[device] + cost.activation_quanta > self._limit:
                return
            start = max(ready, self._clock[device])
            if start + (0 if eager else cost.forward_ticks - 1) >= arrival:
                return
            self._run(device, Kind.F, start)

    def take(self, device: int, kind: Kind) -> None:
        """Run the next F or B if there is one and memory allows, and W's where they fit before."""
        ready = self._arrival(device, kind)
        if ready is None:
            return
        cost = self._costs[device]
        if kind is Kind.F:
            while self._held[device] + cost.activation_quanta > self._limit:
                if not self._waiting(device):
                    return
                self._run(device, Kind.W, self._clock[device])
        while self._waiting(device) and self._better_filled(device, cost, ready):
            self._run(device, Kind.W, self._clock[device])
        self._run(device, kind, max(ready, self._clock[device]))

    def flush(self, device: int) -> None:
        """Run the W's that are left."""
        while self._waiting(device):
            self._run(device, Kind.W, self._clock[device])

    def _better_filled(self, device: int, cost: StageCost, ready: int) -> bool:
        gap = ready - self._clock[device]
        if gap >= cost.backward_wgt_ticks:
            return True
        return self._small and gap > 0 and self._idle[device] + gap > max(self._idle)

    def _waiting(self, device: int) -> bool:
        ends = self._ends[device]
        return len(ends[Kind.W]) < len(ends[Kind.B])

    def _arrival(self, device: int, kind: Kind) -> int | None:
        """When the input of the device's next F or B is there; None as long as that is open."""
        index = len(self._ends[device][kind])
        if index == self._problem.total_microbatches:
            return None
        own = self._ends[device][Kind.F]
        if kind is Kind.B and index >= len(own):
            return None
        source = device - 1 if kind is Kind.F else device + 1
        if not 0 <= source < len(self._ends):
            return own[index] if kind is Kind.B else 0
        ends = self._ends[source][kind]
        return ends[index] + self._problem.lag(source, device) if index < len(ends) else None

    def _run(self, device: int, kind: Kind, start: int) -> None:
        cost, ends = self._costs[device], self._ends[device][kind]
        op = Op(kind, len(ends), device)
        if self.orders[device]:
            self._idle[device] += start - self._clock[device]
        self.orders[device].append(op)
        self._clock[device] = start + self._problem.duration(op)
        ends.append(self._clock[device])
        self._held[device] += {
            Kind.F: cost.activation_quanta,
            Kind.B: cost.context_quanta - cost.activation_quanta,
            Kind.W: -cost.context_quanta,
        }[kind]


def make(factor: int) -> Family:
    """The greedy zero-bubble order within K times the memory of 1F1B."""
    return Family(
        name=f"zb-greedy:{factor}",
        title=f"ZB-{factor}p, greedy",
        source="Qi et al. 2023, Zero Bubble, arXiv:2401.10241, section 3",
        placement="linear",
        orders=partial(orders, factor=factor),
        when="zero bubble for measured costs, where the ratios of F, B and W are uneven",
        note=f"made to hold at most {factor}P activations per device where C <= A",
    )
