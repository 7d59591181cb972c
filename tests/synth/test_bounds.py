"""Bounds by hand on small pipelines, and no bound above the value of any valid schedule."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest

from synth.bounds import Bound, all_bounds, best_bound, check_memory
from synth.errors import InfeasibleError, InvalidScheduleError
from synth.op import Kind, Op, parse_op
from synth.placement import Placement, parse_placement
from synth.problem import Objective, Problem, StageCost, Stream, make_problem
from synth.schedule import Certificate, Orders, Schedule, Timeline, value
from synth.simulate import retime
from synth.verify import verify


def by_name(problem: Problem) -> dict[str, int]:
    """The strongest bound of each name."""
    found: dict[str, int] = {}
    for bound in all_bounds(problem):
        found[bound.name] = max(found.get(bound.name, 0), bound.value)
    return found


def orders_of(*rows: str) -> Orders:
    return tuple(tuple(parse_op(text) for text in row.split()) for row in rows)


def checked(problem: Problem, orders: Orders) -> int:
    """The value of the schedule with these orders, which has to be valid."""
    timeline: Timeline = retime(problem, orders)
    reached = value(timeline, problem.objective)
    schedule = Schedule("any", problem, timeline, Certificate(reached, 0, "none"))
    assert not (violations := verify(schedule)), "\n".join(map(str, violations))
    return reached


# By hand -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("devices", "microbatches", "comm", "path", "work"),
    [
        (1, 3, 0, 3, 9),
        (1, 3, 5, 3, 9),  # no hop, no lag
        (2, 1, 0, 5, 4),  # F F B B W; the last device waits one F
        (2, 1, 2, 9, 6),  # two hops
        (4, 1, 0, 9, 6),
        (4, 8, 0, 9, 27),
    ],
)
def test_path_and_work(devices: int, microbatches: int, comm: int, path: int, work: int) -> None:
    """Path (F+B)P + W + 2(P-1)c; work 3m after the (P-1)(F+c) that the last device waits."""
    found = by_name(make_problem(devices, microbatches, comm=comm))
    assert (found["path"], found["work"]) == (path, work)


@pytest.mark.parametrize(
    ("memory", "expected"),
    [
        # Device 0 waits 7 ticks for its first B and fills them with one F per unit of memory.
        (7, {"path": 9, "work": 24, "fill": 24, "fill and drain": 24}),
        (4, {"path": 9, "work": 24, "fill": 27, "fill and drain": 27}),
        # After the last F its micro-batch takes 6 to return and 2 more, against 4 ticks of work.
        (2, {"path": 9, "work": 24, "fill": 29, "fill and drain": 33}),
        # One after the other: 8 times the 9 ticks of the path.
        (1, {"fill": 30, "fill and drain": 36, "little": 72, "one machine": 72}),
    ],
)
def test_span_of_four_devices(memory: int, expected: dict[str, int]) -> None:
    found = by_name(make_problem(4, 8, memory=memory, objective="span"))
    assert found | expected == found


def test_little_by_hand() -> None:
    """8 micro-batches hold 1 unit for 7 + 2 ticks, 2 units fit: (72 + 1 + 1) / 2.

    In the first tick only one F has started, and in the last only a W or BW is not over.
    """
    assert by_name(make_problem(4, 8, memory=2, objective="span"))["little"] == 37


@pytest.mark.parametrize(
    ("memory", "bound"),
    [(2, 195), (3, 133), (4, 103), (5, 87), (6, 81), (7, 80), (8, 79), (12, 75), (15, 72)],
)
def test_span_of_eight_devices(memory: int, bound: int) -> None:
    """From 6 on the 15 ticks to the first B count, of which memory fills as many as it admits."""
    problem = make_problem(8, 24, activation=(1, 0), memory=memory, objective="span")
    assert best_bound(problem).value == bound


def test_a_device_waits_for_what_another_runs_on_its_ops() -> None:
    """Between F and B, W of device 0 the other one runs F F B B: 1 + 20 + 2; its work is 22."""
    costs = [(1, 1, 1), (5, 5, 1)]
    stages = tuple(StageCost(f, b, w, b + w, f + b + w, 1, 1) for f, b, w in costs)
    problem = replace(make_problem(2, 2, objective="span"), stages=stages)
    assert by_name(problem) == {"path": 13, "work": 22, "fill": 22, "one machine": 23}


def test_makespan_adds_the_time_before_the_first_op() -> None:
    """Every device's bound of 24 counts from its own start, the last device starts 3 later."""
    assert best_bound(make_problem(4, 8, memory=8, objective="span")).value == 24
    assert best_bound(make_problem(4, 8, memory=8)).value == 27


