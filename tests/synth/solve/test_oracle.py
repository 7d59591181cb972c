"""A second exact method finds the same optimum.

The oracle is CP-SAT on the plain problem: one interval per op, no folding, no grid, no order within
a chain, memory as a cumulative resource. It shares nothing with the solver but the problem.
"""

import random

import pytest

from synth.bounds import check_memory
from synth.errors import InfeasibleError, ProblemError
from synth.op import Kind
from synth.problem import Objective, Problem, make_problem
from synth.solve import Status, solve
from synth.solve.deadline import Deadline
from synth.solve.horizons import Horizons
from synth.verify import verify

cp_model = pytest.importorskip("ortools.sat.python.cp_model")

SMALL, ALL = 200, 600  # chains: always, and with --slow
FEW_GRAPHS, GRAPHS = 60, 300  # the same for any graph of stages
REFUTED = 60  # of each


def random_problem(seed: int) -> Problem:
    """A tiny problem over all placements, lags, limits and both objectives."""
    rng = random.Random(seed)
    placements = ["linear", "linear", "v", "interleaved:2", "bidirectional"]
    while True:
        placement = rng.choice(placements)
        few = placement != "linear"
        try:
            return make_problem(
                rng.randint(1, 2 if few else 3),
                rng.randint(1, 3 if few else 4),
                placement=placement,
                costs=[rng.randint(1, 5) for _ in range(3)],
                comm=rng.choice([0, 0, 1, 3]),
                activation=(rng.randint(0, 3), rng.randint(0, 3)),
                memory=rng.choice([None, *range(1, 9)]),
                objective=rng.choice(["makespan", "span"]),
            )
        except ProblemError:
            continue


def exists_below(problem: Problem, below: int | None) -> bool:
    """Whether CP-SAT finds a schedule, one of a value less than `below` if that is given."""
    model = cp_model.CpModel()
    needs = problem.needs or [[s - 1] if s else [] for s in range(len(problem.stages))]
    costs = {(own.device, own.stage): own.cost for own in problem.device_costs}
    lags = {(link.source, link.target): link.lag_ticks for link in problem.links}
    horizon = sum(problem.work(d) for d in range(problem.devices))
    most = max(problem.comm_ticks, *lags.values(), 0)
    horizon += 2 * most * max(1, *map(len, needs)) * len(needs) * problem.total_microbatches
    if below is not None:  # windows of one span that meet each other in a row, see meeting.py
        row = 3 if problem.is_chain else 2 * problem.devices - 1
        horizon = below if problem.objective is Objective.MAKESPAN else row * below
    start, end = {}, {}
    intervals: dict[int, list] = {device: [] for device in range(problem.devices)}
    held: dict[int, list] = {device: [] for device in range(problem.devices)}
    for stream in problem.streams:
        for stage, device in enumerate(stream.route):
            cost = costs.get((device, stage), problem.stages[stage])
            for microbatch in range(stream.microbatches):
                for kind, ticks in (
                    (Kind.F, cost.forward_ticks),
                    (Kind.B, cost.backward_act_ticks),
                    (Kind.W, cost.backward_wgt_ticks),
                ):
                    key = (stream.name, kind, stage, microbatch)
                    begin = start[key] = model.new_int_var(0, horizon, str(key))
                    end[key] = begin + ticks
                    intervals[device].append(
                        model.new_fixed_size_interval_var(begin, ticks, f"op {key}")
                    )
    for (name, kind, stage, microbatch), begin in start.items():
        stream = problem.stream(name)
        before = []
        if kind is Kind.F:
            before += [(name, Kind.F, other, microbatch) for other in needs[stage]]
        if kind is Kind.B:
            before.append((name, Kind.F, stage, microbatch))
            behind = [other for other, sources in enumerate(needs) if stage in sources]
            before += [(name, Kind.B, other, microbatch) for other in behind]
        if kind is Kind.W:
            before.append((name, Kind.B, stage, microbatch))
        for need in before:
            hop = stream.route[need[2]], stream.route[stage]
            lag = 0 if hop[0] == hop[1] else lags.get(hop, problem.comm_ticks)
            model.add(begin >= end[need] + lag)
        if kind is Kind.F and stage == 0 and microbatch > 0:  # only names the micro-batches
            model.add(begin >= start[name, kind, stage, microbatch - 1])
        if kind is Kind.F:
            cost = costs.get((stream.route[stage], stage), problem.stages[stage])
            _hold(model, cost, held[stream.route[stage]], start, end, (name, stage, microbatch))
    for device, limit in enumerate(problem.limits_quanta):
        model.add_no_overlap(intervals[device])
        if limit is not None:
            model.add_cumulative(*zip(*held[device], strict=True), limit)
    if below is not None:
        model.add(_value(model, problem, start, end, horizon) < below)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    status = solver.solve(model)
    assert status in (cp_model.INFEASIBLE, cp_model.OPTIMAL)  # both are proofs
    return status == cp_model.OPTIMAL


