"""Schedule files edited by hand: one line for each, with the place in the file."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synth.errors import FileError
from synth.files import loads
from synth.verify import verify

# GPipe on two devices for two micro-batches; B0@0 is `$.devices[0][2]` and runs from 4 to 5.
TEXT = (Path(__file__).parents[1] / "golden" / "line.json").read_text()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        # Numbers.
        ('"start": 4', '"start": NaN', "Expected `int`, got `float` - at `$.devices[0][2].start`"),
        ('"end": 5', '"end": -Infinity', "Expected `int`, got `float` - at `$.devices[0][2].end`"),
        ('"start": 4', '"start": -4', "Expected `int` >= 0 - at `$.devices[0][2].start`"),
        ('"start": 4', '"start": 4.5', "Expected `int`, got `float` - at `$.devices[0][2].start`"),
        ('"start": 4', '"start": "4"', "Expected `int`, got `str` - at `$.devices[0][2].start`"),
        ('"start": 4', '"start": true', "Expected `int`, got `bool` - at `$.devices[0][2].start`"),
        ('"start": 4', '"start": null', "Expected `int`, got `null` - at `$.devices[0][2].start`"),
        ('"start": 4', '"start": 1e999', "Number out of range - at `$.devices[0][2].start`"),
        (
            '"start": 4',
            '"start": 9007199254740993',
            "Expected `int` <= 9007199254740992 - at `$.devices[0][2].start`",
        ),
        (
            '"start": 4',
            '"start": 123456789012345678901234567890',
            "Expected `int` <= 9007199254740992 - at `$.devices[0][2].start`",
        ),
        (
            '"forward_ticks": 1',
            '"forward_ticks": 0',
            "Expected `int` >= 1 - at `$.problem.stages[0].forward_ticks`",
        ),
        (
            '"activation_quanta": 1',
            '"activation_quanta": -1',
            "Expected `int` >= 0 - at `$.problem.stages[0].activation_quanta`",
        ),
        (
            '"forward_ticks": 1',
            '"forward_ticks": 9007199254740992',
            "a pair cannot take less than its longer op",
        ),
        ('"comm_ticks": 0', '"comm_ticks": 9007199254740992', "the costs are too large"),
        # Fields.
        ('"start": 4', '"begin": 4', "unknown field `begin` - at `$.devices[0][2]`"),
        ('"start": 4, ', "", "missing required field `start` - at `$.devices[0][2]`"),
        ('"name": "gpipe"', '"title": "gpipe"', "Object contains unknown field `title`"),
        ('"proof"', '"because"', "unknown field `because` - at `$.certificate`"),
        ('"placement"', '"where"', "unknown field `where` - at `$.problem`"),
        ('"route"', '"path"', "unknown field `path` - at `$.problem.streams[0]`"),
        ('"name": "gpipe"', '"name": ["gpipe"]', "Expected `str`, got `array` - at `$.name`"),
        ('{"op": "F0@0", "start": 0, "end": 1}', '"F0@0"', "at `$.devices[0][0]`"),
        # Texts that are printed later.
        *[
            (
                f'"{field}": "{old}"',
                f'"{field}": "{old}{bad}"',
                f"Expected one line of text without control characters - at `{place}`",
            )
            for field, old, place in [
                ("name", "gpipe", "$.name"),
                ("placement", "linear", "$.problem.placement"),
                ("name", "", "$.problem.streams[0].name"),
            ]
            for bad in ("\\u001b[31m", "\\n", "\\u009b", "\\u007f")
        ],
        # Which file, which version.
        ('"version": 1', '"version": 2', "Invalid enum value 2 - at `$.version`"),
        ('"version": 1', '"version": "1"', "Expected `int`, got `str` - at `$.version`"),
        ("pipesynth.schedule", "pipesynth.run", "Invalid enum value 'pipesynth.run' - at `$.forma"),
        # Ops.
        ('"F1@0"', '"F0@0"', "F0@0 appears twice - at `$.devices[0][1]`"),
        ('"W1@1"', '"W1@0"', "W1@0 appears twice - at `$.devices[1][5]`"),
        ('"F1@0"', '"F2@0"', "the problem has no op F2@0 - at `$.devices[0][1]`"),
        ('"F1@0"', '"F1@2"', "the problem has no op F1@2 - at `$.devices[0][1]`"),
        ('"F1@0"', '"F1@0/up"', "the problem has no op F1@0/up - at `$.devices[0][1]`"),
        ('"F1@0"', '"F1@0+BW2@0"', "the problem has no op BW2@0 - at `$.devices[0][1]`"),
        ('"F1@0"', '"F1"', "'F1' is not an op: write kind, micro-batch, stage as in F3@1"),
        ('"F1@0"', '"F1@0+BW1@0"', "own micro-batch - at `$.devices[0][1]`"),
        ('"F1@0"', '"\\n"', r"'\n' is not an op"),
        # Devices.
        ('"devices": 2', '"devices": 3', "2 memory limits for 3 devices - at `$.problem.limits_q"),
        ('"devices": 2', '"devices": 0', "Expected `int` >= 1 - at `$.problem.devices`"),
        ("[2, 2]", "[2]", "1 memory limits for 2 devices - at `$.problem.limits_quanta`"),
        ("[2, 2]", "[]", "0 memory limits for 2 devices - at `$.problem.limits_quanta`"),
        ("[2, 2]", "[2, -1]", "Expected `int` >= 0 - at `$.problem.limits_quanta[1]`"),
        ('"route": [0, 1]', '"route": [0, 0]', "device 1 holds no stage; use fewer devices"),
        ('"route": [0, 1]', '"route": [0, 2]', "names a device outside 0..1 - at `$.problem`"),
        ('"route": [0, 1]', '"route": [0]', "names devices for 1 stages, the model has 2"),
        # Micro-batches.
        ('"microbatches": 2', '"microbatches": 1', "the problem has no op F1@0"),
        ('"microbatches": 2', '"microbatches": 0', "at `$.problem.streams[0].microbatches`"),
        (
            '"microbatches": 2',
            '"microbatches": 1000000000',
            "6000000000 ops, more than the 3000000 that are handled - at `$.problem.streams`",
        ),
        # The rest.
        ('"objective": "makespan"', '"objective": "speed"', "'speed' - at `$.problem.objective`"),
        (
            '"bound": 6',
            '"bound": 9',
            "a bound of 9 ticks above the value 8 contradicts itself - at",
        ),
        ('"ticks_per_unit": 1', '"ticks_per_unit": 0', "at `$.problem.units.ticks_per_unit`"),
        ('"fused_ticks": 2', '"fused_ticks": 4', "longer op, got StageCost("),
    ],
)
def test_edited_files(old, new, message):
    assert old in TEXT
    with pytest.raises(FileError) as refused:
        loads(TEXT.replace(old, new, 1), "plan.json")
    text = str(refused.value)
    assert text.startswith("plan.json: ")
    assert message in text
    assert "\n" not in text
    assert "at `$" in text or "unknown field" in text


def test_too_many_devices_to_count():
    text = TEXT.replace('"devices": 2', '"devices": 9007199254740992').replace("[2, 2]", "[]")
    with pytest.raises(FileError, match="0 memory limits for 9007199254740992 devices"):
        loads(text)


@pytest.mark.parametrize(
    ("devices", "message"),
    [
        ([], "0 lists of ops for 2 devices - at `$.devices`"),
        (["a"], "1 lists of ops for 2 devices - at `$.devices`"),
        (["a", "b", "c"], "3 lists of ops for 2 devices - at `$.devices`"),
        (["a", ""], "device 1 has no ops - at `$.devices[1]`"),
    ],
)
def test_lists_of_ops_that_do_not_fit_the_devices(devices, message):
    data = json.loads(TEXT)
    rows = {"a": data["devices"][0], "b": data["devices"][1], "c": data["devices"][1], "": []}
    data["devices"] = [rows[name] for name in devices]
    with pytest.raises(FileError) as refused:
        loads(json.dumps(data))
    assert str(refused.value) == f"schedule: {message}"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        TEXT[:-3],
        TEXT[: len(TEXT) // 2],
        TEXT + "x",
        TEXT + TEXT,
        "\ufeff" + TEXT,
        TEXT.encode("utf-16"),
        TEXT.encode().replace(b"gpipe", b"\xff\xfe"),
        TEXT.replace("gpipe", "\n"),
        TEXT.replace('"start": 4', '"start": 4,,'),
        TEXT.replace('"start": 4', '"start": 04'),
        TEXT.replace('"start": 4', '"start": nan'),
        TEXT.replace("gpipe", "\\ud800"),
    ],
)
def test_what_is_not_json(text):
    with pytest.raises(FileError, match=r"not a whole JSON file|Invalid UTF-8") as refused:
        loads(text, "plan.json")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["[]", "null", "3", '"F0@0"', "{}", "[" * 100_000, "NaN"])
def test_json_of_something_else(text):
    with pytest.raises(FileError) as refused:
        loads(text)
    assert "\n" not in str(refused.value)


@given(st.integers(0, len(TEXT) - 2))
def test_a_file_cut_short_is_refused(length):
    with pytest.raises(FileError):
        loads(TEXT[:length])


@given(st.integers(0, len(TEXT) - 1), st.characters(codec="ascii"))
def test_any_other_character_is_refused_or_read(index, character):
    """Whatever one wrong keystroke does, it is not a traceback."""
    edited = TEXT[:index] + character + TEXT[index + 1 :]
    with suppress(FileError):
        verify(loads(edited))
