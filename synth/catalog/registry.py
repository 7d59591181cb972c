"""The families by name."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from synth.catalog import (
    breadth_first,
    chimera,
    controllable,
    dualpipe,
    gems,
    gpipe,
    hanayo,
    interleaved,
    interleaved_zb,
    one_f_one_b,
    pipedream,
    zb_greedy,
    zb_v,
    zero_bubble,
)
from synth.catalog.family import Family
from synth.errors import UsageError

_FIXED = {
    family.name: family
    for family in (
        gpipe.FAMILY,
        one_f_one_b.FAMILY,
        zero_bubble.H1,
        zero_bubble.H2,
        zb_v.FAMILY,
        controllable.V_HALF,
        controllable.V_MIN,
        dualpipe.DUALPIPE,
        dualpipe.DUALPIPEV,
        chimera.CHIMERA,
        chimera.BITPIPE,
        gems.FAMILY,
        pipedream.PIPEDREAM,
        pipedream.PIPEDREAM_2BW,
    )
}


@dataclass(frozen=True, slots=True)
class _Numbered:
    """Families that differ in numbers: how they are written and made, and which are usual."""

    pattern: str
    make: Callable[..., Family]
    usual: tuple[str, ...]


_NUMBERED = {
    "interleaved": _Numbered(
        "interleaved:V[:N]", interleaved.make, ("interleaved:2", "interleaved:4")
    ),
    "interleaved-zb": _Numbered("interleaved-zb:V", interleaved_zb.make, ("interleaved-zb:2",)),
    "bfs": _Numbered("bfs:V", breadth_first.make, ("bfs:2",)),
    "hanayo": _Numbered("hanayo:K", hanayo.make, ("hanayo:1", "hanayo:2")),
    "zb-greedy": _Numbered("zb-greedy:K", zb_greedy.make, ("zb-greedy:1", "zb-greedy:2")),
}


def names() -> tuple[str, ...]:
    """Every family's name; of those with a number the ones worth comparing by default."""
    return (*_FIXED, *(name for numbered in _NUMBERED.values() for name in numbered.usual))


def patterns() -> tuple[str, ...]:
    """How the names are written, as in `interleaved:V`."""
    return (*_FIXED, *(numbered.pattern for numbered in _NUMBERED.values()))


def family(name: str) -> Family:
    """The family of that name. Raises UsageError when there is none."""
    if name in _FIXED:
        return _FIXED[name]
    head, *numbers = name.split(":")
    numbered = _NUMBERED.get(head)
    most = 0 if numbered is None else numbered.pattern.count(":")
    if numbered is None or not 1 <= len(numbers) <= most or not all(map(_is_number, numbers)):
        raise UsageError(f"schedule {name!r} is not known; use one of {', '.join(patterns())}")
    return numbered.make(*map(int, numbers))


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[1-9][0-9]{0,3}", text) is not None
