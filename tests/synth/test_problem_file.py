"""Problem files: what the numbers that people type become, and what is refused with its place."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synth.errors import FileError, InfeasibleError, PipesynthError
from synth.problem import (
    DeviceCost,
    Link,
    Objective,
    Problem,
    StageCost,
    Stream,
    Units,
    make_problem,
)
from synth.problem_file import schema
from synth.problem_maker import load_problem

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.json"))


def document(**changes: Any) -> dict[str, Any]:
    """Two devices in a row; a change of None leaves a field out."""
    whole = {
        "format": "pipesynth.problem",
        "version": 1,
        "devices": 2,
        "placement": "linear",
        "microbatches": 4,
        "stages": [stage(), stage()],
        **changes,
    }
    return {name: value for name, value in whole.items() if value is not None}


def stage(**changes: Any) -> dict[str, Any]:
    whole = {"forward": 1, "backward_act": 1, "backward_wgt": 1, **changes}
    return {name: value for name, value in whole.items() if value is not None}


def read(folder: Path, content: dict[str, Any] | str, **options: Any) -> Problem:
    path = folder / "problem.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return load_problem(str(path), **options)


# What the numbers become ---------------------------------------------------------------------


def test_the_least_that_a_file_says_is_the_usual_problem(tmp_path):
    assert read(tmp_path, document()) == make_problem(2, 4)


def test_every_field(tmp_path):
    """Times in halves of a third make six ticks a unit; sizes in quarters four quanta."""
    problem = read(
        tmp_path,
        document(
            note="all of it",
            objective="span",
            units={"time": "ms", "memory": "GiB"},
            memory=[8, None],
            comm=0.5,
            links=[{"from": 1, "to": 0, "lag": 2}],
            placement=None,
            microbatches=None,
            streams=[
                {"name": "down", "microbatches": 3, "route": [0, 1, 1]},
                {"name": "up", "microbatches": 2, "route": [1, 0, 0]},
            ],
            stages=[
                stage(name="vision", activation=1, needs=[], parameters=1.5, optimizer=0.5),
                stage(name="text", activation=0.5, needs=[], gradients=0.25),
                stage(
                    name="join", forward=2, fused=1.5, pair=3, activation=2, context=1, needs=[1, 0]
                ),
            ],
            device_costs=[
                {"device": 1, "factor": 1.5},
                {"device": 1, "stage": 1, "forward": 4, "activation": 3},
            ],
        ),
    )
    vision, text = StageCost(4, 4, 4, 8, 12, 4, 4), StageCost(4, 4, 4, 8, 12, 2, 2)
    join = StageCost(8, 4, 4, 6, 12, 8, 4)
    assert problem == Problem(
        devices=2,
        placement="explicit",
        stages=(vision, text, join),
        streams=(Stream("down", 3, (0, 1, 1)), Stream("up", 2, (1, 0, 0))),
        comm_ticks=2,
        # Every stage lives on both devices; device 1 has no limit.
        limits_quanta=(4 * 8 - 4 * 2 - 1, None),
        objective=Objective.SPAN,
        units=Units("ms", 4, "GiB", 4),
        needs=((), (), (1, 0)),
        device_costs=(
            DeviceCost(1, 0, StageCost(6, 6, 6, 12, 18, 4, 4)),
            DeviceCost(1, 1, StageCost(16, 4, 4, 8, 24, 12, 2)),
            DeviceCost(1, 2, StageCost(12, 6, 6, 9, 18, 8, 4)),
        ),
        links=(Link(1, 0, 8),),
        kept_quanta=(8, 1, 0),
    )


@pytest.mark.parametrize(
    ("placement", "route", "name"),
    [
        ([0, 1], (0, 1), "linear"),
        ([1, 0], (1, 0), "explicit"),
        ([0, 1, 1, 0], (0, 1, 1, 0), "v"),
        ([0, 1, 0, 1], (0, 1, 0, 1), "interleaved:2"),
        ([0, 0, 1], (0, 0, 1), "explicit"),
        ("v", (0, 1, 1, 0), "v"),
    ],
)
def test_placements(tmp_path, placement, route, name):
    problem = read(tmp_path, document(placement=placement, stages=[stage()] * len(route)))
    assert problem.streams == (Stream("", 4, route),)
    assert problem.placement == name


def test_a_placement_with_two_streams_shares_the_micro_batches_out(tmp_path):
    problem = read(tmp_path, document(placement="bidirectional", microbatches=5))
    assert [stream.microbatches for stream in problem.streams] == [3, 2]


def test_decimals_are_what_was_typed(tmp_path):
    problem = read(tmp_path, document(stages=[stage(forward=0.1), stage(forward=1e-3)]))
    assert problem.units.ticks_per_unit == 1000
    assert [cost.forward_ticks for cost in problem.stages] == [100, 1]


def test_what_stages_keep_is_taken_off_once_for_every_replica(tmp_path):
    """Two streams bring stages 0 and 1 to both devices, one of them twice to device 0."""
    streams = [
        {"name": "a", "microbatches": 1, "route": [0, 1]},
        {"name": "b", "microbatches": 1, "route": [0, 0]},
    ]
    stages = [stage(parameters=1, gradients=1, optimizer=2), stage(parameters=3)]
    problem = read(
        tmp_path,
        document(placement=None, microbatches=None, streams=streams, stages=stages, memory=10),
    )
    assert problem.limits_quanta == (10 - 4 - 3, 10 - 3)
    assert (problem.kept(0), problem.kept(1)) == (7, 3)


def test_options_go_before_the_file(tmp_path):
    content = document(memory=8, stages=[stage(parameters=1), stage()])
    assert read(tmp_path, content, memory=["4"]).limits_quanta == (3, 4)
    assert read(tmp_path, content, memory=["4", "5"]).limits_quanta == (3, 5)
    assert read(tmp_path, content, memory=[None]).limits_quanta == (None, None)
    assert read(tmp_path, content, objective="span").objective is Objective.SPAN


@pytest.mark.parametrize("limit", [3, 4])
def test_nothing_left_for_activations(tmp_path, limit):
    content = document(memory=[9, limit], stages=[stage(), stage(parameters=1, optimizer=3)])
    with pytest.raises(InfeasibleError) as refused:
        read(tmp_path, content)
    assert str(refused.value) == (
        "infeasible: parameters, gradients and optimizer of device 1 take 4 activation "
        f"units, its limit is {limit}; raise the limit or spread the stages over more devices"
    )


# What is refused -----------------------------------------------------------------------------


def stages_with(index: int, **changes: Any) -> dict[str, Any]:
    stages = [stage(), stage()]
    stages[index] = stage(**changes)
    return document(stages=stages)


HUGE = 10**30


@pytest.mark.parametrize(
    ("content", "message"),
    [
        # Fields.
        (document(version=2), "Invalid enum value 2 - at `$.version`"),
        (
            document(format="pipesynth.costs"),
            "Invalid enum value 'pipesynth.costs' - at `$.format`",
        ),
        (document(layers=3), "Object contains unknown field `layers`"),
        (stages_with(1, forwards=1), "unknown field `forwards` - at `$.stages[1]`"),
        (stages_with(1, forward=None), "missing required field `forward` - at `$.stages[1]`"),
        (document(devices=None), "missing required field `devices`"),
        (document(stages=None), "missing required field `stages`"),
        (document(links=[{"from": 0, "to": 1}]), "missing required field `lag` - at `$.links[0]`"),
        (document(links=[{"source": 0, "to": 1, "lag": 1}]), "at `$.links[0]`"),
        (document(device_costs=[{"factor": 2}]), "missing required field `device`"),
        (document(units={"time": "h"}), "Invalid enum value 'h' - at `$.units.time`"),
        (document(units={"memory": "bits"}), "Invalid enum value 'bits' - at `$.units.memory`"),
        (document(objective="speed"), "Invalid enum value 'speed' - at `$.objective`"),
        # Numbers.
        (json.dumps(document(comm=float("nan"))), "NaN is not a number; give a finite one"),
        (json.dumps(document(comm=float("-inf"))), "-Infinity is not a number"),
        (stages_with(0, forward="1"), "got `str` - at `$.stages[0].forward`"),
        (stages_with(0, forward=True), "got `bool` - at `$.stages[0].forward`"),
        (stages_with(0, forward=0), "must be above 0 - at `$.stages[0].forward`"),
        (stages_with(0, backward_wgt=-1), "-1 is negative - at `$.stages[0].backward_wgt`"),
        (
            stages_with(0, forward=HUGE),
            "is too large or has more than 9 decimals - at `$.stages[0]",
        ),
        (
            stages_with(0, forward=1e-12),
            "is too large or has more than 9 decimals - at `$.stages[0]",
        ),
        (stages_with(0, forward=2**52), "the costs are too large"),
        (stages_with(1, activation=-1), "-1 is negative - at `$.stages[1].activation`"),
        (stages_with(1, parameters=-1, name="x"), "-1 is negative - at `$.stages[1].parameters`"),
        (stages_with(1, fused=0.5), "cannot take less than B alone - at `$.stages[1].fused`"),
        (stages_with(1, pair=1), "cannot take less than its longer op - at `$.stages[1].pair`"),
        (document(comm=-1), "-1 is negative - at `$.comm`"),
        (document(memory=-1), "-1 is negative - at `$.memory[0]`"),
        (document(memory=[1, -1]), "-1 is negative - at `$.memory[1]`"),
        (document(memory=[1, 2, 3]), "3 memory limits for 2 devices; give one number or one each"),
        (document(memory=[4]), "1 memory limits for 2 devices"),
        (document(memory=[]), "0 memory limits for 2 devices"),
        # Where stages live.
        (document(devices=0), "needs at least 1 device, got 0 - at `$.devices`"),
        (document(devices=2.5), "Expected `int`, got `float` - at `$.devices`"),
        (document(devices=HUGE), "2 stages cannot fill"),
        (document(stages=[]), "holds no stage; give at least one - at `$.stages`"),
        (
            document(placement=None),
            "said by `placement` or by `streams`; give one of them - at `$`",
        ),
        (document(streams=[]), "said by `placement` or by `streams`; give one of them - at `$`"),
        (document(placement="auto"), "placement 'auto' is not known"),
        (document(placement="v"), "placement v on 2 devices has 4 stages, the file 2"),
        (document(placement=[0, 1, 0]), "placement explicit on 2 devices has 3 stages, the file 2"),
        (document(placement=[0, 2]), "names a device outside 0..1"),
        (document(placement=[0, -1]), "names a device outside 0..1"),
        (document(placement=[0, 0]), "device 1 holds no stage; use fewer devices"),
        (document(placement=["0", 1]), "at `$.placement[0]`"),
        (document(microbatches=None), "a placement needs `microbatches`, how many there are"),
        (document(microbatches=0), "needs at least 1 micro-batch, got 0 - at `$.microbatches`"),
        (document(microbatches=10**7), "60000000 ops, more than the 3000000 that are handled"),
        (document(placement="bidirectional", microbatches=1), "needs at least 2 micro-batches"),
        (
            document(placement=None, streams=[{"microbatches": 1, "route": [0, 1]}]),
            "every stream has its own; leave this out - at `$.microbatches`",
        ),
        (
            document(
                placement=None, microbatches=None, streams=[{"microbatches": 0, "route": [0, 1]}]
            ),
            "needs at least 1 micro-batch, got 0 - at `$.streams[0].microbatches`",
        ),
        (
            document(
                placement=None, microbatches=None, streams=[{"microbatches": 1, "route": [0]}]
            ),
            "names devices for 1 stages, the model has 2 - at `$.streams[0].route`",
        ),
        (
            document(
                placement=None,
                microbatches=None,
                streams=[{"microbatches": 1, "route": [0, 1, 0]}],
                device_costs=[{"device": 0, "factor": 2}],
            ),
            "names devices for 3 stages, the model has 2 - at `$.streams[0].route`",
        ),
        (
            document(
                placement=None,
                microbatches=None,
                streams=[
                    {"microbatches": 1, "route": [0, 1]},
                    {"microbatches": 1, "route": [1, 0]},
                ],
            ),
            "with several streams each needs a lower-case name",
        ),
        # What stages need.
        (stages_with(1, needs=[1]), "stage 1 needs stage 1; number the stages so that each needs"),
        (stages_with(0, needs=[1]), "stage 0 needs stage 1; number the stages so that each needs"),
        (stages_with(1, needs=[-1]), "stage 1 needs stage -1"),
        (
            stages_with(1, needs=[0, 0]),
            "stage 1 needs a stage twice; name each once - at `$.stages[1].n",
        ),
        (stages_with(1, needs=["0"]), "at `$.stages[1].needs[0]`"),
        # Devices and links that differ.
        (
            document(device_costs=[{"device": 5, "factor": 2}]),
            "device 5 holds no stage - at `$.dev",
        ),
        (document(device_costs=[{"device": 0, "stage": 1, "factor": 2}]), "holds no stage 1"),
        (document(device_costs=[{"device": 0, "factor": 0}]), "at `$.device_costs[0].factor`"),
        (document(device_costs=[{"device": 0, "factor": -1}]), "-1 is negative"),
        (document(device_costs=[{"device": 0}]), "give either `factor` or own costs"),
        (
            document(device_costs=[{"device": 0, "factor": 2, "forward": 1}]),
            "give either `factor` or own costs - at `$.device_costs[0]`",
        ),
        (document(device_costs=[{"device": 0, "forward": 1}]), "own costs are those of one stage"),
        (
            document(device_costs=[{"device": 0, "factor": 2}, {"device": 0, "factor": 3}]),
            "device 0 has own costs already; give them once - at `$.device_costs[1]`",
        ),
        (
            document(device_costs=[{"device": 0, "stage": 0, "fused": 0.5}]),
            "cannot take less than B alone - at `$.device_costs[0].fused`",
        ),
        (document(links=[{"from": 0, "to": 2, "lag": 1}]), "link 0 -> 2 names a device outside"),
        (document(links=[{"from": 0, "to": 0, "lag": 1}]), "joins a device to itself"),
        (document(links=[{"from": 0, "to": 1, "lag": -1}]), "-1 is negative - at `$.links[0].lag`"),
        (document(links=[{"from": 0, "to": 1, "lag": 1}] * 2), "the link 0 -> 1 is given twice"),
        # Units.
        (
            document(units={"memory": "MiB"}),
            "needs `activation`, what a micro-batch holds from F to B in MiB - at `$.stages[0]`",
        ),
        # No JSON at all.
        ("", "not a whole JSON file"),
        ("{", "not a whole JSON file"),
        ("[]", "Expected `object`, got `array`"),
        ("[" * 100_000, "Expected `object`, got `array`"),
        ("\udcff", "not a whole JSON file"),
    ],
)
def test_refused(tmp_path, content, message):
    path = tmp_path / "problem.json"
    text = content if isinstance(content, str) else json.dumps(content)
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(FileError) as refused:
        load_problem(str(path))
    assert str(refused.value).startswith(f"{path}: ")
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
    assert refused.value.exit_code == 2


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileError, match=r"absent\.json: cannot be read: No such file"):
        load_problem(str(tmp_path / "absent.json"))


values = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 5), st.floats(), st.text(max_size=3), st.just([]),
    st.lists(st.integers(-1, 3), max_size=3), st.just({}), st.just([{}]),
)  # fmt: skip


@given(st.data())
def test_no_edit_gets_past_the_checks(tmp_path_factory, data):
    """A file with any value anywhere makes a problem, or one line."""
    whole = json.loads(data.draw(st.sampled_from(EXAMPLES)).read_text())
    place: Any = whole
    while isinstance(place, dict | list) and place:
        keys = sorted(place) if isinstance(place, dict) else range(len(place))
        key = data.draw(st.sampled_from(list(keys)))
        if not isinstance(place[key], dict | list) or data.draw(st.booleans()):
            place[key] = data.draw(values)
            break
        place = place[key]
    problem, error = None, None
    try:
        problem = read(tmp_path_factory.mktemp("edited"), whole)
    except PipesynthError as found:
        error = found
    if error is None:
        assert problem == replace(problem)
        return
    assert "\n" not in str(error)
    assert error.exit_code in (1, 2)


# Examples and schema -------------------------------------------------------------------------


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_say_what_they_show(path, golden):
    """The problem that each example states, in ticks and quanta."""
    from synth.problem_fields import problem_json

    problem = load_problem(str(path))
    golden(f"problem_{path.stem}.json", json.dumps(problem_json(problem), indent=1) + "\n")


def test_the_schema_names_every_field():
    kinds = schema()["$defs"]
    assert kinds["LinkEntry"]["required"] == ["from", "to", "lag"]
    assert kinds["StageEntry"]["required"] == ["forward", "backward_act", "backward_wgt"]
    assert kinds["ProblemFile"]["required"] == ["format", "version", "devices", "stages"]
    assert all(kind["additionalProperties"] is False for kind in kinds.values())
