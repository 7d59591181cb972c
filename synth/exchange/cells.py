"""The cells of torch's schedule CSV: one action of one rank each.

    cell := "" | action          action := stage kind [micro-batch] | "(" F ";" B ")OVERLAP_F_B"

torch reads a cell up to where it stops making sense and ignores the rest; here a cell is an action
from its first to its last character, or an error.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from synth.op import Kind, Op, pair


class Verb(StrEnum):
    """What an action that computes nothing does."""

    SEND_F = "SEND_F"
    RECV_F = "RECV_F"
    SEND_B = "SEND_B"
    RECV_B = "RECV_B"
    UNSHARD = "UNSHARD"
    RESHARD = "RESHARD"
    REDUCE_GRAD = "REDUCE_GRAD"

    @property
    def moves(self) -> bool:
        """Whether it is a send or a receive, which name a micro-batch."""
        return self.value.startswith(("SEND", "RECV"))


@dataclass(frozen=True, slots=True)
class Chore:
    """An action that computes nothing. The stage is the one on the rank of its row."""

    verb: Verb
    stage: int
    microbatch: int | None = None

    def __str__(self) -> str:
        return f"{self.stage}{self.verb}{'' if self.microbatch is None else self.microbatch}"


Action = Op | Chore

_LETTERS = {Kind.F: "F", Kind.B: "I", Kind.W: "W", Kind.BW: "B"}
_KINDS = {letters: kind for kind, letters in _LETTERS.items()}
_NUMBER = "(0|[1-9][0-9]{0,8})"
_COMPUTE = re.compile(rf"{_NUMBER}([FIWB]){_NUMBER}")
_PAIR = re.compile(r"\(([^;()]*);([^;()]*)\)OVERLAP_F_B")
_CHORE = re.compile(rf"{_NUMBER}({'|'.join(Verb)}){_NUMBER}?")


def spell(action: Action) -> str:
    """The cell of an action."""
    if isinstance(action, Chore):
        return str(action)
    parts = [f"{part.stage}{_LETTERS[part.kind]}{part.microbatch}" for part in action.parts]
    return parts[0] if len(parts) == 1 else f"({';'.join(parts)})OVERLAP_F_B"


def parse(cell: str) -> Action | None:
    """The action of a cell, None for a blank one. Raises ValueError when it is neither."""
    text = cell.strip(" \t")
    if not text:
        return None
    if match := _CHORE.fullmatch(text):
        return _chore(Verb(match[2]), int(match[1]), match[3])
    if match := _PAIR.fullmatch(text):
        forward, backward = (_compute(part.strip(" \t")) for part in match.groups())
        return pair(forward, backward)
    return _compute(text)


def _compute(text: str) -> Op:
    match = _COMPUTE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not an action; write stage, kind and micro-batch as in 2F0")
    stage, letters, microbatch = match.groups()
    return Op(_KINDS[letters], int(microbatch), int(stage))


def _chore(verb: Verb, stage: int, microbatch: str | None) -> Chore:
    if verb.moves and microbatch is None:
        raise ValueError(f"{stage}{verb} lacks a micro-batch")
    if not verb.moves and microbatch is not None:
        raise ValueError(f"{stage}{verb}{microbatch}: {verb} takes no micro-batch")
    return Chore(verb, stage, None if microbatch is None else int(microbatch))
