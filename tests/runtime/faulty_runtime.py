"""`python -m runtime`, but one rank breaks down at a chosen point; a script.

    python faulty_runtime.py FAULT@RANK ARGUMENT ...
    python faulty_runtime.py torchrun OPTION ... faulty_runtime.py FAULT@RANK ARGUMENT ...

The first is one rank where torchrun has started it. Elsewhere it starts all ranks as the runtime
does, by the second: torchrun itself, except that its ranks are forks of it. What they import takes
most of the time of such a job, and so is imported once. After a restart the fault does not come
back.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from runtime import launch
from runtime.__main__ import main as run

FORKING_S = 0.2
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
    from runtime.endpoints import GroupSender
    from runtime.stage import ModuleStage

    if fault == "die in F":
        at_call(ModuleStage, "forward", die)
    elif fault == "die in B":
        at_call(ModuleStage, "backward_act", die)
    elif fault == "die in W":
        at_call(ModuleStage, "backward_wgt", die)
    elif fault == "die in send":
        at_call(GroupSender, "send", die, after=True)
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


def rank(planted: str, *arguments: str) -> None:
    """One rank; ends with its exit code.

    It starts once its siblings are forked: a connection keeps a thread of the launcher's store
    busy, and a fork at that moment would wait for ever for the locks which that thread holds.
    """
    time.sleep(FORKING_S)
    given = list(arguments)
    fault, _, where = planted.partition("@")
    if os.environ["RANK"] == where and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        if fault.startswith("start with "):
            given = differing(given, fault)
        else:
            prepare(fault)
    if code := run(given):
        sys.exit(code)


def torchrun(arguments: list[str]) -> None:
    """torchrun with ranks that are forks of this process."""
    import torch._dynamo  # noqa: F401, as optimizers do
    import torch.distributed.run as original

    import runtime.training  # noqa: F401

    configure = original.config_from_args

    def forking(parsed: Any) -> tuple[Any, Any, list[str]]:
        config, _, _ = configure(parsed)
        config.start_method = "fork"
        return config, rank, parsed.training_script_args

    original.config_from_args = forking
    original.main(arguments)


def main() -> int:
    if sys.argv[1] == "torchrun":
        torchrun(sys.argv[2:])
        return 0
    if "RANK" in os.environ:
        rank(*sys.argv[1:])
        return 0
    launch.torchrun = lambda argv, ranks: [
        *(sys.executable, __file__, "torchrun", "--standalone"),
        *("--nproc-per-node", str(ranks), __file__, sys.argv[1], *argv),
    ]
    return run(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
