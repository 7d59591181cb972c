"""Every command that the documents show is run by a test, or named here with the reason why not."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest

from synth.cli.entry import build_parser, main

ROOT = Path(__file__).parent.parent
README, TUTORIAL = ROOT / "README.md", ROOT / "docs" / "tutorial.md"
DOCUMENTS = (README, *sorted((ROOT / "docs").glob("*.md")))
PROGRAMS = ("pipesynth", "python", "make", "torchrun")

TRAINING = (
    "torchrun --standalone --nproc-per-node 4 -m runtime train solved.json --model gpt "
    "--steps 1000 --clip 1.0 --early-updates --checkpoint runs/a --log-folder logs"
)
TWO_HOSTS = (
    "torchrun --nnodes 2 --nproc-per-node 4 --rdzv-backend c10d --rdzv-endpoint HOST:PORT "
    "-m runtime FILE --model gpt --run-file run.json"
)
NOT_RUN = {
    "make test": "this test is part of it",
    "make install": "what `make test` begins with",
    "make check": "this test is part of it",
    "make lint": "the other half of a check, which CI runs before the tests",
    "python benchmarks/solver.py --group tight": "half a minute on a quiet machine; one row is run",
    "python benchmarks/solver.py --group bidirectional": "a minute; one row is run",
    "python benchmarks/solver.py --group head": "a minute; one row is run",
    "python benchmarks/solver.py --rows C1": "a minute; C5 is run",
    "python benchmarks/solver.py --group v": "a quarter of an hour; C5 is run",
    "python benchmarks/runtime_overhead.py": "minutes; tests/test_benchmarks.py runs a short one",
    "python benchmarks/held_bytes.py": "tests/test_benchmarks.py runs it on two ranks",
    "python benchmarks/split_backward.py": "minutes; tests/test_benchmarks.py runs the smallest",
    "pipesynth COMMAND --help": "a pattern; every verb's help is asked for",
    "pipesynth solve": "the name of a command; the whole ones are run",
    "pipesynth compare": "the name of a command; the whole ones are run",
    "pipesynth baseline NAME": "a pattern; tests/synth/catalog builds every family",
    "torchrun --max-restarts 3": "a part of a command; tests/runtime/test_faults.py restarts ranks",
    TWO_HOSTS: "tests/runtime/test_two_hosts.py runs it on two hosts",
}
SLOW = {
    "make demo",
    "python benchmarks/post_validation.py",
    "python benchmarks/solver.py --rows C5",
    TRAINING,
}
"""What `test_slow_commands_run` runs."""
SLOW_VERBS = ("profile", "run", "calibrate")  # they measure, or need what a measurement wrote


def blocks(text: str) -> list[str]:
    """Every fenced or indented block, as one text."""
    fenced = re.findall(r"^```.*\n((?:(?!```).*\n)*)```", text, re.MULTILINE)
    rest = re.sub(r"^```.*\n(?:(?!```).*\n)*```", "", text, flags=re.MULTILINE)
    indented = re.findall(r"(?:^    .*\n(?:\n(?=    ))?)+", rest, re.MULTILINE)
    return [*fenced, *(re.sub("^    ", "", block, flags=re.MULTILINE) for block in indented)]


def in_blocks(path: Path) -> list[str]:
    """The commands that start a line of a block, after a prompt if there is one."""
    found: list[str] = []
    for block in blocks(path.read_text()):
        for line in re.sub(r"\\\n *", "", block).splitlines():
            words = shlex.split(line.removeprefix("$ "), comments=True) if line.strip() else []
            if words and words[0] in PROGRAMS:
                found.append(" ".join(words))
    return found


def in_text(path: Path) -> list[str]:
    """The commands between backquotes, in tables and sentences."""
    spans = re.findall(rf"`((?:{'|'.join(PROGRAMS)}) [^`]+)`", path.read_text())
    return [" ".join(span.replace("\\|", "|").split()) for span in spans]


def shown() -> list[str]:
    return list(
        dict.fromkeys(
            command for path in DOCUMENTS for command in (*in_blocks(path), *in_text(path))
        )
    )


def table_commands() -> list[str]:
    """The first column of the README's table of commands."""
    rows = re.findall(r"^\| `(pipesynth [^`]*)` \|", README.read_text(), re.MULTILINE)
    return [row.replace("\\|", "|") for row in rows]


