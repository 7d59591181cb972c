"""What every call pays before it does anything."""

import subprocess
import sys
from pathlib import Path

import pytest

from synth import __version__
from synth.cli.entry import VERBS, build_parser

ROOT = Path(__file__).resolve().parents[3]


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


LIGHT = """
import sys
from synth.cli import main
try:
    main(["--help"])
except SystemExit:
    pass
loaded = {name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names
print(*sorted(name for name in loaded if not name.startswith("_")), file=sys.stderr)
"""


def test_help_starts_fast():
    """It loads nothing but the standard library and ourselves; time would depend on the machine."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", LIGHT], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: pipesynth")
    assert done.stderr.split() == ["synth"]
