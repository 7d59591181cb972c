"""Windows: between which steps every op may run, for a horizon and an objective."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from synth.folding import Folded
from synth.heads import NEVER, Heads, Relations, heads, one_machine, relate, tails
from synth.solve.meeting import meeting, rooted

FAR = -NEVER // 2  # later than any end that a closing device brings about


@dataclass(frozen=True, slots=True)
class Window:
    """A chain's ops in order: earliest starts and latest ends; without ends they may be left out.

    `reach` is the step by which everything of interest has started.
    """

    earliest: tuple[int, ...]
    latest_end: tuple[int, ...] | None
    reach: int


@dataclass(frozen=True, slots=True)
class Windows:
    """All chains' windows; `possible` is False when they already rule the horizon out."""

    chains: tuple[Window, ...]
    possible: bool


def device_heads(folded: Folded) -> list[int]:
    """The earliest step at which each device can start anything."""
    first = _heads_of(_relate(folded), (0,) * folded.problem.devices)
    return [
        min(first[chain][0] for chain in folded.of_device(device))
        for device in range(folded.problem.devices)
    ]


def makespan_windows(folded: Folded, horizon: int) -> Windows:
    """One window [0, horizon] for all devices."""
    devices = folded.problem.devices
    return _windows(_relate(folded), [0] * devices, [horizon] * devices)


def span_windows(folded: Folded, horizon: int) -> Windows:
    """A window of its own for each device, opening as soon as the device can start anything."""
    opens = device_heads(folded)
    return _windows(_relate(folded), opens, [start + horizon for start in opens])


def relaxed_windows(folded: Folded, horizon: int) -> Windows:
    """What a rooted problem's schedules of that span fit into, seen from the first stage's device.

    With its clock set to the start of the first stage, the device of that stage runs the first F
    and the last B, so all F and B of the others lie within its window. Their W may end later and
    are not bound at all here: a relaxation, so that a horizon it refutes is refuted for good.
    """
    devices = folded.problem.devices
    anchor = folded.problem.streams[0].route[0]
    closes = [horizon if device == anchor else -NEVER for device in range(devices)]
    return _windows(_relate(folded), [0] * devices, closes, beyond=horizon)


def free_windows(folded: Folded, horizon: int) -> Windows:
    """Where ops can lie at all when every device has a window of that span somewhere.

    A device so many meetings away from the anchor has its window within so many horizons on either
    side of the anchor's. In a rooted problem nothing lies before it.
    """
    distance = meeting(folded.problem).distance
    before = 0 if rooted(folded.problem) else horizon
    start = before * max(distance)
    opens = [start - before * steps for steps in distance]
    closes = [start + horizon * (steps + 1) for steps in distance]
    return _windows(_relate(folded), opens, closes)


def _windows(
    relations: Relations, opens: list[int], closes: list[int], *, beyond: int | None = None
) -> Windows:
    """Windows between opening and closing; ops that may end past `beyond` are not required."""
    folded = relations.folded
    first, last = _heads_of(relations, tuple(opens)), _tails(relations, tuple(closes))
    bound = [device for device, close in enumerate(closes) if close < -NEVER]
    possible = all(one_machine(folded, device, first, last) <= 0 for device in bound)
    chains = []
    for earliest, latest in zip(first, last, strict=True):
        optional = beyond is not None and latest[-1] > beyond
        reach = beyond if optional and beyond is not None else latest[-1]
        chains.append(Window(tuple(earliest), None if optional else tuple(latest), max(reach, 1)))
    return Windows(tuple(chains), possible and _room(folded, first, last))


def _tails(relations: Relations, closes: tuple[int, ...]) -> Heads:
    """Latest ends; they move with the closing times, so that one sweep serves all horizons."""
    shift = min(closes)
    moved = tuple(close - shift if close < -NEVER else close for close in closes)
    base = _tails_of(relations, moved)
    return [[end + shift if end < FAR else end for end in row] for row in base]


@lru_cache(maxsize=8)
def _relate(folded: Folded) -> Relations:
    return relate(folded)


@lru_cache(maxsize=8)
def _heads_of(relations: Relations, opens: tuple[int, ...]) -> Heads:
    return heads(relations, opens)


@lru_cache(maxsize=8)
def _tails_of(relations: Relations, closes: tuple[int, ...]) -> Heads:
    return tails(relations, closes)


def _room(folded: Folded, first: Heads, last: Heads) -> bool:
    """Whether every op fits its own window."""
    return all(
        start + chain.steps <= end
        for chain, starts, ends in zip(folded.chains, first, last, strict=True)
        for start, end in zip(starts, ends, strict=True)
    )
