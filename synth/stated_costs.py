"""What a problem file says of costs, with its defaults filled in and its rules checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from synth.problem import StageCost, Stream
from synth.problem_file import DeviceEntry, ProblemFile, Refuser, StageEntry

_TIMES = ("forward", "backward_act", "backward_wgt", "fused", "pair")
_SIZES = ("activation", "context")


@dataclass(frozen=True, slots=True)
class Cost:
    """What a micro-batch costs on a stage, in the units of the file."""

    times: tuple[Fraction, ...]
    sizes: tuple[Fraction, ...]

    def whole(self, ticks: int, quanta: int) -> StageCost:
        """The same in ticks and quanta of which a unit has so many."""
        return StageCost(
            *(int(time * ticks) for time in self.times),
            *(int(size * quanta) for size in self.sizes),
        )


def stage_costs(data: ProblemFile, refuse: Refuser) -> tuple[Cost, ...]:
    """What every stage costs. Raises FileError with the place of what makes no sense."""
    found = []
    for index, stage in enumerate(data.stages):
        path = f"$.stages[{index}]"
        given = _given(stage, path, refuse)
        if stage.activation is None:
            if data.units.memory != "activation":
                raise refuse(
                    "needs `activation`, what a micro-batch holds from F to B in "
                    f"{data.units.memory}",
                    path,
                )
            given["activation"] = Fraction(1)
        given.setdefault("context", given["activation"])
        found.append(_cost(given, path, refuse))
    return tuple(found)


def device_costs(
    data: ProblemFile, usual: Sequence[Cost], streams: Sequence[Stream], refuse: Refuser
) -> dict[tuple[int, int], Cost]:
    """What stages cost on devices that differ, by device and stage.

    What is said of one stage goes before what is said of the whole device. Raises FileError with
    the place of what makes no sense.
    """
    whole: dict[tuple[int, int], Cost] = {}
    single: dict[tuple[int, int], Cost] = {}
    for index, entry in enumerate(data.device_costs):
        path = f"$.device_costs[{index}]"
        held = {s for stream in streams for s, d in enumerate(stream.route) if d == entry.device}
        if not held or (entry.stage is not None and entry.stage not in held):
            what = "no stage" if not held else f"no stage {entry.stage}"
            raise refuse(f"device {entry.device} holds {what}", path)
        found = whole if entry.stage is None else single
        for stage in sorted(held) if entry.stage is None else [entry.stage]:
            if (entry.device, stage) in found:
                raise refuse(f"device {entry.device} has own costs already; give them once", path)
            found[entry.device, stage] = _own(entry, usual[stage], path, refuse)
    return whole | single


def _own(entry: DeviceEntry, usual: Cost, path: str, refuse: Refuser) -> Cost:
    """What one entry makes of a stage's usual costs."""
    given = _given(entry, path, refuse)
    if (entry.factor is None) == (not given):
        raise refuse("give either `factor` or own costs", path)
    if entry.factor is not None:
        factor = refuse.number(entry.factor, f"{path}.factor")
        if factor == 0:
            raise refuse("must be above 0", f"{path}.factor")
        return Cost(tuple(factor * time for time in usual.times), usual.sizes)
    if entry.stage is None:
        raise refuse("own costs are those of one stage; name it with `stage`", path)
    # Without times of its own, what is derived from them stays what it is everywhere.
    known = dict(zip((*_TIMES, *_SIZES), (*usual.times, *usual.sizes), strict=True))
    if given.keys() & {"backward_act", "backward_wgt"}:
        del known["fused"]
    if given.keys() & {"forward", "backward_act", "backward_wgt", "fused"}:
        del known["pair"]
    return _cost(known | given, path, refuse)


def _given(entry: StageEntry | DeviceEntry, path: str, refuse: Refuser) -> dict[str, Fraction]:
    """The times and sizes that an entry states."""
    return {
        name: refuse.number(getattr(entry, name), f"{path}.{name}")
        for name in (*_TIMES, *_SIZES)
        if getattr(entry, name) is not None
    }


def _cost(given: Mapping[str, Fraction], path: str, refuse: Refuser) -> Cost:
    """Costs with BW = B + W and a pair of F + BW where nothing else is given, checked."""
    forward, act, wgt = (given[name] for name in _TIMES[:3])
    fused = given.get("fused", act + wgt)
    pair = given.get("pair", forward + fused)
    for name, time in zip(_TIMES[:3], (forward, act, wgt), strict=True):
        if time == 0:
            raise refuse("must be above 0", f"{path}.{name}")
    if fused < act:
        raise refuse("a fused backward cannot take less than B alone", f"{path}.fused")
    if pair < max(forward, fused):
        raise refuse("a pair cannot take less than its longer op", f"{path}.pair")
    return Cost((forward, act, wgt, fused, pair), (given["activation"], given["context"]))
