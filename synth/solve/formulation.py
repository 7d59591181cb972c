"""The folded, cumulative, time-indexed ILP in PuLP.

Decides, for every chain c and step t, N[c,t]: how many ops of c have started by t.

    monotone     N[c,t] >= N[c,t-1]
    precedence   N[b,t] <= N[a, t - steps_a - lag]
    device       sum over its chains of N[c,t] - N[c,t-steps_c] <= 1
    memory       sum of taken * N[c,t] - freed * N[c,t-steps_c] <= limit
    windows      bounds on N, tightened by one op at a time per chain
    span window  a binary per device and step opens the window [o, o + horizon] (free offsets)

The model is a feasibility model for one horizon: feasible or refuted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pulp

from synth.folding import Folded
from synth.solve.meeting import meeting
from synth.solve.windows import Windows

Term = tuple["pulp.LpVariable | int", int]  # a counter, or a number where bounds fix it


@dataclass(slots=True)
class Model:
    """A built model and its counters; `counters[c][t]` is a number where bounds fix it."""

    folded: Folded
    windows: Windows
    program: pulp.LpProblem
    rows: int = 0
    counters: list[list[pulp.LpVariable | int]] = field(default_factory=list)
    trivially_infeasible: bool = False

    def at(self, chain: int, step: int) -> pulp.LpVariable | int:
        """How many ops of a chain have started by a step."""
        if step < 0:
            return 0
        row = self.counters[chain]
        return row[min(step, len(row) - 1)]

    def less_equal(self, terms: Sequence[Term], right: int) -> None:
        """Add sum of coefficient * counter <= right, folding fixed counters into the right side."""
        weights: dict[pulp.LpVariable, int] = {}
        for counter, weight in terms:
            if isinstance(counter, int):
                right -= weight * counter
            else:
                weights[counter] = weights.get(counter, 0) + weight
        weights = {counter: weight for counter, weight in weights.items() if weight}
        most = sum(
            weight * int(counter.upBound if weight > 0 else counter.lowBound)
            for counter, weight in weights.items()
        )
        if most <= right:
            return  # cannot be broken
        if not weights:
            self.trivially_infeasible = True
            return
        self.program += pulp.LpAffineExpression(weights) <= right, f"r{self.rows}"
        self.rows += 1

    def starts(self) -> list[list[int]]:
        """The sorted start steps of every chain in the solution found."""
        found: list[list[int]] = []
        for row in self.counters:
            times: list[int] = []
            for step, counter in enumerate(row):
                now = counter if isinstance(counter, int) else round(counter.varValue or 0)
                times.extend([step] * (now - len(times)))
            found.append(times)
        return found


def build(folded: Folded, windows: Windows, *, free_span: int | None = None) -> Model:
    """The model for given windows.

    With `free_span`, every device but the anchor places its own window of that many
    steps freely (`windows` then only limit where it may lie).
    """
    model = Model(folded, windows, pulp.LpProblem("schedule", pulp.LpMinimize))
    model.program += 0  # any feasible point will do
    if not windows.possible:
        model.trivially_infeasible = True
        return model
    for index in range(len(folded.chains)):
        model.counters.append(_counters(model, index))
    for index in range(len(folded.chains)):
        _monotone(model, index)
    for edge in folded.edges:
        reach = len(model.counters[edge.after])
        shift = folded.chains[edge.before].steps + edge.lag
        for step in range(windows.chains[edge.after].earliest[0], reach):
            model.less_equal(
                [(model.at(edge.after, step), 1), (model.at(edge.before, step - shift), -1)], 0
            )
    for device in range(folded.problem.devices):
        _one_at_a_time(model, device)
        _memory(model, device)
        if free_span is not None and device != meeting(folded.problem).anchor:
            _free_window(model, device, free_span)
    return model


def _counters(model: Model, index: int) -> list[pulp.LpVariable | int]:
    """One counter per step; a plain number where the windows of its ops fix it."""
    chain, window = model.folded.chains[index], model.windows.chains[index]
    least = most = 0
    row: list[pulp.LpVariable | int] = []
    for step in range(window.reach):
        while most < chain.count and window.earliest[most] <= step:
            most += 1
        if window.latest_end is not None:
            while least < chain.count and window.latest_end[least] - chain.steps <= step:
                least += 1
        if least >= most:
            row.append(most)
        else:
            row.append(
                model.program.add_variable(
                    f"n_{index}_{step}", lowBound=least, upBound=most, cat="Integer"
                )
            )
    return row


def _monotone(model: Model, index: int) -> None:
    row = model.counters[index]
    for step in range(1, len(row)):
        model.less_equal([(row[step - 1], 1), (row[step], -1)], 0)


def _device_steps(model: Model, device: int) -> range:
    chains = model.folded.of_device(device)
    return range(
        min(model.windows.chains[chain].earliest[0] for chain in chains),
        max(len(model.counters[chain]) for chain in chains),
    )


def _one_at_a_time(model: Model, device: int) -> None:
    chains = model.folded.of_device(device)
    for step in _device_steps(model, device):
        terms: list[Term] = []
        for chain in chains:
            terms.append((model.at(chain, step), 1))
            terms.append((model.at(chain, step - model.folded.chains[chain].steps), -1))
        model.less_equal(terms, 1)


def _memory(model: Model, device: int) -> None:
    row, limit = model.folded.memory[device], model.folded.problem.limits_quanta[device]
    if limit is None:
        return
    for step in _device_steps(model, device):
        terms: list[Term] = []
        for term in row:
            steps = model.folded.chains[term.chain].steps
            if term.taken:
                terms.append((model.at(term.chain, step), term.taken))
            if term.freed:
                terms.append((model.at(term.chain, step - steps), -term.freed))
        model.less_equal(terms, limit)


def _free_window(model: Model, device: int, span: int) -> None:
    """Binary o[t]: the device's window is open by step t; it closes `span` steps after opening."""
    folded = model.folded
    chains = folded.of_device(device)
    sources = [c for c in chains if not _has_local_before(folded, c)]
    sinks = [c for c in chains if not _has_local_after(folded, c)]
    first = min(model.windows.chains[c].earliest[0] for c in sources)
    last = max(model.windows.chains[c].reach - folded.chains[c].steps for c in sources)
    opened: dict[int, pulp.LpVariable | int] = {}
    for step in range(first, last + 1):
        opened[step] = model.program.add_variable(
            f"o_{device}_{step}", lowBound=0, upBound=1, cat="Integer"
        )
        if step > first:
            model.less_equal([(opened[step - 1], 1), (opened[step], -1)], 0)
    for chain in sources:
        steps = max(folded.chains[chain].steps, 1)
        for step in range(first, len(model.counters[chain])):
            earlier = range(min(step, last), first - 1, -steps) if step <= last else ()
            if step <= last:
                terms: list[Term] = [(model.at(chain, step), 1)]
                terms += [(opened[before], -1) for before in earlier]
                model.less_equal(terms, 0)
    for chain in sinks:
        count, steps = folded.chains[chain].count, folded.chains[chain].steps
        for step, is_open in opened.items():
            model.less_equal([(is_open, count), (model.at(chain, step + span - steps), -1)], 0)


def _has_local_before(folded: Folded, chain: int) -> bool:
    device = folded.chains[chain].device
    return any(
        edge.after == chain and folded.chains[edge.before].device == device for edge in folded.edges
    )


def _has_local_after(folded: Folded, chain: int) -> bool:
    device = folded.chains[chain].device
    return any(
        edge.before == chain and folded.chains[edge.after].device == device for edge in folded.edges
    )
