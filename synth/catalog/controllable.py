"""V-Min and V-Half: building blocks repeated and squeezed (Qi et al. 2024, Pipeline Parallelism
with Controllable Memory, arXiv:2405.15362).

A building block gives the passes of one micro-batch their slots on every device of a V; the next
micro-batch uses the same slots six later. How far a micro-batch's slots lie apart on a device
decides how many of them it holds. Repeating the block leaves gaps at both ends, which two squeezing
passes close without raising the peak. Slots count passes: the order is made as if F = B = W.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from synth.catalog.family import ClosedForm, Family, even, held_until_wgt
from synth.op import Kind, Op
from synth.problem import Problem
from synth.schedule import Orders

PERIOD = 6
_F0, _F1, _B1, _B0, _W = range(5)  # the passes of a device, as they follow each other

Slots = list[list[list[int]]]
"""The slot of each pass, by device, pass and micro-batch; W's are counted over both chunks."""


Block = list[tuple[int, int, int, int]]
"""The slots of micro-batch 0 for F0, F1, B1 and B0, by device."""


def v_min(devices: int) -> Block:
    """The building block that holds a third: every pass moves on by one slot per device."""
    shift = 2 if devices % 3 == 0 else 0  # two passes of a device would meet in one slot
    return [
        (r, 2 * devices - 1 - r, 2 * devices + shift + r, 4 * devices + shift - 1 - r)
        for r in range(devices)
    ]


def v_half(devices: int) -> Block:
    """The building block that holds a half: passes move on by two slots on the way down."""
    shift = 3 if devices % 2 == 0 else 0
    return [
        (
            2 * r,
            3 * devices - 2 - r,
            3 * devices + shift + 2 * r - 1,
            6 * devices + shift - 2 - r,
        )
        for r in range(devices)
    ]


def orders(problem: Problem, block: Callable[[int], Block]) -> Orders:
    """Repeat, squeeze with W's at both ends, squeeze the end again without them, place W's."""
    devices, microbatches = problem.devices, problem.total_microbatches
    slots = [
        [[first + PERIOD * k for k in range(microbatches)] for first in passes]
        for passes in block(devices)
    ]
    slots = _squeeze(slots, with_wgts=True)
    slots = _squeeze(slots, with_wgts=False)
    return tuple(_device_order(device, devices, passes) for device, passes in enumerate(slots))


def _device_order(device: int, devices: int, passes: list[list[int]]) -> tuple[Op, ...]:
    stages = (device, 2 * devices - 1 - device)
    named = ((Kind.F, 0), (Kind.F, 1), (Kind.B, 1), (Kind.B, 0))
    timed = [
        (slot, Op(kind, microbatch, stages[chunk]))
        for (kind, chunk), pass_slots in zip(named, passes, strict=True)
        for microbatch, slot in enumerate(pass_slots)
    ]
    return tuple(_with_wgts(dict(timed), stages))


def _with_wgts(at: dict[int, Op], stages: tuple[int, int]) -> list[Op]:
    """The passes in slot order, with a W in every free slot: of chunk 1 first, then of chunk 0."""
    waiting: dict[int, list[Op]] = {stages[1]: [], stages[0]: []}
    order: list[Op] = []
    for slot in range(max(at) + 1):
        op = at.get(slot)
        if op is not None:
            order.append(op)
            if op.kind is Kind.B:
                waiting[op.stage].append(op.sibling(Kind.W))
        else:
            queue = next((queue for queue in waiting.values() if queue), None)
            order += [queue.pop(0)] if queue else []
    return [*order, *waiting[stages[1]], *waiting[stages[0]]]


def _squeeze(slots: Slots, *, with_wgts: bool) -> Slots:
    """Move passes to earlier free slots where no device then holds more than the peak of all.

    From the first B0 of device 0 to the first last F0 the blocks already interlock and stay. With
    W's as passes of their own, both ends move; without, W's take the free slots and the end moves.
    """
    if with_wgts:
        slots = [[*passes, _free_for_wgts(passes)] for passes in slots]
    rows = [_Row(passes) for passes in slots]
    room = max(row.peak(free_for_wgts=not with_wgts) for row in rows)
    moves, last = with_wgts, len(slots[0][_F0]) - 1
    seen_turn = False
    for slot, device, kind, microbatch in _visits(slots):
        if kind == _B0 and device == 0 and not seen_turn:
            seen_turn, moves = True, False
        if moves:
            passes, row = slots[device], rows[device]
            after = 1 + max(
                (slots[d][k][i] for d, k, i in _before(slots, device, kind, microbatch)),
                default=-1,
            )
            passes[kind][microbatch] = row.move(slot, after, room, free_for_wgts=not with_wgts)
        elif seen_turn and kind == _F0 and microbatch == last:
            moves = True
    if not with_wgts:
        slots = [[*passes, _free_for_wgts(passes)] for passes in slots]
    return [passes[:_W] for passes in _settle(slots)]


class _Row:
    """What a device does in each slot, None where it is free."""

    def __init__(self, passes: list[list[int]]) -> None:
        self.at: list[int | None] = [None] * (1 + max(pass_slots[-1] for pass_slots in passes))
        for kind, pass_slots in enumerate(passes):
            for slot in pass_slots:
                self.at[slot] = kind

    def peak(self, *, free_for_wgts: bool) -> int:
        """The most chunks held; free slots run a W that waits, if `free_for_wgts`."""
        held = most = waiting = 0
        for kind in self.at:
            if kind in (_F0, _F1):
                held += 1
                most = max(most, held)
            elif kind in (_B1, _B0):
                waiting += 1
            elif kind == _W:
                held -= 1
            elif free_for_wgts and waiting:
                held, waiting = held - 1, waiting - 1
        return most

    def move(self, slot: int, first: int, room: int, *, free_for_wgts: bool) -> int:
        """Move a pass to the earliest free slot from `first` on in which its device has room."""
        kind = self.at[slot]
        self.at[slot] = None
        for earlier in range(first, slot):
            if self.at[earlier] is not None:
                continue
            self.at[earlier] = kind
            if self.peak(free_for_wgts=free_for_wgts) <= room:
                return earlier
            self.at[earlier] = None
        self.at[slot] = kind
        return slot


