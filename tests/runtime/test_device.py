"""Which device a rank gets, and how marks on a GPU become times of the host."""

from __future__ import annotations

import time

import pytest
import torch

from runtime import device
from synth.errors import UsageError


class Event:
    """As a CUDA event behaves: it has a time, in ms, once somebody has waited for it."""

    device_ms = 0.0

    def __init__(self) -> None:
        self.at: float | None = None
        self.over = False

    def record(self) -> None:
        self.at = Event.device_ms

    def synchronize(self) -> None:
        assert self.at is not None
        self.over = True

    def elapsed_time(self, other: Event) -> float:
        assert self.over
        assert other.over
        assert self.at is not None
        assert other.at is not None
        return other.at - self.at


def forbid() -> None:
    raise AssertionError("the whole device is waited for")


def test_marks_are_on_the_clock_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "_event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", forbid)
    clock = device.CudaClock()
    marks = []
    Event.device_ms = 500.0
    before = time.monotonic()
    clock.start()
    after = time.monotonic()
    for passed_ms in (0.0, 2.0, 40.0):
        Event.device_ms = 500.0 + passed_ms
        marks.append(clock.mark())
    first, second, third = clock.seconds(marks)
    assert before <= first <= after
    assert second - first == pytest.approx(0.002, rel=1e-6)
    assert third - first == pytest.approx(0.040, rel=1e-6)


@pytest.mark.parametrize(("here", "rank"), [(0, "0"), (2, "2")])
def test_a_rank_without_a_gpu_says_so(
    monkeypatch: pytest.MonkeyPatch, here: int, rank: str
) -> None:
    monkeypatch.setenv("LOCAL_RANK", rank)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: here)
    with pytest.raises(UsageError, match=f"local rank {rank} has no GPU, torch finds {here} on"):
        device.pick_device("cuda")


def test_every_rank_has_the_gpu_of_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[torch.device] = []
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    assert device.pick_device("cuda") == (torch.device("cuda", 1), "nccl")
    assert chosen == [torch.device("cuda", 1)]
    assert device.pick_device("cpu") == (torch.device("cpu"), "gloo")
