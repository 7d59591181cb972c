"""Balance: the exact cut of least bottleneck, and cuts that schedule best."""

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synth import catalog
from synth.balance import balance, bottleneck_cut, cuts
from synth.errors import InfeasibleError
from synth.profiled import joined, make_profiled
from synth.verify import verify


def every_cut(layers, stages):
    for marks in combinations(range(1, layers), stages - 1):
        edges = (0, *marks, layers)
        yield tuple(b - a for a, b in pairwise(edges))


def largest(work, cut):
    first, most = 0, 0
    for count in cut:
        most = max(most, sum(work[first : first + count]))
        first += count
    return most


@given(st.lists(st.integers(1, 20), min_size=1, max_size=8), st.data())
def test_the_bottleneck_is_the_least_of_all_cuts(work, data):
    stages = data.draw(st.integers(1, len(work)))
    cut, most = bottleneck_cut(work, stages)
    assert (len(cut), sum(cut), min(cut) >= 1) == (stages, len(work), True)
    assert largest(work, cut) == most
    assert most == min(largest(work, other) for other in every_cut(len(work), stages))
    assert sorted(cuts(work, stages)) == sorted(every_cut(len(work), stages))


def test_of_too_many_cuts_the_even_ones_remain():
    work = [3, 1, 4, 1, 5, 9, 2, 6] * 5
    best, most = bottleneck_cut(work, 8)
    few = list(cuts(work, 8))
    assert best in few
    assert all(largest(work, cut) <= 1.15 * most for cut in few)


def found(costs, stages=2, **options):
    return balance(
        costs.layers,
        stages,
        lambda cut: make_profiled(costs, 2, 4, stages=joined(costs.layers, cut), **options),
    )


def test_a_large_head_gets_its_own_stage(large_head):
    best = found(large_head)
    assert best.cut == (5, 1)
    assert verify(best.schedule) == []
    even = catalog.build("1f1b", make_profiled(large_head, 2, 4))
    assert best.ticks < even.makespan


def test_no_cut_has_a_faster_schedule_by_1f1b(large_head):
    best = found(large_head)
    for cut in every_cut(6, 2):
        problem = make_profiled(large_head, 2, 4, stages=joined(large_head.layers, cut))
        assert best.ticks <= catalog.build("1f1b", problem).makespan


def test_memory_rules_cuts_out(large_head):
    layer = large_head.layers[0]
    roomy = [3 * layer.static_bytes + 12 * 1024, None]
    assert found(large_head, limit_bytes=roomy).cut[0] <= 3
    with pytest.raises(InfeasibleError, match="parameters, gradients and optimizer"):
        found(large_head, limit_bytes=[0, 0])
    with pytest.raises(InfeasibleError, match="6 layers cannot be cut into 7 stages"):
        found(large_head, stages=7)
