"""Starting a module of ours in a process of its own, so that torch stays out of this one."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn


def module(name: str) -> list[str]:
    """The command that runs a module."""
    return [sys.executable, "-m", name]


def environment() -> dict[str, str]:
    """This process's environment, with our packages before all others.

    A folder named runtime or models where the user stands must not hide ours.
    """
    root = str(Path(__file__).resolve().parents[2])
    path = os.environ.get("PYTHONPATH")
    return {
        **os.environ,
        "PYTHONSAFEPATH": "1",
        "PYTHONPATH": f"{root}{os.pathsep}{path}" if path else root,
    }


def become(name: str, arguments: Sequence[str]) -> NoReturn:
    """Let a module take the place of this process.

    So signals reach it, and its exit code reaches the caller, without anybody in between.
    """
    sys.stdout.flush()
    os.execve(sys.executable, [*module(name), *arguments], environment())
