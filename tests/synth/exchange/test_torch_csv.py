"""torch's CSV: round trips in both forms, and every way in which a table can be wrong."""

import contextlib

import pytest

from synth import catalog
from synth.errors import FileError, InvalidScheduleError, ProblemError, UsageError
from synth.exchange import sidecar
from synth.exchange.adopt import adopt
from synth.exchange.torch_csv import Form, dumps, loads
from synth.op import Kind
from synth.problem import make_problem
from synth.schedule import Certificate, Schedule, makespan
from synth.simulate import earliest

ZB_H1 = """\
0F0,0F1,0F2,0F3,0I0,0W0,0F4,0I1,0W1,0F5,0I2,0W2,0F6,0I3,0W3,0F7,0I4,0W4,0I5,0W5,0I6,0W6,0I7,0W7
1F0,1F1,1F2,1I0,1F3,1I1,1W0,1F4,1I2,1W1,1F5,1I3,1W2,1F6,1I4,1W3,1F7,1I5,1W4,1I6,1W5,1I7,1W6,1W7
2F0,2F1,2I0,2F2,2I1,2F3,2I2,2W0,2F4,2I3,2W1,2F5,2I4,2W2,2F6,2I5,2W3,2F7,2I6,2W4,2I7,2W5,2W6,2W7
3F0,3I0,3F1,3I1,3F2,3I2,3F3,3I3,3W0,3F4,3I4,3W1,3F5,3I5,3W2,3F6,3I6,3W3,3F7,3I7,3W4,3W5,3W6,3W7
"""


def built(name, devices=4, microbatches=8):
    problem = make_problem(
        devices, microbatches, placement=catalog.family(name).placement, costs=(2, 3, 1), comm=1
    )
    return catalog.build(name, problem)


def one_stream():
    """The names of the catalogue that one stage on one rank each can say, at P=4 and m=8."""
    for name in catalog.names():
        with contextlib.suppress(UsageError, ProblemError):
            dumps(built(name))
            yield name


NAMES = list(one_stream())


def test_the_catalogue_is_mostly_sayable():
    assert {"gpipe", "1f1b", "zb-h1", "zb-h2", "zb-v", "bfs:2", "dualpipev"} <= set(NAMES)


def test_zb_h1_as_torch_writes_it():
    assert dumps(catalog.build("zb-h1", make_problem(4, 8))) == ZB_H1


@pytest.mark.parametrize("form", Form)
@pytest.mark.parametrize("name", NAMES)
def test_round_trip_is_exact(name, form):
    schedule = built(name)
    table = loads(dumps(schedule, form))
    same_name, problem = sidecar.loads(sidecar.dumps(schedule), "sidecar")
    again = adopt(same_name, problem, table.orders)
    assert table.orders == schedule.orders
    assert table.placement.routes == (("", schedule.problem.streams[0].route),)
    assert (again.name, again.problem, again.devices) == (
        schedule.name,
        schedule.problem,
        schedule.devices,
    )
    assert again.certificate.value == schedule.certificate.value
    assert dumps(again, form) == dumps(schedule, form)


def test_placements_without_a_name():
    table = loads("0F0,1F0,1B0,0B0\n2F0,2B0\n")
    assert (table.placement.name, table.placement.routes) == ("explicit", (("", (0, 0, 1)),))


def test_line_ends_idle_cells_and_trailing_commas_do_not_matter():
    table = loads("0F0,,0B0,\r\n ,1F0, 1B0")
    assert table.orders == loads("0F0,0B0\n1F0,1B0\n").orders


def test_two_streams_are_refused():
    problem = make_problem(4, 8, placement="bidirectional")
    with pytest.raises(UsageError, match=r"has 2 streams \(down and up\).*cannot tell them apart"):
        dumps(catalog.build("chimera", problem))


