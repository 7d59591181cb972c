"""Files that a user named for results: refused before any work, written whole or not at all.

What must not be replaced, such as /dev/stdout or a pipe, is written into.
"""

from __future__ import annotations

import os
from pathlib import Path

from synth.errors import FileError


def check_output(path: str | Path | None) -> None:
    """Refuse a path that cannot be written, before any work goes into its contents."""
    if path is None or is_pipe_or_device(path):
        return
    if not str(path):
        raise FileError("an output file needs a name, got an empty one")
    if str(path) == "-":
        raise FileError("-: name /dev/stdout to write there, or ./- for a file of that name")
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise FileError(f"{path}: is a folder; name a file in it")
    if not target.parent.is_dir():
        raise FileError(f"{path}: there is no folder {target.parent}; make it first")
    if not os.access(target.parent, os.W_OK):
        raise FileError(f"{path}: folder {target.parent} is not writable; choose another")


def write_output(path: str | Path, content: str | bytes) -> None:
    """Write a whole file or none; through links, and straight into pipes and devices."""
    from synth.files import write_atomic

    if not is_pipe_or_device(path):
        write_atomic(os.path.realpath(path), content)
        return
    data = content.encode() if isinstance(content, str) else content
    try:
        Path(path).write_bytes(data)
    except OSError as error:
        raise FileError(f"{path}: cannot be written: {error.strerror or error}") from None


def is_pipe_or_device(path: str | Path) -> bool:
    """Whether it exists as something that must not be replaced."""
    return os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path))
