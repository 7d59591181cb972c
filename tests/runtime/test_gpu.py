"""What only a GPU can show: W on streams, marks of its clock, NCCL as far as one GPU goes."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from runtime.device import pick_device
from runtime.pipeline import Pipeline
from runtime.reference import parameter_names, reference_step, relative_error
from runtime.session import connect
from synth import catalog
from synth.problem import make_problem

WIDTH = 64
CYCLES = 20_000_000  # about 10 ms, in which the host issues everything that follows

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]


class Slow(nn.Module):
    """Holds the device up in front of its layer, so that the host is far ahead."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        if x.is_cuda:
            torch.cuda._sleep(CYCLES)
        layered: Tensor = self.layer(x)
        return layered


def mean_square(output: Tensor, target: Tensor) -> Tensor:
    return (output - target).square().mean()


def stages(count: int) -> list[nn.Module]:
    torch.manual_seed(3)
    return [
        nn.Sequential(Slow(nn.Linear(WIDTH, WIDTH)), nn.GELU(), nn.Linear(WIDTH, WIDTH)).double()
        for _ in range(count)
    ]


def forbid(*_: Any, **__: Any) -> None:
    raise AssertionError("the whole device is waited for")


@pytest.mark.parametrize("name", ["zb-v", "interleaved:2", "zb-h1"])
def test_split_w_needs_no_wait_for_the_device(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step on a stream of its own, while the default stream is busy with something else."""
    problem = make_problem(1, 4, placement=catalog.family(name).placement)
    schedule = catalog.build(name, problem)
    modules = stages(len(problem.stages))
    batch = torch.randn(8, WIDTH, dtype=torch.float64)
    reference = reference_step(modules, batch, batch, 4, mean_square)
    session = connect(1, device="cuda")
    pipeline = Pipeline(copy.deepcopy(modules), schedule, loss=mean_square, session=session)
    stream, over = torch.cuda.Stream(), torch.cuda.Event()
    with torch.cuda.stream(stream):  # loads kernels and takes memory, which may wait for the device
        pipeline.step(batch, batch)
    torch.cuda.synchronize()
    for parameter in pipeline.parameters():
        parameter.grad = None
    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda, "synchronize", forbid)
        torch.cuda._sleep(400 * CYCLES)
        over.record()
        with torch.cuda.stream(stream):
            result = pipeline.step(batch, batch)
            stream.synchronize()
        assert not over.query(), "the step waited for what has nothing to do with it"
    torch.cuda.synchronize()
    assert all(ran.end_s > ran.start_s for ran in result.ops)
    for number, module in pipeline.modules.items():
        for parameter_name, parameter in parameter_names(number, module):
            assert parameter.grad is not None
            wanted = reference.gradients[parameter_name]
            assert relative_error(parameter.grad.cpu(), wanted) <= 1e-12, parameter_name


def test_marks_are_the_times_of_the_device_and_not_of_the_host() -> None:
    session = connect(1, device="cuda")
    modules = stages(1)
    schedule = catalog.build("zb-h1", make_problem(1, 2))
    pipeline = Pipeline(modules, schedule, loss=mean_square, session=session)
    batch = torch.randn(4, WIDTH, dtype=torch.float64)
    for _ in range(2):
        result = pipeline.step(batch, batch)
    forwards = [ran for ran in result.ops if ran.op.kind.name == "F"]
    assert len(forwards) == 2
    assert all(ran.end_s - ran.start_s > 1e-3 for ran in forwards)
    assert all(
        a.end_s <= b.start_s + 1e-6 for a, b in zip(result.ops, result.ops[1:], strict=False)
    )


# NCCL --------------------------------------------------------------------------------------------


@contextmanager
def nccl_of_one(tmp_path: Path) -> Iterator[torch.device]:
    """A job of one rank on NCCL."""
    device, backend = pick_device("cuda")
    assert backend == "nccl"
    dist.init_process_group(backend, init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        yield device
    finally:
        dist.destroy_process_group()


def exchange(sent: Tensor, received: Tensor) -> list[Any]:
    """A message of a rank to itself, which NCCL allows in a batch."""
    pair = [dist.P2POp(dist.isend, sent, 0), dist.P2POp(dist.irecv, received, 0)]
    return dist.batch_isend_irecv(pair)


def test_messages_wait_for_what_computes_them_and_what_reads_them_for_messages(
    tmp_path: Path,
) -> None:
    """The order of streams alone, without the host; memory is used again at once."""
    with nccl_of_one(tmp_path) as device:
        received = torch.zeros(2**20, device=device)
        totals = []
        for turn in range(6):
            torch.cuda._sleep(CYCLES)
            sent = torch.full((2**20,), float(turn), device=device)
            for work in exchange(sent, received):
                work.wait()
            torch.cuda._sleep(CYCLES)
            totals.append(received.sum())
        assert [total.item() / 2**20 for total in totals] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.int64, torch.bfloat16, torch.float64, torch.uint8]
)
def test_types_of_messages_that_nccl_carries(tmp_path: Path, dtype: torch.dtype) -> None:
    with nccl_of_one(tmp_path) as device:
        sent = torch.arange(100, device=device).remainder(7).to(dtype)
        received = torch.zeros_like(sent)
        for work in exchange(sent, received):
            work.wait()
        assert torch.equal(sent, received)


def test_sums_over_one_rank_leave_everything_as_it_is(tmp_path: Path) -> None:
    with nccl_of_one(tmp_path) as device:
        values = torch.arange(5.0, device=device)
        dist.all_reduce(values, async_op=True).wait()
        dist.barrier(device_ids=[device.index])
        assert values.tolist() == [0, 1, 2, 3, 4]
