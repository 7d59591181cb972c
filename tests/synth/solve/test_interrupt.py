"""Ctrl-C reaches the search even where a library swallows the exception."""

import signal
from contextlib import suppress

import pytest

from synth.problem import make_problem
from synth.solve import Status, solve
from synth.solve.beside import Beside
from synth.solve.interrupt import Interrupts
from synth.verify import verify

HARD = make_problem(8, 16, placement="v", costs=(10, 12, 8), comm=3, memory=4)


def test_what_was_swallowed_is_not_lost():
    with Interrupts() as interrupts:
        interrupts.check()
        with suppress(BaseException):  # as PuLP does around its imports
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_ctrl_c_means_to_the_caller_stays():
    came = []
    before = signal.signal(signal.SIGINT, lambda *_: came.append("here"))
    try:
        with Interrupts() as interrupts:
            signal.raise_signal(signal.SIGINT)
            interrupts.check()
        assert came == ["here"]
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("apart", [False, True])
def test_interrupted_searches_return_what_they_have(apart):
    def interrupt(report):
        if report.running.startswith("ILP") and not report.news:
            signal.raise_signal(signal.SIGINT)

    result = solve(HARD, time_limit_s=3000, progress=interrupt, apart=apart)
    assert result.interrupted
    assert result.status is Status.FEASIBLE
    assert result.schedule is not None
    assert verify(result.schedule) == []


@pytest.mark.parametrize("backend", ["highs", "cbc"])
def test_a_search_apart_finds_the_same(backend):
    problem = make_problem(4, 8, memory=2)  # bounds and list schedules alone leave a gap
    together = solve(problem, backend=backend)
    alone = solve(problem, backend=backend, apart=True)
    assert together.status is alone.status is Status.OPTIMAL
    assert together.schedule == alone.schedule
    assert not alone.interrupted


def test_the_time_limit_ends_a_search_apart(monkeypatch):
    """Even where the process never answers."""
    monkeypatch.setattr(Beside, "receive", lambda self, seconds: None)
    result = solve(HARD, time_limit_s=5, apart=True)
    assert result.schedule is not None
    assert not result.interrupted


def test_a_search_that_is_killed_returns_what_is_known(monkeypatch):
    news = []

    def gone(self, seconds):
        raise EOFError

    monkeypatch.setattr(Beside, "receive", gone)
    result = solve(HARD, time_limit_s=3000, apart=True, progress=lambda r: news.append(r.news))
    assert result.status is Status.FEASIBLE
    assert "ended from outside" in news[-1]
