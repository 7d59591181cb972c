"""Device orders as a graph whose longest path is the makespan, or the span of a device.

Every op waits for its dependencies and for the op before it on its device. Where a device runs one
op at a time, what it holds follows from its order alone, so a change of order is checked against
the limit by a running sum, and judged by heads and tails without timing the whole schedule again.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from operator import add

from synth.folding import Folded
from synth.heads import NEVER
from synth.solve.listing import Starts

NONE = -1  # no op before or after on the device
_UNLIMITED = 2**62

Arc = tuple[int, int]  # the op at the other end; steps from start to start


@dataclass(frozen=True, slots=True)
class Flat:
    """A folded problem's ops numbered through, chain by chain."""

    folded: Folded
    first: tuple[int, ...]  # per chain: the number of its first op
    steps: tuple[int, ...]
    device: tuple[int, ...]
    before: tuple[tuple[Arc, ...], ...]
    after: tuple[tuple[Arc, ...], ...]
    taken: tuple[int, ...]
    freed: tuple[int, ...]
    limits: tuple[int, ...]

    @classmethod
    def of(cls, folded: Folded) -> Flat:
        """Number the ops of a folded problem."""
        chains = folded.chains
        first: list[int] = []
        steps: list[int] = []
        device: list[int] = []
        for chain in chains:
            first.append(len(steps))
            steps += [chain.steps] * chain.count
            device += [chain.device] * chain.count
        before: list[list[Arc]] = [[] for _ in steps]
        after: list[list[Arc]] = [[] for _ in steps]
        for edge in folded.edges:
            for number in range(chains[edge.after].count):
                source, target = first[edge.before] + number, first[edge.after] + number
                weight = steps[source] + edge.lag
                after[source].append((target, weight))
                before[target].append((source, weight))
        taken, freed = [0] * len(steps), [0] * len(steps)
        for term in (term for row in folded.memory for term in row):
            for op in range(first[term.chain], first[term.chain] + chains[term.chain].count):
                taken[op], freed[op] = term.taken, term.freed
        return cls(
            folded,
            tuple(first),
            tuple(steps),
            tuple(device),
            tuple(map(tuple, before)),
            tuple(map(tuple, after)),
            tuple(taken),
            tuple(freed),
            tuple(_UNLIMITED if k is None else k for k in folded.problem.limits_quanta),
        )

    def order(self, starts: Starts) -> list[list[int]]:
        """Each device's ops by start."""
        rows: list[list[tuple[int, int]]] = [[] for _ in self.limits]
        for base, times in zip(self.first, starts, strict=True):
            for number, start in enumerate(times):
                rows[self.device[base]].append((start, base + number))
        return [[op for _, op in sorted(row)] for row in rows]