def _hold(model, cost, held, start, end, where) -> None:
    """Activation from F to the end of B, W context to the end of W, the larger during B."""
    name, stage, microbatch = where
    act, context = cost.activation_quanta, cost.context_quanta
    forward, back, wgt = ((name, kind, stage, microbatch) for kind in (Kind.F, Kind.B, Kind.W))
    switch = start[back] if context > act else end[back]
    horizon = 10**6
    for low, high, amount in ((start[forward], switch, act), (switch, end[wgt], context)):
        size = model.new_int_var(0, horizon, "")
        model.add(size == high - low)
        interval = model.new_interval_var(low, size, high, "")
        held.append((interval, amount))


def _value(model, problem, start, end, horizon):
    value = model.new_int_var(0, horizon, "value")
    for device in range(problem.devices):
        opened = 0
        if problem.objective is Objective.SPAN:
            opened = model.new_int_var(0, horizon, f"open {device}")
        for (name, kind, stage, microbatch), begin in start.items():
            if problem.stream(name).route[stage] == device:
                model.add(begin >= opened)
                model.add(end[name, kind, stage, microbatch] <= opened + value)
    return value


@pytest.fixture(autouse=True)
def ilp_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The solver must do without the engine that is the oracle here."""
    monkeypatch.setattr("synth.solve.cpsat.available", lambda: False)


def check(problem: Problem) -> None:
    result = solve(problem, time_limit_s=60)
    if result.status is Status.INFEASIBLE:
        assert not exists_below(problem, None)
        return
    assert result.schedule is not None
    assert not verify(result.schedule)
    assert result.status is Status.OPTIMAL
    assert not exists_below(problem, result.schedule.certificate.value)


def test_the_oracle_finds_better_schedules() -> None:
    """The oracle itself: 27 units is the optimum at P = 4, m = 8 and 1F1B's memory."""
    problem = make_problem(4, 8, memory=4)
    assert exists_below(problem, 28)
    assert not exists_below(problem, 27)


@pytest.mark.parametrize("seed", range(SMALL))
def test_solver_agrees_with_cp_sat(seed: int) -> None:
    check(random_problem(seed))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SMALL, ALL))
def test_solver_agrees_with_cp_sat_on_many_more(seed: int) -> None:
    check(random_problem(seed))


def check_graph(problem: Problem) -> None:
    """A schedule whenever there is one, and none below what is said to be proved.

    A few of these take the integer program minutes, so that the search need not come to an end.
    """
    result = solve(problem, time_limit_s=5)
    if result.status is Status.INFEASIBLE:
        assert not exists_below(problem, None)
        return
    assert result.schedule is not None
    assert not verify(result.schedule)
    assert result.bound is not None
    assert not exists_below(problem, result.bound)
    assert (result.status is Status.OPTIMAL) == (result.bound == result.schedule.certificate.value)


@pytest.mark.parametrize("seed", range(FEW_GRAPHS))
def test_solver_agrees_on_graphs_with_uneven_devices_and_links(seed: int, random_graph) -> None:
    check_graph(random_graph(random.Random(seed)))


@pytest.mark.parametrize("seed", range(REFUTED))
@pytest.mark.parametrize("graph", [False, True])
def test_nothing_is_refuted_that_exists(seed: int, graph: bool, random_graph) -> None:
    """The horizons that orders of single devices rule out, from 0 up to the first that is left."""
    problem = random_graph(random.Random(seed)) if graph else random_problem(seed)
    try:
        check_memory(problem)
    except InfeasibleError:
        return
    horizons, horizon = Horizons(problem), 0
    while horizons.refuting(horizon, True, Deadline.after(60)) is not None:
        horizon += 1
    assert not exists_below(problem, horizon * horizons.step)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(FEW_GRAPHS, GRAPHS))
def test_solver_agrees_on_many_more_graphs(seed: int, random_graph) -> None:
    check_graph(random_graph(random.Random(seed)))
