"""A small profile, made up."""

import pytest

from synth.costs import Costs, Environment, Hop, Method, SliceCost, Timing, make_costs
from synth.profiled import joined

KIB = 1024


def timing(ms: float) -> Timing:
    ns = int(1e6 * ms)
    return Timing(ns, ns, ns)


def layer(name: str, unit: float, parameters: int = 1) -> SliceCost:
    """F, B, W take 2, 2, 1 ms a unit and BW half a millisecond less."""
    return SliceCost(
        name=name,
        layers=1,
        forward=timing(2 * unit),
        backward_act=timing(2 * unit),
        backward_wgt=timing(unit),
        fused=timing(3 * unit - 0.5),
        activation_bytes=3 * KIB,
        context_bytes=2 * KIB,
        parameter_bytes=parameters * KIB,
        gradient_bytes=parameters * KIB,
        optimizer_bytes=2 * parameters * KIB,
        output_bytes=KIB,
    )


def profile(layers: list[SliceCost], cut: tuple[int, ...]) -> Costs:
    """A costs file whose stages are what the layers add up to."""
    return make_costs(
        model={"name": "made up"},
        environment=Environment("cpu", "none", 1, 2, 2, "0"),
        method=Method(1, 1, 1),
        hops=[Hop(KIB, timing(0.2))],
        layers=layers,
        stages=joined(layers, cut),
    )


@pytest.fixture
def costs() -> Costs:
    """Three layers in two stages."""
    layers = [layer("layer0", 0.5), layer("layer1", 1, parameters=2), layer("layer2", 1)]
    return profile(layers, (2, 1))


@pytest.fixture
def large_head() -> Costs:
    """Six layers of which the last costs as much as four others, cut evenly."""
    return profile([*(layer(f"layer{n}", 1) for n in range(5)), layer("head", 4)], (3, 3))
