"""Device orders as a graph whose longest path is the makespan, or the span of a device.

Every op waits for its dependencies and for the op before it on its device. Where a device runs one
op at a time, what it holds follows from its order alone, so a change of order is checked against
the limit by a running sum, and judged by heads and tails without timing the whole schedule again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from synth.heads import NEVER
from synth.solve.compiled import compiled
from synth.solve.network import Integers, Network

NONE = -1  # no op before or after on the device
ALL = -1  # paths may begin with any op, or end with any


class Sequences(NamedTuple):
    """One order for every device, with the head and the tail of every op.

    A head is the longest path to the op's start, a tail that from its start to the end of all.
    Where spans count, the paths are those of the device whose span is longest: they begin with its
    first op and end with its last, and where there is none, the head or tail is below zero.
    """

    rows: Integers  # by device and position
    place: Integers  # position of every op
    previous: Integers  # op before it on its device
    next: Integers
    held: Integers  # by the op's device, before it
    heads: Integers
    tails: Integers
    sorted: Integers  # all ops, each behind everything it waits for
    rank: Integers  # of every op among those
    longest: Integers  # length of the longest path, and the device whose span it is
    scratch: Integers  # two rows as long as the ops


class Move(NamedTuple):
    """Of some neighbours in a device's order, the first goes behind the last, or the reverse."""

    device: int
    low: int  # position of the first
    high: int  # and of the last
    first_moves: bool


def sequences(network: Network, rows: Integers) -> Sequences:
    """Heads and tails of device orders that can be run."""
    count = len(network.steps)
    place, previous, following, held, heads, tails = np.zeros((6, count), dtype=np.int64)
    now = Sequences(
        rows,
        place,
        previous,
        following,
        held,
        heads,
        tails,
        np.arange(count),
        np.arange(count),
        np.zeros(2, dtype=np.int64),
        np.zeros((2, count), dtype=np.int64),
    )
    measure_afresh(network, now)
    return now


@compiled
def measure_afresh(network: Network, now: Sequences) -> None:
    """Work out everything from the rows."""
    for device in range(len(network.counts)):
        _link(network, now, device, 0, network.counts[device] - 1)
    last = len(network.steps) - 1
    _sort(network, now, 0, last)
    _measure(network, now, 0, last)


@compiled
def earliest_heads(network: Network, now: Sequences) -> Integers:
    """Heads over paths that begin anywhere: the earliest start of every op."""
    heads = np.zeros_like(now.heads)
    _set_heads(network, now, heads, 0, len(heads) - 1, ALL)
    return heads


@compiled
def _link(network: Network, now: Sequences, device: int, low: int, high: int) -> None:
    """Tell the ops at these positions of a device's order of their neighbours."""
    row = now.rows[device]
    earlier, held = NONE, 0
    if low:
        earlier = row[low - 1]
        held = now.held[earlier] + network.taken[earlier] - network.freed[earlier]
    for position in range(low, high + 1):
        op = row[position]
        now.place[op] = position
        now.previous[op] = earlier
        if earlier >= 0:
            now.next[earlier] = op
        now.held[op] = held
        held += network.taken[op] - network.freed[op]
        earlier = op
    later = row[high + 1] if high + 1 < network.counts[device] else NONE
    now.next[earlier] = later
    if later >= 0:
        now.previous[later] = earlier


@compiled
def _sort(network: Network, now: Sequences, low: int, high: int) -> None:
    """Sort the ops of these ranks anew, where everything else is sorted (Kahn 1962)."""
    missing, ready = now.scratch[0], now.scratch[1]
    found = low
    for place in range(low, high + 1):
        op = now.sorted[place]
        earlier = now.previous[op]
        count = 1 if earlier >= 0 and low <= now.rank[earlier] <= high else 0
        for arc in range(network.before_at[op], network.before_at[op + 1]):
            if low <= now.rank[network.before[arc]] <= high:
                count += 1
        missing[op] = count
        if not count:
            ready[found] = op
            found += 1
    for place in range(low, high + 1):
        op = ready[place]
        for arc in range(network.after_at[op], network.after_at[op + 1]):
            other = network.after[arc]
            if now.rank[other] <= high:
                missing[other] -= 1
                if not missing[other]:
                    ready[found] = other
                    found += 1
        later = now.next[op]
        if later >= 0 and now.rank[later] <= high:
            missing[later] -= 1
            if not missing[later]:
                ready[found] = later
                found += 1
    for place in range(low, high + 1):
        now.sorted[place] = ready[place]
        now.rank[ready[place]] = place


@compiled
def _measure(network: Network, now: Sequences, low: int, high: int) -> None:
    """Mend heads, tails and length behind a change of order among these ranks."""
    last = len(network.steps) - 1
    if not network.spans:
        _set_heads(network, now, now.heads, low, last, ALL)
        _set_tails(network, now, high, ALL)
        now.longest[0] = 0
        for device in range(len(network.counts)):
            op = now.rows[device, network.counts[device] - 1]
            now.longest[0] = max(now.longest[0], now.heads[op] + network.steps[op])
        return
    now.longest[0] = NEVER
    heads = now.scratch[0]
    for device in range(len(network.counts)):
        source, sink = now.rows[device, 0], now.rows[device, network.counts[device] - 1]
        _set_heads(network, now, heads, 0, now.rank[sink], source)
        span = heads[sink] + network.steps[sink]
        if span > now.longest[0]:
            now.longest[0], now.longest[1] = span, device
    device = now.longest[1]
    _set_heads(network, now, now.heads, 0, last, now.rows[device, 0])
    _set_tails(network, now, last, now.rows[device, network.counts[device] - 1])


