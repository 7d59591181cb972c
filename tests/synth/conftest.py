"""A small profile, made up; random problems beyond chains."""

import random
from collections.abc import Callable

import pytest

from synth.costs import Costs, Environment, Hop, Method, SliceCost, Timing, make_costs
from synth.problem import DeviceCost, Link, Objective, Problem, StageCost, Stream
from synth.profiled import joined

KIB = 1024


@pytest.fixture(scope="session", autouse=True)
def compiler() -> None:
    """Waits for the compiler here, not in a test with a time limit."""
    from synth.folding import fold
    from synth.problem import make_problem
    from synth.solve.tournament import Tournament

    Tournament(fold(make_problem(2, 2, memory=2), 1), 0).run(10_000)


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


@pytest.fixture(scope="session")
def random_graph() -> Callable[..., Problem]:
    """Tiny problems over all that a problem file can say: see `_random_graph`."""
    return _random_graph


def _random_graph(rng: random.Random, *, most_ops: int = 30, cheap: bool = False) -> Problem:
    """Any graph of stages, placed anywhere, in one or two streams, on uneven devices and links.

    Where `cheap`, fused and paired ops may take less than their parts.
    """
    while True:
        devices, stages = rng.randint(1, 3), rng.randint(1, 4)
        streams = [
            Stream(
                name,
                rng.randint(1, 3),
                tuple(rng.randrange(devices) for _ in range(stages)),
            )
            for name in rng.choice([("",), ("",), ("a", "b")])
        ]
        ops = 3 * stages * sum(stream.microbatches for stream in streams)
        held = {device for stream in streams for device in stream.route}
        if ops <= most_ops and len(held) == devices:
            break
    lags = rng.random() < 0.6
    pairs = [(a, b) for a in range(devices) for b in range(devices) if a != b]
    places = {(d, s) for stream in streams for s, d in enumerate(stream.route)}
    return Problem(
        devices=devices,
        placement="explicit",
        stages=tuple(_random_cost(rng, cheap) for _ in range(stages)),
        streams=tuple(streams),
        comm_ticks=rng.choice([0, 1, 3]) if lags else 0,
        limits_quanta=tuple(rng.choice([None, *range(2, 10)]) for _ in range(devices)),
        objective=rng.choice([Objective.MAKESPAN, Objective.SPAN]),
        needs=tuple(
            tuple(rng.sample(range(stage), rng.randint(0, min(stage, 2))))
            for stage in range(stages)
        ),
        device_costs=tuple(
            DeviceCost(*place, _random_cost(rng, cheap))
            for place in sorted(places)
            if rng.random() < 0.3
        ),
        links=tuple(
            Link(*pair, rng.randint(0, 5)) for pair in pairs if lags and rng.random() < 0.4
        ),
    )


def _random_cost(rng: random.Random, cheap: bool) -> StageCost:
    forward, act, wgt = (rng.randint(1, 4) for _ in range(3))
    held = rng.randint(0, 3), rng.randint(0, 3)
    fused, pair = act + wgt, forward + act + wgt
    if cheap:
        fused = rng.randint(act, act + wgt)
        pair = rng.randint(max(forward, fused), forward + fused)
    return StageCost(forward, act, wgt, fused, pair, *held)
