"""Idle time by cause, by hand on small schedules; sums and chains on many."""

from __future__ import annotations

from itertools import pairwise

import pytest

from synth import catalog
from synth.explain import Explanation, Idle, explain, render
from synth.op import parse_op
from synth.problem import Problem, StageCost, Stream, make_problem
from synth.schedule import Certificate, Schedule, value
from synth.simulate import retime


def explained(problem: Problem, *rows: str) -> Explanation:
    """Explain the given orders, a row of ops per device."""
    timeline = retime(problem, tuple(tuple(map(parse_op, row.split())) for row in rows))
    certificate = Certificate(value(timeline, problem.objective), 0, "not looked for")
    return explain(Schedule("by hand", problem, timeline, certificate))


def test_a_single_device_does_not_idle() -> None:
    found = explained(make_problem(1, 1), "F0@0 B0@0 W0@0")
    assert found.devices == (Idle(0, 3, 0, 0, 0, 0, 0),)
    assert found.gaps == ()
    assert [str(link.op) for link in found.chain] == ["F0@0", "B0@0", "W0@0"]
    assert found.hints == (
        "no device idles in the time that counts: only less work would shorten it",
    )


def test_one_micro_batch_fills_waits_and_drains() -> None:
    """Device 0 runs F 0-1, B 4-5, W 5-6; device 1 F 1-2, B 2-3, W 3-4 at a latency of 1 more."""
    found = explained(make_problem(2, 1, comm=1), "F0@0 B0@0 W0@0", "F0@1 B0@1 W0@1")
    assert found.time == 7
    assert found.devices == (Idle(0, 3, 0, 0, 4, 0, 0), Idle(1, 3, 2, 2, 0, 0, 0))
    (gap,) = found.gaps
    assert (gap.device, gap.start, gap.end, str(gap.before)) == (0, 1, 5, "B0@0")
    assert str(gap.waits_for) == "B0@1"
    assert [(str(link.op), link.latency) for link in found.chain] == [
        ("F0@0", 0),
        ("F0@1", 1),
        ("B0@1", 0),
        ("B0@0", 1),
        ("W0@0", 0),
    ]


@pytest.mark.parametrize(
    ("memory", "split", "named"),
    [(1, {"memory": 1, "order": 0}, "no_room"), (2, {"memory": 0, "order": 1}, "held_back")],
)
def test_memory_or_the_order_keeps_a_ready_forward_away(
    memory: int, split: dict[str, int], named: str
) -> None:
    """Device 0 idles from 1 to 3, and F1 of one tick is ready throughout."""
    found = explained(
        make_problem(2, 2, memory=[memory, None]),
        "F0@0 B0@0 W0@0 F1@0 B1@0 W1@0",
        "F0@1 B0@1 W0@1 F1@1 B1@1 W1@1",
    )
    first, second = (gap for gap in found.gaps if gap.device == 0)
    assert (first.start, first.end, str(first.before)) == (1, 3, "B0@0")
    assert {cause: getattr(first, cause) for cause in split} == split
    assert first.dependency == 1
    assert [str(op) for op in getattr(first, named)] == ["F1@0"]
    assert (second.start, second.end, second.dependency) == (6, 8, 2)


def test_an_op_longer_than_the_gap_is_no_loss() -> None:
    """W0@0 takes 5 ticks and would delay B1@0, for which device 0 waits 1 tick."""
    cost = StageCost(2, 1, 5, 6, 8, 1, 1)
    problem = Problem(2, "linear", (cost, cost), (Stream("", 2, (0, 1)),))
    found = explained(
        problem,
        "F0@0 F1@0 B0@0 B1@0 W0@0 W1@0",
        "F0@1 B0@1 F1@1 B1@1 W0@1 W1@1",
    )
    gap = next(gap for gap in found.gaps if str(gap.before) == "B1@0")
    assert gap.end - gap.start < 5
    assert (gap.order, gap.dependency) == (0, gap.end - gap.start)


