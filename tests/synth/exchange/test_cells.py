"""Cells of torch's CSV: what they mean, how they are spelled, what is refused."""

import pytest

from synth.exchange.cells import parse, spell
from synth.op import parse_op


@pytest.mark.parametrize(
    ("cell", "op"),
    [
        ("2F0", "F0@2"),
        ("0I13", "B13@0"),
        ("1W7", "W7@1"),
        ("10B0", "BW0@10"),
        ("(0F7;7B3)OVERLAP_F_B", "F7@0+BW3@7"),
        ("(7F4;0I0)OVERLAP_F_B", "F4@7+B0@0"),
    ],
)
def test_computing_cells(cell, op):
    assert parse(cell) == parse_op(op)
    assert spell(parse_op(op)) == cell


@pytest.mark.parametrize(
    "cell",
    ["1SEND_F3", "2RECV_F3", "2SEND_B3", "1RECV_B0", "1UNSHARD", "1RESHARD", "12REDUCE_GRAD"],
)
def test_other_cells_keep_their_spelling(cell):
    action = parse(f" {cell}\t")
    assert action is not None
    assert spell(action) == cell


@pytest.mark.parametrize("cell", ["", " ", "\t "])
def test_blank_cells_are_idle(cell):
    assert parse(cell) is None


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        ("0F0junk", "'0F0junk' is not an action"),  # torch reads 0F0
        ("0F0;0F1", "'0F0;0F1' is not an action"),  # and here too
        ("0f0", "is not an action"),
        ("0 F0", "is not an action"),
        ("F0", "is not an action"),
        ("0F", "is not an action"),
        ("00F1", "is not an action"),
        ("-1F0", "is not an action"),
        ("0F٣", "is not an action"),
        ("0F1234567890", "is not an action"),
        ("1SEND_F", "lacks a micro-batch"),
        ("1UNSHARD0", "takes no micro-batch"),
        ("(0F0)OVERLAP_F_B", "is not an action"),
        ("(0F0;0B1) OVERLAP_F_B", "is not an action"),
        ("(0F0;0F1)OVERLAP_F_B", "an F overlaps a B or a BW"),
        ("(0B0;0F1)OVERLAP_F_B", "a pair starts with an F"),
        ("(0F1;3B1)OVERLAP_F_B", "its own micro-batch"),
    ],
)
def test_anything_else_is_refused(cell, text):
    with pytest.raises(ValueError, match=text):
        parse(cell)
