"""Whatever breaks, the job ends with one message, without a process or half a file left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import nn

from runtime.agreement import agree, stage_facts
from runtime.errors import PeerError
from runtime.faults import TERMINATED
from runtime.launch import EXIT_FILE
from synth import catalog
from synth.errors import UsageError
from synth.files import save
from synth.problem import make_problem
from synth.schedule import Schedule

SCRIPT = Path(__file__).with_name("faulty_runtime.py")
ROOT = SCRIPT.parents[2]
MARK = "PIPESYNTH_TEST"
TIMEOUT_S = 5
LIMIT_S = 60  # far more than a job may take on an idle machine; stops a test that hangs
SMALL = ("--width", "8", "--heads", "2", "--seq-len", "8", "--batch", "1")


def schedule(name: str, devices: int) -> Schedule:
    placement = catalog.family(name).placement
    return catalog.build(name, make_problem(devices, 4, placement=placement))


@dataclass(frozen=True)
class Job:
    """A training with a fault in it; all its processes bear a mark."""

    folder: Path
    mark: str

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    def arguments(self, *more: str) -> list[str]:
        return [
            *("train", str(self.folder / "plan.json"), "--timeout", str(TIMEOUT_S), *SMALL),
            *("--checkpoint", str(self.checkpoints), "--checkpoint-every", "3"),
            *("--steps", "12", "--clip", "1", "--json", *more),
        ]

    def command(self, fault: str, *more: str) -> list[str]:
        return [sys.executable, str(SCRIPT), fault, *self.arguments(*more)]

    def start(self, command: list[str]) -> subprocess.Popen[str]:
        environment = {key: value for key, value in os.environ.items() if key != "RANK"}
        environment |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), MARK: self.mark}
        return subprocess.Popen(
            command,
            env=environment | {"TMPDIR": str(self.folder / "tmp")},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, fault: str, *more: str) -> tuple[int, list[str]]:
        """Exit code, and what it said of its own after the progress."""
        with self.start(self.command(fault, *more)) as process:
            _, errors = process.communicate(timeout=LIMIT_S)
        return process.returncode, messages(errors)

    def processes(self) -> list[int]:
        """The processes of the job that are still there."""
        found = []
        for environment in Path("/proc").glob("[0-9]*/environ"):
            try:
                if f"{MARK}={self.mark}".encode() in environment.read_bytes().split(b"\0"):
                    found.append(int(environment.parent.name))
            except OSError:
                continue
        return found

    def assert_nothing_is_left(self) -> None:
        deadline = time.monotonic() + LIMIT_S
        while self.processes() and time.monotonic() < deadline:
            time.sleep(0.05)  # the kernel is still clearing away what was killed
        assert self.processes() == []
        assert not list((self.folder / "tmp").glob("pipesynth-*"))
        left = list(self.checkpoints.iterdir()) if self.checkpoints.exists() else []
        assert [path.name for path in left if not path.name.startswith("step-")] == []
        for path in left:
            assert {".metadata", "pipesynth.json"} < {file.name for file in path.iterdir()}


def messages(errors: str) -> list[str]:
    progress = re.compile(r"step |rank \d+ of |saved |resumed ")
    return [line for line in errors.splitlines() if not progress.match(line)]


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    (tmp_path / "tmp").mkdir()
    save(schedule("zb-h1", 2), tmp_path / "plan.json")
    made = Job(tmp_path, uuid.uuid4().hex)
    yield made
    for pid in made.processes():
        os.kill(pid, signal.SIGKILL)


# Without a job -----------------------------------------------------------------------------------


class Store(dict[str, str]):
    """As much of a store as one process needs."""

    def set(self, key: str, value: str) -> None:
        self[key] = value

    def get(self, key: str) -> str:  # type: ignore[override]
        if key not in self:
            raise RuntimeError("wait timeout after 5000ms")
        return self[key]


def from_all(*facts: dict[str, str]) -> Store:
    """What is in the store once all ranks have spoken."""
    return Store({f"agree/start/{rank}": json.dumps(own) for rank, own in enumerate(facts)})


def test_ranks_that_agree_go_on() -> None:
    said = ({"schedule": "a", "stage 0": "x"}, {"stage 1": "y"}, {"schedule": "a", "stage 0": "x"})
    for rank, own in enumerate(said):
        agree(from_all(*said), "start", rank, 3, own)


def test_ranks_that_differ_all_say_the_same_of_it() -> None:
    said = ({"--lr": "1"}, {"--seed": "1", "--lr": "1"}, {"--seed": "2", "--lr": "3"})
    for rank, own in enumerate(said):
        with pytest.raises(UsageError) as raised:
            agree(from_all(*said), "start", rank, 3, own)
        assert str(raised.value) == (
            "--seed is not the same on all ranks: rank 1 has 1, rank 2 has 2; start all ranks with "
            "the same files and options"
        )


def test_a_rank_that_is_missing_at_the_start_is_named() -> None:
    with pytest.raises(PeerError, match="rank 0 did not hear from rank 1 at the start: no answer"):
        agree(Store(), "start", 0, 2, {})


def test_the_digest_of_a_stage_sees_every_value_and_name() -> None:
    torch.manual_seed(0)
    one, same, other = nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2)
    same.load_state_dict(one.state_dict())
    with torch.no_grad():
        other.load_state_dict(one.state_dict())
        other.bias[1] += 1e-6
    digests = [stage_facts({0: m})["stage 0"] for m in (one, same, other, nn.Sequential(one))]
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3


# Ranks that break down ---------------------------------------------------------------------------


def test_a_rank_ends_where_nobody_reads_what_it_says() -> None:
    """As when launcher and rank are told to end at once, and the launcher is the first to go."""
    script = (
        "import threading, time; from runtime.faults import FaultReporter; "
        "threading.Thread(target=FaultReporter(0, 1).terminate).start(); time.sleep(60)"
    )
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ended = subprocess.run([sys.executable, "-c", script], stderr=writer, timeout=30)
    finally:
        os.close(writer)
    assert ended.returncode == TERMINATED


def test_a_rank_told_to_end_while_it_says_why_finishes_what_it_says(tmp_path: Path) -> None:
    """As when a peer dies: the rank notices, and so does torchrun, which ends all others."""
    script = (
        "import threading; from runtime.faults import FaultReporter; r = FaultReporter(0, 1); "
        "threading.Timer(0.2, r.terminate).start(); r.fail(RuntimeError('why'))"
    )
    os.mkfifo(tmp_path / "exit")  # holds up who writes to it until it is read
    environment = os.environ | {EXIT_FILE: str(tmp_path / "exit")}
    with subprocess.Popen(
        [sys.executable, "-c", script], env=environment, stderr=subprocess.PIPE, text=True
    ) as rank:
        with suppress(subprocess.TimeoutExpired):
            rank.wait(timeout=2)
        assert rank.poll() is None
        assert (tmp_path / "exit").read_text() == "1"
        _, said = rank.communicate(timeout=30)
    assert (rank.returncode, said) == (1, "pipesynth: rank 0: RuntimeError: why\n")


@pytest.mark.dist
@pytest.mark.slow
@pytest.mark.parametrize("where", ["F", "B", "W", "send", "checkpoint"])
def test_a_rank_that_dies_is_named(job: Job, where: str) -> None:
    code, said = job.run(f"die in {where}@1")
    assert code == 1
    assert len(said) == 1, said
    assert re.fullmatch(r"pipesynth: .*rank 1 \(process \d+\) died", said[0])
    job.assert_nothing_is_left()
    kept = sorted(path.name for path in job.checkpoints.iterdir())
    assert kept == ([] if where == "checkpoint" else ["step-00000003", "step-00000006"])


@pytest.mark.dist
@pytest.mark.slow
def test_a_rank_that_stops_answering_is_given_up(job: Job) -> None:
    code, said = job.run("stop in F@1")
    assert code == 1
    assert len(said) == 1, said
    assert re.search(r"rank 0 did not get \S+ from rank 1: no answer in time", said[0])
    job.assert_nothing_is_left()


@pytest.mark.dist
@pytest.mark.slow
def test_an_error_in_a_stage_is_told_with_its_rank_and_place(job: Job) -> None:
    code, said = job.run("err in F@0")
    assert code == 1
    assert len(said) == 1, said
    assert said[0].startswith(
        "pipesynth: rank 0: ArithmeticError: it does not add up (faulty_runtime.py:"
    )
    job.assert_nothing_is_left()


@pytest.mark.dist
@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("--seed 7", "--seed is not the same on all ranks: rank 0 has 0, rank 1 has 7"),
        ("--layers 6", "--layers is not the same on all ranks: rank 0 has None, rank 1 has 6"),
    ],
)
def test_ranks_with_other_stages_are_refused(job: Job, given: str, message: str) -> None:
    code, said = job.run(f"start with {given}@1")
    assert code == 2
    assert len(said) == 1, said
    assert message in said[0]
    job.assert_nothing_is_left()


@pytest.mark.dist
@pytest.mark.slow
def test_a_schedule_for_another_world_size_is_refused(job: Job) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "3", "-m", "runtime", *job.arguments()]
    with job.start(command) as process:
        _, errors = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 1  # torchrun's
    said = [line for line in errors.splitlines() if line.startswith("pipesynth: ")]
    assert said == [
        "pipesynth: the schedule is for 2 devices, this job has 3 ranks; "
        "start it with --nproc-per-node 2"
    ]
    job.assert_nothing_is_left()


@pytest.mark.dist
@pytest.mark.slow
def test_a_full_disk_ends_the_training_with_the_last_whole_checkpoint(job: Job) -> None:
    job.checkpoints.mkdir()
    mount = f"mount -t tmpfs -o size=1m none {job.checkpoints}"
    look = f"ls -A {job.checkpoints} > {job.folder}/left"
    if subprocess.run(["unshare", "-m", "sh", "-c", mount], check=False).returncode:
        pytest.skip("a file system of 600 KB cannot be mounted here")
    fault = " ".join(f"'{word}'" for word in job.command("none@0", "--keep", "9", "--width", "16"))
    script = f"{mount} && {{ {fault}; code=$?; {look}; exit $code; }}"
    with job.start(["unshare", "-m", "sh", "-c", script]) as process:
        _, errors = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 1
    (said,) = messages(errors)
    left = (job.folder / "left").read_text().split()
    assert left
    assert re.search(r"checkpoint \S+/step-\d+ cannot be written: rank \d: ", said)
    assert f"the last whole one is {job.checkpoints / left[-1]}" in said
    assert all(name.startswith("step-") for name in left)
    job.assert_nothing_is_left()


@pytest.mark.dist
@pytest.mark.slow
def test_ctrl_c_ends_all_ranks(job: Job) -> None:
    with job.start(job.command("none@0", "--steps", "100000")) as process:
        while not job.checkpoints.exists() or not list(job.checkpoints.glob("step-*")):
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        _, errors = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130
    assert messages(errors) == ["pipesynth: interrupted"]
    job.assert_nothing_is_left()


@pytest.mark.dist
@pytest.mark.slow
def test_a_restart_goes_on_as_if_nothing_had_happened(job: Job) -> None:
    def losses(fault: str, folder: str) -> tuple[int, list[float]]:
        command = [sys.executable, str(SCRIPT), "torchrun", "--standalone"]
        command += ["--nproc-per-node", "2", "--max-restarts", "1", str(SCRIPT), fault]
        command += job.arguments("--checkpoint", str(job.folder / folder), "--early-updates")
        with job.start(command) as process:
            output, _ = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 0
        printed = json.loads(output.splitlines()[-1])
        return printed["first_step"], printed["losses"]

    first, whole = losses("none@0", "a")
    assert (first, len(whole)) == (1, 12)
    first, rest = losses("die in W@0", "b")
    assert first == 7
    assert rest == whole[6:]
    job.assert_nothing_is_left()
