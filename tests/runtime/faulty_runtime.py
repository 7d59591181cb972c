"""`python -m runtime`, but one rank breaks down at a chosen point; a script.

    python faulty_runtime.py FAULT@RANK ARGUMENT ...

Under torchrun it is one rank, otherwise it starts all of them as the runtime does. After a restart
the fault does not come back.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from runtime import launch
from runtime.__main__ import main as run

AT_CALL = 27  # of the op concerned: in the seventh step of four micro-batches


def at_call(owner: Any, name: str, fault: Callable[[], None], *, after: bool = False) -> None:
    """Lets a method break down in one of its calls."""
    original = getattr(owner, name)
    calls = 0

    def broken(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == AT_CALL and not after:
            fault()
        result = original(*args, **kwargs)
        if calls == AT_CALL and after:
            fault()
        return result

    setattr(owner, name, broken)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def err() -> None:
    raise ArithmeticError("it does not add up")


def prepare(fault: str) -> None:
    """Plants the fault in this process."""
    from runtime import checkpoint
    from runtime.stage import ModuleStage
    from runtime.transport import GroupTransport

    if fault == "die in F":
        at_call(ModuleStage, "forward", die)
    elif fault == "die in B":
        at_call(ModuleStage, "backward_act", die)
    elif fault == "die in W":
        at_call(ModuleStage, "backward_wgt", die)
    elif fault == "die in send":
        at_call(GroupTransport, "send", die, after=True)
    elif fault == "die in checkpoint":
        original = checkpoint.FileSystemWriter.write_data
        checkpoint.FileSystemWriter.write_data = lambda *args: (original(*args), die())
    elif fault == "stop in F":
        at_call(ModuleStage, "forward", stop)
    elif fault == "err in F":
        at_call(ModuleStage, "forward", err)
    elif fault != "none":
        raise ValueError(fault)


def differing(arguments: list[str], fault: str) -> list[str]:
    """The arguments with which a rank is started that got others than the rest."""
    return [*arguments, *fault.removeprefix("start with ").split()]


def main() -> int:
    fault, _, rank = sys.argv[1].partition("@")
    arguments = sys.argv[2:]
    if "RANK" not in os.environ:
        launch.torchrun = lambda argv, ranks: [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
            *("--nproc-per-node", str(ranks), __file__, sys.argv[1], *argv),
        ]
    elif os.environ["RANK"] == rank and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        if fault.startswith("start with "):
            arguments = differing(arguments, fault)
        else:
            prepare(fault)
    return run(arguments)


if __name__ == "__main__":
    sys.exit(main())