def _visits(slots: Slots) -> list[tuple[int, int, int, int]]:
    """All passes as (slot, device, pass, micro-batch), in slot order."""
    return sorted(
        (slot, device, kind, microbatch)
        for device, passes in enumerate(slots)
        for kind, pass_slots in enumerate(passes)
        for microbatch, slot in enumerate(pass_slots)
    )


def _before(slots: Slots, device: int, kind: int, microbatch: int) -> list[tuple[int, int, int]]:
    """The passes a pass waits for: the micro-batch's own on its way down, up, down and up again,
    the W's B, and the same pass of the micro-batch before."""
    needed = []
    if microbatch > 0:
        needed.append((device, kind, microbatch - 1))
    if kind == _W:
        backwards = sorted(
            (slot, k, index) for k in (_B1, _B0) for index, slot in enumerate(slots[device][k])
        )
        _, k, index = backwards[microbatch]
        return [*needed, (device, k, index)]
    neighbour = device - 1 if kind in (_F0, _B1) else device + 1
    if 0 <= neighbour < len(slots):
        needed.append((neighbour, kind, microbatch))
    if kind > _F0:
        needed.append((device, kind - 1, microbatch))
    return needed


def _free_for_wgts(passes: list[list[int]]) -> list[int]:
    """The slots of a device's W's: the free ones up to its last B0, and then one after another."""
    acts = {*passes[_B1], *passes[_B0]}
    taken = acts | {*passes[_F0], *passes[_F1]}
    waiting, wgts = 0, []
    for slot in range(max(taken) + 1):
        if slot in acts:
            waiting += 1
        elif slot not in taken and waiting:
            wgts.append(slot)
            waiting -= 1
    return [*wgts, *range(max(taken) + 1, max(taken) + 1 + waiting)]


def _settle(slots: Slots) -> Slots:
    """Every pass as early as the order of its device and its dependencies allow."""
    settled = [[list(pass_slots) for pass_slots in passes] for passes in slots]
    free = [0] * len(slots)
    for _, device, kind, microbatch in _visits(slots):
        needed = [] if kind == _W else _before(slots, device, kind, microbatch)
        start = max([free[device], *(settled[d][k][i] + 1 for d, k, i in needed)])
        settled[device][kind][microbatch] = start
        free[device] = start + 1
    return settled


def _bubble_half(problem: Problem) -> int | None:
    costs = even(problem)
    if costs is None or costs.devices < 3 or costs.microbatches < 2 * costs.devices:
        return None
    saved = 7 if costs.devices % 2 == 0 else 4
    return (3 * costs.devices - saved) * costs.forward


def _bubble_min(problem: Problem) -> int | None:
    costs = even(problem)
    if costs is None or costs.devices < 2 or costs.microbatches < 2 * costs.devices:
        return None
    saved = 7 if costs.devices % 3 == 0 else 5
    return (4 * costs.devices - saved) * costs.forward


def _peak_half(problem: Problem) -> tuple[int, ...] | None:
    costs = held_until_wgt(problem)
    if costs is None or costs.microbatches < 2 * costs.devices:
        return None
    return (2 * ((costs.devices + 2) // 2) * costs.activation,) * costs.devices


def _peak_min(problem: Problem) -> tuple[int, ...] | None:
    costs = held_until_wgt(problem)
    if costs is None or costs.microbatches < 2 * costs.devices:
        return None
    most = 2 * ((costs.devices + 4) // 3)
    first = most - 1 if costs.devices % 3 == 2 else most
    return tuple(
        (first if device == 0 else most) * costs.activation for device in range(costs.devices)
    )


_SOURCE = "Qi et al. 2024, Pipeline Parallelism with Controllable Memory, arXiv:2405.15362"
_REGION = "equal stages, F = B = W, c = 0, m >= 2P"
_HALF = ClosedForm("(3P-7) F for even P, (3P-4) F for odd", _REGION + ", P >= 3", _bubble_half)
_MIN = ClosedForm("(4P-5) F, (4P-7) F where 3 divides P", _REGION + ", P >= 2", _bubble_min)

V_HALF = Family(
    name="v-half",
    title="V-Half",
    source=_SOURCE,
    placement="v",
    orders=partial(orders, block=v_half),
    when="half the memory of 1F1B for a bubble that is still smaller than that of 1F1B",
    bubble=_HALF,
    span_bubble=_HALF,
    peak=ClosedForm("2 floor((P+2)/2) A", "equal stages, C = A, m >= 2P", _peak_half),
    note="the order is made for F = B = W and pays for every other ratio",
)

V_MIN = Family(
    name="v-min",
    title="V-Min",
    source=_SOURCE,
    placement="v",
    orders=partial(orders, block=v_min),
    when="a third of the memory of 1F1B where F, B and W take about the same",
    bubble=_MIN,
    span_bubble=_MIN,
    peak=ClosedForm(
        "2 floor((P+4)/3) A, one A less on device 0 where P mod 3 = 2",
        "equal stages, C = A, m >= 2P",
        _peak_min,
    ),
    note="the order is made for F = B = W; with any other ratio its bubble grows with m",
)
