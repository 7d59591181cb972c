"""The search in a process of its own, so that Ctrl-C and the time limit end it at once.

The process reports everything it finds as soon as it finds it, so what the caller knows is never
older than the last step of the search.
"""

from __future__ import annotations

from dataclasses import dataclass

from synth.bounds import Bound
from synth.problem import Problem
from synth.schedule import Timeline
from synth.solve.backends import Backend
from synth.solve.beside import Beside, Caller
from synth.solve.deadline import Deadline
from synth.solve.incumbent import Incumbent
from synth.solve.report import Report

GRACE_S = 2.0  # beyond the time limit, for what a solver hands over when its time is up


@dataclass(frozen=True, slots=True)
class _Task:
    """What the search starts from."""

    problem: Problem
    bound: Bound
    timeline: Timeline | None
    origin: str
    running: str
    backend: Backend
    seconds: float


@dataclass(frozen=True, slots=True)
class _News:
    """What has changed: a better schedule and where it came from, a stronger bound."""

    report: Report
    timeline: Timeline | None = None
    origin: str = ""
    bound: Bound | None = None


@dataclass(frozen=True, slots=True)
class _End:
    """The search is over, or has failed."""

    error: Exception | None = None


def search_apart(incumbent: Incumbent, backend: Backend, deadline: Deadline) -> None:
    """`search` in a process of its own; raises what it raises."""
    task = _Task(
        incumbent.problem,
        incumbent.bound,
        incumbent.timeline,
        incumbent.origin,
        incumbent.running,
        backend,
        deadline.left,
    )
    with Beside("synth.solve.apart") as process:
        process.send(task)
        while not incumbent.closed:
            try:
                message = process.receive(deadline.left + GRACE_S)
            except EOFError:
                incumbent.note("the search was ended from outside: returning the best so far")
                return
            if message is None:
                return
            if isinstance(message, _End):
                _raise(message.error, incumbent)
                return
            _take(incumbent, message)


def _raise(error: Exception | None, incumbent: Incumbent) -> None:
    if isinstance(error, MemoryError):
        incumbent.note("the search ran out of memory: returning the best so far")
    elif error is not None:
        raise error


def _take(incumbent: Incumbent, news: _News) -> None:
    """Let the caller's incumbent know; it verifies a schedule once more."""
    incumbent.running = news.report.running
    if news.bound is not None:
        incumbent.raise_bound(news.bound)
    if news.timeline is not None:
        incumbent.take(news.timeline, news.origin)
    if news.bound is None and news.timeline is None:
        incumbent.progress(news.report)


def main() -> None:
    """Search for one caller."""
    from synth.solve.portfolio import search

    caller = Caller()
    task: _Task = caller.receive()
    timeline, bound = task.timeline, task.bound

    def tell(report: Report) -> None:
        nonlocal timeline, bound
        better = incumbent.timeline if incumbent.timeline is not timeline else None
        stronger = incumbent.bound if incumbent.bound is not bound else None
        timeline, bound = incumbent.timeline, incumbent.bound
        caller.send(_News(report, better, incumbent.origin, stronger))

    incumbent = Incumbent(task.problem, bound, tell, timeline, task.origin, task.running)
    try:
        search(incumbent, task.backend, Deadline.after(task.seconds))
        caller.send(_End())
    except Exception as error:  # the caller raises it
        caller.send(_End(error))
