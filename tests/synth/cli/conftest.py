"""Running commands in this process, and a small schedule file to run them on."""

from typing import NamedTuple

import pytest

from synth.cli import main, process
from synth.files import save
from synth.op import Kind, Op
from synth.problem import make_problem
from synth.schedule import Certificate, Schedule
from synth.simulate import earliest


class Result(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


@pytest.fixture
def pipesynth(capsys):
    """Call the command with arguments."""

    def call(*arguments):
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return call


class ReplacedError(Exception):
    """Raised in place of becoming another process."""


@pytest.fixture
def turned_into(pipesynth, monkeypatch):
    """Program, arguments and environment of the process that a command turns into."""

    def call(*arguments):
        calls = []

        def replace(*replacement):
            calls.append(replacement)
            raise ReplacedError

        monkeypatch.setattr(process.os, "execve", replace)
        with pytest.raises(ReplacedError):
            pipesynth(*arguments)
        (found,) = calls
        return found

    return call


@pytest.fixture
def schedule_file(tmp_path):
    """All F, then all B and W, on two devices for two micro-batches: 8 ticks."""
    problem = make_problem(2, 2)
    program = ((Kind.F, 0), (Kind.F, 1), (Kind.B, 0), (Kind.W, 0), (Kind.B, 1), (Kind.W, 1))
    orders = tuple(tuple(Op(kind, index, device) for kind, index in program) for device in range(2))
    path = tmp_path / "gpipe.json"
    certificate = Certificate(8, 7, "work: by hand")
    save(Schedule("gpipe", problem, earliest(problem, orders), certificate), path)
    return path