# What is shown ------------------------------------------------------------------------------------


def test_the_documents_show_commands() -> None:
    assert len(in_blocks(README)) >= 8
    assert len(table_commands()) >= 15
    verbs = {command.split()[1] for command in in_blocks(TUTORIAL)}
    assert verbs >= {
        *("profile", "solve", "show", "verify", "explain", "baseline", "compare", "run"),
        *("calibrate", "view", "plot", "export"),
    }


def test_every_command_is_run_or_says_why_not() -> None:
    run = {*in_blocks(TUTORIAL), *readme_commands(), *table_commands(), *SLOW, *PLAIN}
    assert [command for command in shown() if command not in run and command not in NOT_RUN] == []
    assert [command for command in (*NOT_RUN, *SLOW, *PLAIN) if command not in shown()] == []


@pytest.mark.parametrize("command", [c for c in shown() if c.startswith("pipesynth ")])
def test_parses(command: str) -> None:
    words = shlex.split(command)[1:]
    if words[0] == "COMMAND":
        return
    words = words[: words.index("...")] if words[-1:] == ["..."] else words
    words = [word.partition("|")[0] for word in words if word != "..."]
    build_parser().parse_args(words[:-1] if words[-1] == "--run" else words)


def test_what_is_named_is_there() -> None:
    """Scripts, targets of make, and the tests that reasons point to."""
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for command in shown():
        program, first, *_ = command.split()
        if program == "make":
            assert first in targets, command
        elif program == "python":
            assert (ROOT / first).exists(), command
    for reason in NOT_RUN.values():
        for path in re.findall(r"tests/\S+?(?=[ ,]|$)", reason):
            assert (ROOT / path).exists(), path


# Quick ones ---------------------------------------------------------------------------------------

PLAIN = ("pipesynth schema", "pipesynth schema costs", "pipesynth schema problem")


def readme_commands() -> list[str]:
    """What the README shows in blocks; `compare ... --run ...` leaves out which files."""
    return [command for command in in_blocks(README) if command.startswith("pipesynth ")]


def run_all(commands: Sequence[str]) -> None:
    for command in commands:
        assert main(shlex.split(command)[1:]) == 0, command


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the user stands: beside the examples, as in a checkout."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_readme_runs_and_prints_what_it_shows(capsys: pytest.CaptureFixture[str]) -> None:
    run_all(["pipesynth baseline 1f1b -P 4 -m 8 --memory 4 --objective span -o 1f1b.json"])
    text = README.read_text()
    for command in readme_commands():
        capsys.readouterr()
        measured = command.endswith(" --run ...")
        run_all([command.removesuffix(" --run ...")])
        printed = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
        block = next(b for b in blocks(text) if f"$ {command}\n" in b)
        output = re.split(r"^\$ .*\n", block, flags=re.MULTILINE)[1]
        for line in output.splitlines() if not measured else ():
            assert " ".join(line.split()) in "\n".join(printed).replace("\n", " "), (command, line)


@pytest.mark.usefixtures("folder")
def test_the_table_of_commands_runs(capsys: pytest.CaptureFixture[str]) -> None:
    run_all(["pipesynth solve -P 4 -m 8 --memory 4 -o solved.json"])
    run_all(["pipesynth export solved.json --to torch-csv -o solved.csv", *PLAIN])
    for command in table_commands():
        if command.split()[1] in SLOW_VERBS:
            continue
        source = "solved.csv" if " import " in command else "solved.json"
        command = command.replace("FILE|NAME ...", "solved.json 1f1b").replace("FILE ...", "FILE")
        if " frontier " in command:
            command += " --limits 4,8 --time-limit 1"
        run_all([command.replace("FILE", source)])
    assert "1f1b" in capsys.readouterr().out


def test_every_verb_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    for verb in {command.split()[1] for command in table_commands()}:
        with pytest.raises(SystemExit) as left:
            main([verb, "--help"])
        assert left.value.code == 0
        assert capsys.readouterr().out.startswith(f"usage: pipesynth {verb}")


def without_measuring(command: str) -> str:
    """The same with costs that are given instead of profiled, and without run files."""
    command = command.replace("--profile costs.json", "--costs 10,11,2,1")
    command = re.sub(r"--memory-gib \S+", "--memory 3", command)
    return re.sub(r" --run \S+", "", command)


