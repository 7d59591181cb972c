"""One small adapter between PuLP models and solvers: HiGHS (default) and CBC.

PuLP calls a time-limited incumbent "Optimal"; here the solver's own status is read, and what it
returns is only ever taken as an order to be re-timed and verified.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from enum import StrEnum
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from synth.errors import UsageError

if TYPE_CHECKING:
    import pulp  # slow to import: only inside the functions that solve


class Answer(StrEnum):
    """What a solver found out about a feasibility model."""

    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    UNKNOWN = "unknown"  # stopped with nothing usable


BACKENDS = ("auto", "highs", "cbc")


@dataclass(frozen=True, slots=True)
class Backend:
    """A solver and the seed it runs with; always on one thread, so that it repeats itself."""

    name: str = "highs"
    seed: int = 0

    def solve(self, model: pulp.LpProblem, seconds: float) -> Answer:
        """Solve a feasibility model; values are left in its variables when it is feasible."""
        if self.name == "cbc":
            return _solve_cbc(model, seconds, self)
        return _solve_highs(model, seconds, self)


def make_backend(name: str, seed: int = 0) -> Backend:
    """The backend of that name. Raises UsageError when it is unknown or not installed."""
    if name not in BACKENDS:
        raise UsageError(f"solver {name!r} is not known; use one of {', '.join(BACKENDS)}")
    if name == "cbc" and _cbc_path() is None:
        raise UsageError("solver cbc is not installed here; use --solver highs")
    return Backend("highs" if name == "auto" else name, seed)


def _solve_highs(model: pulp.LpProblem, seconds: float, backend: Backend) -> Answer:
    import highspy
    import pulp

    solver = pulp.HiGHS(
        msg=False,
        timeLimit=seconds,
        threads=1,
        gapRel=0.0,
        gapAbs=0.0,
        random_seed=backend.seed,
    )
    model.solve(solver)
    highs: Any = model.solverModel
    if highs.getModelStatus() == highspy.HighsModelStatus.kInfeasible:
        return Answer.INFEASIBLE
    info = highs.getInfo()
    if info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible:
        return Answer.FEASIBLE
    return Answer.UNKNOWN


def _cbc_path() -> str | None:
    """CBC's executable: on the path, or the one PuLP 3 brings along."""
    import pulp

    bundled = getattr(getattr(pulp.apis, "coin_api", None), "pulp_cbc_path", None)
    if bundled and Path(bundled).exists():
        return str(bundled)
    return shutil.which("cbc")


def _solve_cbc(model: pulp.LpProblem, seconds: float, backend: Backend) -> Answer:
    """CBC knows only files, and says in its log alone whether it proved anything."""
    import pulp

    with tempfile.TemporaryDirectory(prefix="pipesynth-cbc-") as folder:
        log = Path(folder) / "cbc.log"
        solver = pulp.COIN_CMD(
            path=_cbc_path(),
            msg=False,
            timeLimit=max(1, ceil(seconds)),
            threads=1,
            logPath=str(log),
            timeMode="elapsed",
            options=[f"randomSeed {backend.seed}", f"randomCbcSeed {backend.seed}"],
        )
        solver.tmpDir = folder
        model.solve(solver)
        text = log.read_text(errors="replace") if log.exists() else ""
    if "infeasible" in text.lower() and model.status == pulp.LpStatusInfeasible:
        return Answer.INFEASIBLE
    if model.sol_status in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible):
        return Answer.FEASIBLE
    return Answer.UNKNOWN
