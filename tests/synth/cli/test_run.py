"""`pipesynth run`: the process it turns into, and what comes of it."""

import os
import signal
import subprocess
import sys

import pytest


def test_what_it_turns_into(turned_into):
    program, arguments, environment = turned_into(
        "run", "plan.json", "--model", "sleep", "--steps", "3"
    )
    assert program == sys.executable
    assert arguments[1:] == ["-m", "runtime", "plan.json", "--model", "sleep", "--steps", "3"]
    assert environment["PYTHONSAFEPATH"] == "1"


def command(folder, *arguments, **environment):
    """Start the command in a folder, in a process group of its own like a job of a shell."""
    return subprocess.Popen(
        [sys.executable, "-m", "synth", "run", *map(str, arguments)],
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_without_torch_it_says_what_to_install(schedule_file, tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError")
    job = command(tmp_path, schedule_file, PYTHONPATH=str(tmp_path))
    out, err = job.communicate(timeout=60)
    assert (job.returncode, out, err.count("\n")) == (2, "", 1)
    assert "needs torch, which is not installed; install it with" in err


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["nothing.json"], 2, "nothing.json: cannot be read"),
        (
            ["gpipe.json", "--model", "unheard"],
            2,
            "--model unheard: use gpt, sleep, or package:factory",
        ),
    ],
)
def test_what_cannot_run_is_one_line(schedule_file, arguments, code, text):
    job = command(schedule_file.parent, *arguments)
    out, err = job.communicate(timeout=60)
    assert (job.returncode, out, err.count("\n")) == (code, "", 1)
    assert text in err


@pytest.mark.dist
def test_a_run_in_a_folder_with_modules_named_like_ours(schedule_file):
    folder = schedule_file.parent
    for name in ("runtime", "models", "synth"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text("raise RuntimeError('the wrong package')")
    code = "import sys; from synth.cli import main; sys.exit(main())"
    arguments = ["run", schedule_file, "--model", "sleep", "--tick-ms", "2", "--steps", "2"]
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, *arguments, "--run-file", folder / "run.json"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "step time" in done.stdout
    assert (folder / "run.json").exists()


@pytest.mark.dist
def test_ctrl_c_ends_the_job(schedule_file, until, members):
    job = command(
        schedule_file.parent, schedule_file, "--model", "sleep", "--tick-ms", "50", "--steps", "900"
    )
    until(lambda: any("torch.distributed.run" in name for name in members(job.pid)))
    os.killpg(job.pid, signal.SIGINT)
    _, err = job.communicate(timeout=60)
    assert (job.returncode, err) == (130, "pipesynth: interrupted\n")
