"""What a rank arranges with the operating system. Linux only; elsewhere nothing happens."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from synth.ending import INTERRUPTED

_PR_SET_PDEATHSIG = 1
_PR_SET_TIMERSLACK = 29
_REALTIME_PRIORITY = 10


def prepare(on_terminate: Callable[[], None]) -> None:
    """Makes sure that the rank ends when it is told to, whatever it is doing.

    To be called before any other thread exists. When the launcher dies the rank is killed; on
    Ctrl-C it goes without a word, as the launcher has one.

    Args:
        on_terminate: called in another thread on a termination signal; must end the process.
    """
    take_signals({signal.SIGTERM: on_terminate, signal.SIGINT: lambda: os._exit(INTERRUPTED)})
    end_with_parent(signal.SIGKILL)


def take_signals(actions: Mapping[int, Callable[[], None]]) -> None:
    """Has a thread of its own act on the first of some signals; processes started later get none.

    The main thread could not, while it waits for a peer inside a library. To be called before any
    other thread exists.

    Args:
        actions: what ends the process, by signal.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, actions)

    def watch() -> None:
        actions[signal.sigwait(actions)]()

    threading.Thread(target=watch, name="signals", daemon=True).start()


def end_with_parent(number: int = signal.SIGTERM) -> None:
    """Asks for a signal when the thread that started this process ends."""
    _prctl(_PR_SET_PDEATHSIG, number)


def sharpen_sleep() -> None:
    """Lets the calling thread wake up when it asked to, rather than up to 50 us later."""
    _prctl(_PR_SET_TIMERSLACK, 1)


def prefer_this_process() -> None:
    """Runs all threads before ordinary ones, where the system allows it.

    For stages that sleep: what else runs on the machine then adds little to what is measured.
    """
    tasks = Path("/proc/self/task")
    if not tasks.is_dir():
        return
    for task in tasks.iterdir():
        with suppress(OSError):  # not allowed, or a thread that has just ended
            os.sched_setscheduler(int(task.name), os.SCHED_FIFO, os.sched_param(_REALTIME_PRIORITY))


def is_alive(pid: int) -> bool:
    """Whether a process of this machine runs; one that ended and was not collected does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state not in "ZX"


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