def test_tutorial_runs_on_given_costs(folder: Path) -> None:
    quick = [c for c in in_blocks(TUTORIAL) if c.split()[1] not in SLOW_VERBS]
    run_all([without_measuring(command) for command in quick])
    assert {path.name for path in folder.iterdir()} >= {"solved.json", "page.html"}


# The tutorial's own output ------------------------------------------------------------------------


def tutorial_script() -> ModuleType:
    """scripts/tutorial.py, which is not in a package."""
    spec = importlib.util.spec_from_file_location("tutorial", ROOT / "scripts" / "tutorial.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_script_finds_every_command_of_the_tutorial() -> None:
    found: list[str] = []

    def note(command: str) -> str:
        found.append(command)
        return ""

    emptied = tutorial_script().fill(TUTORIAL.read_text(), note)
    assert found == in_blocks(TUTORIAL)
    assert "makespan" not in emptied  # what commands print is gone, what we say is not
    assert "## Correct the costs" in emptied


def test_the_script_puts_output_below_its_command() -> None:
    blocks = "```console\n$ pipesynth a\n{}```\ntext\n```console\n$ pipesynth b\n{}```\nend\n"
    fill = tutorial_script().fill
    filled = fill(blocks.format("old\n\nlines\n", ""), lambda command: f"new {command[-1]}\n")
    assert filled == blocks.format("new a\n", "new b\n")


# With processes ----------------------------------------------------------------------------------


def started(words: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (words, done.stderr)
    return done


SNIPPET_NEEDS = """
import torch
from torch import nn
from torch.optim import AdamW
from runtime import Pipeline, PostValidatedOptimizer

torch.manual_seed(0)
model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(6)))
loss = nn.functional.mse_loss
data = [(torch.randn(8, 4), torch.randn(8, 4)) for _ in range(3)]
before = [parameter.clone() for parameter in model.parameters()]
"""
SNIPPET_DID = """
optimizer.settle()
assert any(not torch.equal(a, b) for a, b in zip(before, model.parameters()))
"""


@pytest.mark.dist
def test_the_training_in_python_runs(folder: Path) -> None:
    run_all(["pipesynth solve -P 2 -m 4 -q -o solved.json"])
    (snippet,) = [block for block in blocks(README.read_text()) if "Pipeline(model" in block]
    (folder / "training.py").write_text(SNIPPET_NEEDS + snippet + SNIPPET_DID)
    torchrun = "-m torch.distributed.run --standalone --nproc-per-node 2 training.py"
    started([sys.executable, *torchrun.split()], folder)


@pytest.mark.slow
@pytest.mark.dist
@pytest.mark.timeout(600)
def test_tutorial_runs(tmp_path: Path) -> None:
    run = tutorial_script().in_folder(tmp_path)
    for command in in_blocks(TUTORIAL):  # in processes: `run` replaces the one it is called in
        run(command)


@pytest.mark.slow
@pytest.mark.dist
@pytest.mark.timeout(900)
def test_measuring_commands_of_the_table_run(tmp_path: Path) -> None:
    synth = [sys.executable, "-m", "synth"]
    started([*synth, *shlex.split("baseline 1f1b -P 2 -m 4 -o FILE")], tmp_path)
    measuring = [c for c in table_commands() if c.split()[1] in SLOW_VERBS]
    assert {command.split()[1] for command in measuring} == {"profile", "run"}
    for command in measuring:
        started([*synth, *shlex.split(command)[1:]], tmp_path)


@pytest.mark.slow
@pytest.mark.dist
@pytest.mark.timeout(900)
@pytest.mark.parametrize("command", sorted(SLOW))
def test_slow_commands_run(command: str, tmp_path: Path) -> None:
    program, *words = shlex.split(command)
    if program == "make":
        started([sys.executable, "scripts/demo.py"], ROOT)  # all that the target does
    elif program == "python":
        started([sys.executable, *words], ROOT)
    else:
        solve = shlex.split("solve -P 4 -m 8 --memory 4 --objective span -q -o solved.json")
        started([sys.executable, "-m", "synth", *solve], tmp_path)
        words[words.index("--steps") + 1] = "4"
        started([sys.executable, "-m", "torch.distributed.run", *words], tmp_path)
