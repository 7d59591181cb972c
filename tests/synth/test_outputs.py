"""Output files: what is refused before work goes into it, and what must not be replaced."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from synth import catalog
from synth.errors import FileError
from synth.files import save
from synth.outputs import check_output, write_output
from synth.problem import make_problem


@pytest.fixture
def pipe(tmp_path):
    """A named pipe, which a writer that goes by its name could replace with a file."""
    path = tmp_path / "pipe.png"
    os.mkfifo(path)
    return path


@pytest.mark.parametrize("content", ["text\n", b"\x89PNG"])
def test_a_pipe_is_written_into(pipe, content):
    with ThreadPoolExecutor() as pool:
        read = pool.submit(pipe.read_bytes)
        check_output(pipe)
        write_output(pipe, content)
        assert read.result(timeout=10) == (content.encode() if content == "text\n" else content)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_every_command_leaves_a_pipe_where_it_is(pipe, tmp_path):
    from synth.cli import main

    plan = tmp_path / "plan.json"
    save(catalog.build("1f1b", make_problem(2, 2)), plan)
    commands = [
        ["baseline", "1f1b", "-P", "2", "-m", "2"],
        ["export", str(plan), "--to", "torch-csv"],
        ["export", str(plan), "--to", "program"],
        ["plot", str(plan)],
        ["view", str(plan)],
        ["schema"],
    ]
    for command in commands:
        with ThreadPoolExecutor() as pool:
            read = pool.submit(pipe.read_bytes)
            assert main([*command, "-o", str(pipe)]) == 0
            assert read.result(timeout=10)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pipe.png", "plan.json"]


def test_a_link_stays_a_link(tmp_path):
    link, target = tmp_path / "link.json", tmp_path / "target.json"
    link.symlink_to(target)
    write_output(link, "{}")
    assert link.is_symlink()
    assert target.read_text() == "{}"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("", "an output file needs a name"),
        ("-", "-: name /dev/stdout to write there"),
        (".", "is a folder; name a file in it"),
        ("nowhere/x.json", "there is no folder"),
        (Path("nowhere/x.json"), "there is no folder"),
    ],
)
def test_what_cannot_be_written_is_refused_before(path, text):
    with pytest.raises(FileError, match=text):
        check_output(path)
