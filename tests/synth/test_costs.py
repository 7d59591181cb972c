"""Costs files: round trip, and what is refused with its path."""

import json

import pytest

from synth.costs import Timing, dumps, loads
from synth.errors import FileError


def test_round_trip(costs):
    text = dumps(costs)
    assert loads(text, "costs.json") == costs
    assert text.count('\n    {"name": "layer') == 5  # a line per layer and stage


def test_spread_and_work(costs):
    assert Timing(10, 9, 12).spread == 0.3
    assert costs.stages[0].work_ns == 3_000_000 + 3_500_000  # fused is less than B + W
    assert costs.stages[0].static_bytes == 4 * costs.stages[0].parameter_bytes


def test_hops_come_from_the_nearest_size(costs):
    assert (costs.hop_ns(1000), costs.hop_ns(0)) == (200_000, 200_000)


def at(document, path, value):
    *parents, last = path
    for key in parents:
        document = document[key]
    document[last] = value


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        (["version"], 2, r"`\$.version`"),
        (["format"], "pipesynth.schedule", r"`\$.format`"),
        (["more"], 1, "unknown field `more`"),
        (["stages", 1, "forward", "median_ns"], 0, r"`\$.stages\[1\].forward.median_ns`"),
        (["stages", 1, "forward", "median_ns"], 1.5, r"`\$.stages\[1\].forward.median_ns`"),
        (["layers", 2, "fused", "low_ns"], 10**9, r"not in order - at `\$.layers\[2\].fused`"),
        (["hops", 0, "one_way", "high_ns"], 1, r"not in order - at `\$.hops\[0\].one_way`"),
        (["stages", 0, "activation_bytes"], -1, r"`\$.stages\[0\].activation_bytes`"),
        (["stages", 0, "output_bytes"], 2**60, r"`\$.stages\[0\].output_bytes`"),
        (["cut"], [1, 2], r"at `\$.cut`"),
        (["stages"], [], r"holds no stage - at `\$.stages`"),
        (["layers"], [], r"holds 0 layers, the stages have 3 - at `\$.layers`"),
        (["environment"], None, r"`\$.environment`"),
    ],
)
def test_damaged_files(costs, path, value, text):
    document = json.loads(dumps(costs))
    at(document, path, value)
    with pytest.raises(FileError, match=text):
        loads(json.dumps(document), "costs.json")


@pytest.mark.parametrize("text", ["", "{", "\xff", "[" * 10_000])
def test_not_json(text):
    with pytest.raises(FileError, match=r"costs\.json: "):
        loads(text.encode("latin-1"), "costs.json")
