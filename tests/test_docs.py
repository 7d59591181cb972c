"""The commands that the README and the tutorial show: all parse, and the cheap ones run."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from synth.cli.entry import build_parser, main

ROOT = Path(__file__).parent.parent
README, TUTORIAL = ROOT / "README.md", ROOT / "docs" / "tutorial.md"
SLOW_VERBS = ("profile", "run", "calibrate")  # they measure, or need what a measurement wrote

Command = tuple[str, ...]


def blocks(text: str) -> list[list[str]]:
    """The lines of every fenced or indented block."""
    found: list[list[str]] = []
    fenced = inside = False
    for line in text.splitlines():
        if line.startswith("```"):
            fenced = not fenced
            inside = False
        elif fenced or line.startswith("    "):
            if not inside:
                found.append([])
            found[-1].append(line if fenced else line[4:])
            inside = True
        else:
            inside = False
    return found


def commands(path: Path) -> list[Command]:
    """Every `pipesynth ...` that starts a line of a block, after a prompt if there is one."""
    found: list[Command] = []
    for block in blocks(path.read_text()):
        for line in "\n".join(block).replace("\\\n", " ").splitlines():
            text = line.removeprefix("$ ")
            if text.startswith("pipesynth "):
                found.append(tuple(shlex.split(text, comments=True))[1:])
    return found


def table_commands() -> list[Command]:
    """The first column of the README's table of commands."""
    cells = re.findall(r"^\| `pipesynth ([^`]*)` \|", README.read_text(), re.MULTILINE)
    return [tuple(shlex.split(cell.replace("\\|NAME", "").replace("...", ""))) for cell in cells]


def test_there_are_commands() -> None:
    assert len(commands(README)) >= 3
    assert len(table_commands()) >= 8
    verbs = {command[0] for command in commands(TUTORIAL)}
    assert verbs >= {
        *("profile", "solve", "show", "verify", "explain", "baseline", "compare", "run"),
        *("calibrate", "view", "plot", "export"),
    }


@pytest.mark.parametrize(
    "command",
    dict.fromkeys([*commands(README), *table_commands(), *commands(TUTORIAL)]),
    ids=" ".join,
)
def test_parses(command: Command) -> None:
    shown = command[: command.index("...")] if "..." in command else command
    if shown[-1] == "--run":
        shown = shown[:-1]
    build_parser().parse_args(shown)


def run_all(shown: list[Command]) -> None:
    for command in shown:
        assert main(command) == 0, " ".join(command)


def test_readme_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run_all([c for c in commands(README) if c[0] not in SLOW_VERBS and "..." not in c])
    assert "optimal" in capsys.readouterr().out


def without_measuring(command: Command) -> Command:
    """The same with costs that are given instead of profiled, and without run files."""
    words: list[str] = []
    rest = iter(command)
    for word in rest:
        if word == "--profile":
            next(rest)
            words += ["--costs", "10,11,2,1"]
        elif word == "--memory-gib":
            next(rest)
            words += ["--memory", "3"]
        elif word == "--run":
            next(rest)
        else:
            words.append(word)
    return tuple(words)


def test_tutorial_runs_on_given_costs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    shown = [without_measuring(c) for c in commands(TUTORIAL) if c[0] not in SLOW_VERBS]
    run_all([c for c in shown if "calibrated" not in " ".join(c)])
    assert {path.name for path in tmp_path.iterdir()} >= {"solved.json", "page.html"}


@pytest.mark.slow
@pytest.mark.dist
def test_tutorial_runs(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for command in commands(TUTORIAL):  # `run` replaces the process that it is called in
        subprocess.run([sys.executable, "-m", "synth", *command], cwd=tmp_path, check=True)
