"""Whether the compiler still has work to do."""

from __future__ import annotations

import importlib.util

from synth.solve.compiled import is_kept

SOURCE = """
from synth.solve.compiled import compiled

@compiled
def twice(number):
    return 2 * number
"""


def test_machine_code_is_kept_after_the_first_call(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", "")
    path = tmp_path / "arithmetic.py"
    path.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("some.arithmetic", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert not is_kept(module.twice)
    assert module.twice(3) == 6
    assert is_kept(module.twice)
