"""Orders of single devices: what they rule out has no schedule, and they rule out a lot."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth.bounds import best_bound
from synth.folding import fold
from synth.heads import Heads, relate
from synth.problem import Objective, Problem, make_problem
from synth.schedule import value
from synth.separate import separated
from synth.simulate import retime
from synth.solve.deadline import Deadline
from synth.solve.horizons import Horizons
from synth.solve.incumbent import Incumbent
from synth.solve.quick import first_schedules
from synth.solve.refute import refute
from synth.solve.states import TooManyError, View, Wait, reach, view

LONG = Deadline.after(10**6)


def least(problem: Problem, *, thorough: bool = True, start: int = 0) -> int:
    """The first horizon in ticks, from a start on, that is not refuted."""
    horizons = Horizons(problem)
    horizon = start // horizons.step
    while horizons.refuting(horizon, thorough, LONG) is not None:
        horizon += 1
    return horizon * horizons.step


# By hand -------------------------------------------------------------------------------------


def test_what_waits_on_a_device_with_two_chunks() -> None:
    """From F0@0 to F0@3: hop, F0@1, F0@2, hop; the same back from B0@3; nothing else takes time."""
    problem = make_problem(2, 3, placement="v", costs=(2, 4, 6), comm=1, memory=2)
    own = view(relate(fold(problem, 1)), 0)
    assert own is not None
    assert own.waits == (
        (Wait(3, 2 + 1 + 1),),  # F@0
        (Wait(2, 0),),  # B@0
        (),  # W@0
        (Wait(4, 0),),  # F@3
        (Wait(1, 2 + 2 + 2), Wait(5, 0)),  # B@3
        (),  # W@3
    )
    assert own.reversed().reversed() == own
    assert view(relate(fold(replace(problem, limits_quanta=(None, 4)), 1)), 0) is None


def test_one_micro_batch_at_a_time() -> None:
    """With room for one micro-batch, of which B comes 4 behind F, they run in a row: 2 times 7.

    A tick less is too little for any order.
    """
    own = View(
        (0, 1, 2), (1, 1, 1), (2, 2, 2), (1, 0, 0), (0, 0, 1), 1, ((Wait(1, 4),), (Wait(2, 0),), ())
    )
    free, ends = [[0, 0]] * 3, [[14, 14]] * 3
    found = reach(own, free, ends, LONG)
    assert found is not None
    assert found.starts == [[0, 7], [5, 12], [6, 13]]
    assert reach(own, free, [[13, 13]] * 3, LONG) is None
    back = reach(own.reversed(), [[-14, -14]] * 3, [[0, 0]] * 3, LONG)
    assert back is not None
    assert back.starts == [[-8, -1], [-13, -6], [-14, -7]]


@pytest.mark.parametrize(("chunks", "optimum"), [(4, 59), (6, 53), (8, 51)])
def test_v_placement_of_four_devices(chunks: int, optimum: int) -> None:
    """The optima, in half units, that the integer program proves too."""
    problem = make_problem(4, 8, placement="v", memory=f"{chunks / 2}")
    assert least(problem, start=45) == optimum
    assert least(problem, thorough=False, start=45) == optimum


def test_devices_narrow_each_others_windows() -> None:
    """27 is the optimum of P = 4, m = 8, limit 3 in two streams; one device alone shows 25."""
    problem = make_problem(4, 8, placement="bidirectional", memory=3)
    assert least(problem, thorough=False, start=20) == 25
    assert least(problem, start=20) == 27


# Against all orders --------------------------------------------------------------------------


def all_starts(own: View, first: Heads, last: Heads) -> Iterator[Heads]:
    """The starts of every order of a device that keeps windows and memory, each op at once."""

    def grow(done: list[int], starts: Heads, clock: int, held: int) -> Iterator[Heads]:
        if done == list(own.counts):
            yield [list(row) for row in starts]
        for chain, index in enumerate(done):
            if index == own.counts[chain] or held + own.taken[chain] > own.limit:
                continue
            start = max(first[chain][index], clock)
            ready = True
            for before, waits in enumerate(own.waits):
                for wait in waits:
                    if wait.chain == chain:
                        ready = ready and done[before] > index
                        if ready:
                            end = starts[before][index] + own.steps[before]
                            start = max(start, end + wait.lag)
            end = start + own.steps[chain]
            if ready and end <= last[chain][index]:
                starts[chain].append(start)
                after = [n + (c == chain) for c, n in enumerate(done)]
                yield from grow(after, starts, end, held + own.taken[chain] - own.freed[chain])
                starts[chain].pop()

    yield from grow([0] * len(own.counts), [[] for _ in own.counts], -(10**9), 0)


def random_view(rng: random.Random) -> View:
    """A device with two chunks of a V, or one each of two streams."""
    placement = rng.choice(["v", "bidirectional"])
    problem = make_problem(
        2,
        2 if placement == "v" else 4,
        placement=placement,
        costs=[rng.randint(1, 4) for _ in range(3)],
        comm=rng.randint(0, 2),
        activation=(rng.randint(1, 3), rng.randint(0, 3)),
        memory=rng.randint(3, 6),
    )
    found = view(relate(fold(problem, 1)), rng.randrange(2))
    assert found is not None
    return found


@pytest.mark.parametrize("block", range(5))
def test_no_order_is_ahead_of_the_table(block: int) -> None:
    """Nor of that in reversed time, and of one that knows the other."""
    equal = none = 0
    for seed in range(block * 10, block * 10 + 10):
        rng = random.Random(seed)
        own = random_view(rng)
        first = [sorted(rng.randint(0, 12) for _ in range(count)) for count in own.counts]
        horizon = rng.randint(25, 45)
        last = [sorted(rng.randint(horizon, 45) for _ in range(count)) for count in own.counts]
        orders = list(all_starts(own, first, last))
        ahead = reach(own, first, last, LONG)
        if ahead is None:
            assert not orders, f"seed {seed}"
            none += 1
            continue
        mirror = [[-end for end in reversed(row)] for row in last]
        ends = [[-start for start in reversed(row)] for row in first]
        back = reach(own.reversed(), mirror, ends, LONG, ahead)
        assert back is not None or not orders, f"seed {seed}"
        again = reach(own, first, last, LONG, back)
        for starts in orders:
            for found in (ahead, again):
                assert found is not None, f"seed {seed}"
                for row, least_row in zip(starts, found.starts, strict=True):
                    assert all(a >= b for a, b in zip(row, least_row, strict=True)), f"seed {seed}"
        if orders and again is not None:
            best = [
                [min(times) for times in zip(*rows, strict=True)]
                for rows in zip(*orders, strict=True)
            ]
            equal += best == again.starts
    assert equal + none >= 5  # a table behind which all orders stay far would show little


# Against schedules ---------------------------------------------------------------------------


@settings(max_examples=60)
@given(seed=st.integers(0, 10**6), cheap=st.booleans())
def test_no_schedule_is_shorter(seed: int, cheap: bool, random_graph, random_orders) -> None:
    """Any graph, placement, links and objective, fused and paired ops too."""
    rng = random.Random(seed)
    problem = random_graph(rng, cheap=cheap)
    apart = separated(problem)
    orders = random_orders(problem, rng, fused=True, paired=True, cap=rng.choice([1, 2, None]))
    if orders is None or apart is None:
        return
    assert least(apart) <= value(retime(problem, orders), problem.objective)


@pytest.mark.parametrize("objective", list(Objective))
def test_the_bracket_closes(objective: Objective) -> None:
    """From the bound without orders to a bound that the incumbent meets, named and explained."""
    problem = make_problem(4, 8, placement="v", memory=3, objective=objective)
    incumbent = Incumbent(problem, best_bound(problem), lambda _: None)
    first_schedules(incumbent, LONG)
    before = incumbent.bound.value
    refute(incumbent, LONG)
    assert incumbent.value is not None
    assert before <= incumbent.bound.value <= incumbent.value
    if objective is Objective.MAKESPAN:
        assert (incumbent.bound.value, incumbent.bound.name) == (53, "fill")


def test_a_bound_is_raised_as_far_as_the_time_admits() -> None:
    problem = make_problem(4, 8, placement="v", costs=(20, 24, 16), comm=3, memory=2)
    incumbent = Incumbent(problem, best_bound(problem), lambda _: None)
    first_schedules(incumbent, LONG)
    assert incumbent.bound.value == 620
    refute(incumbent, Deadline.after(0))
    assert incumbent.bound.value == 620
    refute(incumbent, LONG)
    assert (incumbent.bound.value, incumbent.bound.name) == (720, "orders")
    assert "720" in incumbent.bound.text


def test_too_many_states_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("synth.solve.states.MAX_STATES", 100)
    problem = make_problem(4, 8, placement="v", memory=2)
    with pytest.raises(TooManyError):
        Horizons(problem).refuting(60, True, LONG)


def test_limits_that_bind_nothing_are_left_alone() -> None:
    """Without limits there is no table, whatever the objective."""
    for objective in Objective:
        problem = make_problem(3, 4, placement="v", objective=objective)
        assert Horizons(problem).refuting(0, True, LONG) is None
        assert Horizons(problem).refuting(0, False, LONG) is None


def test_what_cannot_be_bounded_apart_is_left_alone() -> None:
    """Where pairs gain, an order of F, B and W says nothing about one with pairs in it."""
    problem = make_problem(4, 8, placement="bidirectional", memory=3, pair="2.5")
    incumbent = Incumbent(problem, best_bound(problem), lambda _: None)
    first_schedules(incumbent, LONG)
    before = incumbent.bound
    refute(incumbent, LONG)
    assert incumbent.bound == before
