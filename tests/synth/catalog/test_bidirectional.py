"""DualPipe and DualPipeV against independently made orders; Chimera, BitPipe and GEMS by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from synth import catalog
from synth.op import Kind, Op
from synth.problem import Problem, make_problem
from synth.schedule import Schedule
from synth.simulate import in_flight, messages, peaks

Replay = Callable[[str, Problem], Schedule]
DATA = Path(__file__).parent / "data" / "dualpipe_orders.txt"


def cases() -> list[tuple[str, int, int, list[str]]]:
    """Name, P, m and the line of each device."""
    lines = [line for line in DATA.read_text().splitlines() if not line.startswith("#")]
    found = []
    while lines:
        name, devices, microbatches = lines.pop(0).split()
        rows = [lines.pop(0) for _ in range(int(devices))]
        found.append((name, int(devices), int(microbatches), rows))
    return found


def spelled(op: Op, devices: int) -> str:
    """An op as the data file has it: kind, direction or chunk, micro-batch."""
    if op.kind is Kind.FB:
        return "&".join(spelled(part, devices) for part in op.parts)
    second = op.stream == "up" or op.stage >= devices
    return f"{op.kind}{int(second)}.{op.microbatch}"


@pytest.mark.parametrize(
    ("name", "devices", "microbatches", "rows"),
    [pytest.param(*case, id="-".join(map(str, case[:3]))) for case in cases()],
)
def test_orders_op_by_op(name: str, devices: int, microbatches: int, rows: list[str]) -> None:
    family = catalog.family(name)
    problem = make_problem(devices, microbatches, placement=family.placement)
    for row, order in zip(rows, family.orders(problem), strict=True):
        assert " ".join(spelled(op, devices) for op in order) == row


@pytest.mark.parametrize(
    ("name", "devices", "microbatches", "pair", "makespan", "idle"),
    [
        ("dualpipe", 4, 8, "3", 26, 2),
        ("dualpipe", 4, 8, "2.55", 24.2, 1.55),
        ("dualpipe", 4, 8, "2", 22, 1),
        ("dualpipe", 4, 10, "3", 32, 2),
        ("dualpipe", 4, 10, "2.55", 29.3, 1.55),
        ("dualpipe", 8, 20, "3", 66, 6),
        ("dualpipe", 8, 20, "2.55", 59.7, 4.65),
        ("dualpipe", 8, 20, "2", 52, 3),
        ("dualpipev", 4, 8, "3", 54, 6),
        ("dualpipev", 4, 8, "2.55", 49.5, 4.65),
        ("dualpipev", 4, 8, "2", 44, 3),
        ("dualpipev", 4, 10, "2.55", 59.7, 4.65),
        ("dualpipev", 8, 20, "3", 134, 14),
        ("dualpipev", 8, 20, "2.55", 120.5, 10.85),
        ("dualpipev", 8, 20, "2", 104, 7),
    ],
)
def test_times_with_overlap(
    name: str, devices: int, microbatches: int, pair: str, makespan: float, idle: float
) -> None:
    """F = B = W = 1 per stage or, for DualPipeV, per chunk; idle is (P/2-1)(FB+BW-3W)."""
    chunks = 2 if name == "dualpipev" else 1
    problem = make_problem(
        devices,
        microbatches,
        placement=catalog.family(name).placement,
        costs=(chunks, chunks, chunks),
        pair=float(pair) * chunks,
    )
    schedule = catalog.build(name, problem)
    assert problem.units.ticks(schedule.makespan) == makespan
    assert problem.units.ticks(catalog.most_idle(schedule)) == idle
    assert catalog.family(name).predicted_idle(problem) == catalog.most_idle(schedule)
    boundaries = devices - 1 if name == "dualpipe" else 2 * (devices - 1)
    assert messages(problem) == 2 * microbatches * boundaries


@pytest.mark.parametrize(
    ("costs", "pair"), [((2, 3, 4), 9), ((6, 3, 2), 10)], ids=["W > F", "F > 1.5 B"]
)
def test_no_bubble_is_predicted_outside_the_region(costs: tuple[int, int, int], pair: int) -> None:
    problem = make_problem(4, 8, placement="bidirectional", costs=costs, pair=pair)
    assert catalog.family("dualpipe").predicted_idle(problem) is None


def test_chimera_by_hand() -> None:
    """P = m = 4: each device's micro-batches of both directions, d and u."""
    drawn = [
        "Fd0 Fd1 Fu0 Bu0 Fu1 Bu1 Bd0 Bd1",
        "Fd0 Fu0 Fd1 Fu1 Bu0 Bd0 Bu1 Bd1",
        "Fu0 Fd0 Fu1 Fd1 Bd0 Bu0 Bd1 Bu1",
        "Fu0 Fu1 Fd0 Bd0 Fd1 Bd1 Bu0 Bu1",
    ]
    problem = make_problem(4, 4, placement="bidirectional")
    for row, order in zip(drawn, catalog.family("chimera").orders(problem), strict=True):
        assert " ".join(f"{str(o.kind)[0]}{o.stream[0]}{o.microbatch}" for o in order) == row


