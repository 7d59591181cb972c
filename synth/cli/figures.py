"""The figures of one schedule, as lines for people and as fields for programs."""

from __future__ import annotations

from typing import Any

from synth.cli.output import number, percent
from synth.compare import Limit, Summary


def figures(summary: Summary) -> str:
    """The lines that say what a schedule achieves and how good that is."""
    both = {"makespan": number(summary.makespan), "span": number(summary.span)}
    both[summary.objective] += f", {_quality(summary)}"
    lines = {
        "schedule": _title(summary),
        **both,
        "bubble": percent(summary.bubble),
        "peak memory": _memory(summary),
    }
    return "\n".join(f"{name:<12} {text}" for name, text in lines.items())


def _title(summary: Summary) -> str:
    return (
        f"{summary.name}: {summary.devices} devices, {summary.microbatches} micro-batches, "
        f"{summary.placement} placement"
    )


def _quality(summary: Summary) -> str:
    if summary.optimal:
        return f"optimal ({summary.proof})"
    return f"bound {number(summary.bound)}, gap {percent(summary.gap)} ({summary.proof})"


def _memory(summary: Summary) -> str:
    peaks = " ".join(number(peak) for peak in summary.peak_memory)
    return f"{peaks} per device, {limit_text(summary.limit)}"


def limit_text(limit: Limit) -> str:
    """A memory limit in words: none, one for all devices, or one each."""
    if limit is None:
        return "no limit"
    limits = limit if isinstance(limit, tuple) else (limit,)
    return f"limit {' '.join(map(number, limits))}"


def summary_fields(summary: Summary) -> dict[str, Any]:
    """The fields that `--json` prints for a schedule."""
    return {
        "name": summary.name,
        "devices": summary.devices,
        "microbatches": summary.microbatches,
        "objective": summary.objective,
        "value": summary.value,
        "bound": summary.bound,
        "gap": summary.gap,
        "makespan": summary.makespan,
        "span": summary.span,
        "bubble": summary.bubble,
        "peak_memory": summary.peak_memory,
        "limit": summary.limit,
        "messages": summary.messages,
        "placement": summary.placement,
        "proof": summary.proof,
    }
