"""From costs to problems, by hand."""

import pytest

from synth.errors import InfeasibleError, ProblemError
from synth.problem import StageCost, Units
from synth.profiled import gib, join, joined, make_profiled, tick_seconds

KIB = 1024


def test_stages_in_ticks_and_bytes(costs):
    problem = make_profiled(costs, 2, 4)
    assert problem.stages == (
        StageCost(3000, 3000, 1500, 3500, 6500, 5 * KIB, 4 * KIB),
        StageCost(2000, 2000, 1000, 2500, 4500, 3 * KIB, 2 * KIB),
    )
    assert problem.comm_ticks == 200
    assert problem.units == Units("ms", 1000, "MiB", 2**20)
    assert problem.limits_quanta == (None, None)


def test_limits_are_less_what_is_static(costs):
    static = [4 * stage.parameter_bytes for stage in costs.stages]
    problem = make_profiled(costs, 2, 4, limit_bytes=[100 * KIB, 50 * KIB])
    assert problem.limits_quanta == (100 * KIB - static[0], 50 * KIB - static[1])
    with pytest.raises(InfeasibleError, match=r"optimizer of device 0 take 0\.0 MiB"):
        make_profiled(costs, 2, 4, limit_bytes=[static[0] - 1, None])


def test_a_device_of_two_streams_keeps_a_stage_once(costs):
    both = make_profiled(costs, 2, 4, placement="bidirectional", limit_bytes=[100 * KIB] * 2)
    static = sum(4 * stage.parameter_bytes for stage in costs.stages)
    assert both.limits_quanta == (100 * KIB - static,) * 2


def test_another_placement_needs_another_cut(costs):
    with pytest.raises(ProblemError, match=r"is of 2 stages, placement v on 2 .* needs 4; add"):
        make_profiled(costs, 2, 4, placement="v")
    whole = make_profiled(costs, 1, 2, stages=joined(costs.layers, (3,)))
    assert len(whole.stages) == 1


def test_joined_layers(costs):
    first, second = costs.layers[:2]
    both = join((first, second))
    assert both.name == "layer0..layer1"
    assert both.layers == 2
    assert both.forward.median_ns == first.forward.median_ns + second.forward.median_ns
    held = first.activation_bytes + second.activation_bytes
    assert both.activation_bytes == held - first.output_bytes  # it is the input of the second too
    assert both.output_bytes == second.output_bytes
    assert join((first,)) is first
    assert [stage.layers for stage in joined(costs.layers, (1, 2))] == [1, 2]


def test_units():
    assert tick_seconds(Units("ms", 1000)) == 1e-6
    assert tick_seconds(Units()) is None
    assert gib("1.5") == 3 * 2**29
