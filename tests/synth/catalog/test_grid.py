"""Every family is valid or refuses, for every P and m."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from synth import catalog
from synth.catalog.family import Family
from synth.errors import UsageError
from synth.op import Kind
from synth.problem import Problem, make_problem
from synth.schedule import Schedule
from synth.verify import verify

NAMES = (*catalog.names(), "interleaved:3", "interleaved:2:5", "bfs:3", "hanayo:3", "zb-greedy:3")
THIN = [(p, m) for p in (1, 2, 3, 4, 6) for m in (1, 2, 3, 4, 5, 8, 12, 13)]
FULL = [(p, m) for p in range(1, 17) for m in range(1, 41)]


def fits(name: str, devices: int, microbatches: int) -> bool:
    """The published constraints, written out once more."""
    head, *numbers = name.split(":")
    rounds = max(1, microbatches // devices)
    group = int(numbers[1]) if len(numbers) > 1 else None
    if head in ("interleaved", "interleaved-zb") and group is None:
        return microbatches % rounds == 0
    if head == "interleaved" and group is not None:
        rest = microbatches % group
        return devices <= group <= microbatches and (rest == 0 or rest >= devices)
    both_even = devices % 2 == 0 and microbatches % 2 == 0
    return {
        "zb-v": microbatches >= 2 * devices - 1,
        "dualpipe": both_even and microbatches >= 2 * devices,
        "dualpipev": microbatches >= 2 * devices,
        "chimera": devices % 2 == 0 and microbatches % devices == 0,
        "bitpipe": devices % 2 == 0 and microbatches % devices == 0,
        "gems": microbatches % 2 == 0,
        "pipedream-2bw": microbatches >= devices,
    }.get(head, True)


def problem_for(family: Family, devices: int, microbatches: int) -> Problem | None:
    """Uneven costs with latency, overlap and memory; None where there are too few micro-batches."""
    if family.placement.startswith("bidirectional") and microbatches < 2:
        return None
    return make_problem(
        devices,
        microbatches,
        placement=family.placement,
        costs=(4, 5, 3),
        comm="0.5",
        activation=(1, "0.4"),
        pair=10,
    )


def check(name: str, points: Iterable[tuple[int, int]]) -> int:
    """Build, verify and look at the kinds; the number of points that fit."""
    family, found = catalog.family(name), 0
    for devices, microbatches in points:
        problem = problem_for(family, devices, microbatches)
        if problem is None:
            continue
        if not fits(name, devices, microbatches):
            assert family.refuses(problem) is not None, (devices, microbatches)
            with pytest.raises(UsageError):
                catalog.build(name, problem)
            continue
        schedule = catalog.build(name, problem)
        assert verify(schedule) == [], (devices, microbatches)
        check_kinds(name, schedule)
        found += 1
    return found


def check_kinds(name: str, schedule: Schedule) -> None:
    """Fused backwards, separate ones, or overlapped pairs, as the family has it."""
    kinds = {timed.op.kind for ops in schedule.devices for timed in ops}
    if name.startswith("dualpipe"):
        assert {Kind.F, Kind.B, Kind.W} <= kinds
    elif name.startswith(("zb-", "v-", "interleaved-zb")):
        assert kinds == {Kind.F, Kind.B, Kind.W}
    else:
        assert kinds == {Kind.F, Kind.BW}


@pytest.mark.parametrize("name", NAMES)
def test_valid_or_refused(name: str) -> None:
    assert check(name, THIN) >= 4


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", NAMES)
def test_valid_or_refused_everywhere(name: str) -> None:
    assert check(name, FULL) >= 20
