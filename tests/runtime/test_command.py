"""`python -m runtime`: what it prints, what it writes, and how it ends when something breaks."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

import models
from runtime.options import MODELS
from synth.files import save
from synth.op import Kind, Op
from synth.problem import make_problem
from synth.schedule import Certificate, Schedule, TimedOp, makespan
from synth.simulate import earliest

ENVIRONMENT = {key: value for key, value in os.environ.items() if key != "RANK"}


def schedule(devices: int, microbatches: int) -> Schedule:
    """Zero-bubble 1F1B without W delay."""
    problem = make_problem(devices, microbatches)
    orders = []
    for stage in range(devices):
        warmup = min(devices - stage, microbatches)
        order = [Op(Kind.F, index, stage) for index in range(warmup)]
        for index in range(microbatches):
            order += [Op(Kind.B, index, stage), Op(Kind.W, index, stage)]
            if warmup + index < microbatches:
                order.append(Op(Kind.F, warmup + index, stage))
        orders.append(tuple(order))
    timeline = earliest(problem, tuple(orders))
    return Schedule("by hand", problem, timeline, Certificate(makespan(timeline), 0, "none"))


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    save(schedule(2, 4), path)
    return path


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "runtime", *map(str, arguments)]


def run(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments),
        env={**ENVIRONMENT, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


# Without ranks -------------------------------------------------------------------------------


def test_every_model_can_be_named() -> None:
    assert MODELS == models.NAMES


def test_dry_run_prints_programs_and_buffers(plan: Path) -> None:
    shown = run(plan, "--dry-run")
    assert shown.returncode == 0
    assert shown.stdout.splitlines()[0].startswith("rank 0: F0@0, send of F0@0 to rank 1, F1@0")
    assert "channel 0->1 act: 2 receive buffers" in shown.stdout
    assert "cannot deadlock with one communicator per channel" in shown.stdout
    program = json.loads(run(plan, "--dry-run", "--json").stdout)
    assert program["ranks"][0][1] == {"send": "F0@0", "to": 1}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--steps", "0"], "--steps must be at least 1"),
        (["--steps", "2", "--warmup", "2"], "--warmup 2 must be below --steps 2"),
        (["--lr", "nan"], "--lr must be a positive number"),
        (["--layers", "0"], "--layers must be at least 1"),
        (["--model", "sleep", "--check"], "--check needs a model with gradients"),
        (["--model", "sleep", "--sleep-ms", "1,2"], "'1,2' is not three numbers F,B,W"),
        (["--model", "sleep", "--sleep-ms", "1,2,-1"], "a number below 0 or not finite"),
        (["--run-file", "/nowhere/run.json"], "/nowhere/run.json: there is no folder /nowhere"),
        (["--run-file", "."], ".: is a folder; name a file in it"),
        (["--frobnicate"], "unrecognized arguments: --frobnicate"),
        (["--model", "bert"], "--model bert: use gpt, sleep, or package:factory for your own"),
        (["--model", "mine:"], "--model mine:: use gpt, sleep, or package:factory"),
        (["--cut", "1,x"], "'1,x' is not a row of whole numbers"),
        (["--profile", "/nowhere/costs.json"], "/nowhere/costs.json: cannot be read"),
    ],
)
def test_wrong_usage_is_one_line(plan: Path, arguments: list[str], message: str) -> None:
    refused = run(plan, *arguments)
    assert refused.returncode == 2
    assert refused.stdout == ""
    assert refused.stderr.count("\n") == 1
    assert message in refused.stderr


def test_a_missing_file_and_an_invalid_schedule_are_one_line(tmp_path: Path) -> None:
    missing = run(tmp_path / "no.json", "--dry-run")
    assert missing.returncode == 2
    assert "cannot be read" in missing.stderr

    wrong = schedule(2, 2)
    first, *rest = wrong.devices[1]
    late = (TimedOp(first.op, 0, 1), *rest)
    save(replace(wrong, devices=(wrong.devices[0], late)), tmp_path / "wrong.json")
    refused = run(tmp_path / "wrong.json", "--dry-run")
    assert refused.returncode == 1
    assert "F0@1" in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_without_torch_it_says_what_to_install(plan: Path, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')")
    refused = run(plan, PYTHONPATH=str(tmp_path))
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
    assert "pip install 'pipesynth[torch]'" in refused.stderr
    assert run(plan, "--dry-run", PYTHONPATH=str(tmp_path)).returncode == 0


def test_a_reader_that_goes_away_is_no_error_to_report(plan: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as gone:
        done = subprocess.run(
            command(plan, "--dry-run"), stdout=gone, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (141, "")


def test_the_rank_alone_does_not_make_a_job(plan: Path) -> None:
    """Batch systems set RANK for purposes of their own."""
    refused = run(plan, "--steps", "0", RANK="3")
    assert refused.returncode == 2
    assert "--steps must be at least 1" in refused.stderr


def test_the_help_that_an_error_names_is_that_of_the_command(plan: Path) -> None:
    assert "see `python -m runtime train --help`" in run("train", plan, "--fly").stderr


# With ranks ----------------------------------------------------------------------------------


@pytest.mark.dist
def test_a_run_file_may_be_a_pipe(plan: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor() as pool:
        read = pool.submit(pipe.read_text)
        run(plan, "--model", "sleep", "--tick-ms", "1", "--steps", "1", "--run-file", pipe)
        assert json.loads(read.result(timeout=10))["format"] == "pipesynth.run"
    assert pipe.is_fifo()


@pytest.mark.dist
def test_training_is_checked_and_written_down(plan: Path, tmp_path: Path) -> None:
    output = tmp_path / "run.json"
    done = run(
        *(plan, "--steps", 3, "--warmup", 1, "--dtype", "float64", "--check", "--lr", 0.02),
        *("--layers", 2, "--width", 16, "--heads", 2, "--seq-len", 8, "--cut", "1,3"),
        *("--run-file", output, "--json"),
    )
    assert (done.returncode, done.stderr) == (0, "")
    printed = json.loads(done.stdout)
    assert printed["largest_error"] == 0
    written = json.loads(output.read_text())
    assert (written["format"], written["version"]) == ("pipesynth.run", 1)
    assert written["losses"] == printed["losses"]
    assert written["losses"][2] < written["losses"][0]
    assert written["measured"]["steps"] == 2
    assert [rank["in_flight"] for rank in written["ranks"]] == [
        rank["planned_in_flight"] for rank in written["ranks"]
    ]
    planned = [[str(timed.op) for timed in ops] for ops in schedule(2, 4).devices]
    for step in written["steps"]:
        assert [[op["op"] for op in ops] for ops in step["ranks"]] == planned
        assert min(ops[0]["start_s"] for ops in step["ranks"]) == 0
        assert all(op["start_s"] <= op["end_s"] for ops in step["ranks"] for op in ops)


@pytest.mark.dist
def test_a_schedule_for_another_world_size_is_refused_with_one_line(plan: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # What torchrun --nproc-per-node 1 sets.
    job = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    refused = run(plan, **job)
    assert refused.returncode == 2
    assert refused.stderr == (
        "pipesynth: the schedule is for 2 devices, this job has 1 ranks; "
        "start it with --nproc-per-node 2\n"
    )


@pytest.mark.dist
def test_a_model_that_does_not_fit_is_refused_with_one_line(plan: Path) -> None:
    refused = run(plan, "--layers", 1)
    assert refused.returncode == 2
    assert refused.stderr == (
        "pipesynth: model gpt: cannot cut 1 layers into 2 stages: "
        "every stage needs at least one layer\n"
    )


@contextmanager
def sleeping_job(plan: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A job of two ranks in the middle of its steps, with the process ids of the ranks."""
    job = subprocess.Popen(
        command(plan, "--model", "sleep", "--sleep-ms", "50,50,50", "--steps", "1000", *arguments),
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    ranks: dict[int, int] = {}
    try:
        deadline = time.monotonic() + 60
        while len(ranks) < 2 or not all(map(busy, ranks.values())):
            assert job.poll() is None, job.communicate()
            assert time.monotonic() < deadline, "the ranks did not start"
            time.sleep(0.1)
            ranks = ranks_below(job.pid)
        yield job, [ranks[0], ranks[1]]
    finally:
        for pid in (*ranks.values(), job.pid):
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
        job.communicate()


def ranks_below(ancestor: int) -> dict[int, int]:
    """Process id by rank of the descendants of a process."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    ranks: dict[int, int] = {}
    for pid in parents:
        above = pid
        while above in parents and above != ancestor:
            above = parents[above]
        if above == ancestor:
            rank = re.search(rb"\0RANK=(\d+)\0", Path(f"/proc/{pid}/environ").read_bytes())
            if rank:
                ranks[int(rank[1])] = pid
    return ranks


def busy(pid: int) -> bool:
    """Whether a rank's channels are up: torch is loaded and its transport threads run."""
    return len(list(Path(f"/proc/{pid}/task").iterdir())) > 6


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def end_of(job: subprocess.Popen[str], pids: list[int], within_s: float) -> tuple[int, list[str]]:
    """Exit code and what the job said of its own; no rank may be left."""
    _, errors = job.communicate(timeout=within_s)
    assert not any(map(alive, pids))
    return job.returncode, errors.splitlines()


@pytest.mark.dist
def test_a_killed_rank_ends_the_job_at_once_and_is_named(plan: Path) -> None:
    with sleeping_job(plan) as (job, pids):
        os.kill(pids[1], signal.SIGKILL)
        code, lines = end_of(job, pids, within_s=20)
    assert code == 1
    assert len(lines) == 1, lines
    assert lines[0].startswith("pipesynth: ")
    assert f"rank 1 (process {pids[1]}) died" in lines[0]


@pytest.mark.dist
def test_where_no_rank_is_left_to_speak_torchrun_is_heard(plan: Path) -> None:
    with sleeping_job(plan) as (job, pids):
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)  # or one might speak before it is killed
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        code, lines = end_of(job, pids, within_s=20)
    assert code == 1
    assert len(lines) == 1, lines
    ((rank, process),) = re.findall(
        r"^pipesynth: rank (\d) \(process (\d+)\) was killed by SIGKILL, as it is when", lines[0]
    )
    assert pids[int(rank)] == int(process)


@pytest.mark.dist
@pytest.mark.slow
def test_a_rank_that_stops_answering_ends_the_job_within_the_timeout(plan: Path) -> None:
    with sleeping_job(plan, "--timeout", "3") as (job, pids):
        os.kill(pids[1], signal.SIGSTOP)
        # The stopped rank cannot act on a termination signal; it is killed after a while.
        code, lines = end_of(job, pids, within_s=20)
    assert code == 1
    assert len(lines) == 1, lines
    assert re.search(r"rank 0 did not get \S+ from rank 1: no answer in time", lines[0])


@pytest.mark.dist
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_launcher_takes_the_ranks_along(plan: Path, number: int) -> None:
    with sleeping_job(plan) as (job, pids):
        if number == signal.SIGINT:
            os.killpg(job.pid, number)  # as a terminal does
        else:
            os.kill(job.pid, number)
        _, errors = job.communicate(timeout=30)
        deadline = time.monotonic() + 20
        while any(map(alive, pids)):
            assert time.monotonic() < deadline, "ranks are left over"
            time.sleep(0.1)
    if number == signal.SIGKILL:
        return
    assert job.returncode == 130
    assert errors == "pipesynth: interrupted\n"
