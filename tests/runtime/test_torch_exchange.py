"""torch's runtime takes our CSVs, and torch's own schedules are valid here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from runtime.torch_builtin import NAMES, rows
from synth import catalog
from synth.exchange import sidecar
from synth.exchange.adopt import adopt
from synth.exchange.torch_csv import Form, dumps, loads
from synth.fusing import merge
from synth.problem import Problem, make_problem
from synth.schedule import Schedule
from synth.solve import solve

WORKER = Path(__file__).with_name("torch_worker.py")
PLANS = ("zb-h1", "solved-linear", "solved-v", "zb-h1-merged", "interleaved")


def solved(problem: Problem) -> Schedule:
    found = solve(problem, time_limit_s=10).schedule
    assert found is not None
    return found


def plans() -> dict[str, Schedule]:
    zb_h1 = catalog.build("zb-h1", make_problem(4, 8))
    return {
        "zb-h1": zb_h1,
        "zb-h1-merged": merge(zb_h1),
        "solved-linear": solved(make_problem(4, 8, costs=(2, 3, 2), memory=4)),
        "solved-v": solved(make_problem(4, 8, placement="v", memory=4)),
        "interleaved": catalog.build(
            "interleaved:2", make_problem(4, 8, placement="interleaved:2")
        ),
    }


@cache
def errors() -> dict[str, list[float]]:
    """By CSV the error of every rank; one launch for all."""
    with TemporaryDirectory() as folder:
        for name, schedule in plans().items():
            for form in Form:
                path = Path(folder, f"{name}.{form.removeprefix('compute_')}.csv")
                path.write_text(dumps(schedule, form))
                Path(f"{path}.json").write_text(sidecar.dumps(schedule))
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4"]
        root = str(Path(__file__).resolve().parents[2])
        done = subprocess.run(
            [sys.executable, *launcher, str(WORKER), folder],
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": root},
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        ranks = [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(4)]
    return {name: [errors[name] for errors in ranks] for name in ranks[0]}


@pytest.mark.dist
@pytest.mark.parametrize("form", ["only", "comms"])
@pytest.mark.parametrize("name", PLANS)
def test_torch_runs_our_csv_with_the_gradients_of_one_process(name: str, form: str) -> None:
    of_ranks = errors()[f"{name}.{form}"]
    assert len(of_ranks) == 4
    assert max(of_ranks) < 1e-12


MAKESPANS = {  # F = I = W = 1, B = 2
    "GPipe": (33, "linear"),
    "1F1B": (33, "linear"),
    "LoopedBFS": (28.5, "interleaved:2"),
    "Interleaved1F1B": (28.5, "interleaved:2"),
    "InterleavedZeroBubble": (25.5, "interleaved:2"),
    "ZBVZeroBubble": (25.5, "v"),
    "DualPipeV": (27, "v"),
}


@pytest.mark.parametrize("name", NAMES)
def test_torchs_own_schedules_are_valid(name: str) -> None:
    text = "\n".join(map(",".join, rows(name, 4, 8)))
    table = loads(text, name)
    problem = make_problem(4, table.microbatches, placement=table.placement)
    schedule = adopt(name, problem, table.orders)
    makespan, placement = MAKESPANS[name]
    assert problem.units.ticks(schedule.makespan) == makespan
    assert problem.placement == placement
    assert loads(dumps(schedule, Form.COMPUTE_COMMS)).orders == table.orders


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    from runtime.torch_builtin import main

    assert main(["1F1B", "-P", "2", "-m", "2"]) == 0
    assert capsys.readouterr().out == "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"
    assert main(["DualPipeV", "-P", "2", "-m", "1"]) == 2
    assert "torch has no DualPipeV of that size" in capsys.readouterr().err
    assert main(["1F1B", "-P", "0", "-m", "2"]) == 2
    assert "-P 0 -m 2: give at least one device and one micro-batch" in capsys.readouterr().err


def test_the_command_refuses_what_torch_does_not_have(capsys: pytest.CaptureFixture[str]) -> None:
    from synth.cli import main

    assert main(["import", "2F2B", "--from", "torch", "-P", "2", "-m", "2"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("pipesynth: torch has no schedule '2F2B'; use one of GPipe, 1F1B,")
    assert error.count("\n") == 1
