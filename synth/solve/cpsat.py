"""CP-SAT as an optional second engine: improves the incumbent and the bound, never needed.

The folded problem with one interval per op. Micro-batches stay in order within a chain, so that the
memory of a device with a single chunk becomes plain precedence where activation and context weigh
the same; elsewhere it is a cumulative resource.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from synth.bounds import Bound
from synth.folding import Folded, exact_step, fold
from synth.heads import heads, relate, tails
from synth.op import Kind
from synth.problem import Objective
from synth.separate import separated
from synth.solve.deadline import Deadline
from synth.solve.incumbent import Incumbent
from synth.solve.listing import Starts
from synth.solve.meeting import meeting

MAX_OPS = 5_000  # a larger model takes longer to build than to be of use


@dataclass(frozen=True, slots=True)
class CpAnswer:
    """What CP-SAT found: better start times if any, and a bound on the value in steps."""

    starts: Starts | None
    bound: int


def available() -> bool:
    """Whether ortools is installed."""
    return find_spec("ortools") is not None


def improve(
    folded: Folded,
    hint: Starts,
    value: int,
    bound: int,
    slice_s: float,
    deadline: Deadline,
    seed: int,
    tell: Callable[[Starts], None] = lambda _: None,
) -> CpAnswer:
    """Search for a value in [bound, value), starting from known start times. All in grid steps.

    `tell` gets better start times as soon as they are found. One worker and a limit on
    deterministic time, so that the same seed gives the same answer, unless that takes more than
    twice as long by the clock.
    """
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    whole = folded.problem.objective is Objective.MAKESPAN
    horizon = value - 1 if whole else meeting(folded.problem).length * value
    start = _starts(model, folded, horizon)
    _relations(model, folded, start)
    _devices(model, folded, start, horizon)
    _objective(model, folded, start, bound, value, horizon)
    for chain, times in zip(start, hint, strict=True):
        for variable, time in zip(chain, times, strict=True):
            model.add_hint(variable, time)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = min(2 * slice_s, deadline.left)
    solver.parameters.max_deterministic_time = slice_s
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = seed
    solver.parameters.catch_sigint_signal = False  # Ctrl-C is for the interpreter
    status = solver.solve(model, _teller(start, tell))
    if status == cp_model.INFEASIBLE:
        return CpAnswer(None, value)
    reached = max(bound, -int(-solver.best_objective_bound // 1))
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        found = [[int(solver.value(variable)) for variable in chain] for chain in start]
        return CpAnswer(found, reached)
    return CpAnswer(None, reached)


def _teller(start: list[list[Any]], tell: Callable[[Starts], None]) -> Any:
    """What CP-SAT calls with every solution it finds."""
    from ortools.sat.python import cp_model

    class Teller(cp_model.CpSolverSolutionCallback):
        def on_solution_callback(self) -> None:
            tell([[int(self.value(variable)) for variable in chain] for chain in start])

    return Teller()


def improve_by_cpsat(incumbent: Incumbent, seed: int, slice_s: float, deadline: Deadline) -> None:
    """Offer what CP-SAT finds in a slice of time; nothing where ortools is missing."""
    problem = incumbent.problem
    if incumbent.timeline is None or incumbent.value is None or not available():
        return
    bounding = separated(problem)
    apart = bounding or problem
    step = exact_step(apart) if problem.objective is Objective.MAKESPAN else 1
    folded = fold(apart, step)
    if sum(chain.count for chain in folded.chains) > MAX_OPS or deadline.left < 0.1:
        return
    incumbent.run("CP-SAT")

    def tell(starts: Starts) -> None:
        incumbent.offer(folded.unfold(starts), "CP-SAT")

    answer = improve(
        folded,
        folded.starts(incumbent.timeline),
        -(-incumbent.value // step),
        -(-incumbent.bound.value // step),
        slice_s,
        deadline,
        seed,
        tell,
    )
    if answer.starts is not None:
        incumbent.offer(folded.unfold(answer.starts), "CP-SAT")
    if bounding is not None:
        ticks = min(answer.bound * step, incumbent.value)
        text = f"CP-SAT proved that nothing below {problem.units.time_text(ticks)} exists"
        incumbent.raise_bound(Bound(ticks, "CP-SAT", text))


def _starts(model: Any, folded: Folded, horizon: int) -> list[list[Any]]:
    """One variable per op, between its head and its tail."""
    devices = folded.problem.devices
    relations = relate(folded)
    first = heads(relations, [0] * devices)
    last = tails(relations, [horizon] * devices)
    return [
        [
            model.new_int_var(low, max(low, high - chain.steps), f"s{index}_{number}")
            for number, (low, high) in enumerate(zip(lows, highs, strict=True))
        ]
        for index, (chain, lows, highs) in enumerate(zip(folded.chains, first, last, strict=True))
    ]


def _relations(model: Any, folded: Folded, start: list[list[Any]]) -> None:
    """Every relation of the folded problem, memory relations included."""
    for relations in relate(folded).into:
        for relation in relations:
            steps = folded.chains[relation.before].steps + relation.lag
            shift = relation.shift
            after = start[relation.after][shift:]
            for earlier, later in zip(start[relation.before], after, strict=False):
                model.add(later >= earlier + steps)


def _devices(model: Any, folded: Folded, start: list[list[Any]], horizon: int) -> None:
    for device, limit in enumerate(folded.problem.limits_quanta):
        local = folded.of_device(device)
        model.add_no_overlap(
            [
                model.new_fixed_size_interval_var(variable, folded.chains[c].steps, f"i{c}_{n}")
                for c in local
                for n, variable in enumerate(start[c])
            ]
        )
        if limit is not None:
            _memory(model, folded, local, start, limit, horizon)


def _memory(
    model: Any,
    folded: Folded,
    local: Sequence[int],
    start: list[list[Any]],
    limit: int,
    horizon: int,
) -> None:
    """What is held as a cumulative resource: activation up to the end of B, then the context."""
    forward = [c for c in local if folded.chains[c].kind is Kind.F]
    demands: list[int] = []
    intervals: list[Any] = []
    for f in forward:
        chain = folded.chains[f]
        cost = folded.problem.cost(chain.stream, chain.stage)
        act, context = cost.activation_quanta, cost.context_quanta
        if len(forward) == 1 and context in (0, act):
            return  # the memory relations say it all
        b, w = f + 1, f + 2
        for number in range(folded.chains[f].count):
            begin, back = start[f][number], start[b][number]
            freed = start[w][number] + folded.chains[w].steps
            switch = back + (folded.chains[b].steps if context <= act else 0)
            pieces = [(begin, switch, act), (switch, freed, context)]
            if act == context:
                pieces = [(begin, freed, act)]
            for low, high, amount in pieces:
                if amount:
                    name = f"m{f}_{number}_{len(demands)}"
                    size = model.new_int_var(0, horizon, name)
                    intervals.append(model.new_interval_var(low, size, high, name))
                    demands.append(amount)
    model.add_cumulative(intervals, demands, limit)


def _objective(
    model: Any, folded: Folded, start: list[list[Any]], bound: int, value: int, horizon: int
) -> None:
    result = model.new_int_var(bound, value - 1, "value")
    for device in range(folded.problem.devices):
        opened = 0
        if folded.problem.objective is Objective.SPAN:
            opened = model.new_int_var(0, horizon, f"open{device}")
        for c in folded.of_device(device):
            model.add(start[c][0] >= opened)
            model.add(start[c][-1] + folded.chains[c].steps <= opened + result)
    model.minimize(result)
