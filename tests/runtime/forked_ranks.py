"""What the scripts beside it share: ranks that are forks of one process, and a small model.

torch is imported once, which saves seconds per rank; scripts with optimizers import torch._dynamo,
as optimizers do when they are first used.
"""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.fx.experimental.symbolic_shapes  # as the first backward does
from torch import Tensor, nn

from runtime.reference import relative_error


def run_ranks(world: int, folder: Path, body: Callable[[int], None]) -> int:
    """Runs the body in every rank, which may write to FOLDER/results; 1 if it fails in one."""
    (folder / "results").mkdir()
    torch.set_num_threads(1)
    children = []
    for rank in range(world):
        child = os.fork()
        if child == 0:
            os.environ.update(RANK=str(rank), WORLD_SIZE=str(world))
            _place_on_gpu(rank, world)
            try:
                body(rank)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        children.append(child)
    return max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0 for child in children)


def _place_on_gpu(rank: int, world: int) -> None:
    """Every rank has the GPU of its number; where there are fewer, ranks share them.

    NCCL refuses two ranks on one GPU of a host, so they pose as hosts that a network connects.
    """
    count = torch.cuda.device_count()
    os.environ["LOCAL_RANK"] = str(rank % count if count else rank)
    if 0 < count < world:
        os.environ.update(NCCL_HOSTID=f"rank{rank}", NCCL_SOCKET_IFNAME="lo", NCCL_IB_DISABLE="1")


def open_store(rank: int, folder: Path) -> dist.TCPStore:
    """A store on a free port, which rank 0 picks and leaves in a file."""
    port = folder / "port"
    if rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        (folder / "port.new").write_text(str(store.port))
        (folder / "port.new").rename(port)
        return store
    while not port.exists():
        time.sleep(0.01)
    return dist.TCPStore("127.0.0.1", int(port.read_text()), is_master=False)


def make_stage(stage: int, *more: nn.Module) -> nn.Module:
    """A few layers whose weights depend on the number of the stage, and more behind them."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stage)
        return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), *more).double()


def mean_square(output: Tensor, target: Tensor) -> Tensor:
    return (output - target).square().mean()


def make_batch(step: int, samples: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets for the model, the same whoever asks."""
    generator = torch.Generator().manual_seed(step)
    inputs, targets = torch.randn((2, samples, 4), generator=generator, dtype=torch.float64)
    return inputs, targets


def error(mine: Tensor | None, theirs: Tensor) -> float:
    """The relative error of what any device computed against what the CPU did."""
    return relative_error(None if mine is None else mine.cpu(), theirs)
