"""Functions on arrays that are compiled to machine code when they are first called."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from numba import njit

_Function = TypeVar("_Function", bound=Callable[..., object])


def compiled(function: _Function) -> _Function:
    """Compile a function of numbers, arrays and named tuples of them.

    The machine code is kept on disk, so only the first process ever waits for the compiler.
    """
    return cast(_Function, njit(function, cache=True))
