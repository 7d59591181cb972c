"""Independent checks of a schedule. Shares no code with any solver, nor with the simulator.

Every rule is written out once more from its definition, and all violations are returned, not only
the first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from synth.op import Kind, Op
from synth.problem import Objective, Problem
from synth.schedule import Schedule, TimedOp


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken rule, the op and the tick where it shows."""

    rule: str
    op: str
    tick: int
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.op} at tick {self.tick}: {self.text}"


@dataclass(frozen=True, slots=True)
class _Done:
    """Where and when a node ran."""

    device: int
    start: int
    end: int


_Ran = dict[tuple[str, str, int, int], _Done]


def verify(schedule: Schedule) -> list[Violation]:
    """All violations of a schedule against the problem it answers; empty when it is valid."""
    problem = schedule.problem
    found: list[Violation] = []
    ran: _Ran = {}
    if len(schedule.devices) != problem.devices:
        text = f"has {len(schedule.devices)} devices, its problem {problem.devices}"
        found.append(Violation("devices", "schedule", 0, text))
    for device, ops in enumerate(schedule.devices):
        for timed in ops:
            found.extend(_check_op(problem, device, timed, ran))
        found.extend(_check_one_at_a_time(device, ops))
    found.extend(_check_counts(problem, ran))
    found.extend(_check_dependencies(problem, ran))
    for device, ops in enumerate(schedule.devices[: problem.devices]):
        found.extend(_check_memory(problem, device, ops))
    found.extend(_check_certificate(schedule))
    return found


def _check_op(problem: Problem, device: int, timed: TimedOp, ran: _Ran) -> Iterator[Violation]:
    """Identity, place and duration of one op; notes its nodes in `ran`."""
    op = timed.op
    unknown = [part for part in op.parts if not _exists(problem, part)]
    if unknown:
        yield Violation("identity", str(op), timed.start, "the problem has no such op")
        return
    for part in op.parts:
        holder = problem.stream(part.stream).route[part.stage]
        if holder != device:
            text = f"runs on device {device}, its stage is on device {holder}"
            yield Violation("placement", str(op), timed.start, text)
    if timed.end - timed.start != problem.duration(op):
        text = f"takes {timed.end - timed.start} ticks, its cost is {problem.duration(op)}"
        yield Violation("duration", str(op), timed.start, text)
    if timed.start < 0:
        yield Violation("start", str(op), timed.start, "starts before tick 0")
    for part in op.parts:
        for kind in ("B", "W") if part.kind is Kind.BW else (str(part.kind),):
            key = (part.stream, kind, part.stage, part.microbatch)
            if key in ran:
                text = f"{_name(key)} runs more than once"
                yield Violation("count", str(op), timed.start, text)
            ran[key] = _Done(device, timed.start, timed.end)


def _exists(problem: Problem, part: Op) -> bool:
    if not 0 <= part.stage < len(problem.stages):
        return False
    for stream in problem.streams:
        if stream.name == part.stream:
            return 0 <= part.microbatch < stream.microbatches
    return False


def _name(key: tuple[str, str, int, int]) -> str:
    stream, kind, stage, microbatch = key
    return f"{kind}{microbatch}@{stage}" + (f"/{stream}" if stream else "")


def _check_one_at_a_time(device: int, ops: tuple[TimedOp, ...]) -> Iterator[Violation]:
    for before, after in pairwise(ops):
        if after.start < before.start:
            text = f"listed after {before.op}, which starts later, on device {device}"
            yield Violation("order", str(after.op), after.start, text)
        elif after.start < before.end:
            text = f"overlaps {before.op}, which ends at {before.end}, on device {device}"
            yield Violation("overlap", str(after.op), after.start, text)


def _check_counts(problem: Problem, ran: _Ran) -> Iterator[Violation]:
    for stream in problem.streams:
        for stage in range(len(problem.stages)):
            for microbatch in range(stream.microbatches):
                for kind in ("F", "B", "W"):
                    key = (stream.name, kind, stage, microbatch)
                    if key not in ran:
                        yield Violation("count", _name(key), 0, "never runs")


def _check_dependencies(problem: Problem, ran: _Ran) -> Iterator[Violation]:
    chain = [[stage - 1] if stage else [] for stage in range(len(problem.stages))]
    inputs = problem.needs or chain
    outputs: list[list[int]] = [[] for _ in inputs]
    for stage, sources in enumerate(inputs):
        for source in sources:
            outputs[source].append(stage)
    lags = {(link.source, link.target): link.lag_ticks for link in problem.links}
    for key, done in ran.items():
        stream, kind, stage, microbatch = key
        needs: list[tuple[str, str, int, int]] = []
        if kind == "F":
            needs += [(stream, "F", other, microbatch) for other in inputs[stage]]
        if kind == "B":
            needs.append((stream, "F", stage, microbatch))
            needs += [(stream, "B", other, microbatch) for other in outputs[stage]]
        if kind == "W":
            needs.append((stream, "B", stage, microbatch))
        for need in needs:
            before = ran.get(need)
            if before is None:
                continue  # reported by the count
            fused = kind == "W" and (before.start, before.end) == (done.start, done.end)
            lag = lags.get((before.device, done.device), problem.comm_ticks)
            lag = lag if before.device != done.device else 0
            if not fused and done.start < before.end + lag:
                text = f"needs {_name(need)}, which is there at {before.end + lag}"
                yield Violation("dependency", _name(key), done.start, text)


def _check_memory(problem: Problem, device: int, ops: tuple[TimedOp, ...]) -> Iterator[Violation]:
    limit = problem.limits_quanta[device]
    if limit is None:
        return
    events: list[tuple[int, int, int, Op]] = []
    for timed in ops:
        for part in timed.op.parts:
            if not _exists(problem, part):
                continue  # reported as an unknown op
            cost = problem.cost(part.stream, part.stage)
            act, context = cost.activation_quanta, cost.context_quanta
            if part.kind is Kind.F:
                events.append((timed.start, 1, act, timed.op))
            elif part.kind is Kind.W:
                events.append((timed.end, 0, -context, timed.op))
            else:  # a growing context is taken when B starts, a shrinking one given back at its end
                fused = part.kind is Kind.BW
                events.append((timed.start, 1, max(0, context - act), timed.op))
                end_with = 0 if fused else context
                events.append((timed.end, 0, end_with - max(act, context), timed.op))
    held = 0
    for tick, _, change, op in sorted(events, key=lambda event: event[:2]):
        held += change
        if change > 0 and held > limit:
            shown = problem.units.quanta(held), problem.units.quanta(limit)
            text = f"device {device} holds {shown[0]}, its limit is {shown[1]}"
            yield Violation("memory", str(op), tick, text)


def _check_certificate(schedule: Schedule) -> Iterator[Violation]:
    if not all(schedule.devices):
        return  # reported by the count
    starts = [ops[0].start for ops in schedule.devices]
    ends = [max(timed.end for timed in ops) for ops in schedule.devices]
    if schedule.problem.objective is Objective.MAKESPAN:
        actual = max(ends) - min(starts)
    else:
        actual = max(end - start for start, end in zip(starts, ends, strict=True))
    if actual != schedule.certificate.value:
        text = f"the certificate says {schedule.certificate.value} ticks, the ops take {actual}"
        yield Violation("certificate", "schedule", actual, text)