def test_chunks_add_up() -> None:
    """V on 2 devices in half stages, one micro-batch: path 4 F, 4 B, W; device 0 holds 2 of 4."""
    problem = make_problem(2, 3, placement="v", objective="span")
    assert problem.units.ticks_per_unit == 2
    expected = {"path": 9, "work": 18, "fill": 18, "one machine": 18}
    assert by_name(problem) == expected
    # Room for 3 halves: F0@0 F0@3 and one more in front of the first B@3, 4 ticks after F0@0.
    assert by_name(replace(problem, limits_quanta=(3, 3)))["fill"] == 19


def test_streams_share_the_devices() -> None:
    """Each device starts one stream at once and has the work of both."""
    found = by_name(make_problem(2, 4, placement="bidirectional"))
    assert found == {"path": 5, "work": 12, "fill": 12, "one machine": 12}


def test_fused_and_paired_ops_lessen_the_work() -> None:
    assert best_bound(make_problem(1, 4, costs=(2, 2, 2))).value == 24
    assert best_bound(make_problem(1, 4, costs=(2, 2, 2), fused=3)).value == 20
    assert best_bound(make_problem(1, 4, costs=(2, 2, 2), fused=3, pair=4)).value == 16


def test_one_machine_by_hand() -> None:
    """Device 1 starts at 1 and runs 6 ops; with room for one, each micro-batch takes 5 ticks."""
    assert by_name(make_problem(2, 2))["one machine"] == 7
    assert by_name(make_problem(2, 2, memory=1))["one machine"] == 10
    # A fused backward counts as B and a shorter W, here in half units; pairs are not known to it.
    assert by_name(make_problem(2, 2, fused="1.5"))["one machine"] == 13
    assert "one machine" not in by_name(make_problem(2, 2, pair=2))


def test_strongest_first_and_each_explains_itself() -> None:
    bounds = all_bounds(make_problem(4, 8, memory=2))
    assert [bound.value for bound in bounds] == sorted((b.value for b in bounds), reverse=True)
    assert bounds[0] == best_bound(make_problem(4, 8, memory=2))
    assert all(bound.text and "\n" not in bound.text for bound in bounds)
    assert Bound(9, "path", "one micro-batch has to travel down all stages and back up") in bounds


# What memory rules out -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("placement", "activation", "memory", "message"),
    [
        ("linear", (1, 1), "0.5", "device 0 needs 1 activation units .* its limit is 0.5; raise"),
        ("linear", (1, 3), 2, "device 0 needs 3 activation units .* its limit is 2"),
        ("v", (1, 1), "0.9", "device 0 needs 1 activation units .* its limit is 0.9"),
        ("v", (1, 2), "1.4", "device 0 needs 1.5 activation units .* its limit is 1.4"),
        ("linear", (1, 1), [1, 0], "device 1 needs 1 activation units .* its limit is 0"),
    ],
)
def test_too_little_memory(placement, activation, memory, message):
    problem = make_problem(2, 4, placement=placement, activation=activation, memory=memory)
    with pytest.raises(InfeasibleError, match=message):
        best_bound(problem)


def test_a_growing_context_of_an_early_chunk_is_not_added_to_later_chunks() -> None:
    """F0@0 holds 1, F0@1 3 more until B0@1; B0@0 then grows its 1 to 5."""
    early = StageCost(1, 1, 1, 2, 3, activation_quanta=1, context_quanta=5)
    late = StageCost(1, 1, 1, 2, 3, activation_quanta=3, context_quanta=0)
    problem = Problem(1, "list", (early, late), (Stream("", 1, (0, 0)),), limits_quanta=(5,))
    assert checked(problem, orders_of("F0@0 F0@1 B0@1 W0@1 B0@0 W0@0")) == 6
    assert best_bound(problem).value == 6
    with pytest.raises(InfeasibleError, match=r"device 0 needs 5 .* its limit is 4"):
        check_memory(replace(problem, limits_quanta=(4,)))


