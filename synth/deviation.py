"""Where a run and its plan part: per kind of op, and at the first op that is late for good."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from synth.graph import dependencies
from synth.measured import MeasuredOp, MeasuredStep
from synth.op import Kind, Op
from synth.problem import Problem
from synth.schedule import Schedule, TimedOp

LATE = 0.02  # of the planned makespan


@dataclass(frozen=True, slots=True)
class KindTimes:
    """Planned and measured duration of the ops of one kind, mean over the ops of a step."""

    kind: Kind
    ops: int
    planned_s: float
    measured_s: float

    @property
    def ratio(self) -> float:
        """Measured over planned."""
        return self.measured_s / self.planned_s


def simple_ops(schedule: Schedule) -> tuple[tuple[TimedOp, ...], ...]:
    """What a run records: the halves of a pair come one after the other, in its planned time."""
    problem = schedule.problem
    return tuple(
        tuple(part for timed in ops for part in _halves(problem, timed)) for ops in schedule.devices
    )


def _halves(problem: Problem, timed: TimedOp) -> tuple[TimedOp, ...]:
    if timed.op.partner is None:
        return (timed,)
    first, second = timed.op.parts
    middle = min(timed.end, timed.start + problem.duration(first))
    return TimedOp(first, timed.start, middle), TimedOp(second, middle, timed.end)


def by_kind(
    schedule: Schedule, steps: Sequence[MeasuredStep], tick_s: float
) -> tuple[KindTimes, ...]:
    """One row per kind; measured is the median over the steps."""
    planned: dict[Kind, list[float]] = {}
    for ops in simple_ops(schedule):
        for timed in ops:
            planned.setdefault(timed.op.kind, []).append((timed.end - timed.start) * tick_s)
    rows = []
    for kind in Kind:
        if kind not in planned:
            continue
        means = [_mean(step, kind) for step in steps]
        expected = planned[kind]
        rows.append(KindTimes(kind, len(expected), sum(expected) / len(expected), median(means)))
    return tuple(rows)


def _mean(step: MeasuredStep, kind: Kind) -> float:
    times = [op.end_s - op.start_s for ops in step.devices for op in ops if op.op.kind is kind]
    return sum(times) / len(times)


def parting(schedule: Schedule, step: MeasuredStep, tick_s: float) -> str | None:
    """The first op that ends late by more than a fiftieth of the step, and why; None without one.

    Planned times are taken from the first start, as measured ones are.
    """
    plan = simple_ops(schedule)
    origin = min(ops[0].start for ops in plan)
    allowed = LATE * schedule.makespan * tick_s
    ran = {node: op for ops in step.devices for op in ops for node in op.op.nodes}
    pairs = [
        (timed, measured, before)
        for ops, own in zip(plan, step.devices, strict=True)
        for timed, measured, before in zip(ops, own, (None, *own), strict=False)
    ]
    for timed, measured, before in sorted(pairs, key=lambda pair: pair[0].end):
        start_s, end_s = ((at - origin) * tick_s for at in (timed.start, timed.end))
        if measured.end_s - end_s <= allowed:
            continue
        cause = _cause(schedule.problem, measured, before, ran, end_s - start_s)
        return (
            f"{timed.op} on device {schedule.problem.device(timed.op)}: planned "
            f"{1e3 * start_s:.1f} to {1e3 * end_s:.1f} ms, ran {1e3 * measured.start_s:.1f} to "
            f"{1e3 * measured.end_s:.1f} ms; {cause}"
        )
    return None


def _cause(
    problem: Problem,
    measured: MeasuredOp,
    before: MeasuredOp | None,
    ran: dict[Op, MeasuredOp],
    planned_s: float,
) -> str:
    """The largest of what made it late: its own length, its input, the device, or the gap."""
    free_s = 0.0 if before is None else before.end_s
    inputs = [
        (ran[need].end_s, need)
        for node in measured.op.nodes
        for need, _ in dependencies(problem, node)
        if need in ran and need not in measured.op.nodes
    ]
    input_s, need = max(inputs, default=(0.0, None), key=lambda entry: entry[0])
    longer_s = measured.end_s - measured.start_s - planned_s
    gap_s = measured.start_s - max(free_s, input_s)
    if longer_s >= gap_s and longer_s > 0.1 * planned_s:
        return f"it took {1e3 * longer_s:.1f} ms longer"
    if gap_s > 0.1 * planned_s:
        return f"it began {1e3 * gap_s:.1f} ms after device and input were there"
    if need is not None and input_s > free_s:
        return f"its input, {need}, ended at {1e3 * input_s:.1f} ms"
    return "the ops before it on the device took longer"
