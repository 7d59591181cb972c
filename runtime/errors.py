"""What can go wrong while a schedule runs; the exit codes are those of the command contract."""

from __future__ import annotations

from synth.errors import AnswerNoError


class RunError(AnswerNoError):
    """A run that cannot go on."""


class PeerError(RunError):
    """Another rank is gone, or does not answer in time."""


class PlanError(RunError):
    """The run breaks a promise of its plan, such as the in-flight activations."""


class GradientsDifferError(RunError):
    """The pipeline's loss or gradients are not those of the single-process reference."""
