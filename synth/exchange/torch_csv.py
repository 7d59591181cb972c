"""The schedule CSV of torch.distributed.pipelining, which torchtitan loads too: out and in.

One row per rank, one cell per action, no header. `compute_only` lists what is computed, and torch
inserts the communication; `compute_comms` says it all and is executed as it stands. Costs, memory
and the name of the placement have no place in it: see `sidecar`.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import count

from synth.errors import FileError, UsageError
from synth.exchange import comms
from synth.exchange.cells import Action, Chore, parse, spell
from synth.op import Kind, Op
from synth.placement import Placement, named
from synth.schedule import Orders, Schedule


class Form(StrEnum):
    """How much a CSV says."""

    COMPUTE_ONLY = "compute_only"
    COMPUTE_COMMS = "compute_comms"


@dataclass(frozen=True, slots=True)
class Table:
    """What a CSV says: the order of every rank and, from it, where every stage lives."""

    orders: Orders
    placement: Placement
    microbatches: int


def dumps(schedule: Schedule, form: Form = Form.COMPUTE_ONLY) -> str:
    """The text of the CSV.

    Raises UsageError for a schedule that the format, or what reads it, has no words for, and
    InvalidScheduleError for a program that could deadlock.
    """
    _check_sayable(schedule)
    rows: Iterator[list[Action]]
    if form is Form.COMPUTE_ONLY:
        rows = (list(order) for order in schedule.orders)
    else:
        rows = comms.rows(schedule)
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([spell(cell) for cell in row] for row in rows)
    return text.getvalue()


def _check_sayable(schedule: Schedule) -> None:
    streams = schedule.problem.streams
    if len(streams) > 1:
        names = " and ".join(stream.name for stream in streams)
        raise UsageError(
            f"{schedule.name} has {len(streams)} streams ({names}), and torch's CSV cannot tell "
            "them apart: it holds each stage on one rank; export the program instead"
        )
    if not schedule.problem.is_chain:
        raise UsageError(
            f"the stages of {schedule.name} are not a chain, and torch's CSV knows no others: it "
            "hands every result to the next stage; export the program instead"
        )
    last = len(schedule.problem.stages) - 1
    ends = schedule.orders[streams[0].route[last]]
    finished = [op.microbatch for op in ends if op.stage == last and op.kind in (Kind.F, Kind.FB)]
    if finished != sorted(finished):
        raise UsageError(
            f"{schedule.name} runs the F of its last stage in the order "
            f"{', '.join(map(str, finished))}; torch stores losses in the order in which they come "
            "and would mix them up"
        )


def loads(text: str, source: str = "csv") -> Table:
    """Read a CSV of either form.

    Raises FileError with row and cell, both counted from 1, and InvalidScheduleError where its
    communication would lose, mix up or never deliver a message.
    """
    rows = list(_read_rows(text, source))
    if not rows:
        raise FileError(f"{source}: is empty; a schedule has one row per rank")
    devices = _devices(rows, source)
    placement = named(len(rows), (("", devices),))
    orders = tuple(tuple(action for action in row if isinstance(action, Op)) for row in rows)
    for rank, order in enumerate(orders):
        if not order:
            raise FileError(f"{source}: row {rank + 1} computes nothing; every rank needs an op")
    microbatches = 1 + max(part.microbatch for row in orders for op in row for part in op.parts)
    if any(isinstance(action, Chore) and action.verb.moves for row in rows for action in row):
        comms.check(rows, devices, microbatches, source)
    return Table(orders, placement, microbatches)


def _parts(action: Action) -> tuple[Action, ...]:
    return (action,) if isinstance(action, Chore) else action.parts


def _read_rows(text: str, source: str) -> Iterator[list[Action]]:
    if text.startswith("\ufeff"):
        raise FileError(f"{source}: starts with a byte-order mark; save it as plain UTF-8")
    for number, row in enumerate(csv.reader(io.StringIO(text, newline="")), 1):
        actions = []
        for place, cell in enumerate(row, 1):
            try:
                action = parse(cell)
            except ValueError as error:
                raise FileError(f"{source}: row {number}, cell {place}: {error}") from None
            if action is not None:
                actions.append(action)
        if not actions:
            raise FileError(f"{source}: row {number} is blank; every row is a rank and has ops")
        yield actions


def _devices(rows: list[list[Action]], source: str) -> tuple[int, ...]:
    """The rank of every stage, from the row that it appears in."""
    found: dict[int, int] = {}
    for rank, row in enumerate(rows):
        for action in row:
            for part in _parts(action):
                if found.setdefault(part.stage, rank) != rank:
                    raise FileError(
                        f"{source}: row {rank + 1}: {spell(action)}: stage {part.stage} is in row "
                        f"{found[part.stage] + 1} already; a stage lives on one rank"
                    )
    missing = next(stage for stage in count() if stage not in found)
    if missing < len(found):
        raise FileError(
            f"{source}: stage {missing} is in no row, but stage {max(found)} is; stages count "
            "from 0 without gaps"
        )
    return tuple(found[stage] for stage in range(len(found)))
