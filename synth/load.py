"""Schedules that a command or a run is about to rely on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from synth.errors import InvalidScheduleError

if TYPE_CHECKING:
    from pathlib import Path

    from synth.schedule import Schedule


def load_valid(path: str | Path) -> Schedule:
    """Read a schedule file and refuse one that breaks a rule.

    Raises FileError when it cannot be read, InvalidScheduleError with the first violation.
    """
    from synth import files
    from synth.verify import verify

    schedule = files.load(path)
    violations = verify(schedule)
    if violations:
        more = f" (and {len(violations) - 1} more)" if len(violations) > 1 else ""
        raise InvalidScheduleError(f"{path}: {violations[0]}{more}; see `pipesynth verify {path}`")
    return schedule
