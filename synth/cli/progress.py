"""The progress of a search on stderr: one line that keeps changing on a terminal, else a log."""

from __future__ import annotations

import os
import sys
import time
from threading import Event, Lock, Thread
from types import TracebackType

from synth.cli.output import log, number, percent
from synth.solve.report import Report

TICK_S = 0.5  # between two drawings of the line where nothing is reported
ERASE = "\r\x1b[2K"


class ProgressLine:
    """What is known, what is running and for how long. Use as a context manager, call to report."""

    def __init__(self) -> None:
        self._begin = time.monotonic()
        self._report: Report | None = None
        self._lock = Lock()
        self._done = Event()
        self._ticker = Thread(target=self._tick, daemon=True)

    def __enter__(self) -> ProgressLine:
        self._ticker.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._done.set()
        with self._lock:
            self._report = None
            sys.stderr.write(ERASE)
            sys.stderr.flush()

    def __call__(self, report: Report) -> None:
        """Show what was reported."""
        self._report = report
        self._draw()

    def _tick(self) -> None:
        """Keep the time on the line going; what has to be waited for reports nothing."""
        while not self._done.wait(TICK_S):
            self._draw()

    def _draw(self) -> None:
        with self._lock:
            if self._report is None:
                return
            text = line(self._report, time.monotonic() - self._begin)
            sys.stderr.write(ERASE + text[: _width() - 1])
            sys.stderr.flush()


def line(report: Report, seconds: float) -> str:
    """The line for a report, `seconds` after the search began."""
    return (
        f"best {number(report.best)}  bound {number(report.bound)}  gap {percent(report.gap)}  "
        f"{report.running}  {seconds:.0f} s"
    )


def log_news(report: Report) -> None:
    """Log what is worth a line."""
    if report.news:
        log(report.news)


def updates_in_place() -> bool:
    """Whether stderr is a terminal that can draw over a line."""
    return sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def _width() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except OSError:
        return 80
