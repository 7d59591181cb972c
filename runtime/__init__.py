"""Executes schedules: a schedule file becomes training steps under torchrun and a run file.

The Python API is `Pipeline`, with `ClippedOptimizer` or `PostValidatedOptimizer`; the command is
`python -m runtime`. Importing this package does not import torch, so that the command can say what
is missing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runtime.clipping import ClippedOptimizer as ClippedOptimizer
    from runtime.pipeline import Pipeline as Pipeline
    from runtime.post_validation import PostValidatedOptimizer as PostValidatedOptimizer

__all__ = ["ClippedOptimizer", "Pipeline", "PostValidatedOptimizer"]

_HOMES = {
    "ClippedOptimizer": "runtime.clipping",
    "Pipeline": "runtime.pipeline",
    "PostValidatedOptimizer": "runtime.post_validation",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'runtime' has no attribute {name!r}")
