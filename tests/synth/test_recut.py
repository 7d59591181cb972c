"""Recutting by hand, there and back, and what must stay the same."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth.errors import ProblemError
from synth.placement import Placement
from synth.problem import Problem, StageCost, Stream, Units, make_problem
from synth.recut import recut

PLACEMENTS = ("linear", "v", "interleaved:2", "interleaved:3", "wave:2", "bidirectional")


def test_a_stage_cut_in_two_halves_its_costs() -> None:
    problem = recut(make_problem(2, 4, costs=(1, 2, 3), comm=1, memory=2), "v")
    assert problem == make_problem(2, 4, placement="v", costs=(1, 2, 3), comm=1, memory=2)
    assert problem.stages == (StageCost(1, 2, 3, 5, 6, 1, 1),) * 4
    assert problem.comm_ticks == 2  # the latency of a hop does not shrink with the chunk
    assert problem.limits_quanta == (4, 4)
    assert (problem.units.ticks_per_unit, problem.units.quanta_per_unit) == (2, 2)


def test_stages_of_different_cost_are_split_and_merged_where_they_lie() -> None:
    heavy_end = (StageCost(2, 2, 2, 4, 6, 4, 2), StageCost(4, 6, 2, 8, 12, 8, 2))
    problem = Problem(
        devices=2,
        placement="linear",
        stages=heavy_end,
        streams=(Stream("", 3, (0, 1)),),
        comm_ticks=1,
        units=Units(ticks_per_unit=10),
    )
    halves = recut(problem, "v")
    assert halves.stages[0] == halves.stages[1] == StageCost(1, 1, 1, 2, 3, 2, 1)
    assert halves.stages[2] == halves.stages[3] == StageCost(2, 3, 1, 4, 6, 4, 1)
    assert halves.comm_ticks == 1
    assert halves.units == Units(ticks_per_unit=10)
    assert recut(halves, "linear").stages == heavy_end
    thirds = recut(problem, "interleaved:3")
    assert [stage.forward_ticks for stage in thirds.stages] == [2, 2, 2, 4, 4, 4]
    assert thirds.units.ticks_per_unit == 30


def test_what_stages_keep_moves_with_them() -> None:
    """Of 10 units stages keep 4 and 2; a V spreads both evenly, two streams keep both twice."""
    problem = replace(make_problem(2, 4, memory=[6, 8]), kept_quanta=(4, 2))
    halves = recut(problem, "v")
    assert halves.kept_quanta == (4, 4, 2, 2)  # two quanta a unit
    assert halves.limits_quanta == (2 * 10 - 6, 2 * 10 - 6)
    assert recut(halves, "linear") == problem
    both = recut(problem, "bidirectional")
    assert both.limits_quanta == (10 - 6, 10 - 6)
    with pytest.raises(ProblemError, match="bidirectional leaves no memory: parameters, gradients"):
        recut(replace(problem, limits_quanta=(1, 8)), "bidirectional")


def test_two_streams_share_the_micro_batches() -> None:
    both = recut(make_problem(4, 7), "bidirectional")
    assert [(stream.name, stream.microbatches) for stream in both.streams] == [
        ("down", 4),
        ("up", 3),
    ]
    assert recut(both, "linear") == make_problem(4, 7)


def test_any_map_from_stages_to_devices_will_do() -> None:
    placement = Placement("custom", (("", (1, 0)),))
    problem = recut(make_problem(2, 3, costs=(1, 1, 2)), placement)
    assert problem.placement == "custom"
    assert problem.streams[0].route == (1, 0)
    assert problem.stages == make_problem(2, 3, costs=(1, 1, 2)).stages


@pytest.mark.parametrize(
    ("placement", "text"),
    [("spiral", "placement 'spiral' is not known"), ("bidirectional", "at least 2 micro-batches")],
)
def test_refusals(placement: str, text: str) -> None:
    with pytest.raises(ProblemError, match=text):
        recut(make_problem(2, 1), placement)


@settings(max_examples=60, deadline=None)
@given(
    devices=st.integers(1, 6),
    microbatches=st.integers(2, 9),
    costs=st.tuples(*[st.sampled_from(["1", "2", "0.5", "18.522", "7"])] * 3),
    comm=st.sampled_from(["0", "0.601", "1"]),
    memory=st.sampled_from([None, "3", "2.5"]),
    way=st.lists(st.sampled_from(PLACEMENTS), min_size=1, max_size=3),
)
def test_every_way_leads_to_what_the_numbers_say(
    devices: int,
    microbatches: int,
    costs: tuple[str, str, str],
    comm: str,
    memory: str | None,
    way: list[str],
) -> None:
    def made(placement: str) -> Problem:
        return make_problem(
            devices,
            microbatches,
            placement=placement,
            costs=costs,
            comm=comm,
            memory=memory,
            objective="span",
            pair="40",
        )

    problem = made("linear")
    for placement in way:
        problem = recut(problem, placement)
        assert problem == made(placement)
