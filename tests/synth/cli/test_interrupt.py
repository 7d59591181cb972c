"""Ctrl-C in the middle of a long search, and the line that shows how it goes."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from synth.cli.progress import ERASE, line
from synth.files import load
from synth.solve.report import Report
from synth.verify import verify

LONG = "-P 8 -m 16 --placement v --costs 10,12,8,3 --memory 4 --time-limit 3000"
"""Stays open for far longer than any test runs."""
MARK = "PIPESYNTH_TEST_MARK"

Until = Callable[[Callable[[], bool]], None]


class Job:
    """A command whose stderr is a terminal; `mark` finds every process that it starts."""

    def __init__(self, *arguments: object, until: Until, terminal: bool = True) -> None:
        self._until = until
        self.mark = uuid.uuid4().hex
        self.shown = ""
        self._reader, writer = pty.openpty() if terminal else os.pipe()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "synth", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=writer,
            text=True,
            start_new_session=True,
            env={**os.environ, "TERM": "xterm", MARK: self.mark},
        )
        os.close(writer)
        os.set_blocking(self._reader, False)

    def see(self, *texts: str) -> None:
        """Wait until one of the texts was shown on stderr."""
        self._until(lambda: any(text in self._read() for text in texts))

    def _read(self) -> str:
        with contextlib.suppress(BlockingIOError, OSError):  # a terminal ends with an error
            while part := os.read(self._reader, 65536):
                self.shown += part.decode()
        return self.shown

    def interrupt(self) -> tuple[int, str]:
        """Ctrl-C as a terminal sends it; the exit code and what was printed."""
        os.killpg(self.process.pid, signal.SIGINT)
        out, _ = self.process.communicate(timeout=60)
        self._read()
        return self.process.returncode, out

    @property
    def left(self) -> list[str]:
        """The processes of this job that still run."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):  # it may end meanwhile, or be someone else's
                    if self.mark in (entry / "environ").read_text(errors="replace"):
                        found.append((entry / "cmdline").read_text())
        return found

    def end(self) -> None:
        """End what a failed test leaves."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
        os.close(self._reader)


@pytest.fixture
def job(until: Until) -> Iterator[Callable[..., Job]]:
    jobs: list[Job] = []

    def start(*arguments: object, terminal: bool = True) -> Job:
        jobs.append(Job(*arguments, until=until, terminal=terminal))
        return jobs[-1]

    yield start
    for started in jobs:
        started.end()


pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")


@pytest.mark.parametrize(
    ("solver", "running"), [("highs", "ILP"), ("highs", "CP-SAT"), ("cbc", "ILP")]
)
def test_ctrl_c_while_a_solver_runs(job, until, tmp_path, solver, running):
    if running == "CP-SAT":
        pytest.importorskip("ortools")
    path = tmp_path / "best.json"
    search = job("solve", *LONG.split(), "--solver", solver, "-o", path)
    search.see(running)
    assert any("synth.solve.apart" in name for name in search.left)
    code, out = search.interrupt()
    assert code == 0
    assert "gap" in out
    schedule = load(path)
    assert verify(schedule) == []
    assert schedule.certificate.bound < schedule.certificate.value
    until(lambda: not search.left)


def test_a_command_that_is_killed_leaves_nothing_behind(job, until):
    search = job("solve", *LONG.split())
    search.see("ILP", "CP-SAT")
    search.process.kill()
    until(lambda: not search.left)


def test_ctrl_c_ends_a_frontier_after_the_current_point(job, until):
    """Unit costs are proved at once on a straight pipeline, and stay open on a V with little room.

    What a placement that was not reached has to say is left out.
    """
    asked = "-P 8 -m 16 --placements linear,v,bidirectional --limits 3,8 --time-limit 3000 --json"
    search = job("frontier", *asked.split())
    search.see("ILP", "CP-SAT")
    code, out = search.interrupt()
    points = [(p["placement"], p["limit"], p["status"]) for p in json.loads(out)["points"]]
    assert code == 0
    assert points == [("linear", 3, "optimal"), ("linear", 8, "optimal"), ("v", 3, "feasible")]
    until(lambda: not search.left)


def test_a_terminal_shows_one_line_that_changes(job):
    search = job("solve", *LONG.split())
    search.see("ILP", "CP-SAT")
    search.interrupt()
    first, *drawn = search.shown.split(ERASE)
    assert first == ""
    assert drawn[-1] == ""  # nothing is left of it
    assert not any("\n" in text for text in drawn)
    assert any(re.fullmatch(r"best \d.*  bound \d.*  gap .*%  ILP, .*  \d+ s", t) for t in drawn)


def test_a_log_has_a_line_for_each_piece_of_news(job):
    search = job("solve", *LONG.split(), terminal=False)
    search.see("tabu search), bound")
    search.interrupt()
    assert all(text.startswith("pipesynth: ") for text in search.shown.splitlines())
    assert "\x1b" not in search.shown
    assert search.shown.endswith("interrupted: returning the best schedule so far\n")


def test_line():
    assert line(Report(None, 12, "bounds"), 0.4) == "best -  bound 12  gap -  bounds  0 s"
    assert line(Report(20, 15, "CP-SAT"), 71) == "best 20  bound 15  gap 25.0%  CP-SAT  71 s"