@pytest.mark.parametrize(
    ("name", "devices", "microbatches", "fused", "makespan", "held"),
    [
        ("chimera", 4, 4, 1, 10, 4),
        ("chimera", 4, 4, 2, 16, 4),
        ("chimera", 4, 8, 2, 30, 4),
        ("chimera", 8, 16, 2, 66, 8),
        ("bitpipe", 4, 4, 2, 14, 4),
        ("bitpipe", 8, 8, 2, 30, 8),
        ("bitpipe", 4, 8, 2, 27, 4),
        ("gems", 4, 8, 1, 5 * 8 + 3, 1),
        ("gems", 4, 8, 2, 9 * 8 + 3, 1),
        ("gems", 8, 16, 2, 17 * 16 + 7, 1),
    ],
)
def test_times_of_two_replicas(
    name: str, devices: int, microbatches: int, fused: int, makespan: int, held: int
) -> None:
    """At F = 1 and BW = 1 or 2 per stage."""
    half = fused / 2
    problem = make_problem(
        devices,
        microbatches,
        placement=catalog.family(name).placement,
        costs=(1, half, half),
    )
    schedule = catalog.build(name, problem)
    assert problem.units.ticks(schedule.makespan) == makespan
    assert problem.units.quanta(max(peaks(problem, schedule.devices))) == held


@pytest.mark.parametrize(
    ("name", "small", "large"),
    [
        ("1f1b", 33, 69),
        ("zb-h1", 27, 55),
        ("zb-h2", 27, 55),
        ("interleaved:2", 28.5, 58.5),
        ("interleaved:4", 26.25, 53.25),
        ("chimera", 30, 66),
        ("gems", 75, 279),
        ("bitpipe", 27, 57),
        ("zb-v", 25.5, 51.5),
        ("v-half", 26.5, 56.5),
        ("v-min", 29.5, 61.5),
        ("dualpipe", 26, 54),
        ("dualpipev", 27, 55),
    ],
)
def test_makespans_side_by_side(name: str, small: float, large: float, replay: Replay) -> None:
    """F = B = W = 1, no gain from overlap, at P = 4, m = 8 and P = 8, m = 16."""
    for devices, microbatches, expected in ((4, 8, small), (8, 16, large)):
        placement = catalog.family(name).placement
        problem = make_problem(devices, microbatches, placement=placement)
        assert problem.units.ticks(replay(name, problem).makespan) == expected


@pytest.mark.parametrize("devices", [4, 8])
@pytest.mark.parametrize("waves", [1, 2, 4])
def test_hanayo_with_one_unit_of_micro_batches(devices: int, waves: int, replay: Replay) -> None:
    """The published (2P-2)/(3PK+P-1) of m = P and BW = 2F, or less than a fifth of a point more."""
    problem = make_problem(devices, devices, placement=f"wave:{waves}")
    schedule = replay(f"hanayo:{waves}", problem)
    published = (2 * devices - 2) / (3 * devices * waves + devices - 1)
    assert schedule.bubble <= published + 0.002
    assert max(in_flight(schedule.devices, Kind.W)) <= 2 * waves * devices
