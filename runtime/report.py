"""What a run prints at its end."""

from __future__ import annotations

import json

from runtime.runfile import Run, summary


def print_run(run: Run, checked: float | None, *, as_json: bool) -> None:
    """Prints a short table, or one JSON object.

    Args:
        run: the finished run.
        checked: largest error against the reference, None if it was not compared.
        as_json: print the run file's head instead.
    """
    if as_json:
        print(json.dumps({**summary(run), "largest_error": checked}))
        return
    rows = [
        ("schedule", _schedule(run)),
        ("model", _model(run)),
        ("step time", _times(run)),
        ("in flight", _in_flight(run)),
    ]
    if run.steps[0].loss is not None:
        rows.append(("loss", f"{run.steps[0].loss:.4f} -> {run.steps[-1].loss:.4f}"))
        rows.append(("split", _split(run)))
    if checked is not None:
        rows.append(("gradients", f"equal to one process (largest error {checked:.1e})"))
    for name, text in rows:
        print(f"{name:<10} {text}")


def _schedule(run: Run) -> str:
    problem = run.schedule.problem
    return f"{run.schedule.name}, P={problem.devices} m={problem.total_microbatches}"


def _model(run: Run) -> str:
    where = run.environment
    return f"{run.model['name']}, {where['backend']} on {where['device']}, {len(run.steps)} steps"


def _times(run: Run) -> str:
    text = f"{run.makespan_s * 1e3:.1f} ms median of {len(run.timed)}"
    if run.planned.makespan_s is not None and run.ratio is not None:
        text += f", planned {run.planned.makespan_s * 1e3:.1f} ms, ratio {run.ratio:.3f}"
    return text


def _in_flight(run: Run) -> str:
    held = " ".join(str(record.in_flight[1]) for record in run.records)
    planned = " ".join(str(until_weights) for _, until_weights in run.planned.in_flight)
    return f"{held} (plan {planned})"


def _split(run: Run) -> str:
    names = [name for record in run.records for name in record.unsplit]
    if not names:
        return "B computes no weight gradient"
    return f"B also computes the gradients of {len(names)} parameters, such as {names[0]}"
