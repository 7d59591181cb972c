"""Parameters that several stages share, such as the table of an embedding and of a head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import nn

from synth.errors import UsageError


@dataclass(frozen=True, slots=True)
class Tie:
    """One parameter under the names it has in several stages.

        Tie(((0, "embedding.weight"), (3, "head.weight")))

    Ranks that hold one of the stages have a copy each. All start with the value of the first use,
    and after a step all have the sum of the gradients of all uses.
    """

    uses: tuple[tuple[int, str], ...]

    def __post_init__(self) -> None:
        if len(self.stages) < 2:
            raise UsageError(f"a tie connects several stages, got {self.uses}")

    @property
    def stages(self) -> tuple[int, ...]:
        """The stages it connects, in order."""
        return tuple(sorted({stage for stage, _ in self.uses}))


def bind(
    ties: Sequence[Tie], modules: Mapping[int, nn.Module]
) -> dict[tuple[int, ...], dict[Tie, nn.Parameter]]:
    """Makes every tie one parameter object on this rank; returns them by the stages they connect.

    Raises:
        UsageError: a stage has no parameter of that name, or the shapes differ.
    """
    bound: dict[tuple[int, ...], dict[Tie, nn.Parameter]] = {}
    for tie in ties:
        own: nn.Parameter | None = None
        for stage, name in tie.uses:
            if stage not in modules:
                continue
            path, _, last = name.rpartition(".")
            try:
                owner = modules[stage].get_submodule(path)
                found = owner.get_parameter(last)
            except AttributeError:
                raise UsageError(f"stage {stage} has no parameter {name!r} to tie") from None
            if own is None:
                own = found
            elif own.shape != found.shape:
                raise UsageError(
                    f"{tie.uses} cannot be one parameter: their shapes are "
                    f"{tuple(own.shape)} and {tuple(found.shape)}"
                )
            setattr(owner, last, own)
        if own is not None:
            bound.setdefault(tie.stages, {})[tie] = own
    return bound
