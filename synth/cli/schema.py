"""`pipesynth schema`: the JSON Schema of the files that people write programs for."""

from __future__ import annotations

import argparse
import json

from synth.outputs import check_output, write_output


def register(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb to the parser."""
    text = "print the JSON Schema of schedule files, or of costs or problem files"
    parser = verbs.add_parser("schema", help=text, description=text, allow_abbrev=False)
    parser.add_argument(
        "of", nargs="?", choices=("schedule", "costs", "problem"), default="schedule"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write it here instead")
    parser.set_defaults(command=command)


def command(args: argparse.Namespace) -> int:
    """Print or write the schema."""
    from synth import costs, files, problem_file

    check_output(args.output)
    schemas = {"schedule": files.schema, "costs": costs.schema, "problem": problem_file.schema}
    text = json.dumps(schemas[args.of](), indent=2) + "\n"
    if args.output is None:
        print(text, end="")
    else:
        write_output(args.output, text)
    return 0
