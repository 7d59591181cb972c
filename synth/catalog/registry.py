"""The families by name."""

from __future__ import annotations

import re
from collections.abc import Callable

from synth.catalog import gpipe, one_f_one_b, zero_bubble
from synth.catalog.family import Family
from synth.errors import UsageError

_FIXED = {
    family.name: family
    for family in (
        gpipe.FAMILY,
        one_f_one_b.FAMILY,
        zero_bubble.H1,
        zero_bubble.H2,
    )
}

# Families with a number: how they are written, how they are made, and the ones listed by default.
_NUMBERED: dict[str, tuple[str, Callable[[int], Family], tuple[int, ...]]] = {}


def names() -> tuple[str, ...]:
    """Every family's name; of those with a number the ones worth comparing by default."""
    numbered = tuple(f"{head}:{n}" for head, (_, _, usual) in _NUMBERED.items() for n in usual)
    return (*_FIXED, *numbered)


def patterns() -> tuple[str, ...]:
    """How the names are written, as in `interleaved:V`."""
    return (*_FIXED, *(pattern for pattern, _, _ in _NUMBERED.values()))


def family(name: str) -> Family:
    """The family of that name. Raises UsageError when there is none."""
    if name in _FIXED:
        return _FIXED[name]
    match = re.fullmatch(r"([a-z0-9-]+):([1-9][0-9]{0,3})", name)
    if match is None or match[1] not in _NUMBERED:
        raise UsageError(f"schedule {name!r} is not known; use one of {', '.join(patterns())}")
    _, make, _ = _NUMBERED[match[1]]
    return make(int(match[2]))
