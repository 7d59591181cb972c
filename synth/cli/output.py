"""What commands print: tables, JSON and log lines."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager


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
