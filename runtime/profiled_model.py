"""The model that a costs file is of, for whoever runs it. Imports no torch."""

from __future__ import annotations

import argparse
import operator
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from synth.errors import FileError, UsageError
from synth.model_options import DTYPES, counts
from synth.schedule import Schedule


def profiled_model(path: Path) -> dict[str, Any]:
    """The options that build the model of a costs file, cut as it was there.

    Raises:
        FileError: it cannot be read, or holds no such model.
    """
    from synth.costs import loads
    from synth.files import read_bytes

    costs = loads(read_bytes(path), str(path))
    facts = costs.model
    found: dict[str, Any] = {"model": str(facts.get("name")), "cut": costs.cut}
    try:
        for name in ("layers", "width", "heads", "seq_len", "seed", "batch"):
            if name in facts:
                found[name] = operator.index(facts[name])  # type: ignore[arg-type]
        if facts.get("input_shape") is not None:
            found["input_shape"] = counts(str(facts["input_shape"]))
        if "dtype" in facts:
            found["dtype"] = DTYPES[DTYPES.index(str(facts["dtype"]))]
    except (TypeError, ValueError, argparse.ArgumentTypeError) as error:
        raise FileError(f"{path}: does not say which model it is of: {error}") from None
    return found


def require_profile_of(schedule: Schedule, path: Path, cut: Sequence[int]) -> None:
    """Refuses a schedule that was made from another profile, or for another cut of this one.

    Bytes tell: times change from one profile of a model to the next, and with every calibration.

    Raises:
        FileError: the costs file cannot be read.
        UsageError: it is such a schedule.
    """
    from synth.costs import loads
    from synth.files import read_bytes
    from synth.profiled import UNITS, joined

    if schedule.problem.units != UNITS:
        return  # made from no profile at all
    costs = loads(read_bytes(path), str(path))
    stages = costs.stages if tuple(cut) == costs.cut else joined(costs.layers, cut)
    held = [(stage.activation_bytes, stage.context_bytes) for stage in stages]
    planned = [(stage.activation_quanta, stage.context_quanta) for stage in schedule.problem.stages]
    if held != planned:
        raise UsageError(
            f"--profile {path}: cut into {','.join(map(str, cut))} its stages hold other bytes "
            "than those of the schedule; give the --cut that `solve --balance` printed, or the "
            "profile that the schedule was made from"
        )
