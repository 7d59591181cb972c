"""`pipesynth export`: a schedule in the form another tool reads."""

from __future__ import annotations

import argparse
import json

from synth.cli.output import check_output, write_output


def register(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb to the parser."""
    text = "write a schedule in another form"
    parser = verbs.add_parser("export", help=text, description=text, allow_abbrev=False)
    parser.add_argument("file", metavar="FILE", help="a schedule file")
    parser.add_argument(
        "--to",
        required=True,
        choices=("program",),
        help="program: what each rank computes, sends and receives, in order",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write it here (default stdout)")
    parser.set_defaults(command=command)


def command(args: argparse.Namespace) -> int:
    """Lower the schedule, prove that it cannot deadlock, and write the program."""
    from synth.cli.load import load_valid
    from synth.lower import lower, program_json
    from synth.rendezvous import check_program

    check_output(args.output)
    program = lower(load_valid(args.file))
    check_program(program)
    text = json.dumps(program_json(program), indent=1) + "\n"
    if args.output is None:
        print(text, end="")
    else:
        write_output(args.output, text)
    return 0
