"""Op: one thing a device does, with the one spelling used in JSON, logs, traces and errors."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from synth.errors import FileError


class Kind(StrEnum):
    """What an op computes."""

    F = "F"  # forward
    B = "B"  # B_act, the gradient of the stage's input
    W = "W"  # B_wgt, the gradient of the stage's weights
    BW = "BW"  # fused full backward: B and its W as one op
    FB = "FB"  # an F overlapped with the backward of another micro-batch


@dataclass(frozen=True, slots=True)
class Op:
    """One op, written `F3@1` (kind, micro-batch, stage); `F3@1/up` where there are several streams.

    An overlapped pair has kind FB, the identity of its F, and the backward it overlaps as
    `partner`; it is written `F3@1+BW0@6`.
    """

    kind: Kind
    microbatch: int
    stage: int
    stream: str = ""
    partner: Op | None = None

    def __post_init__(self) -> None:
        if (self.kind is Kind.FB) != (self.partner is not None):
            raise ValueError("an overlapped pair (FB) and only a pair has a partner")
        if self.partner is not None and self.partner.kind not in (Kind.B, Kind.BW):
            raise ValueError(f"an F overlaps a B or a BW, not {self.partner}")
        if self.partner is not None and (self.stream, self.microbatch) == (
            self.partner.stream,
            self.partner.microbatch,
        ):
            raise ValueError("an F cannot overlap the backward of its own micro-batch")

    def __str__(self) -> str:
        if self.partner is not None:
            return f"{self.parts[0]}+{self.partner}"
        name = f"{self.kind}{self.microbatch}@{self.stage}"
        return f"{name}/{self.stream}" if self.stream else name

    @property
    def parts(self) -> tuple[Op, ...]:
        """The simple ops it consists of: the F and the backward of a pair, else the op itself."""
        if self.partner is None:
            return (self,)
        return (Op(Kind.F, self.microbatch, self.stage, self.stream), self.partner)

    @property
    def nodes(self) -> tuple[Op, ...]:
        """The F, B and W nodes of the graph that it executes, in order."""
        nodes: list[Op] = []
        for part in self.parts:
            if part.kind is Kind.BW:
                nodes.append(part.sibling(Kind.B))
                nodes.append(part.sibling(Kind.W))
            else:
                nodes.append(part)
        return tuple(nodes)

    def sibling(self, kind: Kind) -> Op:
        """The op of another kind for the same micro-batch, stage and stream."""
        return Op(kind, self.microbatch, self.stage, self.stream)


def pair(forward: Op, backward: Op) -> Op:
    """An overlapped pair of an F and a B or BW of another micro-batch on the same device."""
    if forward.kind is not Kind.F:
        raise ValueError(f"a pair starts with an F, not {forward}")
    return Op(Kind.FB, forward.microbatch, forward.stage, forward.stream, backward)


_INDEX = "(0|[1-9][0-9]{0,8})"
_SIMPLE = re.compile(rf"(F|BW|B|W){_INDEX}@{_INDEX}(?:/([a-z][a-z0-9_-]*))?")


@cache
def _kind(letters: str) -> Kind:
    return Kind(letters)


def parse_op(text: str) -> Op:
    """Read an op back from its spelling. Raises FileError when it is not one."""
    head, plus, tail = text.partition("+")
    forward = _parse_simple(head, text)
    if not plus:
        return forward
    try:
        return pair(forward, _parse_simple(tail, text))
    except ValueError as error:
        raise FileError(f"{text!r} is not an op: {error}") from None


def _parse_simple(text: str, whole: str) -> Op:
    match = _SIMPLE.fullmatch(text)
    if match is None:
        raise FileError(
            f"{whole!r} is not an op: write kind, micro-batch, stage as in F3@1 or F3@1/up"
        )
    kind, microbatch, stage, stream = match.groups()
    return Op(_kind(kind), int(microbatch), int(stage), stream or "")
