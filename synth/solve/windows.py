"""Windows: for every chain, the steps between which its ops may start and must end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from synth.solve.folding import Folded


@dataclass(frozen=True, slots=True)
class Window:
    """A chain's ops run within [earliest, latest_end]; all of them must, if `complete`."""

    earliest: int
    latest_end: int
    complete: bool = True


def heads(folded: Folded, device_starts: Sequence[int]) -> list[int]:
    """Earliest start of every chain's first op: longest path, devices opening at given steps."""
    earliest = [device_starts[chain.device] for chain in folded.chains]
    for _ in folded.chains:  # a longest path has at most as many edges as there are chains
        moved = False
        for edge in folded.edges:
            least = earliest[edge.before] + folded.chains[edge.before].steps + edge.lag
            if earliest[edge.after] < least:
                earliest[edge.after] = least
                moved = True
        if not moved:
            break
    return earliest


def latest_ends(folded: Folded, device_ends: Sequence[int]) -> list[int]:
    """Latest end of every chain's last op, devices closing at given steps."""
    latest = [device_ends[chain.device] for chain in folded.chains]
    for _ in folded.chains:
        moved = False
        for edge in folded.edges:
            most = latest[edge.after] - folded.chains[edge.after].steps - edge.lag
            if latest[edge.before] > most:
                latest[edge.before] = most
                moved = True
        if not moved:
            break
    return latest


def device_heads(folded: Folded) -> list[int]:
    """The earliest step at which each device can start anything."""
    first = heads(folded, [0] * folded.problem.devices)
    return [
        min(first[chain] for chain in folded.of_device(device))
        for device in range(folded.problem.devices)
    ]


def makespan_windows(folded: Folded, horizon: int) -> tuple[Window, ...]:
    """One window [0, horizon] for all devices."""
    devices = folded.problem.devices
    return _join(heads(folded, [0] * devices), latest_ends(folded, [horizon] * devices))


def span_windows(folded: Folded, horizon: int) -> tuple[Window, ...]:
    """A window of its own for each device, opening as soon as the device can start anything."""
    starts = device_heads(folded)
    ends = [start + horizon for start in starts]
    return _join(heads(folded, starts), latest_ends(folded, ends))


def relaxed_windows(folded: Folded, horizon: int) -> tuple[Window, ...]:
    """What a single stream's schedules of that span fit into, seen from the first stage's device.

    With its clock set to the start of the first stage, the device of that stage runs the first F
    and the last B, so all F and B of the others lie within its window. Their W may end later and
    are not bound at all here: a relaxation, so that a horizon it refutes is refuted for good.
    """
    devices = folded.problem.devices
    anchor = folded.problem.streams[0].route[0]
    far = horizon * (devices + 1)
    ends = latest_ends(folded, [horizon if d == anchor else far for d in range(devices)])
    windows = _join(heads(folded, [0] * devices), ends)
    return tuple(
        window if window.latest_end <= horizon else Window(window.earliest, horizon, complete=False)
        for window in windows
    )


def free_windows(folded: Folded, horizon: int) -> tuple[Window, ...]:
    """Where ops can lie at all when every device has a window of that span somewhere.

    The first stream's F and B lie within the window of the device that runs its first stage, and
    every other device's window meets that one, so all lie within one horizon on either side of it.
    With a single stream nothing lies before it.
    """
    devices = folded.problem.devices
    anchor = folded.problem.streams[0].route[0]
    start = 0 if len(folded.problem.streams) == 1 else horizon
    opens = [start if d == anchor else 0 for d in range(devices)]
    closes = [start + horizon * (1 if d == anchor else 2) for d in range(devices)]
    return _join(heads(folded, opens), latest_ends(folded, closes))


def _join(earliest: list[int], latest: list[int]) -> tuple[Window, ...]:
    return tuple(Window(low, high) for low, high in zip(earliest, latest, strict=True))
