"""`pipesynth baseline`: the handcrafted schedules by name."""

from __future__ import annotations

import argparse

from synth.cli.options import add_problem_options
from synth.cli.output import print_json, table
from synth.cli.profiled import add_profile_options, read_any_problem
from synth.errors import UsageError
from synth.outputs import check_output, write_output


def register(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb to the parser."""
    text = "generate a handcrafted schedule, or list those that are known"
    parser = verbs.add_parser("baseline", help=text, description=text, allow_abbrev=False)
    parser.add_argument("name", nargs="?", metavar="NAME", help="such as 1f1b")
    parser.add_argument("--list", action="store_true", help="list the names and what each needs")
    add_problem_options(parser)
    add_profile_options(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="write the schedule here")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(command=command)


def command(args: argparse.Namespace) -> int:
    """Generate one schedule, or list all families."""
    if args.list:
        _list(as_json=args.json)
        return 0
    if args.name is None:
        raise UsageError("baseline needs a NAME; `pipesynth baseline --list` shows them")
    check_output(args.output)

    from synth import catalog
    from synth.cli.figures import figures, summary_fields
    from synth.compare import summarize
    from synth.files import dumps

    problem, cut = read_any_problem(args, placement=catalog.family(args.name).placement)
    schedule = catalog.build(args.name, problem)
    if args.output is not None:
        write_output(args.output, dumps(schedule))
    summary = summarize(schedule)
    if args.json:
        print_json({**summary_fields(summary), "schedule": args.output, "cut": cut})
        return 0
    print(figures(summary))
    if cut is not None:
        print(f"{'cut':<12} {','.join(map(str, cut))}: layers per stage; run it with --cut")
    if args.output is not None:
        print(f"{'written to':<12} {args.output}")
    return 0


def _list(*, as_json: bool) -> None:
    from synth import catalog

    families = [catalog.family(name) for name in catalog.names()]
    if as_json:
        fields = ("name", "title", "source", "placement", "when", "note")
        print_json({"baselines": [{f: getattr(family, f) for f in fields} for family in families]})
        return
    rows = [[family.name, family.placement, family.when, family.source] for family in families]
    print(table(["name", "placement", "needs", "source"], rows))
