"""`pipesynth playground`: handcrafted schedules to play with, in one page."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from synth.cli.output import log
from synth.errors import FileError
from synth.outputs import check_output, write_output

if TYPE_CHECKING:
    from synth.schedule import Schedule

SHIPPED = Path(__file__).resolve().parents[2] / "schedules"  # beside the sources, not installed


def register(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb to the parser."""
    text = "write one HTML page in which sliders make handcrafted schedules"
    parser = verbs.add_parser("playground", help=text, description=text, allow_abbrev=False)
    parser.add_argument(
        "--schedules",
        metavar="FOLDER",
        help="show the solved schedules in it too (default the library that comes with pipesynth)",
    )
    parser.add_argument("-o", "--output", required=True, metavar="PAGE.html", help="write it here")
    parser.set_defaults(command=command)


def command(args: argparse.Namespace) -> int:
    """Write the page."""
    from synth.view import playground_page

    check_output(args.output)
    if args.schedules is not None and not Path(args.schedules).is_dir():
        raise FileError(f"{args.schedules}: there is no such folder")
    library = _library(Path(args.schedules) if args.schedules is not None else SHIPPED)
    write_output(args.output, playground_page(library))
    print(f"written to   {args.output}, with {len(library)} solved schedules")
    return 0


def _library(folder: Path) -> list[dict[str, Any]]:
    """The valid schedules below a folder, as the page needs them."""
    from synth.view import payload

    found = [(path, _schedule(path)) for path in sorted(folder.rglob("*.json"))]
    shown = [
        payload(schedule, str(path.relative_to(folder).with_suffix("")))
        for path, schedule in found
        if schedule is not None
    ]
    for entry in shown:
        if entry["invalid"]:
            log(f"{entry['label']} is left out: {entry['violations'][0]}")
    return [entry for entry in shown if not entry["invalid"]]


def _schedule(path: Path) -> Schedule | None:
    """The schedule in a file, None where it holds something else."""
    from synth import files

    if b'"pipesynth.schedule"' not in path.read_bytes()[:200]:
        return None
    return files.load(path)
