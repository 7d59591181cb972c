"""`pipesynth explain`: where the bubble of a schedule is, what binds it, and what would help."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from synth.cli.output import print_json

if TYPE_CHECKING:
    from synth.explain import Explanation, Idle
    from synth.gaps import Gap


def register(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb to the parser."""
    text = "say where the bubble of a schedule is, and what would shrink it"
    parser = verbs.add_parser("explain", help=text, description=text, allow_abbrev=False)
    parser.add_argument("file", metavar="FILE", help="a schedule file")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(command=command)


def command(args: argparse.Namespace) -> int:
    """Print each device's idle time by cause, the binding chain and the advice."""
    from synth.explain import explain, render
    from synth.load import load_valid

    found = explain(load_valid(args.file))
    if args.json:
        print_json({"file": args.file, **_fields(found)})
    else:
        print(render(found))
    return 0


def _fields(found: Explanation) -> dict[str, Any]:
    """The explanation in the units the user typed; all waits and the whole chain."""
    ticks = found.problem.units.ticks
    return {
        "name": found.name,
        "objective": str(found.problem.objective),
        "time": ticks(found.time),
        "devices": [_device_fields(found, device) for device in found.devices],
        "waits": [_wait_fields(found, gap) for gap in found.gaps],
        "chain": [
            {
                "device": link.device,
                "op": str(link.op),
                "start": ticks(link.start),
                "end": ticks(link.end),
                "latency": ticks(link.latency),
            }
            for link in found.chain
        ],
        "hints": list(found.hints),
    }


def _device_fields(found: Explanation, device: Idle) -> dict[str, Any]:
    ticks = found.problem.units.ticks
    causes = ("busy", "fill", "drain", "dependency", "memory", "order")
    parts = {cause: getattr(device, cause) for cause in causes}
    times = {cause: ticks(part) for cause, part in parts.items()}
    return {"device": device.device, **times, "idle": 1 - device.busy / sum(parts.values())}


def _wait_fields(found: Explanation, gap: Gap) -> dict[str, Any]:
    ticks = found.problem.units.ticks
    return {
        "device": gap.device,
        "start": ticks(gap.start),
        "end": ticks(gap.end),
        "op": str(gap.before),
        "waits_for": None if gap.waits_for is None else str(gap.waits_for),
        "no_room": list(map(str, gap.no_room)),
        "held_back": list(map(str, gap.held_back)),
        **{cause: ticks(getattr(gap, cause)) for cause in ("dependency", "memory", "order")},
    }
