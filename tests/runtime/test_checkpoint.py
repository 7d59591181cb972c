"""Checkpoints: what comes back is what was saved, and nothing half-written is ever left."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from runtime import checkpoint
from runtime.errors import RunError
from runtime.session import Session, connect
from synth.errors import FileError

FACTS = {"seed": 1, "batch": 2}


@pytest.fixture
def session() -> Session:
    return connect(1, device="cpu")


def stages(seed: int, width: int = 3) -> dict[int, nn.Module]:
    torch.manual_seed(seed)
    return {
        0: nn.Sequential(nn.Linear(2, width), nn.BatchNorm1d(width)),
        2: nn.Linear(width, 1),
    }


def trained(modules: dict[int, nn.Module], steps: int) -> torch.optim.Optimizer:
    """An optimizer with moments; the modules' own values change on the way."""
    parameters = [p for module in modules.values() for p in module.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=0.1)
    for step in range(steps):
        generator = torch.Generator().manual_seed(step)
        inputs = torch.randn(4, 2, generator=generator)
        modules[2](modules[0](inputs)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return optimizer


def values(modules: dict[int, nn.Module], optimizer: torch.optim.Optimizer) -> list[Any]:
    tensors = [t for module in modules.values() for t in module.state_dict().values()]
    states = list(optimizer.state_dict()["state"].values())
    return [t.tolist() for t in tensors] + [{k: v.tolist() for k, v in s.items()} for s in states]


def test_what_is_loaded_is_what_was_saved(tmp_path: Path, session: Session) -> None:
    modules = stages(1)
    optimizer = trained(modules, 3)
    saved = checkpoint.save(tmp_path / "new", 3, modules, optimizer, FACTS, session)
    assert saved == tmp_path / "new" / "step-00000003" == checkpoint.latest(tmp_path / "new")
    others = stages(2)
    other = trained(others, 0)
    assert checkpoint.load(saved, others, other, FACTS, session) == 3
    assert values(others, other) == values(modules, optimizer)
    # The loaded state is trained on as if nothing had happened.
    for pair in ((modules, optimizer), (others, other)):
        pair[0][2](pair[0][0](torch.ones(2, 2))).sum().backward()
        pair[1].step()
    assert values(others, other) == values(modules, optimizer)


def test_stages_may_be_placed_in_another_way(tmp_path: Path, session: Session) -> None:
    modules = stages(1)
    saved = checkpoint.save(tmp_path, 1, modules, trained(modules, 1), FACTS, session)
    alone = {2: stages(2)[2]}
    assert checkpoint.load(saved, alone, None, FACTS, session) == 1
    assert torch.equal(alone[2].weight, modules[2].weight)


def test_old_ones_go_and_the_last_is_found(tmp_path: Path, session: Session) -> None:
    assert checkpoint.latest(tmp_path) is None
    modules = stages(1)
    for step in (9, 10, 100):
        checkpoint.save(tmp_path, step, modules, None, FACTS, session, keep=2)
    checkpoint.unfinished(tmp_path, 200).mkdir()
    assert checkpoint.latest(tmp_path) == tmp_path / "step-00000100"
    checkpoint.prepare(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000010", "step-00000100"]


def test_a_place_where_nothing_can_be_written_is_refused_beforehand(tmp_path: Path) -> None:
    checkpoint.prepare(tmp_path / "not" / "there")
    assert list((tmp_path / "not" / "there").iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(FileError, match="file/below: checkpoints cannot be written there: Not a"):
        checkpoint.prepare(tmp_path / "file" / "below")


def test_the_same_step_is_replaced(tmp_path: Path, session: Session) -> None:
    first, second = stages(1), stages(2)
    checkpoint.save(tmp_path, 5, first, None, FACTS, session)
    saved = checkpoint.save(tmp_path, 5, second, None, FACTS, session)
    checkpoint.load(saved, first, None, FACTS, session)
    assert torch.equal(first[2].weight, second[2].weight)


def test_a_full_disk_leaves_the_last_whole_one(
    tmp_path: Path, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = stages(1)
    checkpoint.save(tmp_path, 1, modules, None, FACTS, session)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    for broken in ("os.fsync", "torch.save"):
        with monkeypatch.context() as patch:
            patch.setattr(broken, full)
            with pytest.raises(RunError) as raised:
                checkpoint.save(tmp_path, 2, modules, None, FACTS, session)
        assert "step-00000002 cannot be written: " in str(raised.value)
        assert "No space left on device; the last whole one is " in str(raised.value)
        assert str(raised.value).endswith("step-00000001")
        assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]


def test_another_model_or_training_is_refused(tmp_path: Path, session: Session) -> None:
    saved = checkpoint.save(tmp_path, 1, stages(1), None, FACTS, session)
    with pytest.raises(FileError, match=r"made with seed 1, now it is 2; go on with the same"):
        checkpoint.load(saved, stages(1), None, {"seed": 2}, session)
    wanted = r"0\.0\.weight has shape \(4, 2\), the checkpoint has one of shape \(3, 2\)"
    with pytest.raises(FileError, match=wanted):
        checkpoint.load(saved, stages(1, width=4), None, FACTS, session)
    with pytest.raises(FileError, match=r"1\.weight has shape .*, the checkpoint does not have it"):
        checkpoint.load(saved, {1: nn.Linear(1, 1)}, None, FACTS, session)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("pipesynth.json", None, "cannot be read"),
        ("pipesynth.json", b"[]", "is not a pipesynth.checkpoint of version 1"),
        ("pipesynth.json", b"{", "cannot be read"),
        (".metadata", None, "cannot be read"),
        (".metadata", b"", "cannot be read"),
        ("__0_0.distcp", None, "cannot be read"),
    ],
)
def test_a_damaged_one_is_refused(
    name: str, content: bytes | None, message: str, tmp_path: Path, session: Session
) -> None:
    saved = checkpoint.save(tmp_path, 1, stages(1), None, FACTS, session)
    if content is None:
        (saved / name).unlink()
    else:
        (saved / name).write_bytes(content)
    with pytest.raises(FileError, match=message):
        checkpoint.load(saved, stages(1), None, FACTS, session)


def test_the_facts_are_plain_json(tmp_path: Path, session: Session) -> None:
    saved = checkpoint.save(tmp_path, 7, stages(1), None, FACTS, session)
    assert json.loads((saved / "pipesynth.json").read_text()) == {
        "format": "pipesynth.checkpoint",
        "version": 1,
        "step": 7,
        **FACTS,
    }
