"""How many bytes a step sends, by what a profile measured between the layers of a model."""

from __future__ import annotations

from synth.costs import Costs
from synth.problem import Problem


def sent_bytes(problem: Problem, costs: Costs) -> int | None:
    """Bytes of all messages of a step: outputs on the way there, their gradients on the way back.

    Where neighbouring layers differ in what they hand on, the sizes are known for as many stages as
    the profile was cut into, and None for any other number.
    """
    sizes = {layer.output_bytes for layer in costs.layers[:-1]}
    if len(sizes) == 1:
        outputs = tuple(sizes) * len(problem.stages)
    elif len(costs.stages) == len(problem.stages):
        outputs = tuple(stage.output_bytes for stage in costs.stages)
    else:
        return None
    return sum(
        2 * stream.microbatches * outputs[source]
        for stream in problem.streams
        for stage, device in enumerate(stream.route)
        for source in problem.before(stage)
        if stream.route[source] != device
    )
