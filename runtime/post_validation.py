"""Updates the parameters without waiting for the norm over all ranks.

At the end of its part of a step a rank adds its share to what the ranks that end before it found,
passes the sum on, and steps if nothing is wrong so far. The rank that ends last knows the whole
norm and tells everyone, which each rank hears at the gate of its next step. If the gradient was to
be clipped or skipped after all, every rank puts back what it had, does what it should have done,
and starts the step again. So parameters, losses and random numbers are bit for bit those of
`ClippedOptimizer`, while no rank waits for the others at the end of a step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim import Optimizer

from runtime.clipping import Update, apply, counted, judge, square_norms
from runtime.errors import PeerError, reason
from runtime.gate import make_cuts
from runtime.pipeline import Pipeline
from runtime.snapshot import ForwardState, Snapshot
from synth.schedule import Schedule


@dataclass(frozen=True, slots=True)
class _Open:
    """An update whose verdict is still to come."""

    squares: Tensor
    """The sum over all ranks, once `arrival` is there."""
    arrival: Any
    sent: Any
    """The share under way to the next rank; its buffer has to live as long."""
    stepped: bool
    settings: list[dict[str, Any]]
    """The optimizer's, such as the learning rate, at the time of the step."""


class PostValidatedOptimizer:
    """Steps at once and takes the step back where it turns out to be wrong.

    To be used like `ClippedOptimizer`. What is read between two steps may still be taken back;
    `settle` waits for the verdict, before an evaluation or a checkpoint.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        optimizer: Optimizer | None,
        *,
        max_norm: float | None = None,
        on_settled: Callable[[Update], None] | None = None,
    ) -> None:
        """Puts a gate into the pipeline's steps; all ranks must call it alike.

        Args:
            pipeline: what computes the gradients.
            optimizer: of this rank's parameters; None where it has none.
            max_norm: largest norm of the gradient over all ranks.
            on_settled: called when the parameters of a step are final.
        """
        self.optimizer = optimizer
        self.max_norm = max_norm
        self.taken_back = 0
        """Updates that were made too early."""
        self.cut = make_cuts(pipeline.schedule, pipeline.program)[pipeline.session.rank]
        self._session = pipeline.session
        self._on_settled = on_settled
        self._counted = counted(pipeline)
        self._parameters = pipeline.parameters()
        self._stages = len(pipeline.schedule.problem.stages)
        self._chain = _chain(pipeline.schedule)
        self._group = _state_group(pipeline)
        self._snapshot = Snapshot(self._parameters, optimizer)
        self._forward_state = ForwardState(pipeline.modules.values(), pipeline.session.device)
        self._open: _Open | None = None
        pipeline.gate = self

    def step(self) -> None:
        """Updates the parameters for the time being; every rank has to call it.

        Raises:
            PeerError: a rank is gone or does not come in time.
        """
        assert self._open is None, "a second update without a step of the pipeline in between"
        squares = square_norms(self._counted, self._stages)
        with self._peers():
            sent, arrival, everywhere = self._share(squares)
        settings = [_without_parameters(g) for g in self._groups]
        stepped = judge(squares, self.max_norm).plain
        if stepped and self.optimizer is not None:
            self._snapshot.take()
            self.optimizer.step()
        self._open = _Open(everywhere, arrival, sent, stepped, settings)

    def settle(self) -> Update | None:
        """Waits for the verdict on the last update and makes it final; None if there is none.

        Raises:
            PeerError: a rank is gone or does not come in time.
        """
        if self._open is None:
            return None
        last, self._open = self._open, None
        with self._peers():
            for work in (last.sent, last.arrival):
                if work is not None:
                    work.wait()
        update = judge(last.squares, self.max_norm)
        # The norm only grows along the chain, so whoever did not step knew that nobody will.
        assert last.stepped or not update.plain
        if not update.plain:
            self._correct(update, last)
        for parameter in self._parameters:
            parameter.grad = None
        if self._on_settled is not None:
            self._on_settled(update)
        return update

    def begin(self) -> None:
        """See `Gate`."""
        if self._open is not None:
            self._forward_state.take()

    def passes(self) -> bool:
        """See `Gate`."""
        update = self.settle()
        if update is None or update.plain:
            return True
        self._forward_state.put_back()
        return False

    @property
    def _groups(self) -> list[dict[str, Any]]:
        return [] if self.optimizer is None else self.optimizer.param_groups

    def _share(self, squares: Tensor) -> tuple[Any, Any, Tensor]:
        """Adds the shares of the ranks before to `squares`; starts to pass on and to listen.

        Returns the send under way, the arrival of the verdict and the buffer it arrives in.
        """
        if self._group is None:
            return None, None, squares
        place = self._chain.index(self._session.rank)
        if place > 0:
            before = torch.empty_like(squares)
            dist.recv(before, self._chain[place - 1], group=self._group)
            squares += before
        sent, everywhere = None, squares.clone()
        if place + 1 < len(self._chain):
            sent = dist.isend(squares, self._chain[place + 1], group=self._group)
        arrival = dist.broadcast(everywhere, self._chain[-1], group=self._group, async_op=True)
        return sent, arrival, everywhere

    def _correct(self, update: Update, last: _Open) -> None:
        """Does what should have been done instead of the early step."""
        self.taken_back += last.stepped
        if self.optimizer is None:
            return
        if last.stepped:
            self._snapshot.put_back()
        now = [_without_parameters(group) for group in self._groups]
        _assign(self._groups, last.settings)
        apply(update, self.optimizer, self._parameters)
        _assign(self._groups, now)

    @contextmanager
    def _peers(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            raise PeerError(
                f"rank {self._session.rank} did not get the norm of the gradient: {reason(error)}"
            ) from error


def _chain(schedule: Schedule) -> tuple[int, ...]:
    """The ranks in the order in which they end a step."""
    return tuple(sorted(range(len(schedule.devices)), key=lambda rank: _end(schedule, rank)))


def _end(schedule: Schedule, rank: int) -> int:
    return schedule.devices[rank][-1].end


def _state_group(pipeline: Pipeline) -> Any:
    """A communicator between the hosts: the verdict is needed there, whatever the device."""
    session = pipeline.session
    if session.world == 1:
        return None
    return dist.new_group(backend="gloo", timeout=timedelta(seconds=session.timeout_s))


def _without_parameters(group: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in group.items() if key != "params"}


def _assign(groups: list[dict[str, Any]], settings: list[dict[str, Any]]) -> None:
    for group, own in zip(groups, settings, strict=True):
        group.update(own)
