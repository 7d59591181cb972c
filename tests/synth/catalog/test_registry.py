"""Names, refusals with the constraint's text, and what build does about memory limits."""

from __future__ import annotations

import pytest

from synth import catalog
from synth.errors import InfeasibleError, UsageError
from synth.problem import make_problem
from synth.recut import recut
from synth.verify import verify


def test_every_name_is_its_familys_and_fits_the_usual_problem() -> None:
    for name in catalog.names():
        family = catalog.family(name)
        assert family.name == name
        assert all((family.title, family.source, family.when))
        assert catalog.build(name, make_problem(4, 8, placement=family.placement)).name == name


def test_patterns_cover_the_names() -> None:
    heads = {pattern.partition(":")[0] for pattern in catalog.patterns()}
    assert heads == {name.partition(":")[0] for name in catalog.names()}


@pytest.mark.parametrize(
    "name",
    [
        "",
        "2f2b",
        "1f1b:2",
        "interleaved",
        "interleaved:0",
        "interleaved:2:3:4",
        "bfs:2:2",
        "bfs:x",
        "hanayo:-1",
        "hanayo:99999",
        "zb-h1 ",
        "bfs:\N{ARABIC-INDIC DIGIT TWO}",
    ],
)
def test_unknown_names(name: str) -> None:
    with pytest.raises(UsageError, match=r"is not known; use one of gpipe, 1f1b, .*interleaved:V"):
        catalog.family(name)


@pytest.mark.parametrize(
    ("name", "devices", "microbatches", "text"),
    [
        ("zb-v", 4, 6, "zb-v does not fit P=4 m=6: needs m >= 2P-1 = 7"),
        ("dualpipe", 3, 8, "needs an even P, got 3"),
        ("dualpipe", 4, 9, "needs an even m, got 9"),
        ("dualpipe", 4, 6, "needs m >= 2P = 8"),
        ("dualpipev", 4, 7, "needs m >= 2P = 8"),
        ("chimera", 5, 10, "needs an even P, got 5"),
        ("chimera", 4, 6, "needs m to be a multiple of P, got 6 for P = 4"),
        ("bitpipe", 4, 6, "needs m to be a multiple of P, got 6 for P = 4"),
        ("gems", 4, 5, "needs an even m, got 5"),
        ("interleaved:2", 4, 11, "needs m to be a multiple of the 2 groups"),
        ("interleaved-zb:2", 4, 11, "needs m to be a multiple of the 2 groups"),
        ("interleaved:2:3", 4, 8, "needs P <= group size <= m, the group size is 3"),
        ("interleaved:2:9", 4, 8, "needs P <= group size <= m, the group size is 9"),
        ("interleaved:2:4", 4, 10, "needs m mod group size to be 0 or at least P, 10 mod 4 is 2"),
        ("pipedream-2bw", 4, 3, "needs m >= P = 4 micro-batches per update"),
    ],
)
def test_refusals(name: str, devices: int, microbatches: int, text: str) -> None:
    placement = catalog.family(name).placement
    with pytest.raises(UsageError) as caught:
        catalog.build(name, make_problem(devices, microbatches, placement=placement))
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["dualpipe", "chimera", "bitpipe", "gems"])
def test_streams_must_mirror_each_other(name: str) -> None:
    even = make_problem(4, 8, placement=catalog.family(name).placement)
    down, up = even.streams
    lopsided = type(even)(
        **{field: getattr(even, field) for field in ("devices", "placement", "stages")},
        streams=(type(down)("down", 6, down.route), type(up)("up", 2, up.route)),
    )
    with pytest.raises(UsageError, match="needs the same number of micro-batches in every stream"):
        catalog.build(name, lopsided)


def test_the_placement_must_be_the_familys() -> None:
    problem = make_problem(4, 8)
    with pytest.raises(UsageError, match="needs placement v, the problem has linear"):
        catalog.build("zb-v", problem)
    assert verify(catalog.build("zb-v", recut(problem, "v"))) == []


def test_a_wave_is_a_v_by_any_name() -> None:
    assert verify(catalog.build("zb-v", make_problem(3, 6, placement="wave:1"))) == []


def test_more_memory_than_the_limit_is_refused_with_the_numbers() -> None:
    problem = make_problem(4, 8, memory=6)
    with pytest.raises(
        InfeasibleError, match="zb-h2 holds 7 activation units on device 0, its limit is 6"
    ):
        catalog.build("zb-h2", problem)
    without = catalog.build("zb-h2", problem, ignore_limits=True)
    assert without.problem.limits_quanta == (None,) * 4
    assert verify(without) == []
    assert catalog.build("zb-h2", make_problem(4, 8, memory=7)).problem.limits_quanta == (7,) * 4


def test_asynchronous_families_say_so() -> None:
    asynchronous = [name for name in catalog.names() if not catalog.family(name).synchronous]
    assert asynchronous == ["pipedream", "pipedream-2bw"]
    for name in asynchronous:
        assert "not equivalent to synchronous training" in catalog.family(name).note


@pytest.mark.parametrize(
    ("name", "versions"), [("pipedream", (4, 3, 2, 1)), ("pipedream-2bw", (2, 2, 2, 2))]
)
def test_asynchronous_steady_state(name: str, versions: tuple[int, ...]) -> None:
    """What m more micro-batches add to a long run is the steady time per m."""
    family = catalog.family(name)
    problem, longer = (make_problem(4, m, costs=(2, 1, 2), comm=1) for m in (40, 80))
    assert family.weight_versions is not None
    assert family.steady is not None
    assert family.weight_versions.value(problem) == versions
    added = catalog.build(name, longer).makespan - catalog.build(name, problem).makespan
    assert family.steady.value(problem) == added == 40 * 5 + 2 * 3 * 10


@pytest.mark.parametrize(
    ("name", "factor"), [("1f1b", 1), ("zb-v", 1), ("dualpipe", 2), ("bitpipe", 2), ("hanayo:2", 1)]
)
def test_parameter_factor(name: str, factor: int) -> None:
    problem = make_problem(4, 8, placement=catalog.family(name).placement)
    assert catalog.parameter_factor(problem) == factor
