"""Folding loses nothing: any schedule folds, unfolds into a valid one, and is no slower for it."""

import random

from hypothesis import assume, given
from hypothesis import strategies as st

from synth.folding import fold
from synth.op import Kind
from synth.problem import make_problem
from synth.schedule import Certificate, Schedule, value
from synth.simulate import retime
from synth.verify import verify

seeds = st.integers(0, 10**6)


@given(seeds)
def test_an_unfolded_schedule_is_valid_and_no_slower(random_graph, random_orders, seed):
    chance = random.Random(seed)
    problem = random_graph(chance)
    orders = random_orders(problem, chance, eager=chance.random() < 0.5)
    assume(orders is not None)
    given_value = value(retime(problem, orders), problem.objective)
    folded = fold(problem, 1)
    unfolded = folded.unfold(folded.starts(retime(problem, orders)))
    timeline = retime(problem, unfolded)
    reached = value(timeline, problem.objective)
    assert reached <= given_value
    assert verify(Schedule("unfolded", problem, timeline, Certificate(reached, 0, ""))) == []
    for row in unfolded:  # every chain runs its micro-batches in order
        for kind in (Kind.F, Kind.B, Kind.W):
            chains = {(op.stream, op.stage) for op in row if op.kind is kind}
            for stream, stage in chains:
                numbers = [
                    op.microbatch
                    for op in row
                    if (op.kind, op.stream, op.stage) == (kind, stream, stage)
                ]
                assert numbers == sorted(numbers)


@given(seeds, st.integers(2, 5))
def test_coarse_grids_bound_the_durations_from_both_sides(random_graph, seed, step):
    problem = random_graph(random.Random(seed))
    exact, up, down = fold(problem, 1), fold(problem, step), fold(problem, step, round_up=False)
    for one, above, below in zip(exact.chains, up.chains, down.chains, strict=True):
        assert below.steps * step <= one.steps <= above.steps * step
        assert above.steps - below.steps <= 1
    for one, above, below in zip(exact.edges, up.edges, down.edges, strict=True):
        assert below.lag * step <= one.lag <= above.lag * step


def test_memory_terms_by_hand():
    # One unit is held from F to the end of B, two from there to the end of W.
    problem = make_problem(1, 2, activation=(1, 2), memory=3)
    (row,) = fold(problem, 1).memory
    terms = {fold(problem, 1).chains[t.chain].kind: (t.taken, t.freed) for t in row}
    assert terms == {Kind.F: (1, 0), Kind.B: (1, 0), Kind.W: (0, 2)}