class Sequences:
    """One order for every device, with the head and the tail of every op.

    A head is the longest path to the op's start, a tail that from its start to the end of all.
    """

    def __init__(self, flat: Flat, rows: list[list[int]]) -> None:
        self.flat = flat
        self.rows = rows
        self.previous = [NONE] * len(flat.steps)
        self.next = [NONE] * len(flat.steps)
        self.held = [0] * len(flat.steps)  # by the op's device, before it
        for device, row in enumerate(rows):
            self._link(device, 0, len(row))
        self._nothing = (0,) * len(flat.steps)
        self.heads = [0] * len(flat.steps)
        self.tails = list(flat.steps)
        self.length = 0
        everything = list(range(len(flat.steps)))
        self._measure(everything, everything)

    def _measure(self, new_heads: list[int], new_tails: list[int]) -> None:
        """Mend heads, tails and length, given the ops at which a change begins."""
        self._reset_heads(new_heads)
        self._reset_tails(new_tails)
        self.length = max(map(add, self.heads, self.tails))

    def _outside(self, device: int) -> int:
        """Head and tail of what is not there: before a device's first op, behind its last."""
        return 0

    def _link(self, device: int, low: int, high: int) -> None:
        """Tell the ops between two positions of a device's order of their neighbours."""
        row, taken, freed = self.rows[device], self.flat.taken, self.flat.freed
        earlier = row[low - 1] if low else NONE
        held = self.held[earlier] + taken[earlier] - freed[earlier] if low else 0
        for op in row[low:high]:
            self.previous[op] = earlier
            if earlier >= 0:
                self.next[earlier] = op
            self.held[op] = held
            held += taken[op] - freed[op]
            earlier = op
        later = row[high] if high < len(row) else NONE
        self.next[earlier] = later
        if later >= 0:
            self.previous[later] = earlier

    def _reset_heads(self, ops: Iterable[int]) -> None:
        """Mend the heads of these ops and of whatever follows from them."""
        flat = self.flat
        before, after = (flat.before, self.previous), (flat.after, self.next)
        _mend(self.heads, ops, before, after, self._nothing, flat.steps)

    def _reset_tails(self, ops: Iterable[int]) -> None:
        """Mend the tails of these ops and of whatever precedes them."""
        flat = self.flat
        before, after = (flat.before, self.previous), (flat.after, self.next)
        _mend(self.tails, ops, after, before, flat.steps, self._nothing)

    def blocks(self, rng: random.Random) -> list[list[int]]:
        """A longest path, drawn at random, cut where it leaves a device or its order."""
        heads, tails, length = self.heads, self.tails, self.length
        op = rng.choice([r[0] for r in self.rows if not heads[r[0]] and tails[r[0]] == length])
        found = [[op]]
        while True:
            ways = [
                other
                for other, weight in self.flat.after[op]
                if heads[other] == heads[op] + weight and heads[other] + tails[other] == length
            ]
            local = self.next[op]
            if (
                local >= 0
                and heads[local] == heads[op] + self.flat.steps[op]
                and heads[local] + tails[local] == length
            ):
                ways.append(local)
            if not ways:
                return found
            op = rng.choice(ways)
            if op == local:
                found[-1].append(op)
            else:
                found.append([op])

    def fits(self, device: int, held: int, ops: list[int]) -> bool:
        """Whether a device that holds so much can run these ops next, in this order."""
        taken, freed, limit = self.flat.taken, self.flat.freed, self.flat.limits[device]
        for op in ops:
            held += taken[op]
            if held > limit:
                return False
            held -= freed[op]
        return True

    def goes_round(self, ops: list[int], *, first_moves: bool) -> bool:
        """Whether moving the first of some neighbours behind the last, or the reverse, may not do.

        No path leads from what follows the first to the last if the last has the longer tail, nor
        from the first to what the last waits for if the first ends later (Balas and Vazacopoulos
        1998, propositions 2.2 and 2.3).
        """
        flat, first, last = self.flat, ops[0], ops[-1]
        if first_moves:
            tail = self.tails[last]
            return any(o == last or self.tails[o] > tail for o, _ in flat.after[first])
        end = self.heads[first] + flat.steps[first]
        return any(o == first or self.heads[o] + flat.steps[o] > end for o, _ in flat.before[last])

    def estimate(self, ops: list[int], earlier: int, later: int) -> int:
        """Longest path through any of these ops, run in this order between two of the device.

        Heads and tails of all others are taken as they are (Balas and Vazacopoulos 1998, 3.2).
        """
        flat, steps = self.flat, self.flat.steps
        heads, tails = self.heads, self.tails
        outside = self._outside(flat.device[ops[0]])
        clock = heads[earlier] + steps[earlier] if earlier >= 0 else outside
        known: dict[int, int] = {}
        for op in ops:
            for other, weight in flat.before[op]:
                ready = known.get(other, heads[other]) + weight
                if ready > clock:
                    clock = ready
            known[op] = clock
            clock += steps[op]
        longest = 0
        rest = tails[later] if later >= 0 else outside
        behind: dict[int, int] = {}
        for op in reversed(ops):
            rest += steps[op]
            for other, weight in flat.after[op]:
                need = behind.get(other, tails[other]) + weight
                if need > rest:
                    rest = need
            behind[op] = rest
            if known[op] + rest > longest:
                longest = known[op] + rest
        return longest

    def put(self, device: int, position: int, ops: list[int]) -> None:
        """Let a device run these ops, which are there already, in this order from a position on."""
        beyond = position + len(ops)
        self.rows[device][position:beyond] = ops
        self._link(device, position, beyond)
        later, earlier = self.next[ops[-1]], self.previous[ops[0]]
        self._measure(ops if later < 0 else [*ops, later], ops if earlier < 0 else [earlier, *ops])

    def starts(self) -> Starts:
        """The earliest start of every op, by chain."""
        return self._by_chain(self.heads)

    def _by_chain(self, times: list[int]) -> Starts:
        return [
            sorted(times[base : base + chain.count])
            for base, chain in zip(self.flat.first, self.flat.folded.chains, strict=True)
        ]


