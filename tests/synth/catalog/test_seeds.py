"""The textbook formulas and pictures of GPipe, 1F1B and interleaved 1F1B, at t_B = 2 t_F."""

from __future__ import annotations

from fractions import Fraction

import pytest

from synth import catalog
from synth.op import Kind
from synth.problem import make_problem
from synth.schedule import Schedule
from synth.simulate import in_flight, messages, peaks


def built(name: str, devices: int, microbatches: int) -> Schedule:
    """At F = 1, BW = 2."""
    placement = catalog.family(name).placement
    return catalog.build(name, make_problem(devices, microbatches, placement=placement))


@pytest.mark.parametrize("devices", [1, 2, 3, 4, 7, 8])
@pytest.mark.parametrize("microbatches", [1, 2, 5, 8, 16, 24])
@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_bubble_is_p_minus_1_over_m_plus_p_minus_1(
    name: str, devices: int, microbatches: int
) -> None:
    schedule = built(name, devices, microbatches)
    expected = Fraction(devices - 1, microbatches + devices - 1)
    assert schedule.bubble == pytest.approx(float(expected), abs=1e-12)
    assert schedule.makespan == 3 * (microbatches + devices - 1)
    held = [microbatches] * devices
    if name == "1f1b":
        held = [min(microbatches, devices - rank) for rank in range(devices)]
    assert list(peaks(schedule.problem, schedule.devices)) == held
    assert messages(schedule.problem) == 2 * microbatches * (devices - 1)


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
@pytest.mark.parametrize("rounds", [1, 2, 3])
@pytest.mark.parametrize("chunks", [2, 3, 4])
def test_interleaving_divides_the_bubble(devices: int, rounds: int, chunks: int) -> None:
    microbatches = rounds * devices
    schedule = built(f"interleaved:{chunks}", devices, microbatches)
    expected = Fraction(devices - 1, microbatches * chunks + devices - 1)
    assert schedule.bubble == pytest.approx(float(expected), abs=1e-12)
    first_peak = min(microbatches * chunks, 2 * (devices - 1) + (chunks - 1) * devices + 1)
    assert in_flight(schedule.devices, Kind.W)[0] == first_peak
    assert messages(schedule.problem) == 2 * microbatches * (devices * chunks - 1)


def test_rank_0_holds_23_chunks_at_p8_v2() -> None:
    schedule = built("interleaved:2", 8, 16)
    assert in_flight(schedule.devices, Kind.W)[0] == 23
    units = schedule.problem.units
    assert units.quanta(peaks(schedule.problem, schedule.devices)[0]) == 11.5


def test_interleaving_multiplies_the_messages() -> None:
    """V times as many chunk boundaries and the wraps from the last device to the first."""
    plain, cut = built("1f1b", 4, 8), built("interleaved:2", 4, 8)
    wraps = 2 * 8 * (2 - 1)
    assert messages(cut.problem) == 2 * messages(plain.problem) + wraps


def test_the_1f1b_picture() -> None:
    """P = 4, m = 6: the order of every device, and the count of activations on the first.

    Drawings of it often give devices 1 and 2 one forward more before their first backward; they
    would then hold one activation more than the P - r that the same texts derive.
    """
    drawn = {
        0: "F0 F1 F2 F3 B0 F4 B1 F5 B2 B3 B4 B5",
        1: "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 B4 B5",
        2: "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 B5",
        3: "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5",
    }
    schedule = built("1f1b", 4, 6)
    for device, text in drawn.items():
        ops = [f"{str(op.kind)[0]}{op.microbatch}" for op in schedule.orders[device]]
        assert " ".join(ops) == text
    held, counts = 0, []
    for op in schedule.orders[0]:
        held += 1 if op.kind is Kind.F else -1
        counts.append(held)
    assert counts == [1, 2, 3, 4, 3, 4, 3, 4, 3, 2, 1, 0]


def test_the_1f1b_time_with_backwards_as_long_as_forwards() -> None:
    problem = make_problem(4, 6, costs=(2, 1, 1))
    assert catalog.build("1f1b", problem).makespan == 2 * 2 * (6 + 4 - 1)
