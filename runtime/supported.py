"""What the runtime cannot execute, said in one line before anything starts. Imports no torch."""

from __future__ import annotations

from synth.errors import UsageError
from synth.problem import Problem


def require_chain(problem: Problem) -> None:
    """Refuses stages with several inputs or outputs.

    Raises:
        UsageError: the stages are not a chain.
    """
    if not problem.is_chain:
        raise UsageError(
            "the stages of this schedule are not a chain, and the runtime hands every result to "
            "the next stage only; `pipesynth export FILE --to program` writes it for other runtimes"
        )


def require_even(problem: Problem) -> None:
    """Refuses what stages that sleep cannot imitate: they take the same time on every device.

    Raises:
        UsageError: some stages cost more or less on some devices, or some links take longer.
    """
    if problem.device_costs or problem.links:
        raise UsageError(
            "some devices or links of this schedule are slower than others, which stages that "
            "sleep cannot imitate; run it with a model, or give all stages --sleep-ms F,B,W"
        )
