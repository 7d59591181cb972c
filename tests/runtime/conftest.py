"""Devices to test on, and ranks as threads of the test's own process under strict rules."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.distributed import HashStore

from runtime.pipeline import MakeTransport
from runtime.session import Session
from runtime.strict import Rendezvous, StrictTransport
from synth.rendezvous import Communicator, per_channel

Body = Callable[[Session, MakeTransport], Any]
OnThreads = Callable[..., list[Any]]


# Ranks have one too. Tensors are tiny here, and threads that wait for each other make a step on a
# loaded machine take ten times as long.
torch.set_num_threads(1)

# What torch warns of on a GPU differs between its releases.
ON_GPU = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=ON_GPU)])
def device(request: pytest.FixtureRequest) -> str:
    """The kind of device that ranks compute on: CPUs on gloo, GPUs on NCCL."""
    return str(request.param)


@pytest.fixture
def on_threads() -> OnThreads:
    """Runs one function per rank and returns what they return, or raises what one of them does."""

    def run(
        world: int, body: Body, communicator: Communicator = per_channel, timeout_s: float = 60.0
    ) -> list[Any]:
        meeting, store = Rendezvous(world, communicator, timeout_s), HashStore()
        found: list[Any] = [None] * world
        failed: list[BaseException] = []

        def one_rank(rank: int) -> None:
            session = Session(rank, world, torch.device("cpu"), "strict", store, timeout_s)
            try:
                found[rank] = body(session, lambda *_: StrictTransport(rank, meeting))
            except BaseException as error:
                failed.append(error)
            finally:
                meeting.leave(rank)

        threads = [threading.Thread(target=one_rank, args=(rank,)) for rank in range(world)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failed:
            raise failed[0]
        return found

    return run
