"""Chrome trace, as Perfetto and chrome://tracing read it: a schedule and a measured step of it.

Devices are processes; compute, sends and receives are threads. Every point-to-point message is a
flow from the op that makes it to the op that needs it. Times are whole microseconds, rounded at
both ends of a slice, so that slices of a thread still follow each other. Where transfers overlap,
they take further threads.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from synth import __version__
from synth.graph import dependencies
from synth.measured import MeasuredStep
from synth.op import Kind, Op
from synth.problem import Problem
from synth.schedule import Schedule, TimedOp, Timeline
from synth.simulate import memory_profile

Event = dict[str, Any]

_US_PER = {"s": 1e6, "ms": 1e3, "us": 1.0, "µs": 1.0, "ns": 1e-3}
_US_PER_UNIT = 1000  # of a unit that is no time: one millisecond each
_COMPUTE, _SEND, _RECEIVE = 0, 1, 1001  # thread ids; sends take those from _SEND on, and so on


@dataclass(frozen=True, slots=True)
class _Message:
    """What an op sends to another device, in microseconds: made, there, and who needs it."""

    producer: Op
    consumer: Op
    source: int
    target: int
    sent: int
    arrives: int


def dumps(schedule: Schedule, measured: MeasuredStep | None = None) -> str:
    """The trace as text, one event a line."""
    scale = us_per_tick(schedule, measured)
    devices = _in_us(schedule, scale)
    events = list(_events(schedule.problem, devices, "planned", scale, with_transfers=True))
    if measured is not None:
        events += _events(
            schedule.problem, _measured_us(measured), "measured", 0, with_transfers=False
        )
    head = {
        "displayTimeUnit": "ms",
        "otherData": {
            "tool": f"pipesynth {__version__}",
            "schedule": schedule.name,
            "us_per_unit": scale * schedule.problem.units.ticks_per_unit,
        },
    }
    lines = ",\n".join(json.dumps(event, ensure_ascii=False) for event in events)
    return json.dumps(head)[:-1] + f', "traceEvents": [\n{lines}\n]}}\n'


def us_per_tick(schedule: Schedule, measured: MeasuredStep | None) -> float:
    """How long a tick is: as its unit says, else as the run planned, else a millisecond a unit."""
    units = schedule.problem.units
    if units.time in _US_PER:
        return _US_PER[units.time] / units.ticks_per_unit
    if measured is not None:
        seconds = measured.planned_makespan_s or measured.makespan_s
        return 1e6 * seconds / schedule.makespan
    return _US_PER_UNIT / units.ticks_per_unit


def _in_us(schedule: Schedule, scale: float) -> Timeline:
    origin = min(ops[0].start for ops in schedule.devices)
    return tuple(
        tuple(
            TimedOp(t.op, round((t.start - origin) * scale), round((t.end - origin) * scale))
            for t in ops
        )
        for ops in schedule.devices
    )


def _measured_us(step: MeasuredStep) -> Timeline:
    return tuple(
        tuple(TimedOp(m.op, round(1e6 * m.start_s), round(1e6 * m.end_s)) for m in ops)
        for ops in step.devices
    )


def _events(
    problem: Problem, devices: Timeline, what: str, scale: float, *, with_transfers: bool
) -> Iterator[Event]:
    first = 0 if what == "planned" else problem.devices
    for device, ops in enumerate(devices):
        pid = first + device
        yield _meta("process_name", pid, name=f"device {device}, {what}")
        yield _meta("process_sort_index", pid, sort_index=2 * device + (first > 0))
        yield from _thread(pid, _COMPUTE, "compute")
        for timed in ops:
            yield _slice(timed, pid)
        yield from _counters(problem, ops, pid)
    messages = _messages(problem, devices, scale)
    if with_transfers and (problem.comm_ticks or problem.links):
        for device in range(problem.devices):
            yield from _transfers([m for m in messages if m.source == device], device, _SEND)
            yield from _transfers([m for m in messages if m.target == device], device, _RECEIVE)
    yield from _flows(devices, messages, first, what)


def _meta(name: str, pid: int, tid: int = _COMPUTE, /, **args: str | int) -> Event:
    return {"ph": "M", "name": name, "pid": pid, "tid": tid, "args": args}


def _thread(pid: int, tid: int, name: str) -> Iterator[Event]:
    yield _meta("thread_name", pid, tid, name=name)
    yield _meta("thread_sort_index", pid, tid, sort_index=tid)


def _slice(timed: TimedOp, pid: int) -> Event:
    """Named without stage and stream, so that equal kinds get equal colours."""
    op = timed.op
    return {
        "ph": "X",
        "cat": "compute",
        "name": " + ".join(f"{part.kind} {part.microbatch}" for part in op.parts),
        "pid": pid,
        "tid": _COMPUTE,
        "ts": timed.start,
        "dur": timed.end - timed.start,
        "args": {"op": str(op), "stage": op.stage, "stream": op.stream},
    }


def _counters(problem: Problem, ops: Sequence[TimedOp], pid: int) -> Iterator[Event]:
    units = problem.units
    for point in memory_profile(problem, ops):
        args = {f"{units.memory}s": units.quanta(point.held)}
        yield {"ph": "C", "name": "in flight", "pid": pid, "ts": point.tick, "args": args}


def _messages(problem: Problem, devices: Timeline, scale: float) -> list[_Message]:
    """Every message between devices, by the time at which it is made; `scale` is us per tick."""
    at = {node: (d, t) for d, ops in enumerate(devices) for t in ops for node in t.op.nodes}
    found = []
    for node, (target, timed) in at.items():
        if node.kind is Kind.W:
            continue
        for before, _ in dependencies(problem, node):
            if before not in at:
                continue
            source, made = at[before]
            if source != target:
                lag = problem.lag(source, target) * scale
                arrives = min(round(made.end + lag), max(timed.start, made.end))
                found.append(_Message(before, node, source, target, made.end, arrives))
    return sorted(found, key=lambda message: (message.sent, message.arrives))


def _transfers(messages: Sequence[_Message], device: int, first: int) -> Iterator[Event]:
    """A device's sends or receives, on the first thread that is free, so that none overlap."""
    name = "send" if first == _SEND else "receive"
    free: list[int] = []
    for message in messages:
        lane = next((i for i, end in enumerate(free) if end <= message.sent), len(free))
        if lane == len(free):
            free.append(0)
            yield from _thread(device, first + lane, f"{name} {lane + 1}" if lane else name)
        free[lane] = message.arrives
        producer = message.producer
        yield {
            "ph": "X",
            "cat": name,
            "name": f"{name} {producer.kind} {producer.microbatch}",
            "pid": device,
            "tid": first + lane,
            "ts": message.sent,
            "dur": message.arrives - message.sent,
            "args": {
                "op": str(producer),
                "for": str(message.consumer),
                "from": message.source,
                "to": message.target,
            },
        }


def _flows(
    devices: Timeline, messages: Sequence[_Message], first: int, what: str
) -> Iterator[Event]:
    """From inside the producer to the start of the consumer; none that would point back in time."""
    at = {node: timed for ops in devices for timed in ops for node in timed.op.nodes}
    for number, message in enumerate(messages):
        made, needed = at[message.producer], at[message.consumer]
        leaves = max(made.start, made.end - 1)
        if made.end == made.start or needed.end == needed.start or leaves > needed.start:
            continue
        carries = "activations" if message.producer.kind is Kind.F else "gradients"
        flow = {"cat": what, "name": carries, "id": number}
        source = {"pid": first + message.source, "tid": _COMPUTE, "ts": leaves}
        target = {"pid": first + message.target, "tid": _COMPUTE, "ts": needed.start}
        yield {"ph": "s", **flow, **source}
        yield {"ph": "f", "bp": "e", **flow, **target}
