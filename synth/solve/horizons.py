"""Horizons that the orders of single devices rule out: no program, no solver.

For a horizon every op has a window, from its head to its tail. A device that can run its ops in no
order within their windows and its memory refutes the horizon. Where it can, the ops that start
later or end earlier in every order have narrower windows, and along the paths to other devices so
do theirs: one device after another, forwards and backwards in time, until nothing moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from synth.folding import exact_step, fold
from synth.heads import NEVER, Heads, Relations, heads, one_machine, relate, sweep, tails
from synth.problem import Objective, Problem
from synth.solve.deadline import Deadline
from synth.solve.states import Reached, TooManyError, View, reach, view


@dataclass(frozen=True, slots=True)
class _Sides:
    """A device forwards and backwards in time."""

    device: int
    forward: View
    backward: View


class Horizons:
    """What is known of a problem's horizons, in the largest steps of which all its times are made.

    For makespan all devices share the horizon. For span a device's own is counted from when it
    opens, and paths that leave the device count only where they come back to it.
    """

    def __init__(self, problem: Problem) -> None:
        self.step = exact_step(problem)
        self.open = {False: -NEVER, True: -NEVER}  # from which horizon on nothing is refuted
        self._together = problem.objective is Objective.MAKESPAN
        self._relations = relate(fold(problem, self.step))
        self._reversed = self._relations.reversed()
        self._bases: dict[int | None, tuple[Heads, Heads]] = {}
        views = [view(self._relations, device) for device in range(problem.devices)]
        self._sides = [
            _Sides(device, own, own.reversed()) for device, own in enumerate(views) if own
        ]
        self._sides.reverse()  # most often the last device, where a chain turns, is the tightest

    def refuting(self, horizon: int, thorough: bool, deadline: Deadline) -> int | None:
        """The device that rules a horizon out, None if none does.

        Only `thorough` is it more than one look at one device. Raises TooManyError.
        """
        groups = [self._sides] if self._together else [[side] for side in self._sides]
        if not thorough:
            groups = [sides[:1] for sides in groups[:1]]
        for sides in groups:
            if deadline.left == 0.0:
                raise TooManyError
            first, last = self._base(None if self._together else sides[0].device)
            last = [[end + horizon for end in row] for row in last]
            found = self._narrow(sides, first, last, thorough, deadline)
            if found is not None:
                self._sides.sort(key=lambda side: side.device != found)  # tried first from now on
                return found
        for depth in {False, thorough}:
            self.open[depth] = min(self.open[depth], horizon)
        return None

    def _base(self, device: int | None) -> tuple[Heads, Heads]:
        """Heads and tails at horizon 0, of one device on its own if one is given."""
        if device not in self._bases:
            devices = range(self._relations.folded.problem.devices)
            opens = [0 if device in (None, other) else NEVER for other in devices]
            self._bases[device] = (
                heads(self._relations, opens),
                tails(self._relations, [-start for start in opens]),
            )
        return self._bases[device]

    def _narrow(
        self,
        sides: Sequence[_Sides],
        first: Heads,
        last: Heads,
        thorough: bool,
        deadline: Deadline,
    ) -> int | None:
        """The device of which no order fits, once all windows are as narrow as they get."""
        folded = self._relations.folded
        seen: dict[int, _Seen] = {}
        while True:
            before = first, last
            for side in sides:
                chains = side.forward.chains
                windows = _part(chains, first, last)
                known = seen.get(side.device)
                if known and known.windows == windows:
                    continue
                if one_machine(folded, side.device, first, last) > 0:
                    return side.device
                there = reach(side.forward, *windows, deadline, known.back if known else None)
                if there is None:
                    return side.device
                if not thorough:
                    return None
                first = _raised(self._relations, chains, first, there)
                mirror = _mirrored(last), _mirrored(first)
                back = reach(side.backward, *_part(chains, *mirror), deadline, there)
                if back is None:
                    return side.device
                last = _mirrored(_raised(self._reversed, chains, mirror[0], back))
                seen[side.device] = _Seen(windows, back)
            if before == (first, last):
                return None


@dataclass(frozen=True, slots=True)
class _Seen:
    """The windows with which a device was looked at, and what it can do in reversed time."""

    windows: tuple[Heads, Heads]
    back: Reached


def _part(chains: tuple[int, ...], first: Heads, last: Heads) -> tuple[Heads, Heads]:
    """The windows of a device's ops."""
    return [first[c] for c in chains], [last[c] for c in chains]


def _raised(relations: Relations, chains: tuple[int, ...], first: Heads, found: Reached) -> Heads:
    """Earliest starts with those of a device's chains raised, and what follows from them."""
    raised = [*map(list, first)]
    for chain, starts in zip(chains, found.starts, strict=True):
        raised[chain] = [*starts]
    sweep(relations, raised)
    return raised


def _mirrored(times: Heads) -> Heads:
    """Starts as ends of reversed time, or ends as starts."""
    return [[-time for time in reversed(row)] for row in times]
