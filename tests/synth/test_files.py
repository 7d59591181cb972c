"""Schedule files: what is written, what is read back, and what is refused with its place."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synth.errors import FileError, ProblemError
from synth.files import dumps, load, loads, save, schema, write_atomic
from synth.op import Kind, Op, parse_op
from synth.problem import (
    MAX_TOTAL_TICKS,
    DeviceCost,
    Link,
    Objective,
    Problem,
    StageCost,
    Stream,
    Units,
    make_problem,
)
from synth.schedule import Certificate, Schedule, TimedOp, value
from synth.simulate import earliest
from synth.verify import verify

SCHEMA = Path(__file__).parents[2] / "schedules" / "schema.json"


def plan(name: str, problem: Problem, *rows: str, bound: int = 6) -> Schedule:
    timeline = earliest(problem, tuple(tuple(map(parse_op, row.split())) for row in rows))
    reached = value(timeline, problem.objective)
    return Schedule(name, problem, timeline, Certificate(reached, bound, "work: by hand"))


LINE = plan(
    "gpipe",
    make_problem(2, 2, memory=2),
    "F0@0 F1@0 B0@0 W0@0 B1@0 W1@0",
    "F0@1 F1@1 B0@1 W0@1 B1@1 W1@1",
)
PAIRED = plan(
    "pairs of two directions",
    make_problem(
        2,
        4,
        placement="bidirectional",
        costs=("1.5", 1, 1),
        comm="0.25",
        pair=2,
        activation=(1, "0.4"),
        memory=[3, None],
        objective="span",
    ),
    "F0@0/down F0@1/up F1@0/down+BW0@1/up F1@1/up+BW0@0/down BW1@1/up B1@0/down W1@0/down",
    "F0@0/up F0@1/down F1@0/up+BW0@1/down F1@1/down+BW0@0/up BW1@1/down B1@0/up W1@0/up",
)
JOINED = plan(
    "a join, a slow device and a slow link",
    Problem(
        3,
        "explicit",
        (StageCost(1, 1, 1, 2, 3, 1, 1),) * 3,
        (Stream("", 1, (0, 1, 2)),),
        comm_ticks=1,
        needs=((), (), (0, 1)),
        device_costs=(DeviceCost(1, 1, StageCost(2, 2, 2, 4, 6, 1, 1)),),
        links=(Link(2, 0, 5),),
        kept_quanta=(1, 0, 2),
    ),
    "F0@0 B0@0 W0@0",
    "F0@1 B0@1 W0@1",
    "F0@2 B0@2 W0@2",
)
TEXT = dumps(LINE)


# Golden files --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "schedule"), [("line.json", LINE), ("paired.json", PAIRED), ("joined.json", JOINED)]
)
def test_golden_files(golden, name, schedule):
    assert verify(schedule) == []
    golden(name, dumps(schedule))


def test_the_schema_that_is_kept_is_the_one_in_force(golden):
    golden(SCHEMA, json.dumps(schema(), indent=2) + "\n")


def test_the_schema_names_every_field_that_is_written():
    """Every object of a written file has what the schema requires of it and nothing unknown.

    Only what goes beyond a chain on equal devices and links may be left out.
    """
    kinds = schema()["$defs"]

    def check(kind, found):
        kind = kinds[kind["$ref"].rpartition("/")[2]] if "$ref" in kind else kind
        if isinstance(found, dict):
            assert set(kind["required"]) <= set(found) <= set(kind["properties"])
            left_out.update(set(kind["properties"]) - set(kind["required"]))
            assert kind["additionalProperties"] is False
            for name, part in found.items():
                check(kind["properties"][name], part)
        elif isinstance(found, list):
            for part in found:
                check(kind["items"], part)

    left_out: set[str] = set()
    for schedule in (PAIRED, JOINED):
        check(schema(), json.loads(dumps(schedule)))
    assert (
        left_out
        == {"needs", "device_costs", "links", "kept_quanta"}
        <= set(json.loads(dumps(JOINED))["problem"])
    )
    assert left_out.isdisjoint(json.loads(dumps(PAIRED))["problem"])


def test_one_op_per_line():
    lines = dumps(LINE).splitlines()
    assert sum('"op"' in line for line in lines) == 12
    assert all(line.count('"op"') <= 1 for line in lines)
    assert json.loads(dumps(LINE))["devices"][0][2] == {"op": "B0@0", "start": 4, "end": 5}


# Round trip ----------------------------------------------------------------------------------

numbers = st.integers(1, 2**20)
names = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12)


@st.composite
def needs(draw: st.DrawFn, stages: int) -> tuple[tuple[int, ...], ...]:
    """A random graph of stages."""
    subsets = [st.permutations(range(stage)) for stage in range(stages)]
    return tuple(
        tuple(draw(order)[: draw(st.integers(0, stage))]) for stage, order in enumerate(subsets)
    )


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    """Any schedule that can be written, valid or not."""
    devices = draw(st.integers(1, 3))
    stages = devices + draw(st.integers(0, 2))
    route = tuple(draw(st.permutations([*range(devices), *([0] * (stages - devices))])))
    streams = [Stream("", draw(st.integers(1, 3)), route)]
    if draw(st.booleans()):
        streams = [Stream("up", 2, route), Stream("d-1_x", 1, route[::-1])]
    costs = []
    for _ in range(stages):
        forward, act, wgt = (draw(numbers) for _ in range(3))
        pair = max(forward, act + wgt) + draw(numbers)
        held = draw(st.tuples(st.integers(0, 2**40), st.integers(0, 2**40)))
        costs.append(StageCost(forward, act, wgt, act + wgt, pair, *held))
    problem = Problem(
        devices,
        draw(names),
        tuple(costs),
        tuple(streams),
        draw(st.integers(0, 2**20)),
        tuple(draw(st.none() | st.integers(0, 2**52)) for _ in range(devices)),
        draw(st.sampled_from(Objective)),
        Units(draw(names), draw(numbers), draw(names), draw(numbers)),
        needs=draw(st.just(()) | needs(stages)),
        kept_quanta=draw(st.sampled_from([(), (1, *[0] * (stages - 1))])),
        device_costs=draw(st.sampled_from([(), (DeviceCost(0, route.index(0), costs[-1]),)])),
        links=draw(
            st.lists(
                st.builds(Link, st.integers(0, devices - 1), st.integers(0, devices - 1), numbers),
                unique_by=lambda link: (link.source, link.target),
            ).map(lambda links: tuple(link for link in links if link.source != link.target))
        ),
    )
    chosen = streams[0]
    forwards = [Op(Kind.F, 0, stage, chosen.name) for stage in range(stages)]
    times = st.integers(0, MAX_TOTAL_TICKS)
    timeline: list[list[TimedOp]] = [[] for _ in range(devices)]
    for op in forwards:
        timeline[problem.device(op)].append(TimedOp(op, draw(times), draw(times)))
    reached = draw(times)
    proof = Certificate(reached, draw(st.integers(0, reached)), draw(names))
    return Schedule(draw(names), problem, tuple(map(tuple, timeline)), proof)


@given(schedules())
def test_what_is_written_is_read_back(schedule):
    text = dumps(schedule)
    assert loads(text) == schedule
    assert dumps(loads(text)) == text
    json.loads(text)


@pytest.mark.parametrize("bad", ["\x1b[31m", "a\n", "\x7f", "\x9b"])
def test_what_is_printed_is_one_line(bad):
    line = LINE.problem
    with pytest.raises(ProblemError, match="a schedule's name must be one line of text without"):
        replace(LINE, name=bad)
    with pytest.raises(ProblemError, match="a proof must be one line"):
        Certificate(1, 1, bad)
    with pytest.raises(ProblemError, match="a placement must be one line"):
        replace(line, placement=bad)
    with pytest.raises(ProblemError, match="a unit of memory must be one line"):
        Units(memory=bad)


def test_a_hundred_thousand_ops(tmp_path):
    """Sequential micro-batches on one device."""
    problem = make_problem(1, 33_334)
    ops = [Op(kind, index, 0) for index in range(33_334) for kind in (Kind.F, Kind.B, Kind.W)]
    timeline = (tuple(TimedOp(op, tick, tick + 1) for tick, op in enumerate(ops)),)
    save(Schedule("long", problem, timeline, Certificate(100_002, 0, "none")), tmp_path / "x.json")
    schedule = load(tmp_path / "x.json")
    assert schedule.devices == timeline
    assert verify(schedule) == []


# On disk -------------------------------------------------------------------------------------


def test_save_and_load(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text("something older")
    save(PAIRED, path)
    assert load(path) == PAIRED
    assert load(str(path)) == PAIRED
    assert [entry.name for entry in tmp_path.iterdir()] == ["plan.json"]
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask


def test_unreadable_files(tmp_path):
    with pytest.raises(FileError, match=r"absent.json: cannot be read: No such file"):
        load(tmp_path / "absent.json")
    with pytest.raises(FileError, match=r"cannot be read: Is a directory"):
        load(tmp_path)
    (tmp_path / "plan.json").write_text(TEXT.replace('"version": 1', '"version": 7'))
    with pytest.raises(FileError, match=r"plan.json: Invalid enum value 7 - at `\$.version`"):
        load(tmp_path / "plan.json")


@pytest.mark.parametrize("step", ["fsync", "chmod", "replace"])
@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, step, failure):
    path = tmp_path / "plan.json"
    path.write_text("older")

    def fail(*_, **__):
        raise failure

    monkeypatch.setattr(os if step == "fsync" else Path, step, fail)
    expected = FileError if isinstance(failure, OSError) else KeyboardInterrupt
    with pytest.raises(expected) as raised:
        save(LINE, path)
    monkeypatch.undo()
    if expected is FileError:
        assert str(raised.value) == f"{path}: cannot be written: No space left on device"
    assert [entry.name for entry in tmp_path.iterdir()] == ["plan.json"]
    assert path.read_text() == "older"


@pytest.mark.parametrize(
    ("name", "reason"),
    [("no/such/folder.json", "No such file or directory"), ("taken", "Is a directory")],
)
def test_unwritable_places(tmp_path, name, reason):
    (tmp_path / "taken").mkdir()
    with pytest.raises(FileError, match=f"cannot be written: {reason}"):
        write_atomic(tmp_path / name, "text")
    assert [entry.name for entry in tmp_path.iterdir()] == ["taken"]


def test_bytes_are_written_as_they_are(tmp_path):
    write_atomic(tmp_path / "x", b"\x00\xff")
    assert (tmp_path / "x").read_bytes() == b"\x00\xff"


def test_a_file_carries_its_problem():
    other = replace(LINE.problem, limits_quanta=(None, 2))
    assert loads(dumps(replace(LINE, problem=other))).problem == other
