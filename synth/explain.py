"""Where the bubble is: each device's idle time by cause, the chain that binds, and what would help.

Before its first op a device fills, behind its last it drains. In between it idles because the next
op's input is not there yet. How much of such a gap the device could have used is told apart: by
ops that were ready but for which memory had no room, and by ops that were ready and had room but
come later in the order. The rest is waiting that no other order of this device alone avoids.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from textwrap import wrap

from synth.gaps import Done, Gap, arrivals, gaps
from synth.op import Kind, Op
from synth.problem import Objective, Problem
from synth.schedule import Schedule, TimedOp, value


@dataclass(frozen=True, slots=True)
class Idle:
    """A device's time in ticks, from the schedule's first start to its last end."""

    device: int
    busy: int
    fill: int
    drain: int
    dependency: int
    memory: int
    order: int


@dataclass(frozen=True, slots=True)
class Link:
    """An op of the binding chain, and the ticks of latency in front of it."""

    device: int
    op: Op
    start: int
    end: int
    latency: int


@dataclass(frozen=True, slots=True)
class Explanation:
    """What `explain` finds. `chain` leads without slack to the end of what the objective counts."""

    problem: Problem
    name: str
    time: int
    devices: tuple[Idle, ...]
    gaps: tuple[Gap, ...]
    chain: tuple[Link, ...]
    hints: tuple[str, ...]


def explain(schedule: Schedule) -> Explanation:
    """Explain a valid schedule."""
    done = {node: timed for ops in schedule.devices for timed in ops for node in timed.op.nodes}
    waits = tuple(
        gap
        for device, ops in enumerate(schedule.devices)
        for gap in gaps(schedule.problem, device, ops, done)
    )
    explanation = Explanation(
        problem=schedule.problem,
        name=schedule.name,
        time=value(schedule.devices, schedule.problem.objective),
        devices=tuple(_idle(schedule, device, waits) for device in range(len(schedule.devices))),
        gaps=waits,
        chain=_chain(schedule, done),
        hints=(),
    )
    return replace(explanation, hints=tuple(_hints(explanation)))


def _idle(schedule: Schedule, device: int, waits: tuple[Gap, ...]) -> Idle:
    ops = schedule.devices[device]
    mine = [gap for gap in waits if gap.device == device]
    return Idle(
        device=device,
        busy=sum(timed.end - timed.start for timed in ops),
        fill=ops[0].start - min(others[0].start for others in schedule.devices),
        drain=max(others[-1].end for others in schedule.devices) - ops[-1].end,
        dependency=sum(gap.dependency for gap in mine),
        memory=sum(gap.memory for gap in mine),
        order=sum(gap.order for gap in mine),
    )


def _chain(schedule: Schedule, done: Done) -> tuple[Link, ...]:
    """Back from the end of what the objective counts, as long as something binds each start."""
    problem, devices = schedule.problem, schedule.devices
    if problem.objective is Objective.MAKESPAN:
        last = max((ops[-1] for ops in devices), key=lambda timed: timed.end)
    else:
        longest = max(range(len(devices)), key=lambda device: schedule.spans[device])
        last = devices[longest][-1]
    previous = {after.op: before for ops in devices for before, after in pairwise(ops)}
    links: list[Link] = []
    current: TimedOp | None = last
    while current is not None:
        before, latency = _binding(problem, current, previous.get(current.op), done)
        device = problem.device(current.op)
        links.append(Link(device, current.op, current.start, current.end, latency))
        current = before
    return tuple(reversed(links))


def _binding(
    problem: Problem, timed: TimedOp, previous: TimedOp | None, done: Done
) -> tuple[TimedOp | None, int]:
    """What an op starts right behind: the op before it on its device, else one of its inputs."""
    if previous is not None and previous.end == timed.start:
        return previous, 0
    for arrival, source in arrivals(problem, timed.op, done):
        if arrival == timed.start:
            before = done[source.nodes[-1]]
            return before, timed.start - before.end
    return None, 0


def _hints(found: Explanation) -> Iterator[str]:
    """What would shorten the schedule, the largest share of the idle time first."""
    whole = found.problem.objective is Objective.MAKESPAN
    shares = {
        "fill and drain": sum(d.fill + d.drain for d in found.devices) if whole else 0,
        "dependency": sum(device.dependency for device in found.devices),
        "memory": sum(device.memory for device in found.devices),
        "order": sum(device.order for device in found.devices),
    }
    total = sum(shares.values())
    if total == 0:
        yield "no device idles in the time that counts: only less work would shorten it"
        return
    busiest = max(found.devices, key=lambda device: device.busy)
    mean = sum(device.busy for device in found.devices) / len(found.devices)
    if busiest.busy > 1.03 * mean:
        yield (
            f"balance: device {busiest.device} has {busiest.busy / mean - 1:.0%} more work than "
            "the mean; move layers away from it"
        )
    for cause, ticks in sorted(shares.items(), key=lambda item: -item[1]):
        if 10 * ticks >= total:
            yield f"{cause}, {ticks / total:.0%} of the idle time: {_advice(found, cause)}"


def _advice(found: Explanation, cause: str) -> str:
    kinds = {link.op.kind for link in found.chain}
    latency = sum(link.latency for link in found.chain)
    if cause == "fill and drain":
        return "more micro-batches or chunks per device shrink its share"
    if cause == "memory":
        devices = sorted({gap.device for gap in found.gaps if gap.memory})
        names = ", ".join(map(str, devices))
        return f"raise the limit of device {names}; ready work had no room there"
    if cause == "order":
        gap = max(found.gaps, key=lambda gap: gap.order)
        return f"solve for another order; {gap.held_back[0]} could run before {gap.before}"
    if 10 * latency >= found.time:
        return f"{latency / found.time:.0%} of the binding chain is latency between devices"
    if Kind.BW in kinds:
        return "split W off the backward, so that gradients travel on sooner"
    return "the binding chain leaves nothing to run; try another placement or more micro-batches"


def render(found: Explanation, *, waits: int = 6, width: int = 100) -> str:
    """The explanation as text: a row per device, the longest gaps, the chain, the hints."""
    return "\n".join(
        [
            *_table(found),
            *_longest(found, waits, width),
            "binding chain",
            *_shortened(list(_chain_lines(found))),
            "what would help",
            *(line for hint in found.hints for line in _wrapped(hint, width)),
        ]
    )


def _wrapped(hint: str, width: int) -> list[str]:
    return wrap(hint, width, initial_indent="  ", subsequent_indent="    ")


def _table(found: Explanation) -> Iterator[str]:
    units = found.problem.units
    columns = ("busy", "fill", "drain", "dependency", "memory", "order")
    yield (
        f"{found.name}: {found.problem.objective} {units.ticks(found.time):.6g}; "
        "where the time of each device goes"
    )
    yield "device" + "".join(f"{column:>12}" for column in columns) + f"{'idle':>8}"
    for device in found.devices:
        parts = [getattr(device, column) for column in columns]
        cells = "".join(f"{units.ticks(ticks):>12.6g}" for ticks in parts)
        yield f"{device.device:>6}{cells}{1 - device.busy / sum(parts):>8.1%}"


def _longest(found: Explanation, count: int, width: int) -> Iterator[str]:
    longest = sorted(found.gaps, key=lambda gap: (gap.start - gap.end, gap.start))[:count]
    if longest:
        yield f"longest waits, {len(longest)} of {len(found.gaps)}"
    for gap in longest:
        start, end = (f"{found.problem.units.ticks(tick):.6g}" for tick in (gap.start, gap.end))
        line = f"  device {gap.device}, {start} to {end}: {gap.before}"
        line += f" waits for {gap.waits_for}" if gap.waits_for else " starts later than it could"
        for text, ops in (("no room for", gap.no_room), ("held back", gap.held_back)):
            line += f"; {text} {_some(ops)}" if ops else ""
        yield line if len(line) <= width else line[: width - 3] + "..."


def _some(ops: tuple[Op, ...]) -> str:
    shown = " ".join(map(str, ops[:4]))
    return f"{shown} and {len(ops) - 4} more" if len(ops) > 4 else shown


def _shortened(lines: list[str], most: int = 16) -> list[str]:
    """Both ends of a long list."""
    if len(lines) <= most:
        return lines
    half = most // 2
    return [*lines[:half], f"  ... {len(lines) - 2 * half} more ...", *lines[-half:]]


def _chain_lines(found: Explanation) -> Iterator[str]:
    units = found.problem.units
    for device, group in groupby(found.chain, key=lambda link: link.device):
        links = list(group)
        start, end = (f"{units.ticks(tick):.6g}" for tick in (links[0].start, links[-1].end))
        ops = str(links[0].op) if len(links) == 1 else f"{links[0].op} .. {links[-1].op}"
        count = f", {len(links)} ops" if len(links) > 2 else ""
        lag = links[0].latency
        latency = f", {units.ticks(lag):.6g} of latency before" if lag else ""
        yield f"  device {device}, {start} to {end}: {ops}{count}{latency}"
