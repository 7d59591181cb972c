"""Schedule files: JSON in and out, the schema, and atomic writing.

One op per line and a stable key order, so that diffs read well. Reading checks everything that can
be checked without knowing what a schedule means and names the JSON path of what it refuses;
`verify` does the rest.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from synth import __version__
from synth.errors import FileError, ProblemError
from synth.line import LINE, PATTERN
from synth.op import Op, parse_op
from synth.problem import MAX_OPS, Problem
from synth.problem_fields import Count, Line, ProblemField, Strict, problem_json, read_problem
from synth.schedule import Certificate, Schedule, TimedOp

Document = TypeVar("Document")

FORMAT = "pipesynth.schedule"
VERSION = 1


class CertificateField(Strict):
    """Value and proven bound in ticks, and what proves the bound."""

    value: Count
    bound: Count
    proof: Line


class OpField(Strict):
    """One op with its start and end in ticks."""

    op: str
    start: Count
    end: Count


class ScheduleFile(Strict):
    """A schedule file."""

    format: Literal["pipesynth.schedule"]
    version: Literal[1]
    tool: Line
    name: Line
    problem: ProblemField
    certificate: CertificateField
    devices: list[list[OpField]]


def dumps(schedule: Schedule) -> str:
    """The text of a schedule file."""
    header = {
        "format": FORMAT,
        "version": VERSION,
        "tool": f"pipesynth {__version__}",
        "name": schedule.name,
        "problem": problem_json(schedule.problem),
        "certificate": {
            "value": schedule.certificate.value,
            "bound": schedule.certificate.bound,
            "proof": schedule.certificate.proof,
        },
    }
    lines = [f"  {json.dumps(key)}: {pretty(value)}," for key, value in header.items()]
    devices = []
    for ops in schedule.devices:
        rows = ",\n".join(
            f'      {{"op": "{timed.op}", "start": {timed.start}, "end": {timed.end}}}'
            for timed in ops
        )
        devices.append(f"    [\n{rows}\n    ]")
    body = ",\n".join(devices)
    return "{\n" + "\n".join(lines) + f'\n  "devices": [\n{body}\n  ]\n}}\n'


def pretty(value: object, indent: int = 2) -> str:
    """JSON in which a list of objects takes a line per object, and everything else one line."""
    pad = " " * (indent + 2)
    if isinstance(value, dict):
        rows = [f"{pad}{json.dumps(k)}: {pretty(v, indent + 2)}" for k, v in value.items()]
        return "{\n" + ",\n".join(rows) + "\n" + " " * indent + "}"
    if isinstance(value, list) and value and isinstance(value[0], dict):
        rows = [pad + json.dumps(item) for item in value]
        return "[\n" + ",\n".join(rows) + "\n" + " " * indent + "]"
    return json.dumps(value)


def loads(text: str | bytes, source: str = "schedule") -> Schedule:
    """Read a schedule file's text. Raises FileError with the JSON path of what is wrong."""
    data = decode(text, ScheduleFile, source)
    problem = read_problem(data.problem, source)
    devices = _read_devices(data, problem, source)
    certificate = data.certificate
    try:
        proof = Certificate(certificate.value, certificate.bound, certificate.proof)
    except ProblemError as error:
        raise FileError(f"{source}: {error} - at `$.certificate`") from None
    return Schedule(data.name, problem, devices, proof)


def decode(text: str | bytes, kind: type[Document], source: str) -> Document:
    """JSON text as a type of document. Raises FileError with the JSON path of what is wrong."""
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.ValidationError as error:
        raise FileError(f"{source}: {_one_line(error)}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FileError(f"{source}: {_not_json(text, kind, error)}") from None


def _not_json(text: str | bytes, kind: type[object], error: Exception) -> str:
    """What is wrong with a text that is not JSON; NaN and Infinity are named or their place is."""
    constants: list[str] = []

    def note(constant: str) -> float:
        constants.append(constant)
        return float(constant)

    try:
        msgspec.convert(json.loads(text, parse_constant=note), kind)
    except msgspec.ValidationError as found:
        return _one_line(found)
    except (ValueError, RecursionError):
        constants = []
    if constants:
        return f"{constants[0]} is not a number; give a finite one"
    return f"not a whole JSON file: {_one_line(error)}"


def _one_line(error: Exception) -> str:
    """The text of an error without line breaks."""
    text = " ".join(str(error).split())
    return text.replace(f"`str` matching regex {PATTERN!r}", LINE)


def _read_devices(
    data: ScheduleFile, problem: Problem, source: str
) -> tuple[tuple[TimedOp, ...], ...]:
    if len(data.devices) != problem.devices:
        raise FileError(
            f"{source}: {len(data.devices)} lists of ops for {problem.devices} devices "
            "- at `$.devices`"
        )
    nodes = 3 * len(problem.stages) * problem.total_microbatches
    if nodes > MAX_OPS:
        raise FileError(
            f"{source}: {problem.total_microbatches} micro-batches make {nodes} ops, more than the "
            f"{MAX_OPS} that are handled - at `$.problem.streams`"
        )
    counts = {stream.name: stream.microbatches for stream in problem.streams}
    seen: set[Op] = set()
    devices = []
    for device, rows in enumerate(data.devices):
        if not rows:
            raise FileError(f"{source}: device {device} has no ops - at `$.devices[{device}]`")
        ops = []
        for index, row in enumerate(rows):
            where = f"at `$.devices[{device}][{index}]`"
            try:
                op = parse_op(row.op)
            except FileError as error:
                raise FileError(f"{source}: {error} - {where}") from None
            for part in op.parts:
                if part.microbatch >= counts.get(part.stream, 0) or part.stage >= len(
                    problem.stages
                ):
                    raise FileError(f"{source}: the problem has no op {part} - {where}")
                if part in seen:
                    raise FileError(f"{source}: {part} appears twice - {where}")
                seen.add(part)
            ops.append(TimedOp(op, row.start, row.end))
        devices.append(tuple(ops))
    return tuple(devices)


def load(path: str | Path) -> Schedule:
    """Read a schedule file. Raises FileError when it cannot be read."""
    return loads(read_bytes(path), source=str(path))


def save(schedule: Schedule, path: str | Path) -> None:
    """Write a schedule file atomically. Raises FileError when it cannot be written."""
    write_atomic(path, dumps(schedule))


def read_bytes(path: str | Path) -> bytes:
    """A file's bytes. Raises FileError, one line, when there are none to be had."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror or error}") from None


def write_atomic(path: str | Path, text: str | bytes) -> None:
    """Write a whole file or none: temporary file beside it, fsync, rename. Raises FileError."""
    target = Path(path)
    data = text.encode() if isinstance(text, str) else text
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        Path(temporary).chmod(0o666 & ~umask)
        Path(temporary).replace(target)
    except BaseException as error:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError):
            reason = error.strerror or error
            raise FileError(f"{path}: cannot be written: {reason}") from None
        raise


def schema() -> dict[str, Any]:
    """The JSON Schema of a schedule file."""
    return msgspec.json.schema(ScheduleFile)
