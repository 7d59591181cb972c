"""Reading the schedule that is to be run."""

from __future__ import annotations

from pathlib import Path

from synth.errors import InvalidScheduleError
from synth.files import load
from synth.schedule import Schedule
from synth.verify import verify


def load_valid(path: Path) -> Schedule:
    """Reads a schedule file and refuses one that breaks a rule.

    Raises:
        FileError: the file cannot be read.
        InvalidScheduleError: the schedule is wrong; names the first violation.
    """
    schedule = load(path)
    violations = verify(schedule)
    if violations:
        more = f" (and {len(violations) - 1} more)" if len(violations) > 1 else ""
        raise InvalidScheduleError(f"{path}: {violations[0]}{more}; see `pipesynth verify {path}`")
    return schedule
