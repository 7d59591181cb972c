"""Problem files: what no option can say, in the numbers that people type.

Placements as lists, stages that cost each their own, branches that join, slow devices and slow
links. Reading checks the form and names the JSON path of what it refuses; `problem_maker` checks
the rest and turns the numbers into whole ticks and quanta.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import msgspec

from synth.errors import FileError, ProblemError
from synth.files import decode
from synth.problem_fields import Line
from synth.units import Amount, amount

FORMAT = "pipesynth.problem"
VERSION = 1

Number = int | float


class _Entry(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Base of the file's objects: unknown fields are refused."""


class UnitNames(_Entry):
    """What the file's times and sizes are numbers of."""

    time: Literal["unit", "s", "ms", "us", "ns"] = "unit"
    memory: Literal["activation", "B", "KB", "MB", "GB", "KiB", "MiB", "GiB"] = "activation"


class StageEntry(_Entry):
    """A stage: what a micro-batch costs on it, what it keeps all the time, and what it needs.

    Without `fused` a fused backward takes B + W, without `pair` overlapping gains nothing, without
    `activation` one activation unit is held, and without `context` everything until W. Without
    `needs` the stage takes the output of the one before.
    """

    forward: Number
    backward_act: Number
    backward_wgt: Number
    fused: Number | None = None
    pair: Number | None = None
    activation: Number | None = None
    context: Number | None = None
    parameters: Number = 0
    gradients: Number = 0
    optimizer: Number = 0
    needs: list[int] | None = None
    name: Line = ""


class StreamEntry(_Entry):
    """Micro-batches that take the same route: the device of each stage."""

    microbatches: int
    route: list[int]
    name: Line = ""


class DeviceEntry(_Entry):
    """A device that takes `factor` times as long for all its stages or for one.

    Or one with own costs for a stage; what is left out is as everywhere.
    """

    device: int
    stage: int | None = None
    factor: Number | None = None
    forward: Number | None = None
    backward_act: Number | None = None
    backward_wgt: Number | None = None
    fused: Number | None = None
    pair: Number | None = None
    activation: Number | None = None
    context: Number | None = None


class LinkEntry(_Entry, kw_only=True):
    """The latency of hops from one device to another, in this direction only."""

    source: int = msgspec.field(name="from")
    target: int = msgspec.field(name="to")
    lag: Number


class ProblemFile(_Entry, kw_only=True):
    """A problem file.

    Where the stages live is said by `placement`, a name or the device of each stage, with
    `microbatches`; or by `streams`. `memory` is the limit of all devices or one each, null for
    none, with what stages keep all the time included.
    """

    format: Literal["pipesynth.problem"]
    version: Literal[1]
    note: str = ""
    devices: int
    microbatches: int | None = None
    placement: Line | list[int] | None = None
    streams: list[StreamEntry] | None = None
    objective: Literal["makespan", "span"] = "makespan"
    units: UnitNames = msgspec.field(default_factory=UnitNames)
    memory: Number | list[Number | None] | None = None
    comm: Number = 0
    links: list[LinkEntry] = []
    stages: list[StageEntry]
    device_costs: list[DeviceEntry] = []


def loads(text: str | bytes, source: str) -> ProblemFile:
    """Read a problem file's text. Raises FileError with the JSON path of what is wrong."""
    return decode(text, ProblemFile, source)


@dataclass(frozen=True, slots=True)
class Refuser:
    """Makes the errors of one file; each names the file and the place in it."""

    source: str

    def __call__(self, text: str, path: str) -> FileError:
        return FileError(f"{self.source}: {text} - at `{path}`")

    def number(self, value: Amount, path: str) -> Fraction:
        """A number exactly as typed. Raises FileError for one that is not sensible."""
        try:
            return amount(value, "")
        except ProblemError as error:
            raise self(str(error).removeprefix(": "), path) from None


def schema() -> dict[str, Any]:
    """The JSON Schema of a problem file."""
    return msgspec.json.schema(ProblemFile)
