"""`pipesynth profile`: measure what a model costs, in a process that knows torch."""

from __future__ import annotations

import argparse
from typing import NoReturn

from synth.cli.process import become
from synth.model_options import add_model_options
from synth.outputs import check_output
from synth.profile_options import MODELS


def register(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb to the parser."""
    text = "measure what a model costs, cut into stages"
    parser = verbs.add_parser(
        "profile",
        help=text,
        description="Cut a model into stages and measure what a micro-batch costs on each: the "
        "times of F, B, W, fused BW and messages, and the bytes that are held.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("-P", "--devices", type=int, required=True, metavar="N", help="devices it will run on")
    add("-o", "--output", required=True, metavar="FILE", help="costs file to write")
    add("--placement", default="linear", metavar="NAME", help="decides the number of stages")
    add("--json", action="store_true", help="print the costs file instead of the table")
    _add_balance(parser)
    add_model_options(parser, MODELS)
    _add_method(parser)
    parser.set_defaults(command=command)


def command(args: argparse.Namespace) -> NoReturn:
    """Let the profiler take the place of this process."""
    import msgspec

    from synth.profile_options import ProfileOptions

    check_output(args.output)
    options = ProfileOptions(**{name: getattr(args, name) for name in ProfileOptions.__slots__})
    become("runtime.profile_command", [msgspec.json.encode(options).decode()])


def _add_balance(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("balance").add_argument
    add("--balance", action="store_true", help="cut for the fastest schedule, not evenly")
    add("-m", "--microbatches", type=int, metavar="N", help="of that schedule (default 4 P)")
    add(
        "--memory-gib",
        dest="limit_bytes",
        type=_bytes,
        metavar="G",
        help="of each device (default no limit)",
    )
    add("--objective", choices=("makespan", "span"), default="makespan")


def _add_method(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("method").add_argument
    add("--rounds", type=int, default=10, metavar="N", help="measured rounds (default 10)")
    add("--warmup", type=int, default=3, metavar="N", help="rounds before them (default 3)")
    add("--in-flight", type=int, default=4, metavar="N", help="micro-batches in a round")
    add(
        "--processes",
        type=int,
        metavar="N",
        help="that measure at once, as they will run (default P, at most one per core or GPU)",
    )
    add("--threads", type=int, default=1, metavar="N", help="of torch in each (default 1)")
    add("--device", choices=("auto", "cpu", "cuda"), default="auto")
    add("--timeout", type=float, default=300.0, metavar="S", help="for a process to answer")


def _bytes(text: str) -> int:
    from synth.cli.options import check_amount
    from synth.profiled import gib

    check_amount(text, "--memory-gib")
    return gib(text)
