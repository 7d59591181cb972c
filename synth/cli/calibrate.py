"""`pipesynth calibrate`: bring a profile to what a run has shown."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from synth.cli.output import number, print_json, table
from synth.errors import UsageError
from synth.outputs import check_output, write_output

if TYPE_CHECKING:
    from synth.costs import Costs


def register(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb to the parser."""
    text = "bring the costs of a profile to the times of a run"
    parser = verbs.add_parser("calibrate", help=text, description=text, allow_abbrev=False)
    parser.add_argument("costs", metavar="COSTS.json", help="by `pipesynth profile`")
    parser.add_argument("run", metavar="RUN.json", help="a run of a schedule made from it")
    parser.add_argument("-o", "--output", metavar="FILE", help="write the new costs here")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(command=command)


def command(args: argparse.Namespace) -> int:
    """Read both, write the new costs and print what changed."""
    check_output(args.output)

    from synth.calibrate import calibrate
    from synth.costs import dumps, loads
    from synth.files import read_bytes
    from synth.measured import timed_steps

    costs = loads(read_bytes(args.costs), args.costs)
    steps = timed_steps(args.run)
    if not steps:
        raise UsageError(f"{args.run}: holds no step after the warm-up; run more steps")
    _require_same_model(args, costs)
    changed = calibrate(costs, steps)
    if args.output is not None:
        write_output(args.output, dumps(changed))
    changes = _changes(costs, changed)
    if args.json:
        fields = ("stage", "op", "before_ms", "after_ms", "ratio")
        rows = [dict(zip(fields, row, strict=True)) for row in changes]
        print_json({"changes": rows, "steps": len(steps), "costs": args.output})
        return 0
    texts = [
        [stage, kind, f"{before:.3f}", f"{after:.3f}", number(ratio)]
        for stage, kind, before, after, ratio in changes
    ]
    print(table(["stage", "op", "before ms", "after ms", "ratio"], texts))
    if args.output is not None:
        print(f"written to {args.output}")
    return 0


def _require_same_model(args: argparse.Namespace, costs: Costs) -> None:
    """Refuses a run of another model, or of the same one cut elsewhere."""
    from synth.runs import load_run

    run = load_run(args.run)
    wanted = costs.model.get("name")
    if run.model is not None and run.model != wanted:
        raise UsageError(
            f"{args.run}: is a run of model {run.model}, {args.costs} is of {wanted}; "
            f"run with --profile {args.costs}"
        )
    if run.cut and run.cut != costs.cut:
        cuts = [",".join(map(str, cut)) for cut in (run.cut, costs.cut)]
        raise UsageError(
            f"{args.run}: is of the cut {cuts[0]}, {args.costs} of {cuts[1]}; "
            f"profile with --cut {cuts[0]}, or run with --profile {args.costs}"
        )


def _changes(old: Costs, new: Costs) -> list[tuple[str, str, float, float, float]]:
    """Per stage and kind of op the medians in ms before and after."""
    from synth.calibrate import FIELDS

    rows = []
    for before, after in zip(old.stages, new.stages, strict=True):
        for kind, name in FIELDS.items():
            was, now = (getattr(stage, name).median_ns / 1e6 for stage in (before, after))
            rows.append((before.name, str(kind), was, now, now / was))
    return rows
