"""The `compute_comms` form: every send, receive and reduction in its place.

torch tells messages apart by nothing but their order: the k-th send from a rank to another meets
the k-th receive there, whatever they carry. A swapped pair gives wrong gradients without a word, a
missing send hangs, and a missing reduction leaves gradients unscaled. So all three are checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from synth.errors import FileError, InvalidScheduleError
from synth.exchange.cells import Action, Chore, Verb
from synth.lower import (
    Channel,
    Compute,
    Direction,
    Instruction,
    Message,
    Program,
    Receive,
    Send,
    lower,
)
from synth.op import Kind, Op
from synth.rendezvous import check_program
from synth.schedule import Schedule

_MOVES = {
    (Kind.F, Send): Verb.SEND_F,
    (Kind.F, Receive): Verb.RECV_F,
    (Kind.B, Send): Verb.SEND_B,
    (Kind.B, Receive): Verb.RECV_B,
}


def rows(schedule: Schedule) -> Iterator[list[Action]]:
    """The program of every rank as actions; stages are unsharded first and reduced when done."""
    program = lower(schedule)
    check_program(program, _directed_pair)
    for steps in program.ranks:
        ops = [step.op for step in steps if isinstance(step, Compute)]
        ends = {node.stage: op for op in ops for node in op.nodes if node.kind is Kind.W}
        row: list[Action] = [Chore(Verb.UNSHARD, stage) for stage in sorted(ends)]
        for step in steps:
            if isinstance(step, Compute):
                row.append(step.op)
                done = sorted(stage for stage, op in ends.items() if op == step.op)
                row += [Chore(Verb.REDUCE_GRAD, stage) for stage in done]
            elif isinstance(step, Send | Receive):
                row.append(_move(step))
        yield [*row, *(Chore(Verb.RESHARD, stage) for stage in sorted(ends))]


def _move(step: Send | Receive) -> Chore:
    """The stage of a move is the one on the rank that makes it."""
    message = step.message
    here = message.producer if isinstance(step, Send) else message.consumer
    verb = _MOVES[message.producer.kind, type(step)]
    return Chore(verb, here.stage, here.microbatch)


def _directed_pair(channel: Channel) -> tuple[int, int]:
    return channel.source, channel.target


def check(
    table: Sequence[Sequence[Action]], devices: Sequence[int], microbatches: int, source: str
) -> None:
    """Prove that every message arrives where it is needed and every gradient is reduced once.

    Raises FileError for a move or reduction that makes no sense where it stands, and
    InvalidScheduleError for ranks that disagree.
    """
    if microbatches * len(devices) > sum(map(len, table)):
        raise FileError(
            f"{source}: names micro-batch {microbatches - 1}, but has fewer actions than the "
            "micro-batches before it would need"
        )
    ranks: list[tuple[Instruction, ...]] = []
    for rank, row in enumerate(table):
        where = f"{source}: row {rank + 1}"
        ranks.append(tuple(_instructions(row, devices, where)))
        _check_complete(rank, row, devices, microbatches, where)
        _check_reductions(row, where)
    _check_pairs(ranks, source)
    try:
        check_program(Program(tuple(ranks)), _directed_pair)
    except InvalidScheduleError as error:
        raise InvalidScheduleError(f"{source}: {error}") from None


def _instructions(
    row: Sequence[Action], devices: Sequence[int], where: str
) -> Iterator[Instruction]:
    for action in row:
        if isinstance(action, Op):
            yield Compute(action)
        elif action.verb.moves:
            message = _message(action, devices)
            if message is None:
                raise FileError(f"{where}: {action} has no other rank to talk to")
            sends = action.verb in (Verb.SEND_F, Verb.SEND_B)
            yield Send(message) if sends else Receive(message)


def _message(chore: Chore, devices: Sequence[int]) -> Message | None:
    """What a move carries; None where both ends are on one rank, or one of them is nowhere."""
    assert chore.microbatch is not None
    forward = chore.verb in (Verb.SEND_F, Verb.RECV_F)
    sends = chore.verb in (Verb.SEND_F, Verb.SEND_B)
    other = chore.stage + (1 if forward == sends else -1)
    if not 0 <= other < len(devices) or devices[other] == devices[chore.stage]:
        return None
    kind = Kind.F if forward else Kind.B
    ends = Op(kind, chore.microbatch, chore.stage), Op(kind, chore.microbatch, other)
    producer, consumer = ends if sends else ends[::-1]
    direction = Direction.ACTIVATIONS if forward else Direction.GRADIENTS
    channel = Channel(devices[producer.stage], devices[consumer.stage], "", direction)
    return Message(channel, producer, consumer)


def _check_complete(
    rank: int, row: Sequence[Action], devices: Sequence[int], microbatches: int, where: str
) -> None:
    """Every message that a rank's stages make or need is there, and once."""
    expected = [
        chore
        for verb in Verb
        if verb.moves
        for stage, device in enumerate(devices)
        if device == rank
        for chore in (Chore(verb, stage, index) for index in range(microbatches))
        if _message(chore, devices) is not None
    ]
    present = [action for action in row if isinstance(action, Chore) and action.verb.moves]
    if missing := set(expected) - set(present):
        first = min(missing, key=lambda chore: (chore.microbatch, chore.stage, chore.verb))
        raise FileError(f"{where}: {first} is missing")
    seen: set[Chore] = set()
    for chore in present:
        if chore in seen:
            raise FileError(f"{where}: {chore} is there twice")
        seen.add(chore)


def _check_reductions(row: Sequence[Action], where: str) -> None:
    """One reduction per stage, after its last W: it also divides by the micro-batches."""
    reduced: set[int] = set()
    for action in row:
        if isinstance(action, Chore) and action.verb is Verb.REDUCE_GRAD:
            if action.stage in reduced:
                raise FileError(f"{where}: {action} is there twice")
            reduced.add(action.stage)
        elif isinstance(action, Op):
            for node in action.nodes:
                if node.kind is Kind.W and node.stage in reduced:
                    raise FileError(f"{where}: {action} comes after the reduction of its stage")
    stages = {node.stage for action in row if isinstance(action, Op) for node in action.nodes}
    if missing := stages - reduced:
        raise FileError(
            f"{where}: {min(missing)}REDUCE_GRAD is missing; without it torch leaves the gradients "
            "too large by the number of micro-batches"
        )


def _check_pairs(ranks: Sequence[Sequence[Instruction]], source: str) -> None:
    """From one rank to another, receives come in the order of the sends."""
    sent: dict[tuple[int, int], list[Message]] = {}
    received: dict[tuple[int, int], list[Message]] = {}
    for steps in ranks:
        for step in steps:
            if isinstance(step, Send | Receive):
                side = sent if isinstance(step, Send) else received
                side.setdefault(_directed_pair(step.message.channel), []).append(step.message)
    for (here, there), messages in sent.items():
        for number, (out, into) in enumerate(
            zip(messages, received.get((here, there), ()), strict=False), 1
        ):
            if out != into:
                raise InvalidScheduleError(
                    f"{source}: message {number} from row {here + 1} to row {there + 1} is "
                    f"{_move(Send(out))} where it is sent and {_move(Receive(into))} where it is "
                    "received; torch would take one for the other"
                )
