"""The `pipesynth` command: one module per verb, nothing heavy imported before a verb needs it."""

from synth.cli.entry import main

__all__ = ["main"]
