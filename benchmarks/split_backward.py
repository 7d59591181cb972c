"""What splitting the backward costs and frees, beside torch's own way, on real blocks.

    python benchmarks/split_backward.py

One process, one thread. Per stack of layers: F and the full backward BW of torch, then B + W over
BW, and what is held behind F and behind B. torch's way is that of torch.distributed.pipelining:
B keeps its graph and W runs the graph of every parameter again. All take turns, so that whatever
else the machine does meets all of them alike; times are medians.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from allocations import taken
from torch import Tensor, nn
from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight

from models.gpt import Block, GPTConfig
from runtime.stage import ModuleStage

LAYERS = 8
MIB = 2**20
Step = Callable[[], object]


class Ops(NamedTuple):
    """The ops of a micro-batch, in order; a full backward has no third one."""

    forward: Step
    backward: Step
    weights: Step | None


class Shape(NamedTuple):
    """A stack of layers and what goes through it."""

    name: str
    stage: nn.Module
    inputs: Tensor


def shapes(options: argparse.Namespace) -> list[Shape]:
    """Transformer blocks and plain layers, from small to large."""
    found = []
    for width, tokens in ((64, 64), (256, 256), (512, 512)):
        config = GPTConfig(layers=LAYERS, width=width, heads=8, context=tokens)
        blocks = nn.Sequential(*(Block(config) for _ in range(LAYERS)))
        name = f"{LAYERS} blocks, width {width}, {tokens} tokens"
        found.append(Shape(name, blocks, torch.randn(1, tokens, width)))
    for width, rows in ((64, 64), (512, 256), (1024, 256)):
        layers = [layer for _ in range(LAYERS) for layer in (nn.Linear(width, width), nn.ReLU())]
        name = f"{LAYERS} layers, width {width}, {rows} rows"
        found.append(Shape(name, nn.Sequential(*layers), torch.randn(rows, width)))
    return [shape for shape in found if options.only in shape.name]


def in_this_runtime(shape: Shape, *, split: bool) -> Ops:
    """BW, or B and W, of a stage of this runtime."""
    stage = ModuleStage(shape.stage)
    gradients = (torch.ones_like(shape.inputs),)

    def forward() -> None:
        stage.forward(0, (shape.inputs.detach().requires_grad_(),), None, split=split)

    if not split:
        return Ops(forward, lambda: stage.backward(0, gradients), None)
    return Ops(forward, lambda: stage.backward_act(0, gradients), lambda: stage.backward_wgt(0))


def in_torch(shape: Shape) -> Ops:
    """B and W as torch's pipeline stages have them."""
    gradients = [torch.ones_like(shape.inputs)]
    held: list[Any] = []

    def forward() -> None:
        inputs = shape.inputs.detach().requires_grad_()
        held[:] = [inputs, shape.stage(inputs)]

    def backward() -> None:
        inputs, outputs = held
        held[:] = stage_backward_input([outputs], gradients, [inputs], shape.stage.parameters())

    def weights() -> None:
        stage_backward_weight(shape.stage.parameters(), held[1])
        held.clear()

    return Ops(forward, backward, weights)


def measure(shape: Shape, rounds: int) -> str:
    """A row."""
    ways = {
        "fused": in_this_runtime(shape, split=False),
        "ours": in_this_runtime(shape, split=True),
        "torch": in_torch(shape),
    }
    spent: dict[str, list[list[float]]] = {name: [] for name in ways}
    for _ in range(rounds + 2):
        for name, ops in ways.items():
            spent[name].append([_seconds(op) for op in ops if op is not None])
    median_ms = {
        name: [1e3 * statistics.median(times) for times in zip(*counted[2:], strict=True)]
        for name, counted in spent.items()
    }
    forward, fused = median_ms["fused"]
    row = f"{shape.name:<32}{forward:>8.2f}{fused:>8.2f}"
    for name in ("ours", "torch"):
        _, act, weights = median_ms[name]
        row += f"{act:>8.2f}{weights:>8.2f}{(act + weights) / fused:>7.2f}"
    for name in ("ours", "torch"):
        row += "".join(f"{bytes_ / MIB:>8.1f}" for bytes_ in _held(ways[name]))
    return row


def _seconds(op: Step) -> float:
    start_s = time.perf_counter()
    op()
    return time.perf_counter() - start_s


def _held(ops: Ops) -> list[int]:
    """Bytes behind F, and behind B; gradients are there already."""
    assert ops.weights is not None, "it is split"
    behind_forward = taken(ops.forward, lambda: None).kept
    ops.backward()
    ops.weights()
    behind_backward = taken(ops.forward, ops.backward).kept
    ops.weights()
    return [behind_forward, behind_backward]


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--only", default="", metavar="TEXT", help="stacks whose name has it")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    print(
        f"torch {torch.__version__}, medians of {options.rounds}\n"
        f"{'':<32}{'ms, torch':>16}{'ms, ours':>23}{'ms, torch':>23}"
        f"{'MiB, ours':>16}{'MiB, torch':>16}\n"
        f"{'stack':<32}{'F':>8}{'BW':>8}"
        + 2 * f"{'B':>8}{'W':>8}{'/BW':>7}"
        + 2 * f"{'F':>8}{'B':>8}"
    )
    for shape in shapes(options):
        print(measure(shape, options.rounds), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
