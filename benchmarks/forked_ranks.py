"""Ranks that are forks of one process, so that torch is imported once."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

from runtime.session import Session, connect


def run_ranks(count: int, folder: Path, body: Callable[[Session], None], timeout_s: float) -> bool:
    """Runs the body in every rank; whether it succeeded in all of them.

    The ranks meet in a file of the folder. A store in this process would have a thread, and a fork
    keeps for good the locks that another thread holds at that moment.
    """
    torch.set_num_threads(1)
    children = []
    for rank in range(count):
        child = os.fork()
        if child == 0:
            try:
                os.environ.update(RANK=str(rank), WORLD_SIZE=str(count))
                store = dist.FileStore(str(folder / "store"), count)
                session = connect(count, device="cpu", timeout_s=timeout_s, store=store)
                body(session)
                session.barrier()
                session.close()
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    return not any(codes)