def test_losses_out_of_order_are_refused():
    problem = make_problem(2, 2)
    orders = catalog.build("gpipe", problem).orders
    swapped = tuple((order[1], order[0], *order[2:]) for order in orders)
    timeline = earliest(problem, swapped)
    schedule = Schedule("odd", problem, timeline, Certificate(makespan(timeline), 0, "none"))
    with pytest.raises(UsageError, match="the F of its last stage in the order 1, 0; torch stores"):
        dumps(schedule)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "x.csv: is empty"),
        ("\ufeff0F0,0B0\n", "byte-order mark"),
        ("rank,action\n", "row 1, cell 1: 'rank' is not an action"),
        ("0F0,0B0\n1F0,1X0\n", "row 2, cell 2: '1X0' is not an action"),
        ("0F0,0B0\n\n", "row 2 is blank"),
        ("0F0,0B0\n,,\n", "row 2 is blank"),
        ("0F0,0B0\n1UNSHARD\n", "row 2 computes nothing"),
        ("0F0,0B0\n0F1,0B1\n", "row 2: 0F1: stage 0 is in row 1 already"),
        ("0F0,0B0\n2F0,2B0\n", "stage 1 is in no row, but stage 2 is"),
        ("0F0,0B0\n999999999F0\n", "stage 1 is in no row, but stage 999999999 is"),
        ("0F0,0SEND_F999999999\n1F999999999\n", "names micro-batch 999999999, but has fewer"),
    ],
)
def test_tables_that_make_no_sense(text, message):
    with pytest.raises(FileError, match=message):
        loads(text, "x.csv")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0F0,0F1,0B0\n1F0,1F1,1B0,1B1\n", "B1@0 at tick 0: never runs"),
        ("0F0,0F0,0B0\n1F0,1B0\n", "F0@0 runs more than once"),
        ("0F0,0B0\n1B0,1F0\n", "wait for each other and never finish: device 0 at BW0@0, device 1"),
        ("0F0,0B0,0W0\n1F0,1B0\n", "W0@0 runs more than once"),
    ],
)
def test_tables_that_are_no_schedule(text, message):
    table = loads(text)
    problem = make_problem(2, table.microbatches, placement=table.placement)
    with pytest.raises(InvalidScheduleError, match=message):
        adopt("x.csv", problem, table.orders)


COMMS = [
    "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE_GRAD",
    "1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1,1REDUCE_GRAD",
]


def test_communication_that_is_whole():
    assert loads("\n".join(COMMS)).microbatches == 2


@pytest.mark.parametrize(
    ("row", "old", "new", "error", "message"),
    [
        (0, "0SEND_F0,", "", FileError, "row 1: 0SEND_F0 is missing"),
        (1, "1RECV_F1,", "", FileError, "row 2: 1RECV_F1 is missing"),
        (0, "0SEND_F0", "0SEND_F0,0SEND_F0", FileError, "row 1: 0SEND_F0 is there twice"),
        (0, ",0REDUCE_GRAD", "", FileError, "row 1: 0REDUCE_GRAD is missing; without it torch"),
        (0, "0B1,", "0REDUCE_GRAD,0B1,", FileError, "0B1 comes after the reduction|BW1@0 comes"),
        (0, "0B1,", "0B1,0REDUCE_GRAD,", FileError, "0REDUCE_GRAD is there twice"),
        (0, "0F0", "0RECV_F0,0F0", FileError, "0RECV_F0 has no other rank to talk to"),
        (0, "0F0,0SEND_F0", "0SEND_F0,0F0", InvalidScheduleError, "comes before F0@0 itself"),
        (1, "1RECV_F0,1F0", "1F0,1RECV_F0", InvalidScheduleError, "comes after F0@1"),
        (
            0,
            "0F0,0SEND_F0,0F1,0SEND_F1",
            "0F0,0F1,0SEND_F1,0SEND_F0",
            InvalidScheduleError,
            "message 1 from row 1 to row 2 is 0SEND_F1 where it is sent and 1RECV_F0 where it is",
        ),
    ],
)
def test_communication_that_torch_would_get_wrong(row, old, new, error, message):
    rows = list(COMMS)
    assert old in rows[row]
    rows[row] = rows[row].replace(old, new, 1)
    with pytest.raises(error, match=message):
        loads("\n".join(rows), "x.csv")


@pytest.mark.parametrize("form", Form)
def test_merged_backwards(form):
    from synth.fusing import merge

    schedule = merge(catalog.build("zb-h1", make_problem(4, 8)))
    table = loads(dumps(schedule, form))
    assert table.orders == schedule.orders
    first = table.orders[0]
    assert {op.kind for op in first} == {Kind.F, Kind.BW}