def _mend(
    times: list[int],
    ops: Iterable[int],
    towards: tuple[tuple[tuple[Arc, ...], ...], list[int]],
    onwards: tuple[tuple[tuple[Arc, ...], ...], list[int]],
    own: tuple[int, ...],
    lead: tuple[int, ...],
) -> None:
    """Mend the longest paths to these ops and to whatever depends on them, roughly in order.

    A path comes over an arc `towards` an op, or from its neighbour and the neighbour's `lead`,
    and none is shorter than the op's `own` steps; a change goes `onwards`.
    """
    arcs, neighbour = towards
    leaving, next_one = onwards
    heap = [(times[op], op) for op in ops]
    waiting = {op for _, op in heap}
    heapify(heap)
    while heap:
        _, op = heappop(heap)
        waiting.discard(op)
        near = neighbour[op]
        longest = own[op] + (times[near] + lead[near] if near >= 0 else 0)
        for other, weight in arcs[op]:
            if times[other] + weight > longest:
                longest = times[other] + weight
        if longest == times[op]:
            continue
        times[op] = longest
        for other, _ in leaving[op]:
            if other not in waiting:
                waiting.add(other)
                heappush(heap, (times[other], other))
        far = next_one[op]
        if far >= 0 and far not in waiting:
            waiting.add(far)
            heappush(heap, (times[far], far))


class SpanSequences(Sequences):
    """The same with the longest of the devices' spans as its length.

    A device's span, at best, is the longest path from its first op to its last. Heads and tails are
    those of the device whose span is longest: paths that begin with its first op and end with its
    last; NEVER where there is none.
    """

    def _measure(self, new_heads: list[int], new_tails: list[int]) -> None:
        order = self._sorted()
        self.length = NEVER
        for row in self.rows:
            heads = self._heads_from([row[0]], order)
            span = heads[row[-1]] + self.flat.steps[row[-1]]
            if span > self.length:
                self.length, self.heads, self._device = span, heads, self.flat.device[row[0]]
        self.tails = self._tails_to(self.rows[self._device][-1], order)

    def _outside(self, device: int) -> int:
        return 0 if device == self._device else NEVER

    def starts(self) -> Starts:
        """The earliest start of every op, by chain; delaying some of them makes the spans least."""
        return self._by_chain(self._heads_from([row[0] for row in self.rows], self._sorted()))

    def _sorted(self) -> list[int]:
        """All ops, each behind everything it waits for."""
        after, following = self.flat.after, self.next
        missing = [
            len(arcs) + (earlier >= 0)
            for arcs, earlier in zip(self.flat.before, self.previous, strict=True)
        ]
        order = [op for op, count in enumerate(missing) if not count]
        for op in order:
            for other, _ in after[op]:
                missing[other] -= 1
                if not missing[other]:
                    order.append(other)
            other = following[op]
            if other >= 0:
                missing[other] -= 1
                if not missing[other]:
                    order.append(other)
        return order

    def _heads_from(self, sources: list[int], order: list[int]) -> list[int]:
        """Longest paths from some ops to every op."""
        steps, after, following = self.flat.steps, self.flat.after, self.next
        heads = [NEVER] * len(steps)
        for op in sources:
            heads[op] = 0
        for op in order:
            head = heads[op]
            if head < 0:
                continue
            for other, weight in after[op]:
                if head + weight > heads[other]:
                    heads[other] = head + weight
            other = following[op]
            if other >= 0 and head + steps[op] > heads[other]:
                heads[other] = head + steps[op]
        return heads

    def _tails_to(self, sink: int, order: list[int]) -> list[int]:
        """Longest paths from every op's start to the end of one."""
        before, steps, previous = self.flat.before, self.flat.steps, self.previous
        tails = [NEVER] * len(steps)
        tails[sink] = steps[sink]
        for op in reversed(order):
            tail = tails[op]
            if tail < 0:
                continue
            for other, weight in before[op]:
                if tail + weight > tails[other]:
                    tails[other] = tail + weight
            other = previous[op]
            if other >= 0 and tail + steps[other] > tails[other]:
                tails[other] = tail + steps[other]
        return tails
