"""What can go wrong while a schedule runs; the exit codes are those of the command contract."""

from __future__ import annotations

import re
import traceback
from pathlib import Path

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
    """What a library's error comes down to: a peer that is late, or its first sentence."""
    line = str(error).strip().split("\n")[0]
    if re.search("timed out|timeout", line, re.IGNORECASE):
        return "no answer in time"
    return re.sub(r"^\[[^\]]*:\d+\] ", "", line).split(". ")[0]


def describe(error: BaseException) -> str:
    """Type, text and place of an error that nobody foresaw."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {str(error).strip() or 'no text'}{place}"
