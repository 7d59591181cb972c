"""What a rank knows about the shapes of its messages: found out once per signature of a batch."""

from __future__ import annotations

from typing import Any

from runtime.errors import PlanError
from runtime.spec import Spec
from runtime.values import Values
from synth.lower import Message


class Shapes:
    """The specs of messages, which their sender writes to the store and their receiver reads."""

    def __init__(self, rank: int, store: Any) -> None:
        self._known: dict[Message, Spec] = {}
        """Under the signature of the step that runs."""
        self._rank = rank
        self._store = store
        self._signature = ""
        self._of: dict[str, dict[Message, Spec]] = {}
        self._equal: dict[Spec, Spec] = {}

    def begin(self, signature: str) -> dict[Message, Spec]:
        """Starts steps of a signature; returns what is known under it."""
        self._known = self._of.setdefault(signature, {})
        self._signature = signature
        return self._known

    def publish(self, message: Message, values: Values) -> Spec:
        """Tells the receiver what a message looks like."""
        self._known[message] = spec = Spec.of(values)
        self._store.set(self._key(message), spec.written())
        return spec

    def changed(self, message: Message, spec: Spec, values: Values) -> PlanError:
        """What to raise where values are not as those published before."""
        return PlanError(
            f"rank {self._rank}: {message.producer} gives {Spec.of(values)}, before it gave "
            f"{spec} for a batch of the same shape; call forget_shapes() on every rank "
            "when that changes"
        )

    def learn(self, message: Message) -> Spec:
        """The spec of a message to this rank; waits for its sender where it is not known yet.

        Raises:
            RuntimeError: the sender does not publish it in time.
        """
        spec = self._known.get(message)
        if spec is None:
            key = self._key(message)
            spec = Spec.read(self._store.get(key))
            self._store.delete_key(key)  # nobody else needs it
            # One object for all that are equal, which makes them quick to compare.
            spec = self._known[message] = self._equal.setdefault(spec, spec)
        return spec

    def _key(self, message: Message) -> str:
        # Two consumers of one result read, and delete, a spec each.
        return f"spec/{self._signature}/{message.channel}/{message.producer}/{message.consumer}"
