"""Shows what a run would do, without doing it."""

from __future__ import annotations

import json

from synth.errors import InvalidScheduleError
from synth.lower import Program, lower, program_json
from synth.rendezvous import check_program, per_pair, single
from synth.schedule import Schedule


def show(schedule: Schedule, *, as_json: bool) -> int:
    """Lowers and checks a schedule, and prints its programs.

    Raises:
        InvalidScheduleError: the program could deadlock.
    """
    program = lower(schedule)
    check_program(program)
    if as_json:
        print(json.dumps(program_json(program)))
        return 0
    for rank, steps in enumerate(program.ranks):
        print(f"rank {rank}: " + ", ".join(map(str, steps)))
    for rank in range(len(program.ranks)):
        for channel, slots in program.buffers(rank).items():
            print(f"channel {channel}: {slots} receive buffer{'s' * (slots > 1)}")
    print(_verdict(program))
    return 0


def _verdict(program: Program) -> str:
    names = {per_pair: "one communicator per pair of ranks", single: "a single communicator"}
    also: list[str] = []
    for communicator, name in names.items():
        try:
            check_program(program, communicator)
        except InvalidScheduleError:
            continue
        also.append(name)
    steps = sum(map(len, program.ranks))
    verdict = f"{steps} instructions; cannot deadlock with one communicator per channel"
    return verdict + (f", nor with {' or '.join(also)}" if also else "")
