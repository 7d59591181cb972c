"""Routes written out for small numbers of devices."""

from __future__ import annotations

from collections import Counter

import pytest

from synth.errors import ProblemError
from synth.placement import bidirectional, interleaved, linear, parse_placement, v, wave


@pytest.mark.parametrize(
    ("name", "devices", "routes"),
    [
        ("linear", 1, {"": (0,)}),
        ("linear", 4, {"": (0, 1, 2, 3)}),
        ("v", 1, {"": (0, 0)}),
        ("v", 3, {"": (0, 1, 2, 2, 1, 0)}),
        ("interleaved:2", 3, {"": (0, 1, 2, 0, 1, 2)}),
        ("interleaved:3", 2, {"": (0, 1, 0, 1, 0, 1)}),
        ("wave:1", 2, {"": (0, 1, 1, 0)}),
        ("wave:2", 2, {"": (0, 1, 1, 0, 0, 1, 1, 0)}),
        ("bidirectional", 1, {"down": (0,), "up": (0,)}),
        ("bidirectional", 3, {"down": (0, 1, 2), "up": (2, 1, 0)}),
    ],
)
def test_routes(name: str, devices: int, routes: dict[str, tuple[int, ...]]) -> None:
    placement = parse_placement(name, devices)
    assert placement.name == name
    assert dict(placement.routes) == routes
    assert placement.stages == len(next(iter(routes.values())))


@pytest.mark.parametrize("devices", [1, 2, 5])
@pytest.mark.parametrize("name", ["linear", "v", "interleaved:4", "wave:3", "bidirectional"])
def test_every_device_holds_the_same_number_of_stages(name: str, devices: int) -> None:
    for _, route in parse_placement(name, devices).routes:
        assert set(Counter(route).values()) == {len(route) // devices}


def test_the_functions_behind_the_names() -> None:
    assert parse_placement("linear", 4) == linear(4)
    assert parse_placement("v", 4) == v(4)
    assert parse_placement("interleaved:2", 4) == interleaved(4, 2)
    assert parse_placement("wave:2", 4) == wave(4, 2)
    assert parse_placement("bidirectional", 4) == bidirectional(4)
    assert v(4).routes == wave(4, 1).routes


@pytest.mark.parametrize(
    "name",
    [
        "",
        "diagonal",
        "Linear",
        "linear ",
        "linear:2",
        "v:1",
        "bidirectional:2",
        "interleaved",
        "interleaved:",
        "interleaved:-2",
        "interleaved:2.5",
        "interleaved:99999",
        "wave",
        "wave:two",
        "linear\n",
    ],
)
def test_names_that_are_not_known(name: str) -> None:
    with pytest.raises(ProblemError, match="is not known; use one of linear, interleaved:V, v,"):
        parse_placement(name, 4)


@pytest.mark.parametrize(
    ("name", "devices", "message"),
    [
        ("interleaved:1", 4, "interleaved needs at least 2 chunks per device, got 1"),
        ("interleaved:0", 4, "interleaved needs at least 2 chunks per device, got 0"),
        ("wave:0", 4, "wave needs at least 1 wave, got 0"),
        ("linear", 0, "devices must be at least 1, got 0"),
        ("v", -1, "devices must be at least 1, got -1"),
    ],
)
def test_numbers_that_make_no_placement(name: str, devices: int, message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        parse_placement(name, devices)
