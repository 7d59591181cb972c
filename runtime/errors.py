"""What can go wrong while a schedule runs; the exit codes are those of the command contract."""

from __future__ import annotations

import re

from synth.errors import AnswerNoError


class RunError(AnswerNoError):
    """A run that cannot go on."""


class PeerError(RunError):
    """Another rank is gone, or does not answer in time."""


class PlanError(RunError):
    """The run breaks a promise of its plan, such as the in-flight activations."""


class GradientsDifferError(RunError):
    """The pipeline's loss or gradients are not those of the single-process reference."""


def reason(error: BaseException) -> str:
    """The first sentence of a library's error, without the place in its source."""
    line = str(error).strip().split("\n")[0]
    return re.sub(r"^\[[^\]]*:\d+\] ", "", line).split(". ")[0]
