"""The documented command for several machines, run on two hosts that share nothing but a cable.

A host is a network namespace with a host name and a clock of its own; the cable is a pair of
virtual Ethernet devices. Nothing leaves the two namespaces.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from synth import catalog
from synth.files import save
from synth.problem import make_problem

pytestmark = [pytest.mark.dist, pytest.mark.slow]
ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 120
HOSTS = {"pipesynth-a": "10.77.0.1", "pipesynth-b": "10.77.0.2"}
SMALL = ("--width", "16", "--heads", "2", "--seq-len", "8", "--dtype", "float64")


@dataclass(frozen=True)
class Host:
    """One of the two."""

    name: str
    namespace: str
    folder: Path
    boot_s: int
    """By how much its monotonic clock is ahead of this machine's."""

    def start(self, command: list[str]) -> subprocess.Popen[str]:
        """Runs a command there, with its own host name and with both names in its hosts file."""
        script = (
            f"hostname {self.name} && mount --bind {self.folder}/hosts /etc/hosts && "
            f"exec {shlex.join(command)}"
        )
        environment = {key: value for key, value in os.environ.items() if key != "RANK"}
        return subprocess.Popen(
            [
                *("ip", "netns", "exec", self.namespace),
                *("unshare", "--uts", "--mount", "--time", "--monotonic", str(self.boot_s)),
                *("sh", "-c", script),
            ],
            env=environment | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[list[Host]]:
    """Two hosts with a cable between them."""
    if shutil.which("ip") is None or shutil.which("unshare") is None:
        pytest.skip("needs ip (iproute2) and unshare (util-linux)")
    if subprocess.run(["unshare", "--uts", "--mount", "--time", "true"], check=False).returncode:
        pytest.skip("namespaces for host names, mounts and clocks cannot be made here")
    listed = [f"{address} {name}" for name, address in HOSTS.items()]
    (tmp_path / "hosts").write_text("\n".join(["127.0.0.1 localhost", *listed, ""]))
    made = [
        Host(name, f"{name}-{os.getpid()}", tmp_path, boot_s)
        for name, boot_s in zip(HOSTS, (0, 10_000), strict=True)
    ]
    first, second = made
    try:
        for host in made:
            if problem := ip("netns", "add", host.namespace):
                pytest.skip(f"network namespaces cannot be made here: {problem}")
        ends = ("eth0", "netns", first.namespace), ("eth0", "netns", second.namespace)
        if problem := ip("link", "add", *ends[0], "type", "veth", "peer", "name", *ends[1]):
            pytest.skip(f"no cable can be made here: {problem}")
        for host in made:
            inside = ("-n", host.namespace)
            assert not ip(*inside, "address", "add", f"{HOSTS[host.name]}/24", "dev", "eth0")
            assert not ip(*inside, "link", "set", "eth0", "up")
            assert not ip(*inside, "link", "set", "lo", "up")
        yield made
    finally:
        for host in made:
            ip("netns", "delete", host.namespace)


def ip(*arguments: str) -> str:
    """What `ip` complains about, nothing if it succeeds."""
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    return done.stderr.strip() if done.returncode else ""


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    save(catalog.build("zb-h1", make_problem(4, 4)), path)
    return path


def documented() -> list[str]:
    """The command for several machines as the README has it, for two ranks on each of two."""
    text = (ROOT / "README.md").read_text().replace("\\\n", " ")
    (found,) = re.findall(r"^ +torchrun --nnodes 2 .*-m runtime FILE.*$", text, re.M)
    words = shlex.split(found)
    words[words.index("--nproc-per-node") + 1] = "2"
    words[words.index("HOST:PORT")] = f"{next(iter(HOSTS))}:29400"
    return [sys.executable, "-m", "torch.distributed.run", *words[1:]]


def run_on(hosts: list[Host], command: list[str]) -> list[tuple[int, str, str]]:
    """Starts the same command on both and waits for it."""
    jobs = [host.start(command) for host in hosts]
    found = []
    try:
        for job in jobs:
            output, errors = job.communicate(timeout=LIMIT_S)
            found.append((job.returncode, output, errors))
    finally:
        for job in jobs:
            job.kill()
            job.wait()
    return found


def test_the_documented_command_trains_on_two_hosts(
    hosts: list[Host], plan: Path, tmp_path: Path
) -> None:
    command = [str(plan) if word == "FILE" else word for word in documented()]
    run_file = tmp_path / "run.json"
    command[command.index("run.json")] = str(run_file)
    found = run_on(hosts, [*command, "--check", "--steps", "4", "--json", *SMALL])
    assert [code for code, _, _ in found] == [0, 0], found
    printed = [json.loads(output) for _, output, _ in found if output]
    assert len(printed) == 1  # rank 0 speaks for all
    assert printed[0]["largest_error"] == 0
    assert printed[0]["environment"]["backend"] == "gloo"
    # The clocks are hours apart, the ops of a step are not.
    written = json.loads(run_file.read_text())
    assert len(written["ranks"]) == 4
    for step in written["steps"]:
        assert step["makespan_s"] < 100


def test_replicas_train_with_a_pipeline_on_each_host(hosts: list[Host], tmp_path: Path) -> None:
    plan = tmp_path / "two.json"
    save(catalog.build("zb-h1", make_problem(2, 4)), plan)
    command = documented()
    command = command[: command.index("runtime") + 1]
    options = ("--replicas", "2", "--clip", "1", "--early-updates", "--steps", "4", "--json")
    found = run_on(hosts, [*command, "train", str(plan), *options, *SMALL])
    assert [code for code, _, _ in found] == [0, 0], found
    (losses,) = [json.loads(output)["losses"] for _, output, _ in found if output]
    assert len(losses) == 4


def test_a_rank_that_dies_ends_the_ranks_on_the_other_host(
    hosts: list[Host], plan: Path, tmp_path: Path
) -> None:
    script = Path(__file__).with_name("faulty_runtime.py")
    command = documented()
    command = [*command[: command.index("-m", 3)], str(script), "die in B@3", "train", str(plan)]
    found = run_on(hosts, [*command, "--steps", "20", "--timeout", "5", *SMALL])
    assert all(code != 0 for code, _, _ in found), found
    lines = [line for _, _, errors in found for line in errors.splitlines()]
    said = [line for line in lines if line.startswith("pipesynth: ")]
    assert len(said) == 1, said
    assert "rank 3" in said[0]
