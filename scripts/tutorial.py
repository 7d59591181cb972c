"""Run the commands that docs/tutorial.md shows, in order, and put what they print below them.

    python scripts/tutorial.py [--check]

With --check nothing is written: it only says whether every command passes. The text between the
commands speaks of measured numbers; read it again after the figures have changed.
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from synth.files import write_atomic

ROOT = Path(__file__).resolve().parent.parent
TUTORIAL = ROOT / "docs" / "tutorial.md"
BLOCK = re.compile(
    r"^```console\n\$ (?P<command>.+)\n(?P<output>(?:(?!```).*\n)*)```$", re.MULTILINE
)
LIMIT_S = 600


def fill(text: str, run: Callable[[str], str]) -> str:
    """The text with the output of every block replaced by what its command prints."""

    def block(found: re.Match[str]) -> str:
        return f"```console\n$ {found['command']}\n{run(found['command'])}```"

    return BLOCK.sub(block, text)


def in_folder(folder: Path) -> Callable[[str], str]:
    """Runs commands there, each with the files of those before it, and beside the examples."""
    if (ROOT / "examples").exists():
        (folder / "examples").symlink_to(ROOT / "examples")

    def run(command: str) -> str:
        program, *words = shlex.split(command)
        if program != "pipesynth":
            raise SystemExit(f"{TUTORIAL}: cannot run {command!r}, only pipesynth")
        print(f"$ {command}", file=sys.stderr, flush=True)
        done = subprocess.run(
            [sys.executable, "-m", "synth", *words],
            cwd=folder,
            stdout=subprocess.PIPE,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"{TUTORIAL}: {command!r} ended with code {done.returncode}")
        return done.stdout

    return run


def main() -> None:
    """Run everything, then write the tutorial."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="run everything, write nothing")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        text = fill(TUTORIAL.read_text(), in_folder(Path(folder)))
    if not args.check:
        write_atomic(TUTORIAL, text)


if __name__ == "__main__":
    main()
