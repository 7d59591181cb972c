"""What commands print and write: tables, JSON, log lines and whole files."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from synth.errors import FileError


@contextmanager
def silent_libraries() -> Iterator[None]:
    """Keep what compiled libraries write to stdout out of the results; HiGHS greets there."""
    sys.stdout.flush()
    stdout = os.dup(1)
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, 1)
    os.close(devnull)
    try:
        yield
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)


def log(text: str) -> None:
    """One line of progress, to stderr."""
    print(f"pipesynth: {text}", file=sys.stderr, flush=True)


def print_json(document: Mapping[str, object]) -> None:
    """One JSON object, to stdout."""
    print(json.dumps(document, indent=2, allow_nan=False))


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, markdown: bool = False) -> str:
    """Columns padded to their widest cell; numbers to the right, words to the left."""
    if markdown:
        rows = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    columns = list(zip(headers, *rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    numeric = [all(_is_number(cell) for cell in column[1:]) for column in columns]
    lines = [
        [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        ]
        for line in (headers, *rows)
    ]
    if not markdown:
        return "\n".join("  ".join(line).rstrip() for line in lines)
    rule = [
        "-" * (width - 1) + (":" if right else "-")
        for width, right in zip(widths, numeric, strict=True)
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in (lines[0], rule, *lines[1:]))


def _is_number(cell: str) -> bool:
    return cell == "-" or cell.removesuffix("%").strip().replace(".", "", 1).isdigit()


def number(value: float | None) -> str:
    """A number with at most four decimals and no trailing zeros; a dash for none."""
    return "-" if value is None else f"{value:.4f}".rstrip("0").rstrip(".")


def percent(value: float | None) -> str:
    """A share with one decimal; a dash for none."""
    return "-" if value is None else f"{100 * value:.1f}%"


def check_output(path: str | None) -> None:
    """Refuse an output path that cannot be written, before any work goes into its contents."""
    if path is None or _is_pipe_or_device(path):
        return
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise FileError(f"{path}: is a folder; name a file in it")
    if not target.parent.is_dir():
        raise FileError(f"{path}: there is no folder {target.parent}; make it first")
    if not os.access(target.parent, os.W_OK):
        raise FileError(f"{path}: folder {target.parent} is not writable; choose another")


def write_output(path: str, text: str) -> None:
    """Write a whole file or none; through links, and straight into pipes and devices."""
    from synth.files import write_atomic

    if not _is_pipe_or_device(path):
        write_atomic(os.path.realpath(path), text)
        return
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise FileError(f"{path}: cannot be written: {error.strerror or error}") from None


def _is_pipe_or_device(path: str) -> bool:
    """Whether it exists as something that must not be replaced, such as /dev/stdout."""
    return os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path))
