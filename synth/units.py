"""Units: how whole ticks and quanta translate into the numbers that a user types, exactly."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from synth.errors import ProblemError
from synth.line import require_line

MAX_TOTAL_TICKS = 2**53  # JSON numbers stay exact up to here

Amount = int | float | str | Fraction | Decimal


@dataclass(frozen=True, slots=True)
class Units:
    """How ticks and quanta translate into what the user typed."""

    time: str = "unit"
    ticks_per_unit: int = 1
    memory: str = "activation"
    quanta_per_unit: int = 1

    def __post_init__(self) -> None:
        if self.ticks_per_unit < 1 or self.quanta_per_unit < 1:
            raise ProblemError(f"units need at least one tick and one quantum, got {self}")
        require_line(self.time, "a unit of time")
        require_line(self.memory, "a unit of memory")

    def ticks(self, ticks: int) -> int | float:
        """Ticks as the user's time units; an int where it is whole."""
        return _number(ticks, self.ticks_per_unit)

    def time_text(self, ticks: int) -> str:
        """Ticks as a text with their unit: `15 units`, `1.2 ms`."""
        time = self.ticks(ticks)
        shown = f"{time:.6g}" if isinstance(time, float) else str(time)
        plural = "s" if self.time == "unit" and time != 1 else ""
        return f"{shown} {self.time}{plural}"

    def memory_text(self, quanta: int) -> str:
        """Quanta as a text with their unit: `4 activation units`, `1.5 GiB`."""
        return f"{self.quanta(quanta)} {self.memory}" + (
            " units" if self.memory == "activation" else ""
        )

    def quanta(self, quanta: int) -> int | float:
        """Quanta as the user's memory units; an int where it is whole."""
        return _number(quanta, self.quanta_per_unit)


def _number(count: int, per_unit: int) -> int | float:
    return count // per_unit if count % per_unit == 0 else count / per_unit


def amount(value: Amount, what: str) -> Fraction:
    """A number exactly as typed: 18.522 is 18522/1000, not the nearest binary fraction."""
    extreme = f"{what}: {value!r} is too large or has more than 9 decimals"
    try:
        exact = value if isinstance(value, (int, Fraction)) else str(value)
        exponent = re.search(r"[eE]([-+]?[\d_]+)\s*$", exact) if isinstance(exact, str) else None
        if exponent is not None and abs(int(exponent[1])) > 99:
            raise ProblemError(extreme)  # a billion digits would take forever to write out
        number = Fraction(exact)
    except (ValueError, OverflowError, ZeroDivisionError):
        raise ProblemError(f"{what}: {value!r} is not a finite number") from None
    if number < 0:
        raise ProblemError(f"{what}: {value!r} is negative")
    if number > MAX_TOTAL_TICKS or number.denominator > 10**9:
        raise ProblemError(extreme)
    return number
