"""Functions on arrays that are compiled to machine code when they are first called."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import njit

_Function = TypeVar("_Function", bound=Callable[..., object])


def compiled(function: _Function) -> _Function:
    """Compile a function of numbers, arrays and named tuples of them.

    The machine code is kept on disk, so only the first process ever waits for the compiler.
    """
    return cast(_Function, njit(function, cache=True))


def is_kept(function: Callable[..., object]) -> bool:
    """Whether the machine code of a compiled function is on disk, so that no call has to wait."""
    module = function.__module__.rpartition(".")[2]
    folder = Path(cast(Any, function).stats.cache_path)
    return any(folder.glob(f"{module}.{function.__name__}-*.nbi"))
