"""Text: the same step draws the same bytes, everywhere and always."""

from pathlib import Path

import pytest
import torch

from models import text


def test_targets_are_the_next_bytes(tmp_path: Path) -> None:
    (tmp_path / "b.py").write_bytes(b"defgh")
    (tmp_path / "a.py").write_bytes(b"abc")
    (tmp_path / "note.txt").write_bytes(b"not read")
    library = text.standard_library(root=tmp_path)
    assert bytes(library.data.tolist()) == b"abcdefgh"
    inputs, targets = library.batch(seed=0, step=0, sequences=5, seq_len=3)
    assert inputs.shape == targets.shape == (5, 3)
    assert torch.equal(targets, inputs + 1)


def test_batches_depend_on_seed_and_step_only() -> None:
    library = text.standard_library(10_000)
    draw = library.batch(seed=1, step=2, sequences=4, seq_len=16)
    torch.manual_seed(5)
    again = library.batch(seed=1, step=2, sequences=4, seq_len=16)
    assert all(torch.equal(a, b) for a, b in zip(draw, again, strict=True))
    assert not torch.equal(draw[0], library.batch(1, 3, 4, 16)[0])
    assert not torch.equal(draw[0], library.batch(2, 2, 4, 16)[0])


def test_the_standard_library_is_real_source() -> None:
    data = bytes(text.standard_library(100_000).data.tolist())
    assert len(data) == 100_000
    assert b"import" in data


def test_too_little_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no \*\.py file"):
        text.standard_library(root=tmp_path)
    (tmp_path / "a.py").write_bytes(b"abc")
    with pytest.raises(ValueError, match="3 tokens does not fit into 3 bytes"):
        text.standard_library(root=tmp_path).batch(0, 0, 1, 3)