def test_1f1b_at_its_memory_limit() -> None:
    """Device 0 waits from 4 to 10 with four forwards ready, and a tick behind 3 backwards."""
    problem = make_problem(4, 8, memory=4)
    found = explain(catalog.build("1f1b", problem))
    assert [(d.fill, d.drain) for d in found.devices] == [(0, 0), (1, 2), (2, 4), (3, 6)]
    assert found.devices[0] == Idle(0, 24, 0, 0, 5, 4, 0)
    first = found.gaps[0]
    assert [str(op) for op in first.no_room] == ["F4@0", "F5@0", "F6@0", "F7@0"]
    assert any("raise the limit of device 0" in hint for hint in found.hints)
    assert any("split W off the backward" in hint for hint in found.hints)


def test_an_unbalanced_stage_is_named() -> None:
    light, heavy = StageCost(1, 1, 1, 2, 3, 1, 1), StageCost(2, 2, 2, 4, 6, 1, 1)
    problem = Problem(3, "linear", (light, light, heavy), (Stream("", 6, (0, 1, 2)),))
    found = explain(catalog.build("1f1b", problem))
    assert found.hints[0].startswith("balance: device 2 has 50% more work than the mean")


def test_latency_is_named_when_it_binds() -> None:
    found = explain(catalog.build("zb-h1", make_problem(4, 4, costs=(1, 1, 1), comm=3)))
    assert any("of the binding chain is latency between devices" in hint for hint in found.hints)


def test_span_looks_at_the_longest_window() -> None:
    problem = make_problem(4, 8, objective="span")
    found = explain(catalog.build("zb-h2", problem))
    assert found.time == 24
    assert found.hints[0].startswith("no device idles")
    assert len({link.device for link in found.chain}) == 1


@pytest.mark.parametrize("objective", ["makespan", "span"])
@pytest.mark.parametrize("name", catalog.names())
def test_everything_is_accounted_for(name: str, objective: str) -> None:
    placement = catalog.family(name).placement
    problem = make_problem(
        4, 8, placement=placement, costs=(3, 4, 2), comm="0.5", pair=8, objective=objective
    )
    schedule = catalog.build(name, problem)
    found = explain(schedule)
    for device in found.devices:
        parts = (device.busy, device.fill, device.drain)
        inside = (device.dependency, device.memory, device.order)
        assert min(parts + inside) >= 0
        assert sum(parts + inside) == schedule.makespan
        assert sum(inside) + device.busy == schedule.spans[device.device]
    for before, after in pairwise(found.chain):
        assert after.start == before.end + after.latency
        assert after.latency == problem.lag(before.device, after.device)
    if objective == "makespan":
        assert found.chain[0].start == 0
        assert found.chain[-1].end == schedule.makespan
    lines = render(found).splitlines()
    assert max(map(len, lines)) <= 100
    assert len(found.hints) >= 1


def test_the_text() -> None:
    problem = make_problem(2, 2, costs=(1, 1, 1), memory=2)
    assert render(explain(catalog.build("1f1b", problem)), width=80).splitlines() == [
        "1f1b: makespan 9; where the time of each device goes",
        "device        busy        fill       drain  dependency      memory       order    idle",
        "     0           6           0           0           3           0           0   33.3%",
        "     1           6           1           2           0           0           0   33.3%",
        "longest waits, 2 of 2",
        "  device 0, 2 to 4: BW0@0 waits for BW0@1",
        "  device 0, 6 to 7: BW1@0 waits for BW1@1",
        "binding chain",
        "  device 0, 0 to 1: F0@0",
        "  device 1, 1 to 7: F0@1 .. BW1@1, 4 ops",
        "  device 0, 7 to 9: BW1@0",
        "what would help",
        "  fill and drain, 50% of the idle time: more micro-batches or chunks per device",
        "    shrink its share",
        "  dependency, 50% of the idle time: split W off the backward, so that gradients",
        "    travel on sooner",
    ]


def test_a_long_chain_is_shortened() -> None:
    text = render(explain(catalog.build("1f1b", make_problem(8, 32, costs=(2, 1, 1), comm=1))))
    lines = text.splitlines()
    chain = lines[lines.index("binding chain") + 1 : lines.index("what would help")]
    assert len(chain) == 17
    assert chain[8].startswith("  ... ")
    assert chain[-1].startswith("  device 0, ")
