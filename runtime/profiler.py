"""Measures what a model costs.

Several processes measure the same slice at the same time, because that is how the machine is loaded
in the run: ranks share caches, memory and clock. Their samples count alike.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist

from runtime.device import pick_device
from runtime.process import end_with_parent
from runtime.profiling import Profiler
from synth.costs import Costs
from synth.errors import NothingFoundError, UsageError
from synth.profile_options import ProfileOptions


def _world(options: ProfileOptions) -> int:
    """How many processes measure at once."""
    cuda = options.device == "cuda" or (options.device == "auto" and torch.cuda.is_available())
    units = torch.cuda.device_count() if cuda else max(2, os.cpu_count() or 1)
    if cuda and units == 0:
        raise UsageError("--device cuda: this machine has no GPU that torch can use")
    wanted = options.processes or options.devices
    if cuda and options.processes is not None and options.processes > units:
        raise UsageError(f"--processes {options.processes}: this machine has {units} GPUs")
    return wanted if options.processes is not None else min(wanted, units)


@contextmanager
def _group(options: ProfileOptions, rank: int, world: int, store: str) -> Iterator[None]:
    torch.set_num_threads(options.threads)
    if world == 1:
        yield
        return
    _, backend = pick_device(options.device, rank)
    dist.init_process_group(
        backend,
        init_method=f"file://{store}",
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=options.timeout),
    )
    try:
        yield
    finally:
        dist.destroy_process_group()


def _help(options: ProfileOptions, rank: int, world: int, store: str) -> None:
    """A process that measures along; what goes wrong, rank 0 says as well."""
    end_with_parent(signal.SIGKILL)
    starter = multiprocessing.parent_process()
    if starter is None or starter.pid != os.getppid():
        return  # it has ended before this could notice
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    with _group(options, rank, world, store):
        Profiler(options, rank, world).run()


def profile(options: ProfileOptions, folder: str) -> Costs:
    """Measures in as many processes as asked for, which meet in an empty folder.

    Raises:
        UsageError: the model cannot be built or cut as asked.
        NothingFoundError: a process did not answer in time.
    """
    world = _world(options)
    context = multiprocessing.get_context("spawn")
    store = os.path.join(folder, "store")
    helpers = [
        context.Process(target=_help, args=(options, rank, world, store), daemon=True)
        for rank in range(1, world)
    ]
    for helper in helpers:
        helper.start()
    try:
        with _group(options, 0, world, store):
            return Profiler(options, 0, world).run()
    except dist.DistError as error:
        text = " ".join(str(error).split())
        raise NothingFoundError(f"a measuring process does not answer: {text}") from None
    finally:
        for helper in helpers:
            helper.join(1)
            helper.kill()
