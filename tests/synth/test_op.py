"""The spelling of ops, and what is not an op."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synth.errors import FileError
from synth.op import Kind, Op, pair, parse_op

F = Op(Kind.F, 3, 1)
BW = Op(Kind.BW, 0, 6)


@pytest.mark.parametrize(
    ("op", "text"),
    [
        (F, "F3@1"),
        (Op(Kind.B, 0, 0), "B0@0"),
        (Op(Kind.W, 12, 7), "W12@7"),
        (BW, "BW0@6"),
        (Op(Kind.F, 3, 1, "up"), "F3@1/up"),
        (pair(F, BW), "F3@1+BW0@6"),
        (pair(F, Op(Kind.B, 2, 6)), "F3@1+B2@6"),
        (pair(Op(Kind.F, 3, 1, "down"), Op(Kind.BW, 3, 6, "up")), "F3@1/down+BW3@6/up"),
        (Op(Kind.F, 999_999_999, 999_999_999), "F999999999@999999999"),
    ],
)
def test_spelling(op: Op, text: str) -> None:
    assert str(op) == text
    assert parse_op(text) == op


@pytest.mark.parametrize(
    ("op", "nodes"),
    [
        (F, "F3@1"),
        (BW, "B0@6 W0@6"),
        (pair(F, BW), "F3@1 B0@6 W0@6"),
        (pair(F, Op(Kind.B, 2, 6)), "F3@1 B2@6"),
        (pair(Op(Kind.F, 3, 1, "a"), Op(Kind.BW, 3, 6, "b")), "F3@1/a B3@6/b W3@6/b"),
    ],
)
def test_nodes(op: Op, nodes: str) -> None:
    assert op.nodes == tuple(parse_op(text) for text in nodes.split())


def test_parts() -> None:
    assert F.parts == (F,)
    assert pair(F, BW).parts == (F, BW)
    assert F.sibling(Kind.W) == Op(Kind.W, 3, 1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "F",
        "F3",
        "3@1",
        "F@1",
        "F3@",
        "X3@1",
        "f3@1",
        "FB3@1",
        "WB3@1",
        "F-3@1",
        "F3@-1",
        "F03@1",
        "F3@01",
        "F3.0@1",
        "F1e3@1",
        "F3@1 ",
        " F3@1",
        "F3@1\n",
        "F1٣@1",
        "F1234567890@1",
        "F3@1/",
        "F3@1/Up",
        "F3@1/1",
        "F3@1/up/down",
        "F3@1+",
        "+BW0@6",
        "F3@1+F0@6",
        "F3@1+W0@6",
        "BW0@6+F3@1",
        "B0@6+BW1@6",
        "F3@1+BW0@6+BW1@6",
        "F3@1+BW3@1",
        "F3@1+B3@6",
        "F3@1/up+BW3@1/up",
    ],
)
def test_what_is_not_an_op(text: str) -> None:
    with pytest.raises(FileError) as refused:
        parse_op(text)
    assert str(refused.value).startswith(f"{text!r} is not an op: ")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "partner"),
    [
        (Kind.FB, None),
        (Kind.F, BW),
        (Kind.FB, Op(Kind.F, 0, 6)),
        (Kind.FB, Op(Kind.W, 0, 6)),
        (Kind.FB, Op(Kind.BW, 3, 6)),
    ],
)
def test_only_an_overlapped_pair_has_a_partner(kind: Kind, partner: Op | None) -> None:
    with pytest.raises(ValueError, match=r"partner|overlap"):
        Op(kind, 3, 1, partner=partner)


def test_a_pair_starts_with_an_f() -> None:
    with pytest.raises(ValueError, match="a pair starts with an F, not BW0@6"):
        pair(BW, Op(Kind.BW, 1, 6))


indices = st.integers(0, 999_999_999)
streams = st.sampled_from(["", "up", "down", "s-1_b"])
simple_ops = st.builds(
    Op, st.sampled_from([Kind.F, Kind.B, Kind.W, Kind.BW]), indices, indices, streams
)
pairs = st.tuples(simple_ops, simple_ops).map(
    lambda ops: pair(
        ops[0].sibling(Kind.F), Op(Kind.BW, ops[0].microbatch ^ 1, ops[1].stage, ops[1].stream)
    )
)


@given(simple_ops | pairs)
def test_every_spelling_is_read_back(op: Op) -> None:
    assert parse_op(str(op)) == op
    assert len({str(node) for node in op.nodes}) == len(op.nodes)


@given(st.text(alphabet="FBW0123456789@/+up -", max_size=16))
def test_whatever_is_read_spells_itself(text: str) -> None:
    try:
        op = parse_op(text)
    except FileError:
        return
    assert str(op) == text
