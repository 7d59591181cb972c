"""What of torchrun's pages the launcher shows."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest

from runtime.launch import _pass_on, first_death

TORCHRUN = """\
W1130 16:58:52.470000 23940 torch/distributed/elastic/api.py:1002] Sending process 7 a signal
Traceback (most recent call last):
  File "run.py", line 1032, in <module>
    main()
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
======================================================
runtime FAILED
Failures:
[1]:
  rank      : 1 (local_rank: 1)
  exitcode  : 3 (pid: 71)
Root Cause (first observed failure):
[0]:
  rank      : 0 (local_rank: 0)
  exitcode  : {code} (pid: 70)
  error_file: <N/A>
======================================================
"""
A_RANKS_OWN = """\
Traceback (most recent call last):
  File "model.py", line 3, in <module>
    import what_is_not_there
ModuleNotFoundError: No module named 'what_is_not_there'
"""


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (-9, "rank 0 (process 70) was killed by SIGKILL, as it is when memory runs out"),
        (-11, "rank 0 (process 70) was killed by SIGSEGV"),
        (3, "rank 0 (process 70) ended with code 3"),
    ],
)
def test_the_first_failure_of_the_report_in_one_line(code: int, why: str) -> None:
    assert first_death(TORCHRUN.format(code=code)) == why


def test_a_job_that_never_had_ranks_has_no_first_failure() -> None:
    assert first_death(A_RANKS_OWN) is None


@pytest.mark.parametrize(
    "ranks",
    [
        "",
        "loading\n",
        "no ChildFailedError\n",
        A_RANKS_OWN,
        f"loading\n{A_RANKS_OWN}\nstep 1\n",
        A_RANKS_OWN * 2,
    ],
)
def test_what_ranks_write_is_passed_on_and_what_torchrun_adds_is_not(
    ranks: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pages = TORCHRUN.format(code=1)
    kept = _pass_on(io.StringIO(ranks + pages), on_failure=lambda: None)
    assert capsys.readouterr().err == ranks
    assert "".join(kept) == pages


def test_after_a_ranks_reason_nothing_is_passed_on(capsys: pytest.CaptureFixture[str]) -> None:
    """Not even where it comes in the middle of what torchrun writes."""
    called: list[int] = []
    reason = "pipesynth: rank 1 died\n"
    first, rest = TORCHRUN.format(code=1).split("    main()\n")
    written = f"{first}{reason}    main()\n{rest}{A_RANKS_OWN}"
    _pass_on(io.StringIO(written), on_failure=lambda: called.append(1))
    assert capsys.readouterr().err == reason
    assert called == [1]


def test_ranks_may_write_what_is_no_text() -> None:
    rank = [sys.executable, "-c", r"import os; os.write(2, b'caf\xe9\n')"]
    script = (
        f"import sys; from runtime import launch; launch.torchrun = lambda argv, ranks: {rank}; "
        "sys.exit(launch.main([], 1))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, "caf\ufffd\n".encode())
