"""States of a device: how far each of its chains has come, and how early that can be.

A device runs one op at a time, and what it holds depends on which ops have run. So over all orders
of its ops one table says by when a state can be reached: for every state the earliest end of all
that has run, and for ops that wait for results from elsewhere the earliest start that those allow.
Each of these is minimised on its own over the orders that lead to the state. As no op starts
earlier because another one started later, no order is ahead of the table in anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from synth.heads import NEVER, Heads, Relations
from synth.solve.deadline import Deadline

MAX_STATES = 400_000  # of a table; more take too much memory
CHECKED = 1_000  # states between two looks at the clock

T = TypeVar("T")


class TooManyError(Exception):
    """More states than time or memory admits."""


@dataclass(frozen=True, slots=True)
class Wait:
    """An op of `chain` starts `lag` steps behind the end of its micro-batch's op of another one."""

    chain: int
    lag: int


@dataclass(frozen=True, slots=True)
class View:
    """A device's chains, numbered from 0, in one direction of time."""

    chains: tuple[int, ...]  # their numbers in the folded problem
    steps: tuple[int, ...]
    counts: tuple[int, ...]
    taken: tuple[int, ...]
    freed: tuple[int, ...]
    limit: int
    waits: tuple[tuple[Wait, ...], ...]  # for each chain, what waits for it

    def reversed(self) -> View:
        """The same device in reversed time."""
        waits: list[list[Wait]] = [[] for _ in self.chains]
        for before, behind in enumerate(self.waits):
            for wait in behind:
                waits[wait.chain].append(Wait(before, wait.lag))
        return replace(self, taken=self.freed, freed=self.taken, waits=tuple(map(tuple, waits)))


def view(relations: Relations, device: int) -> View | None:
    """A device's chains, and the longest paths between ops of a micro-batch; None without limit."""
    folded = relations.folded
    limit = folded.problem.limits_quanta[device]
    if limit is None:
        return None
    local = folded.of_device(device)
    steps = tuple(folded.chains[chain].steps for chain in local)
    taken = {term.chain: term.taken for term in folded.memory[device]}
    freed = {term.chain: term.freed for term in folded.memory[device]}
    return View(
        local,
        steps,
        tuple(folded.chains[chain].count for chain in local),
        tuple(taken[chain] for chain in local),
        tuple(freed[chain] for chain in local),
        limit,
        _shortest(steps, [_paths(relations, chain, local) for chain in local]),
    )


def _paths(relations: Relations, source: int, local: tuple[int, ...]) -> dict[int, int]:
    """By local number: the longest path from the end of an op to another's start."""
    chains = relations.folded.chains
    found = {source: -chains[source].steps}
    for index in relations.order:
        for relation in relations.into[index]:
            start = found.get(relation.before)
            if relation.shift == 0 and start is not None:
                behind = start + chains[relation.before].steps + relation.lag
                found[index] = max(found.get(index, NEVER), behind)
    return {
        number: found[chain]
        for number, chain in enumerate(local)
        if chain in found and chain != source
    }


def _shortest(steps: Sequence[int], paths: list[dict[int, int]]) -> tuple[tuple[Wait, ...], ...]:
    """Leave out the paths that are made of others on the same device."""
    return tuple(
        tuple(
            Wait(after, lag)
            for after, lag in reached.items()
            if not any(
                start + steps[between] + paths[between].get(after, NEVER) >= lag
                for between, start in reached.items()
            )
        )
        for reached in paths
    )


@dataclass(frozen=True, slots=True)
class Reached:
    """By when a device can have done what: `clocks` by state, and the earliest start of each op."""

    clocks: dict[int, int]
    starts: Heads


def reach(
    view: View, first: Heads, last: Heads, deadline: Deadline, behind: Reached | None = None
) -> Reached | None:
    """Look at all orders of a device; None when none keeps the latest ends.

    `first` are earliest starts, `last` latest ends. `behind` is the same in reversed time, for
    these windows or wider ones: what is left has to begin in time there. Raises TooManyError.
    """
    table = _Table(view, first, last, behind, deadline)
    layer = {0: _State((0,) * len(view.chains), 0, NEVER, ((),) * len(view.chains))}
    clocks = {0: NEVER}
    for _ in range(sum(view.counts)):
        layer = table.grow(layer)
        if not layer:
            return None
        clocks.update((number, state.clock) for number, state in layer.items())
    return Reached(clocks, table.starts)