def test_little_does_not_count_a_tick_at_both_ends() -> None:
    """Cheap pairs make a step so short that its first half is also its last half."""
    problem = make_problem(1, 4, memory=100, costs=(1, 1, 1), fused=1, pair=1)
    assert checked(problem, orders_of("F0@0 F1@0+BW0@0 F2@0+BW1@0 F3@0+BW2@0 BW3@0")) == 5
    assert best_bound(problem).value <= 5
    cost = StageCost(1, 1, 5, 1, 2, activation_quanta=2, context_quanta=8)
    problem = Problem(1, "linear", (cost,), (Stream("", 2, (0,)),), limits_quanta=(21,))
    assert checked(problem, orders_of("F0@0 BW0@0 F1@0 BW1@0")) == 4
    assert best_bound(problem).value == 4


def test_a_late_w_of_a_later_chunk_does_not_hold_the_earlier_ones() -> None:
    """W0@2 waits for F1@2, while what F0@1 held has long been released by W0@1."""
    costs = (
        StageCost(2, 8, 9, 17, 19, activation_quanta=2, context_quanta=2),
        StageCost(1, 1, 8, 9, 10, activation_quanta=2, context_quanta=2),
        StageCost(1, 2, 9, 11, 12, activation_quanta=1, context_quanta=0),
        StageCost(1, 5, 4, 9, 10, activation_quanta=0, context_quanta=0),
    )
    streams = (Stream("", 2, (0, 1, 1, 0)),)
    problem = Problem(2, "v", costs, streams, 0, (7, 3), Objective.SPAN)
    orders = orders_of(
        "F0@0 F1@0 F0@3 B0@3 W0@3 B0@0 W0@0 F1@3 B1@3 W1@3 B1@0 W1@0",
        "F0@1 F0@2 B0@2 B0@1 W0@1 F1@1 F1@2 W0@2 B1@2 B1@1 W1@1 W1@2",
    )
    assert checked(problem, orders) == 58
    assert best_bound(problem).value <= 58


# No bound above any schedule -----------------------------------------------------------------


def random_cost(chance: random.Random, *, cheap_fused: bool, gain: bool) -> StageCost:
    forward, act, wgt = (chance.randint(1, 5) for _ in range(3))
    fused = chance.randint(act, act + wgt + 1) if cheap_fused else act + wgt
    pair = chance.randint(max(forward, fused), forward + fused) if gain else forward + fused
    held = chance.randint(0, 3)
    context = chance.choice((0, held, chance.randint(0, 5)))
    return StageCost(forward, act, wgt, fused, pair, held, context)


def random_placement(chance: random.Random, devices: int) -> Placement:
    names = ("linear", "linear", "linear", "v", "interleaved:2", "bidirectional", "list")
    name = chance.choice(names)
    if name != "list":
        return parse_placement(name, devices)
    route = [*range(devices), *(chance.randrange(devices) for _ in range(2))]
    chance.shuffle(route)
    return Placement("list", (("", tuple(route)),))


