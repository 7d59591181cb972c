"""One time axis for several hosts, whose monotonic clocks start when each of them does."""

from __future__ import annotations

import json
import socket
import time

from runtime.errors import PeerError, reason
from runtime.session import Session

_ROUNDS = 10


def clock_offset(session: Session) -> float:
    """Seconds to add to this host's monotonic clock to have that of rank 0; all ranks call it.

    Ranks on other hosts ask rank 0 for the time; it is that of the middle between question and
    answer. Of several rounds the quickest counts, whose error is at most half its length.

    Raises:
        PeerError: a rank is gone or does not come in time.
    """
    try:
        hosts = _hosts(session)
        if session.rank > 0:
            return 0.0 if hosts[session.rank] == hosts[0] else _ask(session)
        for rank in range(session.world):
            if hosts[rank] != hosts[0]:
                _answer(session, rank)
    except RuntimeError as error:
        raise PeerError(
            f"rank {session.rank} could not compare its clock: {reason(error)}"
        ) from error
    return 0.0


def _hosts(session: Session) -> list[str]:
    """By rank."""
    session.store.set(f"clock/host/{session.rank}", socket.gethostname())
    return [session.store.get(f"clock/host/{r}").decode() for r in range(session.world)]


def _ask(session: Session) -> float:
    rounds: list[tuple[float, float]] = []
    for number in range(_ROUNDS):
        asked_s = time.monotonic()
        session.store.set(f"clock/ask/{session.rank}/{number}", "")
        theirs_s = json.loads(session.store.get(f"clock/answer/{session.rank}/{number}"))
        heard_s = time.monotonic()
        rounds.append((heard_s - asked_s, theirs_s - (asked_s + heard_s) / 2))
    return min(rounds)[1]


def _answer(session: Session, rank: int) -> None:
    for number in range(_ROUNDS):
        session.store.get(f"clock/ask/{rank}/{number}")
        session.store.set(f"clock/answer/{rank}/{number}", json.dumps(time.monotonic()))
