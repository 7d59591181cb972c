"""What a schedule says and torch's CSV cannot: the problem, with its placement, beside the CSV.

The file is JSON and stands next to the CSV as NAME.csv.json. `problem.streams[0].route` is the rank
of every stage; the rest is what a schedule file says of its problem.
"""

from __future__ import annotations

import json
from typing import Literal

import msgspec

from synth import __version__
from synth.files import decode, pretty
from synth.problem import Problem
from synth.problem_fields import ProblemField, problem_json, read_problem
from synth.schedule import Schedule

FORMAT = "pipesynth.sidecar"
VERSION = 1
SUFFIX = ".json"


class _Sidecar(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: Literal["pipesynth.sidecar"]
    version: Literal[1]
    tool: str
    name: str
    problem: ProblemField


def dumps(schedule: Schedule) -> str:
    """The text of the file."""
    fields = {
        "format": FORMAT,
        "version": VERSION,
        "tool": f"pipesynth {__version__}",
        "name": schedule.name,
        "problem": problem_json(schedule.problem),
    }
    lines = [f"  {json.dumps(key)}: {pretty(value)}" for key, value in fields.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def loads(text: str | bytes, source: str) -> tuple[str, Problem]:
    """The schedule's name and its problem. Raises FileError with the path of what is wrong."""
    data = decode(text, _Sidecar, source)
    return data.name, read_problem(data.problem, source)
