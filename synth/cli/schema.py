"""`pipesynth schema`: the JSON Schema of the files that people write programs for."""

from __future__ import annotations

import argparse
import json

from synth.cli.output import check_output, write_output


def register(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb to the parser."""
    text = "print the JSON Schema of schedule files, or of costs files"
    parser = verbs.add_parser("schema", help=text, description=text, allow_abbrev=False)
    parser.add_argument("of", nargs="?", choices=("schedule", "costs"), default="schedule")
    parser.add_argument("-o", "--output", metavar="FILE", help="write it here instead")
    parser.set_defaults(command=command)


def command(args: argparse.Namespace) -> int:
    """Print or write the schema."""
    from synth import costs, files

    check_output(args.output)
    schema = costs.schema() if args.of == "costs" else files.schema()
    text = json.dumps(schema, indent=2) + "\n"
    if args.output is None:
        print(text, end="")
    else:
        write_output(args.output, text)
    return 0
