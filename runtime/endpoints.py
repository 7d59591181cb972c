"""The two ends of a message in torch's process groups, made once and used in every step."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from runtime.errors import PeerError, PlanError, reason
from runtime.pool import BufferPool
from runtime.shapes import Shapes
from runtime.spec import Spec
from runtime.values import Values
from synth.lower import Message

Start = Callable[[list[Tensor], int, int], Any]
"""A process group's send or receive of (tensor, number of the peer, tag); returns its work."""


@dataclass(slots=True)
class Outlet:
    """The sending end of a channel."""

    send: Start
    target: int
    """The receiver's number in the group."""
    tag: int


@dataclass(slots=True)
class Inlet:
    """The receiving end of a channel."""

    receive: Start
    source: int
    tag: int
    slots: int
    """The most messages that may be posted and not consumed."""
    pool: BufferPool
    posted: int = 0
    noted: deque[GroupReceiver] = field(default_factory=deque)
    """Those of them whose shape is not known yet."""


class GroupSender:
    """See `runtime.transport.Sender`."""

    __slots__ = ("_outlet", "_own", "_shapes", "message", "spec", "works")

    def __init__(self, message: Message, outlet: Outlet, shapes: Shapes) -> None:
        self.message = message
        self.spec: Spec | None = None
        """What the message holds under the signature of the step that runs, once it is known."""
        self.works: list[Any] | None = None
        """From the send to the release."""
        self._outlet = outlet
        self._shapes = shapes
        self._own: tuple[Tensor, ...] = ()
        """What has to live until the message is sent."""

    def send(self, values: Values) -> None:
        """Starts sending. For a new signature it also publishes the shapes."""
        outlet, spec = self._outlet, self.spec
        if spec is None:
            spec = self.spec = self._shapes.publish(self.message, values)
        elif not spec.fits(values):
            raise self._shapes.changed(self.message, spec, values)
        given = values.values() if isinstance(values, dict) else values
        own = self._own = tuple(map(Tensor.contiguous, given))
        works = self.works = []
        try:
            for one in own if not spec.has_complex else map(_on_wire, own):
                works.append(outlet.send([one], outlet.target, outlet.tag))
        except RuntimeError as error:
            raise self._lost(error) from error

    def release(self) -> None:
        """Lets go of a send that is known to be complete."""
        works, self.works = self.works, None
        assert works is not None, "a release without a send"
        try:
            for work in works:
                work.wait()
        except RuntimeError as error:
            raise self._lost(error) from error
        self._own = ()

    def _lost(self, error: Exception) -> PeerError:
        channel = self.message.channel
        return PeerError(
            f"rank {channel.source} could not send {self.message.producer} to rank "
            f"{channel.target}: {reason(error)}"
        )


class GroupReceiver:
    """See `runtime.transport.Receiver`."""

    __slots__ = ("_inlet", "_shapes", "_tensors", "_works", "message", "spec")

    def __init__(self, message: Message, inlet: Inlet, shapes: Shapes) -> None:
        self.message = message
        self.spec: Spec | None = None
        """As the sender's."""
        self._inlet = inlet
        self._shapes = shapes
        self._works: list[Any] | None = None
        self._tensors: tuple[Tensor, ...] = ()

    def post(self) -> None:
        """Makes ready for the message. Without its shape it is only noted down."""
        inlet, spec = self._inlet, self.spec
        if inlet.posted == inlet.slots:
            raise PlanError(
                f"rank {self.message.channel.target}: channel {self.message.channel} would hold "
                f"{inlet.slots + 1} messages, its plan has room for {inlet.slots}"
            )
        inlet.posted += 1
        if spec is None or inlet.noted:
            inlet.noted.append(self)
        else:
            self._start(spec)

    def _start(self, spec: Spec) -> None:
        inlet = self._inlet
        self._tensors = buffers = inlet.pool.take(spec.tensors)
        works = self._works = []
        try:
            for one in buffers if not spec.has_complex else map(_on_wire, buffers):
                works.append(inlet.receive([one], inlet.source, inlet.tag))
        except RuntimeError as error:  # gloo says so at once where it knows that the peer is gone
            raise self._missing(error) from error

    def wait(self) -> Values:
        """Waits for the message. On CUDA it is the current stream that waits."""
        inlet = self._inlet
        try:
            while self._works is None:
                first = inlet.noted[0]
                first.spec = self._shapes.learn(first.message)
                inlet.noted.popleft()._start(first.spec)
            for work in self._works:
                work.wait()
        except (RuntimeError, ValueError) as error:
            raise self._missing(error) from error
        inlet.posted -= 1
        received, spec = self._tensors, self.spec
        self._works, self._tensors = None, ()
        assert spec is not None, "it is known since the receive was started"
        if spec.has_gradients:
            for tensor, expected in zip(received, spec.tensors, strict=True):
                if expected.requires_grad:
                    tensor.requires_grad_()
        return received if spec.names is None else dict(zip(spec.names, received, strict=True))

    def _missing(self, error: Exception) -> PeerError:
        channel = self.message.channel
        return PeerError(
            f"rank {channel.target} did not get {self.message.producer} from rank "
            f"{channel.source}: {reason(error)}"
        )


def _on_wire(tensor: Tensor) -> Tensor:
    """The same memory in a type that NCCL knows."""
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor
