"""The one-way flow synth -> files -> runtime, and the cheap start-up it buys."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FORBIDDEN = {
    "synth": {"torch", "runtime", "models"},
    "models": {"synth", "runtime"},
    "runtime": set(),
}
SOURCES = sorted(path for package in FORBIDDEN for path in (ROOT / package).rglob("*.py"))


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def imported_packages(path: Path) -> Iterator[tuple[int, str]]:
    """Line and top-level package of every import, also those inside functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.lineno, node.module.partition(".")[0]


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_imports_follow_the_flow(path: Path) -> None:
    forbidden = FORBIDDEN[path.relative_to(ROOT).parts[0]]
    found = [f"line {line}: {name}" for line, name in imported_packages(path) if name in forbidden]
    assert found == []


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_no_module_hides_a_standard_one(path: Path) -> None:
    """A script's own folder comes first on the path, so a `queue.py` would replace Python's."""
    name = path.parent.name if path.name == "__init__.py" else path.stem
    assert name.startswith("__") or name not in sys.stdlib_module_names


@pytest.mark.parametrize("heavy", ["torch", "numpy", "pulp", "highspy", "networkx"])
def test_command_line_starts_light(heavy: str) -> None:
    code = f"import synth.cli, sys; sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
