"""Processes that work beside the caller, can be ended at any moment, and never outlive it.

What a compiled solver does cannot be interrupted from within the interpreter that called it; a
process can. Each runs in a session of its own: Ctrl-C is for the caller, who then ends it together
with whatever it has started.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from queue import SimpleQueue
from threading import Thread
from typing import Any


class Beside:
    """A module's `main` in a process of its own. Use as a context manager."""

    def __init__(self, module: str) -> None:
        ours, theirs = Pipe()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        self._connection = ours
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"from {module} import main; main()", str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # HiGHS greets there
            pass_fds=[theirs.fileno()],
            env=environment,
            start_new_session=True,
        )
        theirs.close()

    def __enter__(self) -> Beside:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._connection.close()

    def send(self, message: object) -> None:
        """Send a message; `receive` says so where nobody is there to take it."""
        with suppress(OSError):
            self._connection.send(message)

    def receive(self, seconds: float) -> Any:
        """Its next message; None if that takes longer. Raises EOFError where it has ended."""
        try:
            return self._connection.recv() if self._connection.poll(seconds) else None
        except OSError:
            raise EOFError from None


class Caller:
    """The other end, for the process itself: it ends as soon as its caller has."""

    def __init__(self) -> None:
        self._connection = Connection(int(sys.argv[1]))
        self._inbox: SimpleQueue[Any] = SimpleQueue()
        Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        """Take messages as they come: a thread, so that the end is seen during a long solve."""
        try:
            while True:
                self._inbox.put(self._connection.recv())
        except (EOFError, OSError):
            os.killpg(os.getpgrp(), signal.SIGKILL)

    def receive(self) -> Any:
        """The next message."""
        return self._inbox.get()

    @property
    def waiting(self) -> bool:
        """Whether there is a message to receive."""
        return not self._inbox.empty()

    def send(self, message: object) -> None:
        """Send a message."""
        self._connection.send(message)
