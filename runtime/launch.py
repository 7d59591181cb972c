"""Starts all ranks on this machine with torchrun, and turns its noise into one line.

A rank that fails says so in one line; torchrun then adds pages of its own and exits with 1 whatever
the reason. The launcher lets the line through, keeps the pages back and exits with the rank's code.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

from runtime.process import end_with_parent
from synth.ending import INTERRUPTED

EXIT_FILE = "PIPESYNTH_EXIT_FILE"
"""Environment variable: where the first rank that fails leaves its exit code."""

PREFIX = "pipesynth: "
"""Begins every line with which a rank reports why it failed."""

_TORCHRUN_LOG = re.compile(r"[WEI]\d{4} ")
_FAILURE = re.compile(r"^ +rank +: (\d+) .*\n +exitcode +: (-?\d+) \(pid: (\d+)\)", re.MULTILINE)
_TRACEBACK = "Traceback (most recent call last):"
_KEPT_LINES = 40
_GRACE_S = 5.0
"""How long the ranks have to end when one of them has failed; torchrun alone would give them 30."""


def main(argv: Sequence[str], ranks: int) -> int:
    """Runs `python -m runtime` with these arguments in every rank; returns the exit code."""
    with tempfile.TemporaryDirectory(prefix="pipesynth-") as folder:
        exit_file = Path(folder) / "exit"
        job = subprocess.Popen(
            torchrun(argv, ranks),
            env=_environment(exit_file),
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",  # ranks may write anything
            preexec_fn=end_with_parent,
        )
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        with job:
            assert job.stderr is not None
            try:
                held_back = _pass_on(job.stderr, on_failure=lambda: _end_soon(job))
                code = job.wait()
            except KeyboardInterrupt:
                _stop(job)
                print(f"{PREFIX}interrupted", file=sys.stderr)
                return INTERRUPTED
        if code == 0:
            return 0
        if exit_file.exists():
            return int(exit_file.read_text())
        why = first_death("".join(held_back))
        if why is None:
            sys.stderr.writelines(held_back)
        print(f"{PREFIX}{why or f'torchrun ended with code {code}'}", file=sys.stderr)
        return 1


def first_death(report: str) -> str | None:
    """How the first rank ended, from torchrun's report of a job of which no rank said why.

    The report ends with the failure that was seen first.
    """
    ended = _FAILURE.findall(report)
    if not ended:
        return None
    rank, code, process = ended[-1]
    if int(code) >= 0:
        return f"rank {rank} (process {process}) ended with code {code}"
    number = -int(code)
    killed = f"rank {rank} (process {process}) was killed by {signal.Signals(number).name}"
    return killed + (", as it is when memory runs out" if number == signal.SIGKILL else "")


def torchrun(argv: Sequence[str], ranks: int) -> list[str]:
    """The command that starts `ranks` ranks of this runtime on this machine."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return [*launcher, "--nproc-per-node", str(ranks), "-m", "runtime", *argv]


def _environment(exit_file: Path) -> dict[str, str]:
    root = str(Path(__file__).resolve().parent.parent)
    path = os.environ.get("PYTHONPATH")
    return {
        "OMP_NUM_THREADS": "1",  # ranks share the cores
        "TORCH_CPP_LOG_LEVEL": "ERROR",  # a lost peer is reported once, by us
        **os.environ,
        # A folder named models or runtime where the user stands must not hide ours.
        "PYTHONSAFEPATH": "1",
        "PYTHONPATH": f"{root}{os.pathsep}{path}" if path else root,
        EXIT_FILE: str(exit_file),
    }


def _pass_on(errors: IO[str], on_failure: Callable[[], None]) -> deque[str]:
    """Copies what the ranks write until one has failed; returns the end of what was held back."""
    held_back: deque[str] = deque(maxlen=_KEPT_LINES)
    failed = False
    for block in _blocks(errors):
        if block[0].startswith(PREFIX):
            if not failed:
                on_failure()
            failed = True
        else:
            # With such a traceback torchrun gives up; what follows is its report.
            failed = failed or (len(block) > 1 and "ChildFailedError" in block[-1])
            if failed or _TORCHRUN_LOG.match(block[0]):
                held_back.extend(block)
                continue
        sys.stderr.writelines(block)
        sys.stderr.flush()
    return held_back


def _blocks(lines: Iterable[str]) -> Iterator[list[str]]:
    """Tracebacks as a whole, up to the line that says what was raised; other lines one by one."""
    traceback: list[str] = []
    for line in lines:
        if line.startswith(PREFIX) or not (traceback or line.startswith(_TRACEBACK)):
            yield [line]
            continue
        traceback.append(line)
        if not line.startswith((" ", _TRACEBACK)):
            yield traceback
            traceback = []
    if traceback:
        yield traceback


def _end_soon(job: subprocess.Popen[str]) -> None:
    """Kills torchrun after a while, and with it ranks that do not react, such as a stopped one."""
    timer = threading.Timer(_GRACE_S, job.kill)
    timer.daemon = True
    timer.start()


def _stop(job: subprocess.Popen[str]) -> None:
    """Ends torchrun, and with it the ranks, even if it does not react."""
    job.terminate()
    try:
        job.communicate(timeout=_GRACE_S)
    except subprocess.TimeoutExpired:
        job.kill()