@compiled
def _set_heads(
    network: Network, now: Sequences, heads: Integers, low: int, high: int, source: int
) -> None:
    """Heads of the ops of these ranks, over paths from the source."""
    for place in range(low, high + 1):
        op = now.sorted[place]
        head = 0 if source in (ALL, op) else NEVER
        earlier = now.previous[op]
        if earlier >= 0:
            head = max(head, heads[earlier] + network.steps[earlier])
        for arc in range(network.before_at[op], network.before_at[op + 1]):
            head = max(head, heads[network.before[arc]] + network.before_weight[arc])
        heads[op] = head


@compiled
def _set_tails(network: Network, now: Sequences, high: int, sink: int) -> None:
    """Tails of the ops up to a rank, over paths to the sink."""
    for place in range(high, -1, -1):
        op = now.sorted[place]
        tail = network.steps[op] if sink in (ALL, op) else NEVER
        later = now.next[op]
        if later >= 0:
            tail = max(tail, now.tails[later] + network.steps[op])
        for arc in range(network.after_at[op], network.after_at[op + 1]):
            tail = max(tail, now.tails[network.after[arc]] + network.after_weight[arc])
        now.tails[op] = tail


@compiled
def moved(now: Sequences, move: Move, position: int) -> int:
    """The op at a position once the move is made."""
    row = now.rows[move.device]
    if move.first_moves:
        return int(row[move.low] if position == move.high else row[position + 1])
    return int(row[move.high] if position == move.low else row[position - 1])


@compiled
def fits(network: Network, now: Sequences, move: Move) -> bool:
    """Whether the device stays within its memory."""
    limit = network.limits[move.device]
    held = now.held[now.rows[move.device, move.low]]
    for position in range(move.low, move.high + 1):
        op = moved(now, move, position)
        held += network.taken[op]
        if held > limit:
            return False
        held -= network.freed[op]
    return True


@compiled
def goes_round(network: Network, now: Sequences, move: Move) -> bool:
    """Whether the orders may not be run once the move is made.

    No path leads from what follows the first to the last if the last has the longer tail, nor
    from the first to what the last waits for if the first ends later (Balas and Vazacopoulos 1998,
    propositions 2.2 and 2.3).
    """
    first, last = now.rows[move.device, move.low], now.rows[move.device, move.high]
    if move.first_moves:
        tail = now.tails[last]
        for arc in range(network.after_at[first], network.after_at[first + 1]):
            other = network.after[arc]
            if other == last or now.tails[other] > tail:
                return True
        return False
    end = now.heads[first] + network.steps[first]
    for arc in range(network.before_at[last], network.before_at[last + 1]):
        other = network.before[arc]
        if other == first or now.heads[other] + network.steps[other] > end:
            return True
    return False


@compiled
def estimate(network: Network, now: Sequences, move: Move) -> int:
    """Longest path through any op of the move once it is made.

    Heads and tails of all others are taken as they are (Balas and Vazacopoulos 1998, 3.2).
    """
    row, known = now.rows[move.device], now.scratch[0]
    outside = NEVER if network.spans and move.device != now.longest[1] else 0
    clock = outside
    if move.low:
        earlier = row[move.low - 1]
        clock = now.heads[earlier] + network.steps[earlier]
    for position in range(move.low, move.high + 1):
        op = moved(now, move, position)
        for arc in range(network.before_at[op], network.before_at[op + 1]):
            other = network.before[arc]
            head = known[other] if _takes_part(network, now, move, other) else now.heads[other]
            clock = max(clock, head + network.before_weight[arc])
        known[op] = clock
        clock += network.steps[op]
    return _through(network, now, move, outside)


@compiled
def _through(network: Network, now: Sequences, move: Move, outside: int) -> int:
    """Longest path through any op of the move, whose new heads are known."""
    row, known, behind = now.rows[move.device], now.scratch[0], now.scratch[1]
    rest, longest = outside, 0
    if move.high + 1 < network.counts[move.device]:
        rest = now.tails[row[move.high + 1]]
    for position in range(move.high, move.low - 1, -1):
        op = moved(now, move, position)
        rest += network.steps[op]
        for arc in range(network.after_at[op], network.after_at[op + 1]):
            other = network.after[arc]
            tail = behind[other] if _takes_part(network, now, move, other) else now.tails[other]
            rest = max(rest, tail + network.after_weight[arc])
        behind[op] = rest
        longest = max(longest, known[op] + rest)
    return longest


@compiled
def _takes_part(network: Network, now: Sequences, move: Move, op: int) -> bool:
    return bool(network.device[op] == move.device and move.low <= now.place[op] <= move.high)


@compiled
def make(network: Network, now: Sequences, move: Move) -> None:
    """Make a move that fits and does not go round."""
    row = now.rows[move.device]
    low, high = now.rank[row[move.low]], now.rank[row[move.high]]
    if move.first_moves:
        op = row[move.low]
        for position in range(move.low, move.high):
            row[position] = row[position + 1]
        row[move.high] = op
    else:
        op = row[move.high]
        for position in range(move.high, move.low, -1):
            row[position] = row[position - 1]
        row[move.low] = op
    _link(network, now, move.device, move.low, move.high)
    _sort(network, now, low, high)
    _measure(network, now, low, high)
