"""What one measuring process does: slices, messages, the cut."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from models import Layered, build_layered
from models.layered import check_cut
from runtime.chosen import GPT_SIZES, model_options, refused_by
from runtime.device import Clock, device_name, make_clock, pick_device
from runtime.measure import KINDS, Samples, SliceMeter
from synth.balance import balance
from synth.costs import Costs, Environment, Hop, Method, SliceCost, make_costs, timing_of
from synth.errors import UsageError
from synth.placement import parse_placement
from synth.profile_options import ProfileOptions
from synth.profiled import joined, make_profiled

Values = tuple[Tensor, ...]
Found = TypeVar("Found")


class Profiler:
    """One process of those that measure; rank 0 writes the file."""

    def __init__(self, options: ProfileOptions, rank: int, world: int) -> None:
        self.options = options
        self.rank = rank
        self.world = world
        self.device, _ = pick_device(options.device, rank)
        self._clock: Clock = make_clock(self.device)
        self._placement = parse_placement(options.placement, options.devices)
        self._chosen = model_options(options, self._placement.stages)
        with refused_by(options.model):
            self.model, self._even = build_layered(options.model, self._chosen)

    def run(self) -> Costs:
        """Measures layers, decides the cut, measures stages and messages."""
        options, count = self.options, len(self.model.layers)
        with refused_by(options.model):
            cut = options.cut or self._even(self._placement.stages)
            check_cut(cut, count, self._placement.stages)
        layers = self._slices((1,) * count)
        hops = self._hops({layer.output_bytes for layer in layers[:-1]})
        if options.balance:
            cut = self._share(lambda: self._balanced(layers, hops))
        stages = layers if len(cut) == count else self._slices(cut)
        return self._costs(layers, stages, hops)

    def _costs(
        self, layers: Sequence[SliceCost], stages: Sequence[SliceCost], hops: Sequence[Hop]
    ) -> Costs:
        options = self.options
        return make_costs(
            model=_model_facts(options, self._chosen.layers),
            environment=Environment(
                device=self.device.type,
                device_name=device_name(self.device),
                threads=torch.get_num_threads(),
                processes=self.world,
                cpus=os.cpu_count() or 1,
                torch=str(torch.__version__),
            ),
            method=Method(options.warmup, options.rounds, options.in_flight),
            hops=hops,
            layers=layers,
            stages=stages,
        )

    def _slices(self, cut: Sequence[int]) -> list[SliceCost]:
        """Measures every slice of a cut, feeding each what the one before gives."""
        with refused_by(self.model.name):
            batches = [
                self.model.make_batch(number, self.options.batch)
                for number in range(self.options.in_flight)
            ]
        inputs = [self._to_device(batch) for batch, _ in batches]
        targets = [target.to(self.device) for _, target in batches]
        found: list[SliceCost] = []
        for number, count in enumerate(cut):
            last = number == len(cut) - 1
            module = self.model.stage(sum(cut[:number]), count).to(self.device)
            meter = SliceMeter(
                module, self.model.loss if last else None, inputs, targets, self._clock
            )
            found.append(self._slice(meter, _name(self.model, sum(cut[:number]), count), count))
            inputs = meter.outputs
        return found

    def _slice(self, meter: SliceMeter, name: str, count: int) -> SliceCost:
        for _ in range(self.options.warmup + 1):
            meter.round()
        held = meter.weigh()
        self._barrier()
        rounds = [meter.round() for _ in range(self.options.rounds)]
        own: Samples = {kind: [s for one in rounds for s in one[kind]] for kind in KINDS}
        every = self._gather(own)
        forward, act, wgt, fused = (
            timing_of([seconds for one in every for seconds in one[kind]]) for kind in KINDS
        )
        return SliceCost(name, count, forward, act, wgt, fused, **asdict(held))

    def _hops(self, sizes: set[int]) -> list[Hop]:
        """Ping-pong between two ranks; the rest of them wait."""
        if self.world < 2:
            return []
        found = []
        for size in sorted(sizes):
            buffer = torch.zeros(max(1, size), dtype=torch.uint8, device=self.device)
            samples = []
            for number in range(self.options.warmup + 10 * self.options.rounds):
                seconds = self._ping_pong(buffer)
                if number >= self.options.warmup:
                    samples.append(seconds)
            self._barrier()
            found.append(Hop(size, self._share(partial(timing_of, samples))))
        return found

    def _ping_pong(self, buffer: Tensor) -> float:
        if self.rank > 1:
            return 0.0
        self._clock.start()
        start = self._clock.mark()
        for turn in (0, 1):
            if turn == self.rank:
                dist.send(buffer, 1 - self.rank)
            else:
                dist.recv(buffer, 1 - self.rank)
        begin, end = self._clock.seconds([start, self._clock.mark()])
        return (end - begin) / 2

    def _balanced(self, layers: Sequence[SliceCost], hops: Sequence[Hop]) -> tuple[int, ...]:
        options = self.options
        costs = self._costs(layers, layers, hops)
        found = balance(
            layers,
            self._placement.stages,
            lambda cut: make_profiled(
                costs,
                options.devices,
                options.microbatches or 4 * options.devices,
                placement=self._placement,
                limit_bytes=[options.limit_bytes] * options.devices,
                objective=options.objective,
                stages=joined(layers, cut),
            ),
        )
        return found.cut

    def _to_device(self, batch: Any) -> Values:
        if isinstance(batch, dict):
            raise UsageError(
                f"several stages of {self.options.model} read the batch; only layers that are a "
                "chain can be profiled"
            )
        values = batch if isinstance(batch, tuple) else (batch,)
        return tuple(value.to(self.device) for value in values)

    def _barrier(self) -> None:
        if self.world > 1:
            dist.barrier()

    def _gather(self, own: Samples) -> list[Samples]:
        every: list[Any] = [own] * self.world
        if self.world > 1:
            dist.all_gather_object(every, own)
        return every

    def _share(self, find: Callable[[], Found]) -> Found:
        """What rank 0 finds, on every rank."""
        found = [find() if self.rank == 0 else None]
        if self.world > 1:
            dist.broadcast_object_list(found)
        return found[0]  # type: ignore[return-value]


def _name(model: Layered, first: int, count: int) -> str:
    names = [layer.name for layer in model.layers[first : first + count]]
    return names[0] if count == 1 else f"{names[0]}..{names[-1]}"


def _model_facts(options: ProfileOptions, layers: int) -> dict[str, str | int | float | None]:
    """What `run --profile` needs to build the same model."""
    facts: dict[str, str | int | float | None] = {
        "name": options.model,
        "batch": options.batch,
        "seed": options.seed,
    }
    if options.model == "gpt":
        return {**facts, **{name: getattr(options, name) for name in GPT_SIZES}, "layers": layers}
    shape = options.input_shape
    return {**facts, "input_shape": None if shape is None else ",".join(map(str, shape))}
