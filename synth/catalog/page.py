"""The page docs/schedules.md: every family's timeline, formulas and use.

    python -m synth.catalog.page docs

writes DIR/schedules.md and one DIR/schedules/NAME.svg per family.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from synth.catalog.build import build
from synth.catalog.family import Family, parameter_factor
from synth.catalog.picture import LEGEND, picture
from synth.catalog.registry import family, names
from synth.errors import PipesynthError
from synth.files import write_atomic
from synth.problem import make_problem
from synth.schedule import Schedule
from synth.simulate import messages, peaks

DEVICES, MICROBATCHES = 4, 8

INTRO = f"""\
# Handcrafted schedules

`pipesynth baseline NAME` makes any of these for any P and m that it allows, and `pipesynth compare`
sets them against solved schedules on the same costs.

P is the number of devices, r a device, m the micro-batches, V the chunks per device and N the
micro-batches per group. F, B, W, BW and FB are the durations of a forward, an input gradient, a
weight gradient, both as one op, and a forward overlapped with a BW, all of one chunk; c is the
latency of a hop. A is what a chunk keeps from F to B, C what it keeps from B to W. A bubble is the
idle time of the most idle device: of the makespan, and where given of the device's own span.

The pictures and figures are for P = {DEVICES} and m = {MICROBATCHES} at F = B = W = 1 per device,
no latency and no gain from overlap. Later chunks, and the second of two directions, are paler.

{LEGEND}
"""


def pages() -> dict[str, str]:
    """The files of the page, by their path in the folder of documents."""
    schedules = {name: _example(family(name)) for name in names()}
    parts = [INTRO, *_table(schedules), *(_section(schedule) for schedule in schedules.values())]
    files = {"schedules.md": "\n".join(parts)}
    for name, schedule in schedules.items():
        files[_svg(name)] = picture(schedule)
    return files


def _svg(name: str) -> str:
    return f"schedules/{name.replace(':', '-')}.svg"


def _example(chosen: Family) -> Schedule:
    return build(chosen.name, make_problem(DEVICES, MICROBATCHES, placement=chosen.placement))


def _table(schedules: dict[str, Schedule]) -> Iterator[str]:
    yield "| name | needs | makespan | span | bubble | peak | parameters | messages |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, schedule in schedules.items():
        problem, units = schedule.problem, schedule.problem.units
        peak = units.quanta(max(peaks(problem, schedule.devices)))
        cells = (
            f"[{name}](#{name.replace(':', '')})",
            family(name).needs,
            f"{units.ticks(schedule.makespan):g}",
            f"{units.ticks(schedule.span):g}",
            f"{schedule.bubble:.1%}",
            f"{peak:g}",
            f"{parameter_factor(problem):g}x",
            str(messages(problem)),
        )
        yield f"| {' | '.join(cells)} |"
    yield ""


def _section(schedule: Schedule) -> str:
    name, chosen = schedule.name, family(schedule.name)
    lines = [
        f"## {name}",
        "",
        f"{chosen.title}. {chosen.source}.",
        "",
        f"![{chosen.title}]({_svg(name)})",
        "",
        f"*When:* {chosen.when}.",
        "",
    ]
    if chosen.note:
        lines += [f"*Note:* {chosen.note}.", ""]
    return "\n".join([*lines, *_formulas(chosen), ""])


def _formulas(chosen: Family) -> Iterator[str]:
    named = {
        "bubble": chosen.bubble,
        "bubble of the span": chosen.span_bubble,
        "peak": chosen.peak,
        "messages": chosen.messages,
        "time per m once full": chosen.steady,
        "weight versions": chosen.weight_versions,
    }
    yield "| | formula | holds for |"
    yield "|---|---|---|"
    for what, form in named.items():
        if form is not None:
            yield f"| {what} | {form.text} | {form.region} |"


def main(arguments: list[str]) -> int:
    """Write the page into the given folder."""
    if len(arguments) != 1:
        print("usage: python -m synth.catalog.page DIR", file=sys.stderr)
        return 2
    folder = Path(arguments[0])
    try:
        (folder / "schedules").mkdir(parents=True, exist_ok=True)
        for path, text in pages().items():
            write_atomic(folder / path, text)
    except (PipesynthError, OSError) as error:
        print(f"{folder}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
