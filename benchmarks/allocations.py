"""How much memory tensors take while something runs, as torch's profiler sees it on a CPU."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from itertools import accumulate
from typing import NamedTuple

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # which is read when torch is imported

from torch.profiler import ProfilerActivity, profile


class Taken(NamedTuple):
    """Bytes beyond what was there before."""

    peak: int
    """The most at any moment of the last run."""
    kept: int
    """Behind it."""


def taken(run: Callable[[], object], last: Callable[[], object]) -> Taken:
    """Runs both; what the first allocates counts, its own peak does not."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as seen:
        run()
        since_ns = time.time_ns()
        last()
    assert seen.profiler is not None, "it has run"
    assert seen.profiler.kineto_results is not None, "it has run"
    changes = sorted(
        (event.start_ns(), event.nbytes())
        for event in seen.profiler.kineto_results.events()
        if event.name() == "[memory]"
    )
    held = list(accumulate(change for _, change in changes))
    after = [bytes_ for (at_ns, _), bytes_ in zip(changes, held, strict=True) if at_ns >= since_ns]
    return Taken(max(after, default=0), held[-1] if held else 0)
