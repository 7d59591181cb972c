"""From a problem to the best schedule found and the proof of how good it is."""

from synth.solve.portfolio import SolveResult, Status, solve

__all__ = ["SolveResult", "Status", "solve"]
