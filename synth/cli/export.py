"""`pipesynth export`: a schedule in the form another tool reads."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from synth.errors import UsageError
from synth.outputs import check_output, is_pipe_or_device, write_output

if TYPE_CHECKING:
    from synth.schedule import Schedule


def register(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb to the parser."""
    text = "write a schedule in another form"
    parser = verbs.add_parser("export", help=text, description=text, allow_abbrev=False)
    parser.add_argument("file", metavar="FILE", help="a schedule file")
    parser.add_argument(
        "--to",
        required=True,
        choices=tuple(_WRITERS),
        help="program: what each rank computes, sends and receives, in order; torch-csv: what "
        "torch.distributed.pipelining and torchtitan load, with a sidecar for the placement; "
        "chrome-trace: what Perfetto and chrome://tracing show",
    )
    parser.add_argument(
        "--form",
        choices=("compute_only", "compute_comms"),
        help="torch-csv: leave the communication to torch (the default), or spell it out",
    )
    parser.add_argument(
        "--merge",
        action="store_true",
        help="make a B and the W right behind it one full backward, which is cheaper",
    )
    parser.add_argument(
        "--run", metavar="RUN.json", help="chrome-trace: show the median step of this run too"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write it here (default stdout)")
    parser.set_defaults(command=command)


def command(args: argparse.Namespace) -> int:
    """Write the schedule in the form asked for."""
    from synth.load import load_valid

    check_output(args.output)
    if args.form is not None and args.to != "torch-csv":
        raise UsageError("--form is for --to torch-csv")
    if args.run is not None and args.to != "chrome-trace":
        raise UsageError("--run is for --to chrome-trace")
    schedule = load_valid(args.file)
    if args.merge:
        from synth.fusing import merge

        schedule = merge(schedule)
    text = _WRITERS[args.to](args, schedule)
    if args.output is None:
        print(text, end="")
    else:
        write_output(args.output, text)
    return 0


def _program(args: argparse.Namespace, schedule: Schedule) -> str:
    """The lowered program, proved not to deadlock."""
    from synth.lower import lower, program_json
    from synth.rendezvous import check_program

    program = lower(schedule)
    check_program(program)
    return json.dumps(program_json(program), indent=1) + "\n"


def _torch_csv(args: argparse.Namespace, schedule: Schedule) -> str:
    """The CSV; beside a regular file of it also the sidecar."""
    from synth.exchange import sidecar
    from synth.exchange.torch_csv import Form, dumps

    text = dumps(schedule, Form(args.form or Form.COMPUTE_ONLY))
    if args.output is not None and not is_pipe_or_device(args.output):
        write_output(args.output + sidecar.SUFFIX, sidecar.dumps(schedule))
    return text


def _chrome_trace(args: argparse.Namespace, schedule: Schedule) -> str:
    """The planned ops and, where a run is named, its measured ones."""
    from synth.chrome_trace import dumps
    from synth.cli.measured import assign

    (step,) = assign([] if args.run is None else [args.run], [schedule])
    return dumps(schedule, step)


_WRITERS = {"program": _program, "torch-csv": _torch_csv, "chrome-trace": _chrome_trace}
