"""Placement: which device holds which stage, for each stream of micro-batches."""

from __future__ import annotations

import re
from dataclasses import dataclass

from synth.errors import ProblemError


@dataclass(frozen=True, slots=True)
class Placement:
    """A named map from stages to devices.

    `routes` has one entry per stream: the stream's name and, for each stage, the device that runs
    it. Two streams that put a stage on different devices hold two replicas of it.
    """

    name: str
    routes: tuple[tuple[str, tuple[int, ...]], ...]

    @property
    def stages(self) -> int:
        """Number of stages the model is cut into."""
        return len(self.routes[0][1])


def linear(devices: int) -> Placement:
    """Stage s on device s."""
    return Placement("linear", (("", tuple(range(devices))),))


def interleaved(devices: int, chunks: int) -> Placement:
    """Chunk k of device d is stage k * P + d (Narayanan et al. 2021, section 2.2)."""
    if chunks < 2:
        raise ProblemError(f"interleaved needs at least 2 chunks per device, got {chunks}")
    route = tuple(stage % devices for stage in range(devices * chunks))
    return Placement(f"interleaved:{chunks}", (("", route),))


def wave(devices: int, waves: int) -> Placement:
    """Zig-zag through the devices: down and up again, `waves` times (Hanayo; v is one wave)."""
    if waves < 1:
        raise ProblemError(f"wave needs at least 1 wave, got {waves}")
    down = tuple(range(devices))
    route = (down + down[::-1]) * waves
    return Placement(f"wave:{waves}", (("", route),))


def v(devices: int) -> Placement:
    """Two chunks per device: stage d and stage 2P - 1 - d (zero-bubble paper, section 6)."""
    return Placement("v", wave(devices, 1).routes)


def bidirectional(devices: int) -> Placement:
    """Two streams in opposite directions over two replicas (Chimera, DualPipe)."""
    down = tuple(range(devices))
    return Placement("bidirectional", (("down", down), ("up", down[::-1])))


def bidirectional_v(devices: int) -> Placement:
    """Two streams, each on a V of its own replica that starts at its end (BitPipe)."""
    down = v(devices).routes[0][1]
    up = tuple(devices - 1 - device for device in down)
    return Placement("bidirectional-v", (("down", down), ("up", up)))


def named(devices: int, routes: tuple[tuple[str, tuple[int, ...]], ...]) -> Placement:
    """The placement with these routes, under the name it is known by if it has one."""
    chunks, rest = divmod(len(routes[0][1]), devices) if routes else (0, 1)
    known: list[Placement] = []
    if not rest and chunks == 1:
        known = [linear(devices), bidirectional(devices)]
    elif not rest and chunks > 1:
        known = [interleaved(devices, chunks)]
        if chunks == 2:
            known += [v(devices), bidirectional_v(devices)]
        elif chunks % 2 == 0:
            known.append(wave(devices, chunks // 2))
    return next((one for one in known if one.routes == routes), Placement("explicit", routes))


_NAMES = "linear, interleaved:V, v, wave:K, bidirectional, bidirectional-v"
_FIXED = {
    "linear": linear,
    "v": v,
    "bidirectional": bidirectional,
    "bidirectional-v": bidirectional_v,
}


def parse_placement(name: str, devices: int) -> Placement:
    """Read a placement from its name. Raises ProblemError for a name that is not one."""
    if devices < 1:
        raise ProblemError(f"devices must be at least 1, got {devices}")
    if name in _FIXED:
        return _FIXED[name](devices)
    match = re.fullmatch(r"(interleaved|wave):([0-9]{1,4})", name)
    if match is None:
        raise ProblemError(f"placement {name!r} is not known; use one of {_NAMES}")
    return (interleaved if match[1] == "interleaved" else wave)(devices, int(match[2]))
