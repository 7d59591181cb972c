"""A steady kernel as an integer program: where every op lies within a period, the same every time.

For r micro-batches of every stream per period of T steps, op j of chain c (j < r) starts at

    S[c,j] = sum of o * x[c,j,o] + T * k[c,j]      one offset o < T, and a lag of k periods

    precedence   S[b,j] - S[a,j] >= steps_a + lag
    order        S[c,j+1] - S[c,j] >= steps_c, and the next period's first behind the last
    window       head_c <= S[c,j] <= head_c + wait: who waits long holds memory for nothing
    device       for each o: sum of the x whose op covers o, modulo T, <= 1
    memory       for each o: what has started less what has ended, all periods together, <= limit

Repeated for any number of micro-batches it is a schedule as it is: fewer ops at both ends hold no
more memory and no more device. Its ends have room to spare; see `grow` for schedules without.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from synth.folding import Folded
from synth.heads import heads, relate
from synth.room import steady_ticks
from synth.solve.backends import Answer, Backend
from synth.solve.listing import Starts

if TYPE_CHECKING:
    import pulp  # slow to import: only inside the functions that solve


LEAST_WAIT = 2  # periods that an op may start behind its head; or half the longest head


@dataclass(frozen=True, slots=True)
class Kernel:
    """`starts[c][j]` of op j of chain c in the first period of `period` steps."""

    period: int
    starts: tuple[tuple[int, ...], ...]

    @property
    def count(self) -> int:
        """Micro-batches of every stream per period."""
        return len(self.starts[0])

    def repeated(self, folded: Folded) -> Starts:
        """The kernel again and again, for all micro-batches."""
        return [
            [
                mine[number % self.count] + number // self.count * self.period
                for number in range(chain.count)
            ]
            for chain, mine in zip(folded.chains, self.starts, strict=True)
        ]


def least_period(folded: Folded, count: int) -> int:
    """No period of that many micro-batches is shorter: work, or what memory lets through."""
    problem, step = folded.problem, folded.step_ticks
    return max(
        max(
            count * sum(folded.chains[c].steps for c in folded.of_device(device)),
            ceil(count * steady_ticks(problem, device) / step),
        )
        for device in range(problem.devices)
    )


def find_kernel(
    folded: Folded, count: int, period: int, backend: Backend, seconds: float
) -> Kernel | None:
    """A kernel of that period; None if none was found in time, or none waits so little."""
    model = _Model(folded, count, period)
    if backend.solve(model.program, seconds) is not Answer.FEASIBLE:
        return None
    return model.kernel()


class _Model:
    """The program of one period."""

    def __init__(self, folded: Folded, count: int, period: int) -> None:
        import pulp

        self.folded = folded
        self.count = count
        self.period = period
        self.program = pulp.LpProblem("kernel", pulp.LpMinimize)
        chains = range(len(folded.chains))
        self.heads = [row[0] for row in heads(relate(folded), [0] * folded.problem.devices)]
        self.wait = max(LEAST_WAIT * period, max(self.heads) // 2)
        most = (max(self.heads) + self.wait) // period
        self.offsets = {(c, j): self._offsets(c, j) for c in chains for j in range(count)}
        self.lags = {
            (c, j): self.program.add_variable(
                f"k_{c}_{j}",
                lowBound=0,
                upBound=most,
                cat="Integer",
            )
            for c in chains
            for j in range(count)
        }
        self.program += self._start(1, count - 1) - self._start(0, 0)  # short ends
        self.program += self._start(0, 0) == 0
        self._precedence()
        self._windows()
        for device in range(folded.problem.devices):
            self._one_at_a_time(device)
            self._memory(device)

    def _offsets(self, chain: int, number: int) -> list[pulp.LpVariable]:
        found = [
            self.program.add_variable(f"x_{chain}_{number}_{step}", cat="Binary")
            for step in range(self.period)
        ]
        self.program += _sum(found) == 1
        return found

    def _start(self, chain: int, number: int) -> pulp.LpAffineExpression:
        offsets = self.offsets[chain, number]
        terms = [(variable, step) for step, variable in enumerate(offsets) if step]
        return _weighted([*terms, (self.lags[chain, number], self.period)])

    def _precedence(self) -> None:
        chains, last = self.folded.chains, self.count - 1
        for number in range(self.count):
            for edge in self.folded.edges:
                apart = chains[edge.before].steps + edge.lag
                before = self._start(edge.before, number)
                self.program += self._start(edge.after, number) - before >= apart
        for index, chain in enumerate(chains):
            for number in range(last):
                earlier = self._start(index, number)
                self.program += self._start(index, number + 1) - earlier >= chain.steps
            first = self._start(index, 0)
            self.program += first - self._start(index, last) >= chain.steps - self.period

    def _windows(self) -> None:
        """Without a latest start, the relaxation says little and solvers search for minutes."""
        for chain, number in self.lags:
            start = self._start(chain, number)
            self.program += start >= self.heads[chain]
            self.program += start <= self.heads[chain] + self.wait

    def _one_at_a_time(self, device: int) -> None:
        for step in range(self.period):
            covering = [
                self.offsets[c, j][(step - earlier) % self.period]
                for c in self.folded.of_device(device)
                for j in range(self.count)
                for earlier in range(self.folded.chains[c].steps)
            ]
            self.program += _sum(covering) <= 1

    def _memory(self, device: int) -> None:
        limit = self.folded.problem.limits_quanta[device]
        if limit is None:
            return
        for step in range(self.period):
            terms: list[tuple[pulp.LpVariable, int]] = []
            for term in self.folded.memory[device]:
                steps = self.folded.chains[term.chain].steps
                for number in range(self.count):
                    key = term.chain, number
                    terms.append((self.lags[key], term.freed - term.taken))
                    for offset, variable in enumerate(self.offsets[key]):
                        rounds, end = divmod(offset + steps, self.period)
                        ended = (end <= step) - rounds
                        weight = term.taken * (offset <= step) - term.freed * ended
                        terms.append((variable, weight))
            self.program += _weighted(terms) <= limit

    def kernel(self) -> Kernel:
        """The starts in the solution found."""

        def start(key: tuple[int, int]) -> int:
            offset = next(o for o, x in enumerate(self.offsets[key]) if round(x.varValue or 0))
            return offset + self.period * round(self.lags[key].varValue or 0)

        return Kernel(
            self.period,
            tuple(
                tuple(start((c, j)) for j in range(self.count))
                for c in range(len(self.folded.chains))
            ),
        )


def _sum(variables: list[pulp.LpVariable]) -> pulp.LpAffineExpression:
    return _weighted([(variable, 1) for variable in variables])


def _weighted(terms: list[tuple[pulp.LpVariable, int]]) -> pulp.LpAffineExpression:
    import pulp

    weights: dict[pulp.LpVariable, int] = {}
    for variable, weight in terms:
        weights[variable] = weights.get(variable, 0) + weight
    return pulp.LpAffineExpression({v: w for v, w in weights.items() if w})
