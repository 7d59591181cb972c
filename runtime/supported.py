"""What the runtime cannot do, said in one line before anything starts."""

from __future__ import annotations

import importlib

from synth.errors import UsageError
from synth.problem import Problem


def require_one_loss(problem: Problem) -> None:
    """Refuses stages of which several end in a loss.

    Raises:
        UsageError: more than one stage is needed by none.
    """
    if len(problem.last_stages) > 1:
        ends = " and ".join(map(str, problem.last_stages))
        raise UsageError(
            f"stages {ends} of this schedule end in a loss each, and the runtime knows one; let a "
            "last stage join them, or `pipesynth export FILE --to program` for other runtimes"
        )


def require_chain(problem: Problem) -> None:
    """Refuses to cut a model into stages that are not a chain.

    Raises:
        UsageError: they are not.
    """
    if not problem.is_chain:
        raise UsageError(
            "the stages of this schedule are not a chain, and a model is cut into nothing else by "
            f"itself; give a list of {len(problem.stages)} modules"
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


def require_torch() -> None:
    """Imports torch.

    Raises:
        UsageError: it is not installed.
    """
    try:
        importlib.import_module("torch")
    except ImportError:
        raise UsageError(
            "this needs torch, which is not installed; install it with: "
            "pip install 'pipesynth[torch]'"
        ) from None
