"""From a problem file to a problem: typed numbers become whole ticks and quanta, exactly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import lcm

from synth.errors import InfeasibleError, ProblemError
from synth.files import read_bytes
from synth.placement import Placement, named, parse_placement
from synth.problem import (
    MAX_OPS,
    DeviceCost,
    Link,
    Problem,
    Stream,
    Units,
    parse_objective,
    share_out,
)
from synth.problem_file import ProblemFile, Refuser, StreamEntry, loads
from synth.stated_costs import device_costs, stage_costs
from synth.units import Amount


def load_problem(
    path: str,
    *,
    memory: Sequence[Amount | None] | None = None,
    objective: str | None = None,
) -> Problem:
    """The problem that a file states, with other limits or another objective where they are given.

    `memory` is the limit of every device, or one number for all, as the file would state it.

    Raises FileError with the place of what is wrong, and InfeasibleError where what stages keep all
    the time leaves no memory for activations.
    """
    return _Maker(loads(read_bytes(path), path), path).make(memory, objective)


class _Maker:
    """Reads one file; every refusal names it and the place."""

    def __init__(self, data: ProblemFile, source: str) -> None:
        self.data = data
        self.refuse = Refuser(source)

    def make(self, memory: Sequence[Amount | None] | None, objective: str | None) -> Problem:
        """The problem, with other limits or another objective where they are given."""
        data, number = self.data, self.refuse.number
        placement, streams = self._streams()
        costs = stage_costs(data, self.refuse)
        own = device_costs(data, costs, streams, self.refuse)
        comm = number(data.comm, "$.comm")
        lags = [number(link.lag, f"$.links[{n}].lag") for n, link in enumerate(data.links)]
        kept = self._kept()
        limits = self._room(streams, kept, memory)
        every = [*costs, *own.values()]
        ticks = lcm(*(t.denominator for t in (comm, *lags, *(t for c in every for t in c.times))))
        held = (*(size for cost in every for size in cost.sizes), *filter(None, limits), *kept)
        quanta = lcm(*(size.denominator for size in held))
        try:
            return Problem(
                devices=data.devices,
                placement=placement,
                stages=tuple(cost.whole(ticks, quanta) for cost in costs),
                streams=streams,
                comm_ticks=int(comm * ticks),
                limits_quanta=tuple(None if q is None else int(q * quanta) for q in limits),
                objective=parse_objective(objective or data.objective),
                units=Units(data.units.time, ticks, data.units.memory, quanta),
                needs=self._needs(),
                device_costs=tuple(
                    DeviceCost(*where, cost.whole(ticks, quanta)) for where, cost in own.items()
                ),
                links=tuple(
                    Link(link.source, link.target, int(lag * ticks))
                    for link, lag in zip(data.links, lags, strict=True)
                ),
                kept_quanta=tuple(int(size * quanta) for size in kept),
            )
        except ProblemError as error:
            raise self.refuse(str(error), "$") from None

    def _streams(self) -> tuple[str, tuple[Stream, ...]]:
        """The placement's name and its streams."""
        data, stages = self.data, len(self.data.stages)
        if data.devices < 1:
            raise self.refuse(f"needs at least 1 device, got {data.devices}", "$.devices")
        if not stages:
            raise self.refuse("holds no stage; give at least one", "$.stages")
        if (data.streams is None) == (data.placement is None):
            raise self.refuse(
                "where the stages live is said by `placement` or by `streams`; give one of them",
                "$",
            )
        if data.devices > stages * (2 if data.streams is None else len(data.streams)):
            raise self.refuse(
                f"{stages} stages cannot fill {data.devices} devices; use fewer", "$.devices"
            )
        if data.streams is not None:
            return self._listed(data.streams)
        microbatches = self._microbatches(data.microbatches, "$.microbatches")
        placement = self._placement()
        if placement.stages != stages:
            raise self.refuse(
                f"placement {placement.name} on {data.devices} devices has {placement.stages} "
                f"stages, the file {stages}",
                "$.placement",
            )
        try:
            return placement.name, share_out(placement, microbatches)
        except ProblemError as error:
            raise self.refuse(str(error), "$.microbatches") from None

    def _listed(self, entries: list[StreamEntry]) -> tuple[str, tuple[Stream, ...]]:
        if self.data.microbatches is not None:
            raise self.refuse("every stream has its own; leave this out", "$.microbatches")
        for n, entry in enumerate(entries):
            self._microbatches(entry.microbatches, f"$.streams[{n}].microbatches")
            if len(entry.route) != len(self.data.stages):
                raise self.refuse(
                    f"names devices for {len(entry.route)} stages, the model has "
                    f"{len(self.data.stages)}",
                    f"$.streams[{n}].route",
                )
        self._microbatches(sum(entry.microbatches for entry in entries), "$.streams")
        streams = tuple(Stream(e.name, e.microbatches, tuple(e.route)) for e in entries)
        routes = tuple((stream.name, stream.route) for stream in streams)
        return named(self.data.devices, routes).name, streams

    def _microbatches(self, count: int | None, path: str) -> int:
        if count is None:
            raise self.refuse("a placement needs `microbatches`, how many there are", "$")
        if count < 1:
            raise self.refuse(f"needs at least 1 micro-batch, got {count}", path)
        ops = 3 * len(self.data.stages) * count
        if ops > MAX_OPS:
            raise self.refuse(
                f"{count} micro-batches make {ops} ops, more than the {MAX_OPS} that are handled",
                path,
            )
        return count

    def _placement(self) -> Placement:
        given = self.data.placement
        if isinstance(given, list):
            return named(self.data.devices, (("", tuple(given)),))
        try:
            return parse_placement(str(given), self.data.devices)
        except ProblemError as error:
            raise self.refuse(f"{error}, or a list of devices", "$.placement") from None

    def _needs(self) -> tuple[tuple[int, ...], ...]:
        """The stages that each needs."""
        found: list[tuple[int, ...]] = []
        for stage, entry in enumerate(self.data.stages):
            path = f"$.stages[{stage}].needs"
            needs = entry.needs
            if needs is None:
                needs = [stage - 1] if stage else []
            for other in needs:
                if not 0 <= other < stage:
                    raise self.refuse(
                        f"stage {stage} needs stage {other}; number the stages so that each needs "
                        "only lower ones",
                        path,
                    )
            if len(set(needs)) < len(needs):
                raise self.refuse(f"stage {stage} needs a stage twice; name each once", path)
            found.append(tuple(needs))
        return tuple(found)

    def _room(
        self,
        streams: Sequence[Stream],
        kept: Sequence[Fraction],
        memory: Sequence[Amount | None] | None,
    ) -> list[Fraction | None]:
        """What is left on each device for activations; None where there is no limit."""
        room: list[Fraction | None] = []
        for device, limit in enumerate(self._limits(memory)):
            held = {s for stream in streams for s, d in enumerate(stream.route) if d == device}
            static = sum((kept[stage] for stage in held), Fraction(0))
            if limit is not None and static > 0 and limit <= static:
                typed = self.data.units.memory
                unit = "activation units" if typed == "activation" else typed
                raise InfeasibleError(
                    f"infeasible: parameters, gradients and optimizer of device {device} take "
                    f"{float(static):g} {unit}, its limit is {float(limit):g}; raise the limit or "
                    "spread the stages over more devices"
                )
            room.append(None if limit is None else limit - static)
        return room

    def _kept(self) -> list[Fraction]:
        """What a device keeps all the time of each stage."""
        names = ("parameters", "gradients", "optimizer")
        return [
            sum(
                (self.refuse.number(getattr(stage, n), f"$.stages[{s}].{n}") for n in names),
                Fraction(0),
            )
            for s, stage in enumerate(self.data.stages)
        ]

    def _limits(self, memory: Sequence[Amount | None] | None) -> Iterator[Fraction | None]:
        devices, stated = self.data.devices, self.data.memory
        given: Sequence[Amount | None] = stated if isinstance(stated, list) else [stated] * devices
        if memory is not None:
            given = list(memory) * (devices if len(memory) == 1 else 1)
        if len(given) != devices:
            raise self.refuse(
                f"{len(given)} memory limits for {devices} devices; give one number or one each",
                "$.memory",
            )
        for device, limit in enumerate(given):
            yield None if limit is None else self.refuse.number(limit, f"$.memory[{device}]")
