"""Executes schedules: a schedule file becomes training steps under torchrun and a run file.

`Pipeline` is the Python API, `python -m runtime` the command. Importing this package does not
import torch, so that the command can say what is missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runtime.pipeline import Pipeline as Pipeline

__all__ = ["Pipeline"]


def __getattr__(name: str) -> Any:
    if name == "Pipeline":
        from runtime.pipeline import Pipeline

        return Pipeline
    raise AttributeError(f"module 'runtime' has no attribute {name!r}")
