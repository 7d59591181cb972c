"""Ctrl-C, in a way that no library can swallow.

Some catch every exception while they look for what is installed, KeyboardInterrupt too.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType


class Interrupts:
    """Remembers Ctrl-C besides raising KeyboardInterrupt. Use as a context manager.

    Where Ctrl-C means something else to the caller, or is not seen in this thread, that stays.
    """

    def __init__(self) -> None:
        self._seen = False
        self._ours = False

    def __enter__(self) -> Interrupts:
        usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if usual and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self._take)
            self._ours = True
        return self

    def __exit__(self, *_: object) -> None:
        if self._ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _take(self, number: int, frame: FrameType | None) -> None:
        self._seen = True
        raise KeyboardInterrupt

    def check(self) -> None:
        """Raise KeyboardInterrupt if Ctrl-C came and was swallowed."""
        if self._seen:
            raise KeyboardInterrupt
