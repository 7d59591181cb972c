"""`pipesynth verify`: every violation of a schedule file, with op and tick."""

from __future__ import annotations

import argparse

from synth.cli.output import number, print_json


def register(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb to the parser."""
    text = "check a schedule file and list every violation"
    parser = verbs.add_parser("verify", help=text, description=text, allow_abbrev=False)
    parser.add_argument("file", metavar="FILE", help="a schedule file")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(command=command)


def command(args: argparse.Namespace) -> int:
    """Print the findings; 1 if there are any."""
    from dataclasses import asdict

    from synth import files
    from synth.verify import verify

    schedule = files.load(args.file)
    violations = verify(schedule)
    if args.json:
        listed = [asdict(violation) for violation in violations]
        print_json({"file": args.file, "valid": not violations, "violations": listed})
    elif violations:
        noun = "violation" if len(violations) == 1 else "violations"
        print(f"{args.file}: invalid, {len(violations)} {noun}")
        for violation in violations:
            print(f"  {violation}")
    else:
        problem, certificate = schedule.problem, schedule.certificate
        ops = sum(map(len, schedule.devices))
        reached, bound = map(problem.units.ticks, (certificate.value, certificate.bound))
        print(
            f"{args.file}: valid, {ops} ops on {problem.devices} devices, "
            f"{problem.objective} {number(reached)}, bound {number(bound)}"
        )
    return 1 if violations else 0
