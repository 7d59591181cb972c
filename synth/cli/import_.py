"""`pipesynth import`: a schedule that another tool wrote, timed, verified and with a bound."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from synth.cli.options import add_problem_options, problem_options_given, read_problem
from synth.cli.output import print_json
from synth.errors import UsageError
from synth.outputs import check_output, write_output

if TYPE_CHECKING:
    from synth.exchange.torch_csv import Table
    from synth.problem import Problem


def register(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb to the parser."""
    text = "read a schedule that another tool wrote"
    parser = verbs.add_parser(
        "import",
        help=text,
        description=f"{text}. Costs and limits come from the problem options, else from the "
        "sidecar that `pipesynth export` left beside a CSV, else they are 1 and none",
        allow_abbrev=False,
    )
    parser.add_argument(
        "source", metavar="FILE|NAME", help="a CSV, or a schedule of torch such as Interleaved1F1B"
    )
    parser.add_argument(
        "--from",
        dest="origin",
        required=True,
        choices=("torch-csv", "torch"),
        help="torch-csv: what torch.distributed.pipelining and torchtitan load; torch: one of its "
        "built-in schedules by name (needs torch, -P and -m)",
    )
    parser.add_argument("--sidecar", metavar="FILE", help="default: the CSV's name with .json")
    add_problem_options(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="write the schedule here")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(command=command)


def command(args: argparse.Namespace) -> int:
    """Read, verify, write and print."""
    check_output(args.output)

    from synth.cli.figures import figures, summary_fields
    from synth.compare import summarize
    from synth.exchange.adopt import adopt
    from synth.exchange.torch_csv import loads
    from synth.files import dumps

    name, table = _printable(os.path.basename(args.source)), loads(_text(args), args.source)
    problem = None
    if args.origin == "torch-csv":
        name, problem = _beside(args, name, table)
    if problem is None:
        problem = _from_options(args, table)
    schedule = adopt(name, problem, table.orders)
    if args.output is not None:
        write_output(args.output, dumps(schedule))
    if args.json:
        print_json({**summary_fields(summarize(schedule)), "schedule": args.output})
        return 0
    print(figures(summarize(schedule)))
    if args.output is not None:
        print(f"{'written to':<12} {args.output}")
    return 0


def _printable(name: str) -> str:
    """A file's name as the name of a schedule, which has to be text."""
    text = os.fsencode(name).decode(errors="replace")
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)


def _text(args: argparse.Namespace) -> str:
    from synth.errors import FileError
    from synth.files import read_bytes

    if args.origin == "torch":
        return _built_in(args)
    try:
        return read_bytes(args.source).decode()
    except UnicodeDecodeError:
        raise FileError(f"{args.source}: is not UTF-8 text") from None


def _built_in(args: argparse.Namespace) -> str:
    """The CSV of a schedule of torch, asked for in a process of its own."""
    import subprocess

    from synth.cli.process import environment, module

    if args.devices is None or args.microbatches is None:
        raise UsageError(f"{args.source} of torch needs -P (devices) and -m (micro-batches)")
    size = ["-P", str(args.devices), "-m", str(args.microbatches)]
    done = subprocess.run(
        [*module("runtime.torch_builtin"), args.source, *size],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"torch ended with code {done.returncode}"]
        raise UsageError(said[-1].removeprefix("pipesynth: "))
    return done.stdout


def _beside(args: argparse.Namespace, name: str, table: Table) -> tuple[str, Problem | None]:
    """Name and problem of the sidecar where there is one; no problem where options give one."""
    from synth.exchange import sidecar
    from synth.files import read_bytes

    path = args.sidecar or args.source + sidecar.SUFFIX
    if args.sidecar is None and not os.path.exists(path):
        return name, None
    name, problem = sidecar.loads(read_bytes(path), path)
    (stream, *others) = problem.streams
    if others or (stream.route, stream.microbatches) != (
        table.placement.routes[0][1],
        table.microbatches,
    ):
        raise UsageError(
            f"{path}: is for other stages, ranks or micro-batches than {args.source}; "
            "remove it or name the right one with --sidecar"
        )
    return name, None if problem_options_given(args) else problem


def _from_options(args: argparse.Namespace, table: Table) -> Problem:
    """The problem that the CSV's size and the options make."""
    from argparse import Namespace

    sizes = {"devices": len(table.orders), "microbatches": table.microbatches}
    for option, size in sizes.items():
        if getattr(args, option) not in (None, size):
            raise UsageError(f"{args.source} has {size} {option}, not {getattr(args, option)}")
    if args.placement is not None:
        raise UsageError("--placement comes from the CSV itself; leave it out")
    return read_problem(Namespace(**{**vars(args), **sizes}), placement=table.placement)
