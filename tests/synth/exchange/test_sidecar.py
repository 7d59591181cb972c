"""The sidecar: what it holds and what is refused, with the path."""

import json

import pytest

from synth import catalog
from synth.errors import FileError
from synth.exchange import sidecar
from synth.problem import make_problem


@pytest.fixture
def document():
    schedule = catalog.build("zb-v", make_problem(2, 4, placement="v", memory=3))
    return json.loads(sidecar.dumps(schedule))


def test_the_route_is_the_rank_of_every_stage(document):
    assert document["problem"]["streams"] == [
        {"name": "", "microbatches": 4, "route": [0, 1, 1, 0]}
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, r"`\$.version`"),
        ({"format": "pipesynth.schedule"}, r"`\$.format`"),
        ({"more": 1}, "unknown field `more`"),
        ({"problem": {}}, r"`\$.problem`"),
    ],
)
def test_damaged(document, change, message):
    with pytest.raises(FileError, match=message):
        sidecar.loads(json.dumps(document | change), "x.json")


def test_rules_of_the_problem_hold(document):
    document["problem"]["streams"][0]["route"] = [0, 0, 0, 0]
    with pytest.raises(FileError, match=r"device 1 holds no stage.*\$\.problem"):
        sidecar.loads(json.dumps(document), "x.json")
    with pytest.raises(FileError, match="not a whole JSON file"):
        sidecar.loads("{", "x.json")
