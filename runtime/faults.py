"""One failure, one message: the first rank that fails says why, the others end quietly."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from runtime.errors import PeerError, describe
from runtime.launch import EXIT_FILE, PREFIX
from runtime.process import is_alive
from synth.errors import PipesynthError

_GRACE_S = 0.5  # a rank that loses its peer lets the peer speak first
_TELLING_S = 5.0  # more than it takes to say why; a store or a pipe that hangs must not hold a rank
TERMINATED = 143  # what shells report after SIGTERM


class FaultReporter:
    """Reports the failure of one rank of a job."""

    def __init__(self, rank: int, world: int) -> None:
        self.rank = rank
        self.world = world
        self.unfinished: Path | None = None
        """A folder that is being written and must not outlive a failure."""
        self._store: Any = None
        self._ending = threading.Lock()

    def connect(self, store: Any) -> None:
        """Announces this rank to the others, through a store that outlives it."""
        self._store = store
        store.set(f"process/{self.rank}", json.dumps([socket.gethostname(), os.getpid()]))

    def fail(self, error: BaseException) -> NoReturn:
        """Ends the process; says why if no other rank has said so before."""
        code = error.exit_code if isinstance(error, PipesynthError) else 1
        text = str(error)
        if isinstance(error, PeerError):
            time.sleep(_GRACE_S)
            text += self._dead_ranks()
        elif not isinstance(error, PipesynthError):
            # gloo may say so of a peer wherever it is called, be it to set up a channel.
            text = f"rank {self.rank}: {describe(error)}{self._dead_ranks()}"
        self._end(text, code)

    def terminate(self) -> NoReturn:
        """Ends the process because it was told to."""
        time.sleep(_GRACE_S)
        dead = self._dead_ranks()
        self._end(f"the job was stopped{dead or ' from outside'}", 1 if dead else TERMINATED)

    def _end(self, text: str, code: int) -> NoReturn:
        # A rank that loses its peer is soon told to end as well, in another thread: the second of
        # the two must not end the process while the first is about to say why.
        first = self._ending.acquire(timeout=_TELLING_S)
        # Not sys.exit: leaving a group in order can wait for peers that are gone.
        try:
            if first:
                self._tell(text, code)
        finally:  # come what may: with the launcher, who reads what is told may be gone
            os._exit(code)

    def _tell(self, text: str, code: int) -> None:
        """Says why, if no other rank has; leaves nothing unfinished."""
        if self.unfinished is not None:
            shutil.rmtree(self.unfinished, ignore_errors=True)
        if self._is_first():
            if path := os.environ.get(EXIT_FILE):
                Path(path).write_text(str(code))
            print(PREFIX + " ".join(text.split()), file=sys.stderr, flush=True)
        sys.stdout.flush()

    def _is_first(self) -> bool:
        if self._store is None:
            return self.rank == 0  # before ranks are connected they all fail alike
        try:
            return bool(self._store.add("failures", 1) == 1)
        except Exception:  # the store went with the launcher, who has nobody to tell
            return False

    def _dead_ranks(self) -> str:
        """Names the ranks of this machine whose process is gone, with a leading "; "."""
        dead: list[str] = []
        with suppress(Exception):
            for rank in range(self.world):
                if not self._store.check([f"process/{rank}"]):
                    continue
                host, pid = json.loads(self._store.get(f"process/{rank}"))
                if rank != self.rank and host == socket.gethostname() and not is_alive(pid):
                    dead.append(f"rank {rank} (process {pid})")
        return f"; {' and '.join(dead)} died" if dead else ""