def random_problem(chance: random.Random) -> Problem:
    """Any problem of up to 3 devices; one in some has too little memory for any schedule."""
    devices = chance.randint(1, 3)
    placement = random_placement(chance, devices)
    cheap_fused, gain = chance.random() < 0.4, chance.random() < 0.4
    costs = [
        random_cost(chance, cheap_fused=cheap_fused, gain=gain) for _ in range(placement.stages)
    ]
    if chance.random() < 0.5:
        costs = costs[:1] * placement.stages
    most = max(2, 18 // (placement.stages * len(placement.routes)))
    return Problem(
        devices=devices,
        placement=placement.name,
        stages=tuple(costs),
        streams=tuple(
            Stream(name, chance.randint(1, most), route) for name, route in placement.routes
        ),
        comm_ticks=chance.choice((0, 0, 1, chance.randint(0, 6))),
        limits_quanta=tuple(
            chance.choice((None, chance.randint(1, 5), chance.randint(4, 16), 60))
            for _ in range(devices)
        ),
        objective=chance.choice(list(Objective)),
    )


def is_possible(problem: Problem) -> bool:
    try:
        check_memory(problem)
    except InfeasibleError:
        return False
    return True


@pytest.mark.parametrize("block", range(8))
def test_no_bound_is_above_any_schedule(block, random_orders):
    met = 0
    for seed in range(block * 25, block * 25 + 25):
        chance = random.Random(seed)
        problem = random_problem(chance)
        possible = is_possible(problem)
        bound = best_bound(problem) if possible else None
        values = []
        for cap in (1, 2, chance.randint(1, problem.total_microbatches), None):
            fused, paired = chance.random() < 0.5, chance.random() < 0.5
            orders = random_orders(problem, chance, fused=fused, paired=paired, cap=cap)
            if orders is not None:
                values.append(checked(problem, orders))
            assert possible or orders is None, f"seed {seed}: {problem} has a schedule"
            assert not possible or cap != 1 or orders, f"seed {seed}: {problem} has no schedule"
        if bound is not None:
            assert bound.value <= min(values), f"seed {seed}: {bound} against {problem}"
            met += bound.value == min(values)
    assert met >= 4  # a bound that no schedule ever meets would show nothing


def device_orders(stage: int, microbatches: int) -> Iterator[tuple[Op, ...]]:
    """Every order of F, B, W or F, BW per micro-batch on a device with one stage."""
    kinds = ((Kind.F, Kind.B, Kind.W), (Kind.F, Kind.BW))
    for chosen in product(kinds, repeat=microbatches):
        yield from interleavings(
            [[Op(kind, index, stage) for kind in chain] for index, chain in enumerate(chosen)]
        )


def interleavings(chains: list[list[Op]]) -> Iterator[tuple[Op, ...]]:
    if not any(chains):
        yield ()
    for index, chain in enumerate(chains):
        if chain:
            for tail in interleavings([*chains[:index], chain[1:], *chains[index + 1 :]]):
                yield (chain[0], *tail)


def best_value(problem: Problem, rows: list[list[tuple[Op, ...]]]) -> int | None:
    """The optimum over all combinations of device orders; None when memory forbids each."""
    best = None
    for orders in product(*rows):
        try:
            timeline = retime(problem, orders)
        except InvalidScheduleError:
            continue
        reached = value(timeline, problem.objective)
        if best is None or reached < best:
            certificate = Certificate(reached, 0, "none")
            if not verify(Schedule("any", problem, timeline, certificate)):
                best = reached
    return best


@pytest.mark.parametrize(("devices", "microbatches", "cases"), [(1, 3, 3), (2, 2, 3)])
def test_no_bound_is_above_the_optimum(devices: int, microbatches: int, cases: int) -> None:
    rows = [list(device_orders(stage, microbatches)) for stage in range(devices)]
    for seed in range(cases):
        chance = random.Random(seed)
        problem = Problem(
            devices=devices,
            placement="linear",
            stages=tuple(
                random_cost(chance, cheap_fused=seed % 2 == 1, gain=False) for _ in range(devices)
            ),
            streams=(Stream("", microbatches, tuple(range(devices))),),
            comm_ticks=chance.randint(0, 2),
            limits_quanta=tuple(chance.randint(2, 12) for _ in range(devices)),
            objective=chance.choice(list(Objective)),
        )
        optimum = best_value(problem, rows)
        assert is_possible(problem) == (optimum is not None)
        if optimum is not None:
            assert best_bound(problem).value <= optimum


@pytest.mark.parametrize("seed", range(60))
def test_an_estimated_end_wastes_no_more_than_there_is(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With many micro-batches in memory the ways to fill it are estimated, to the safe side.

    Only where memory never binds, and other bounds are stronger, the estimate can be the larger.
    """
    rng = random.Random(seed)
    problem = make_problem(
        rng.randint(1, 4),
        rng.randint(1, 60),
        costs=[rng.randint(1, 9) for _ in range(3)],
        fused=rng.choice([None, 20]),
        activation=(rng.randint(1, 3), rng.randint(1, 3)),
        memory=rng.randint(6, 60),
    )
    exact = by_name(problem)
    monkeypatch.setattr("synth.little.MAX_PENDING", 0)
    estimated = by_name(problem)
    assert estimated["little"] <= max(exact["little"], exact["work"], exact["path"])
    del estimated["little"], exact["little"]
    assert estimated == exact


def test_bounds_with_room_for_thousands_of_micro_batches() -> None:
    """They are found at once, and memory that never binds leaves the work."""
    problem = make_problem(8, 4000, costs=(10, 12, 8), comm=3, memory=4000)
    assert best_bound(problem).name == "work"
