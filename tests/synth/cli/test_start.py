"""What every call pays before it does anything."""

import subprocess
import sys
import time

import pytest

from synth import __version__
from synth.cli.entry import VERBS, build_parser


def test_version(pipesynth, capsys):
    with pytest.raises(SystemExit) as exit_of:
        pipesynth("--version")
    assert exit_of.value.code == 0
    assert capsys.readouterr().out == f"pipesynth {__version__}\n"


@pytest.mark.parametrize("verb", [verb.__name__.rpartition(".")[2].rstrip("_") for verb in VERBS])
def test_every_verb_explains_itself(capsys, verb):
    with pytest.raises(SystemExit) as exit_of:
        build_parser().parse_args([verb, "--help"])
    assert exit_of.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: pipesynth {verb}")


def test_help_starts_fast():
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "synth", "--help"], check=True, stdout=subprocess.DEVNULL
        )
        times.append(time.perf_counter() - begin)
    assert min(times) < 0.3
