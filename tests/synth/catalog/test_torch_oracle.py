"""The compute orders of torch 2.13's schedule classes, where they are right.

Compared are the rows that its classes plan with, communication left out. Known differences:
* 1F1B: the rows of the last rank count forwards from 1, so they skip F0 and run an F m that does
  not exist. Its class executes another, correct loop; the other ranks' rows are right.
* ZBV: it also plans for m < 2P-1, by planning for 2P-1 and leaving out what is not there.
"""

from __future__ import annotations

import re

import pytest

from synth import catalog
from synth.op import Kind, Op
from synth.problem import make_problem

visualizer = pytest.importorskip("torch.distributed.pipelining._schedule_visualizer")

LETTERS = {Kind.F: "F", Kind.B: "I", Kind.W: "W", Kind.BW: "B"}
POINTS = [(1, 2), (2, 4), (3, 6), (4, 8), (4, 9), (4, 10), (4, 11)]


def torch_rows(schedule: str, devices: int, microbatches: int, chunks: int) -> list[list[str]]:
    """Torch's compute actions, as in `0F0` or `(0F0;3B0)OVERLAP_F_B`."""
    rows = visualizer.get_schedule_ops(schedule, devices, microbatches, chunks)
    compute = re.compile(r"\d+[FIWB]\d+|\(.*\)OVERLAP_F_B")
    return [
        [str(action) for action in row if action is not None and compute.fullmatch(str(action))]
        for row in rows
    ]


def our_rows(name: str, devices: int, microbatches: int) -> list[list[str]] | None:
    """Our orders in the same spelling; None where the family does not fit."""
    family = catalog.family(name)
    problem = make_problem(devices, microbatches, placement=family.placement)
    if family.refuses(problem) is not None:
        return None
    return [[spelled(op) for op in order] for order in family.orders(problem)]


def spelled(op: Op) -> str:
    if op.kind is Kind.FB:
        return "({})OVERLAP_F_B".format(";".join(spelled(part) for part in op.parts))
    return f"{op.stage}{LETTERS[op.kind]}{op.microbatch}"


@pytest.mark.parametrize(
    ("schedule", "name", "chunks"),
    [
        ("GPipe", "gpipe", 1),
        ("Interleaved1F1B", "interleaved:2", 2),
        ("Interleaved1F1B", "interleaved:3", 3),
        ("LoopedBFS", "bfs:2", 2),
        ("InterleavedZeroBubble", "interleaved-zb:2", 2),
        ("ZBVZeroBubble", "zb-v", 2),
        ("DualPipeV", "dualpipev", 2),
    ],
)
def test_same_orders(schedule: str, name: str, chunks: int) -> None:
    for devices, microbatches in POINTS:
        ours = our_rows(name, devices, microbatches)
        try:
            theirs = torch_rows(schedule, devices, microbatches, chunks)
        except ValueError:  # torch does not plan for these numbers, and neither do we
            assert ours is None
        else:
            assert ours == theirs, (devices, microbatches)


@pytest.mark.parametrize(("devices", "microbatches"), POINTS)
def test_1f1b_but_for_the_last_rank(devices: int, microbatches: int) -> None:
    *ours, ours_last = our_rows("1f1b", devices, microbatches) or []
    *theirs, theirs_last = torch_rows("1F1B", devices, microbatches, 1)
    assert ours == theirs
    shifted = [
        f"{devices - 1}F{int(action.rpartition('F')[2]) + 1}" if "F" in action else action
        for action in ours_last
    ]
    assert theirs_last == shifted != ours_last


def test_zbv_plans_for_fewer_micro_batches_than_it_needs() -> None:
    problem = make_problem(4, 4, placement="v")
    assert catalog.family("zb-v").refuses(problem) == "needs m >= 2P-1 = 7"
    assert sum(map(len, torch_rows("ZBVZeroBubble", 4, 4, 2))) == 3 * 4 * 8
