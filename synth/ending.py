"""How a command ends: its exit code, and one line for what went wrong."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable

from synth.errors import PipesynthError

INTERRUPTED = 130  # what shells report after Ctrl-C
BROKEN_PIPE = 141  # and after a reader that went away


def guarded(command: Callable[[], int], *, speaks: bool = True) -> int:
    """Run a command and return its exit code, whatever comes of it.

    What went wrong is said in one line on stderr, unless another process `speaks`.
    """
    _mend_streams()
    text = ""
    try:
        code = command()
        sys.stdout.flush()
    except PipesynthError as error:
        text, code = str(error), error.exit_code
    except KeyboardInterrupt:
        text, code = "interrupted", INTERRUPTED
    except MemoryError:
        text, code = "not enough memory for a problem of this size; use fewer -P or -m", 2
    except BrokenPipeError:
        _forget_stdout()
        code = BROKEN_PIPE
    except OSError as error:
        if error.filename is None:
            _forget_stdout()
        where = error.filename or "the output cannot be written"
        text, code = f"{where}: {error.strerror or error}", 2
    if text and speaks:
        print(f"pipesynth: {' '.join(text.split())}", file=sys.stderr)
    return code


def _mend_streams() -> None:
    """Open streams that the caller has closed on nothing; print what they cannot spell escaped."""
    while (opened := os.open(os.devnull, os.O_RDWR)) < 3:
        pass
    os.close(opened)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w")
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def _forget_stdout() -> None:
    """Keep the interpreter from reporting once more, at its end, what stdout could not take."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    os.close(devnull)
