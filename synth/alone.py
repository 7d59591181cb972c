"""One micro-batch alone: an order of its F and B that fits the memory limits, if there is one.

Its W follow their B at once, which only frees memory. Where no order fits, no schedule exists: in
any schedule the ops of a micro-batch come in some order, and the others only hold more. Where one
fits, running micro-batches one after another is a schedule.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from synth.op import Kind
from synth.problem import Problem, Stream

Order = tuple[tuple[Kind, int], ...]
"""The F and B of one micro-batch, by stage."""

MAX_STATES = 10_000  # more than this many sets of stages are not tried


@dataclass(frozen=True, slots=True)
class Alone:
    """An order, and whether it keeps within the limits; None where that was not found out."""

    order: Order
    fits: bool | None


@lru_cache(maxsize=64)
def alone(problem: Problem, stream: Stream) -> Alone:
    """An order that keeps a single micro-batch within the limits, else one that holds little.

    A B that fits is run at once, as everything its stage holds is free behind it, and so is an F
    that takes nothing; which other F comes next is what is searched over. For a chain the order is
    all F, then all B.
    """
    if problem.is_chain:
        stages = range(len(stream.route))
        order = [(Kind.F, stage) for stage in stages]
        order += [(Kind.B, stage) for stage in reversed(stages)]
        return Alone(tuple(order), _Walk(problem, stream, heed=True).follows(order))
    search = _Search(problem, stream)
    found = search.run()
    if found is not None:
        return Alone(found, True)
    greedy = _Walk(problem, stream, heed=False)
    while greedy.forward():
        greedy.run(Kind.F, greedy.forward()[0])
    return Alone(tuple(greedy.order), False if search.complete else None)


class _Walk:
    """How far a micro-batch has come, and what every device holds; heeds the limits or not."""

    def __init__(self, problem: Problem, stream: Stream, *, heed: bool) -> None:
        self.problem, self.route = problem, stream.route
        self.costs = problem.costs_of(stream.name)
        self.limits = problem.limits_quanta if heed else (None,) * problem.devices
        self.limited = any(limit is not None for limit in self.limits)
        self.order: list[tuple[Kind, int]] = []
        self.ran: set[tuple[Kind, int]] = set()
        self.held = [0] * problem.devices

    def taken(self, kind: Kind, stage: int) -> int:
        """What an op takes when it starts."""
        cost = self.costs[stage]
        if kind is Kind.F:
            return cost.activation_quanta
        return max(0, cost.context_quanta - cost.activation_quanta)

    def fits(self, kind: Kind, stage: int) -> bool:
        """Whether its device has room for what an op takes."""
        limit = self.limits[self.route[stage]]
        return limit is None or self.held[self.route[stage]] + self.taken(kind, stage) <= limit

    def step(self, kind: Kind, stage: int) -> None:
        """Run one op; a B together with its W."""
        self.order.append((kind, stage))
        self.ran.add((kind, stage))
        change = self.costs[stage].activation_quanta
        self.held[self.route[stage]] += change if kind is Kind.F else -change

    def run(self, kind: Kind, stage: int) -> None:
        """Run one op and all that costs nothing behind it."""
        self.step(kind, stage)
        self.settle()

    def settle(self) -> None:
        """Run every B that fits, and every F that takes nothing, until there is none."""
        moved = True
        while moved:
            moved = False
            for stage in range(len(self.route)):
                if self._ready(Kind.B, stage) and self.fits(Kind.B, stage):
                    self.step(Kind.B, stage)
                    moved = True
                free = self.limits[self.route[stage]] is None or not self.taken(Kind.F, stage)
                if self.limited and free and self._ready(Kind.F, stage):
                    self.step(Kind.F, stage)
                    moved = True

    def forward(self) -> list[int]:
        """The stages whose F can run now."""
        stages = range(len(self.route))
        return [s for s in stages if self._ready(Kind.F, s) and self.fits(Kind.F, s)]

    def _ready(self, kind: Kind, stage: int) -> bool:
        if (kind, stage) in self.ran:
            return False
        if kind is Kind.F:
            return all((kind, other) in self.ran for other in self.problem.before(stage))
        return (Kind.F, stage) in self.ran and all(
            (kind, other) in self.ran for other in self.problem.behind(stage)
        )

    def follows(self, order: list[tuple[Kind, int]]) -> bool:
        """Whether an order fits from here on."""
        for kind, stage in order:
            if not self.fits(kind, stage):
                return False
            self.step(kind, stage)
        return True


class _Search:
    """Depth first over which F comes next."""

    def __init__(self, problem: Problem, stream: Stream) -> None:
        self.problem, self.stream = problem, stream
        self.seen: set[frozenset[tuple[Kind, int]]] = set()

    @property
    def complete(self) -> bool:
        """Whether every order has been looked at."""
        return len(self.seen) < MAX_STATES

    def run(self) -> Order | None:
        """An order that fits; None where none does, or the search is not complete."""
        first = _Walk(self.problem, self.stream, heed=True)
        first.settle()
        stack = [first]
        while stack and self.complete:
            walk = stack.pop()
            if len(walk.order) == 2 * len(walk.route):
                return tuple(walk.order)
            for stage in reversed(walk.forward()):
                after = self._copy(walk)
                after.run(Kind.F, stage)
                state = frozenset(after.ran)
                if state not in self.seen:
                    self.seen.add(state)
                    stack.append(after)
        return None

    def _copy(self, walk: _Walk) -> _Walk:
        copy = _Walk(self.problem, self.stream, heed=True)
        copy.order, copy.ran, copy.held = [*walk.order], {*walk.ran}, [*walk.held]
        return copy
