"""What several test folders share: settings, golden files and random schedules."""

from __future__ import annotations

import importlib.util
import math
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from synth.graph import all_nodes, dependencies
from synth.op import Kind, Op, pair
from synth.problem import Problem
from synth.schedule import Orders
from synth.simulate import memory_change

settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
settings.load_profile("repeatable")

GOLDEN = Path(__file__).with_name("golden")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite the golden files instead of comparing"
    )


def pytest_configure() -> None:
    """Lets programs that tests start hear Ctrl-C, which shells hide from what runs behind them."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips a test marked `gpu` where there are not as many CUDA devices as it has ranks.

    These are its parameters `devices` times `replicas`, one where it has none. With
    PIPESYNTH_SHARE_GPU=1 ranks share the devices that there are.
    """
    if item.get_closest_marker("gpu") is None:
        return
    here = cuda_devices()
    params = getattr(getattr(item, "callspec", None), "params", {})
    ranks = math.prod(params.get(name, 1) for name in ("devices", "replicas"))
    if not here:
        pytest.skip("no CUDA device here")
    if here < ranks and os.environ.get("PIPESYNTH_SHARE_GPU") != "1":
        pytest.skip(f"needs {ranks} CUDA devices, {here} here")


def cuda_devices() -> int:
    if importlib.util.find_spec("torch") is None:
        return 0
    import torch

    return torch.cuda.device_count()


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str | Path, str], None]:
    """Compares a text with the golden file of that name, or rewrites it with --update-golden."""

    def check(name: str | Path, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"no golden file {path}; make it with --update-golden"
        assert text == path.read_text()

    return check


Draw = Callable[..., Orders | None]


@pytest.fixture(scope="session")
def random_orders() -> Draw:
    """Orders by greedy list scheduling with random priorities: see `_Listing`."""

    def draw(problem: Problem, chance: random.Random, **options: Any) -> Orders | None:
        return _Listing(problem, chance, **options).run()

    return draw


class _Listing:
    """Runs what can start first, ties by random priorities, and keeps within the memory limits.

    Not `eager`, it runs just anything that can start. `fused` allows BW, `paired` allows FB, and
    `cap` is the most micro-batches under way at a time: with one of them, nothing but a limit too
    small for any schedule gets in the way.
    """

    def __init__(
        self,
        problem: Problem,
        chance: random.Random,
        *,
        eager: bool = True,
        fused: bool = False,
        paired: bool = False,
        cap: int | None = None,
    ) -> None:
        self.problem = problem
        self.chance = chance
        self.eager = eager
        self.fused = fused
        self.paired = paired
        self.cap = problem.total_microbatches if cap is None else cap
        self.left = dict.fromkeys(all_nodes(problem))
        self.arrivals: dict[Op, int] = {}
        self.clock = [0] * problem.devices
        self.held = [0] * problem.devices
        self.under_way: dict[tuple[str, int], int] = {}
        self.rank = {kind: chance.random() for kind in Kind}
        self.orders: list[list[Op]] = [[] for _ in range(problem.devices)]

    def run(self) -> Orders | None:
        """The orders, or None where memory or the cap lets nothing more start."""
        while self.left:
            ready = [(self._start(op), self._priority(op), op) for op in self._ready()]
            if not ready:
                return None
            first = min(ready, key=lambda entry: entry[:2])
            start, _, op = first if self.eager else self.chance.choice(ready)
            self._append(op, start)
        return tuple(map(tuple, self.orders))

    def _priority(self, op: Op) -> float:
        return self.rank[op.kind] + 0.3 * self.chance.random()

    def _ready(self) -> Iterator[Op]:
        forwards = [node for node in self.left if node.kind is Kind.F and self._can_run(node)]
        backwards = [
            part
            for node in self.left
            if node.kind is Kind.B and self._can_run(node)
            for part in ((node, node.sibling(Kind.BW)) if self.fused else (node,))
        ]
        yield from filter(self._fits, forwards)
        yield from filter(self._fits, backwards)
        yield from (node for node in self.left if node.kind is Kind.W and self._can_run(node))
        if self.paired:
            for forward in forwards:
                for backward in backwards:
                    same = (forward.stream, forward.microbatch) == (
                        backward.stream,
                        backward.microbatch,
                    )
                    if not same and self.problem.device(forward) == self.problem.device(backward):
                        yield from filter(self._fits, (pair(forward, backward),))

    def _can_run(self, node: Op) -> bool:
        if node.kind is Kind.F and node.stage == 0 and len(self.under_way) >= self.cap:
            return False
        return all(before in self.arrivals for before, _ in dependencies(self.problem, node))

    def _fits(self, op: Op) -> bool:
        device = self.problem.device(op)
        limit = self.problem.limits_quanta[device]
        return limit is None or self.held[device] + memory_change(self.problem, op)[0] <= limit

    def _start(self, op: Op) -> int:
        waits = (
            self.arrivals[before] + lag
            for node in op.nodes
            for before, lag in dependencies(self.problem, node)
            if before not in op.nodes
        )
        return max(self.clock[self.problem.device(op)], *waits, 0)

    def _append(self, op: Op, start: int) -> None:
        device = self.problem.device(op)
        self.orders[device].append(op)
        self.clock[device] = start + self.problem.duration(op)
        taken, freed = memory_change(self.problem, op)
        self.held[device] += taken - freed
        for node in op.nodes:
            del self.left[node]
            self.arrivals[node] = self.clock[device]
            key = (node.stream, node.microbatch)
            self.under_way[key] = self.under_way.get(key, 3 * len(self.problem.stages)) - 1
            if not self.under_way[key]:
                del self.under_way[key]


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], None]:
    """Waits for something that happens sooner or later, however slow the machine."""

    def wait(holds: Callable[[], bool]) -> None:
        for _ in range(1200):
            if holds():
                return
            time.sleep(0.05)
        raise AssertionError("it did not happen within a minute")

    return wait


@pytest.fixture
def members() -> Callable[[int], list[str]]:
    """The command lines of a process group."""

    def find(group: int) -> list[str]:
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with suppress(OSError):  # it may end meanwhile
                    if os.getpgid(int(entry.name)) == group:
                        found.append((entry / "cmdline").read_text())
        return found

    return find