@dataclass(slots=True)
class _State:
    """What has run, and how early.

    `back[chain]` are the earliest starts of the chain's next ops that results from elsewhere allow,
    as many as are known.
    """

    done: tuple[int, ...]
    held: int
    clock: int
    back: tuple[tuple[int, ...], ...]


class _Table:
    """Grows states by one op at a time."""

    def __init__(
        self, view: View, first: Heads, last: Heads, behind: Reached | None, deadline: Deadline
    ) -> None:
        self.view, self.first, self.deadline = view, first, deadline
        self.states = 0
        self.latest = [
            [*(end - steps for end in ends), -NEVER]  # nothing has to start behind the last op
            for ends, steps in zip(last, view.steps, strict=True)
        ]
        self.starts = [[-NEVER] * count for count in view.counts]
        self.needs: list[list[int]] = [[] for _ in view.chains]
        for before, waits in enumerate(view.waits):
            for wait in waits:
                self.needs[wait.chain].append(before)
        self.places, size = [], 1  # a state's number: its counts as digits
        for count in view.counts:
            self.places.append(size)
            size *= count + 1
        self.whole = size - 1
        self.behind = None if behind is None else behind.clocks

    def grow(self, layer: dict[int, _State]) -> dict[int, _State]:
        """All states with one op more, by number."""
        view, grown = self.view, dict[int, _State]()
        for number, state in layer.items():
            done, room = state.done, view.limit - state.held
            for chain, count in enumerate(view.counts):
                index = done[chain]
                if index == count or view.taken[chain] > room:
                    continue
                for before in self.needs[chain]:
                    if done[before] <= index:
                        break
                else:
                    self._run(state, chain, index, grown, number + self.places[chain])
        return grown

    # The inner loop of it all: comparisons are in place of min and max.

    def _run(
        self, state: _State, chain: int, index: int, grown: dict[int, _State], number: int
    ) -> None:
        """Put an op behind a state, unless an op would be too late then."""
        start = self.first[chain][index]
        if state.clock > start:
            start = state.clock
        own = state.back[chain]
        if own and own[0] > start:
            start = own[0]
        if start > self.latest[chain][index]:
            return
        clock = start + self.view.steps[chain]
        if self.behind is not None:
            begun = self.behind.get(self.whole - number)
            if begun is None or clock > -begun:
                return
        known = grown.get(number)
        done = known.done if known else _with(state.done, chain, index + 1)
        for latest, following in zip(self.latest, done, strict=True):
            if latest[following] < clock:
                return
        back = _with(state.back, chain, own[1:]) if own else state.back
        for wait in self.view.waits[chain]:
            after, ready = wait.chain, clock + wait.lag
            if wait.lag and ready > self.first[after][index]:
                if ready > self.latest[after][index]:
                    return
                back = _with(back, after, _noted(back[after], index - done[after], ready))
        if start < self.starts[chain][index]:
            self.starts[chain][index] = start
        if known is None:
            held = state.held + self.view.taken[chain] - self.view.freed[chain]
            grown[number] = _State(done, held, clock, back)
            self._count()
            return
        if clock < known.clock:
            known.clock = clock
        if known.back != back:
            known.back = tuple(
                mine if mine == other else tuple(map(min, mine, other))
                for mine, other in zip(known.back, back, strict=True)
            )

    def _count(self) -> None:
        """One state more."""
        self.states += 1
        late = self.states % CHECKED == 0 and self.deadline.left == 0.0
        if late or self.states > MAX_STATES:
            raise TooManyError


def _with(values: tuple[T, ...], index: int, value: T) -> tuple[T, ...]:
    return values[:index] + (value,) + values[index + 1 :]  # noqa: RUF005 - twice as fast


def _noted(times: tuple[int, ...], index: int, ready: int) -> tuple[int, ...]:
    """Times of next ops, of which one can start no earlier than when it is ready."""
    if index >= len(times):
        return (*times, *(NEVER,) * (index - len(times)), ready)
    return _with(times, index, max(times[index], ready))
