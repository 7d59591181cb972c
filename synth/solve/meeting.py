"""Which devices' windows have to meet, and so how far apart they can lie, for the objective span.

A stage runs all its F behind, and all its B in front of, those of any stage that it needs. So the
window of a device that holds the one contains an F and a B of the device that holds the other: the
two meet. Windows of one length each that are so many meetings apart lie within that many lengths.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from synth.problem import Problem


@dataclass(frozen=True, slots=True)
class Meeting:
    """The device whose window sets the clock, and how many meetings away each device is.

    Devices that have nothing to do with the anchor have one of their own, at distance 0: schedules
    that share nothing can be moved in time until the windows of their anchors coincide.
    """

    anchor: int
    distance: tuple[int, ...]

    @property
    def length(self) -> int:
        """Within how many windows' length all windows lie."""
        return 2 * max(1, *self.distance) + 1


def rooted(problem: Problem) -> bool:
    """Whether all F and B of a single stream run between the first F and the last B of stage 0."""
    return len(problem.streams) == 1 and all(
        problem.before(stage) for stage in range(1, len(problem.stages))
    )


@lru_cache(maxsize=8)
def meeting(problem: Problem) -> Meeting:
    """The anchor from which the farthest window is least far; the first stage's where it is one."""
    meets = _meets(problem)
    left = set(range(problem.devices))
    distance = [0] * problem.devices
    first = problem.streams[0].route[0]
    anchors: list[int] = []
    while left:
        start = first if first in left else min(left)
        group = _distances(meets, start)
        anchor = min(group, key=lambda d: (max(_distances(meets, d).values()), d != start, d))
        anchors.append(anchor)
        for device, steps in _distances(meets, anchor).items():
            distance[device] = steps
        left -= group.keys()
    return Meeting(anchors[0], tuple(distance))


def _meets(problem: Problem) -> list[set[int]]:
    """For each device those whose windows meet its own in every schedule."""
    meets: list[set[int]] = [set() for _ in range(problem.devices)]
    for stream in problem.streams:
        for stage, sources in enumerate(problem.ancestors()):
            device = stream.route[stage]
            for source in sources:
                meets[device].add(stream.route[source])
                meets[stream.route[source]].add(device)
    return meets


def _distances(meets: list[set[int]], start: int) -> dict[int, int]:
    """Meetings between a device and each that it is joined to."""
    found = {start: 0}
    edge = [start]
    while edge:
        edge = [other for device in edge for other in meets[device] if other not in found]
        edge = sorted(set(edge))
        steps = max(found.values()) + 1
        found.update(dict.fromkeys(edge, steps))
    return found
