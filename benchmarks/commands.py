"""Calling pipesynth from a benchmark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def pipesynth(*arguments: object) -> str:
    """Runs a command, prints it to stderr, returns what it printed."""
    words = [str(argument) for argument in arguments]
    print(f"$ pipesynth {' '.join(words)}", file=sys.stderr, flush=True)
    done = subprocess.run(
        [sys.executable, "-m", "synth", *words],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout


def answer(*arguments: object) -> dict[str, Any]:
    """The JSON object that a command prints."""
    found: dict[str, Any] = json.loads(pipesynth(*arguments, "--json"))
    return found
