"""The library of solved schedules: solve what is missing or open, then list everything.

    python scripts/library.py [--all] [NAME ...]

Writes schedules/NAME.json, the manifest schedules/library.json and schedules/README.md. With --all
every schedule is solved anew; a new one replaces an old one only where it or its bound is better.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from synth.compare import summarize
from synth.files import load, write_atomic
from synth.schedule import Schedule

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "schedules"
MANIFEST, README = FOLDER / "library.json", FOLDER / "README.md"

HELD_TO_B = "--activation 1,0 --objective span"  # the activation counts from F to B only
C1, C2, C5 = "--costs 10,12,8,0", "--costs 10,12,8,3", "--costs 10,20,5,1"
ZERO_BUBBLE = "--costs 18.522,18.086,9.337,0.601 --activation 1,0.3664 --objective span"

PROBLEMS: dict[str, str] = {
    **{f"unit-p4-m8-k{k}": f"-P 4 -m 8 --memory {k}" for k in (1, 2, 3, 4)},
    "unit-p8-m16-k6": "-P 8 -m 16 --memory 6",
    "unit-p8-m16-k8": "-P 8 -m 16 --memory 8",
    **{
        f"unit-p8-m24-k{k}-span": f"-P 8 -m 24 --memory {k} {HELD_TO_B}"
        for k in (2, 3, 4, 5, 6, 7, 8, 12, 15)
    },
    "c1-p4-m8-k3": f"-P 4 -m 8 --memory 3 {C1}",
    "c2-p4-m8-k3": f"-P 4 -m 8 --memory 3 {C2}",
    "c5-p4-m8-k3": f"-P 4 -m 8 --memory 3 {C5}",
    **{f"c1-p8-m16-k{k}": f"-P 8 -m 16 --memory {k} {C1}" for k in (6, 8)},
    **{f"c5-p8-m16-k{k}": f"-P 8 -m 16 --memory {k} {C5}" for k in (6, 8)},
    **{f"v-p4-m8-k{k}": f"-P 4 -m 8 --memory {k} --placement v" for k in (2, 3, 4)},
    **{f"v-p8-m16-k{k}": f"-P 8 -m 16 --memory {k} --placement v" for k in (4, 6, 8)},
    **{f"v-p8-m24-k{k}": f"-P 8 -m 24 --memory {k} --placement v" for k in (4, 5, 8)},
    **{
        f"bidirectional-p4-m8-k{k}": f"-P 4 -m 8 --memory {k} --placement bidirectional"
        for k in (3, 4)
    },
    "bidirectional-p8-m16-k8": "-P 8 -m 16 --memory 8 --placement bidirectional",
    "zero-bubble-1.5b-p8-m24-1x": f"-P 8 -m 24 --memory 8 {ZERO_BUBBLE}",
    "zero-bubble-1.5b-p8-m24-2x": f"-P 8 -m 24 --memory 16 {ZERO_BUBBLE}",
}


def command(name: str) -> str:
    """The command that solves a problem of the library."""
    return f"pipesynth solve {PROBLEMS[name]} -o schedules/{name}.json"


def solve(name: str, time_limit_s: float) -> Schedule | None:
    """Run the command with another output file; None where nothing was found."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "found.json"
        words = shlex.split(command(name))[1:-1]
        limit = ("--time-limit", f"{time_limit_s:g}", "-q")
        subprocess.run([sys.executable, "-m", "synth", *words, str(path), *limit], cwd=ROOT)
        return load(path) if path.exists() else None


def refresh(name: str, time_limit_s: float) -> None:
    """Solve a problem and keep the answer where it is better than the file there is."""
    path = FOLDER / f"{name}.json"
    found = solve(name, time_limit_s)
    if found is None:
        print(f"{name}: nothing found", file=sys.stderr)
        return
    if not path.exists() or better(found, load(path)):
        from synth.files import dumps

        write_atomic(path, dumps(found))


def better(new: Schedule, old: Schedule) -> bool:
    """Whether another problem is answered, or the same one better or with a stronger bound."""
    if new.problem != old.problem:
        return True
    mine, other = new.certificate, old.certificate
    return (mine.value, -mine.bound) < (other.value, -other.bound)


def entry(name: str) -> dict[str, Any]:
    """What the manifest says of a schedule."""
    summary = summarize(load(FOLDER / f"{name}.json"))
    return {
        "file": f"{name}.json",
        "command": command(name),
        "objective": summary.objective,
        "value": summary.value,
        "bound": summary.bound,
        "bubble": round(summary.bubble, 6),
        "proof": summary.proof.partition(":")[0],
    }


def manifest_text(entries: list[dict[str, Any]]) -> str:
    """The manifest, a line for each schedule."""
    rows = ",\n".join(f"    {json.dumps(row)}" for row in entries)
    return f'{{\n  "schedules": [\n{rows}\n  ]\n}}\n'


def readme_text(entries: list[dict[str, Any]]) -> str:
    """The table for readers."""
    proved = sum(row["value"] == row["bound"] for row in entries)
    lines = [
        "# Solved schedules",
        "",
        f"{len(entries)} problems with their best known schedules, {proved} of them proved "
        "optimal: the value equals the bound. Every file",
        "is made by the command beside it; `make library` makes what is missing, and a test "
        "verifies every file and its bound.",
        '"Refutation" means that an integer program proved that nothing below the bound exists, '
        '"CP-SAT" the same by',
        "constraint programming; every other name is a bound that needs no solver.",
        "",
        "| file | command | objective | value | bound | bubble | proof |",
        "| --- | --- | --- | ---: | ---: | ---: | --- |",
    ]
    for row in entries:
        asked = row["command"].rpartition(" -o ")[0]
        lines.append(
            f"| [{row['file'].removesuffix('.json')}]({row['file']}) | `{asked}` | "
            f"{row['objective']} | {row['value']:.12g} | {row['bound']:.12g} | "
            f"{100 * row['bubble']:.1f}% | {row['proof']} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Solve, then write the manifest and the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: missing or open ones")
    parser.add_argument("--all", action="store_true", help="solve every problem anew")
    parser.add_argument("--missing", action="store_true", help="solve only those without a file")
    parser.add_argument("--list", action="store_true", help="solve nothing, write the lists")
    parser.add_argument("--time-limit", type=float, default=60.0, metavar="S")
    args = parser.parse_args()
    for name in [] if args.list else args.names or PROBLEMS:
        path = FOLDER / f"{name}.json"
        known = path.exists() and (args.missing or load(path).certificate.optimal)
        if args.all or args.names or not known:
            print(command(name), flush=True)
            refresh(name, args.time_limit)
    entries = [entry(name) for name in PROBLEMS if (FOLDER / f"{name}.json").exists()]
    write_atomic(MANIFEST, manifest_text(entries))
    write_atomic(README, readme_text(entries))


if __name__ == "__main__":
    main()
