"""What a profile measures, as the command line says it and the profiler reads it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from synth.errors import UsageError
from synth.model_options import require_model

MODELS = ("gpt",)


@dataclass(frozen=True, slots=True)
class ProfileOptions:
    """What to measure, on what, and where to write it."""

    model: str
    devices: int
    placement: str
    output: str
    balance: bool
    microbatches: int | None
    limit_bytes: int | None
    objective: str
    cut: tuple[int, ...]
    layers: int | None
    width: int
    heads: int
    seq_len: int
    dtype: str
    seed: int
    batch: int
    input_shape: tuple[int, ...] | None
    rounds: int
    warmup: int
    in_flight: int
    processes: int | None
    threads: int
    device: str
    timeout: float
    json: bool

    def __post_init__(self) -> None:
        counts = ("devices", "layers", "width", "heads", "seq_len", "batch", "rounds", "in_flight")
        for name in (*counts, "microbatches", "processes", "threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"--{name.replace('_', '-')} must be at least 1")
        if self.warmup < 0 or not 0 < self.timeout < math.inf:
            raise UsageError("--warmup and --timeout must not be negative")
        require_model(self.model, MODELS)
        if self.balance and self.cut:
            raise UsageError("--balance finds the cut that --cut would give; use one of them")
