"""Every handcrafted schedule of the literature: one file per family, by name in the registry."""

from synth.catalog.build import build
from synth.catalog.family import (
    ClosedForm,
    Family,
    most_idle,
    parameter_factor,
)
from synth.catalog.registry import family, names, patterns

__all__ = [
    "ClosedForm",
    "Family",
    "build",
    "family",
    "most_idle",
    "names",
    "parameter_factor",
    "patterns",
]
