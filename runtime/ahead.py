"""Posts receives as early as their buffers are free, where a waiting receive costs nothing.

A program posts a receive when its message is sent, which is right wherever posted receives stand in
each other's way. Gloo's do not, and there a message whose receive is not posted yet has to ask for
it first: two packets more, and a thread to be woken for each.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import replace

from runtime.plan import RankPlan, Step, Task
from synth.lower import Channel, Receive
from synth.op import Kind, Op


def post_ahead(plan: RankPlan, buffers: Mapping[Channel, int], start: int = 0) -> RankPlan:
    """Moves every receive to behind the op that frees a buffer for it.

    The receives of a channel keep their order, none comes behind an op that it came before, and no
    channel has more in use at once than its buffers.

    Args:
        plan: as lowered.
        buffers: of each channel to this rank; at least as many as the plan needs.
        start: how many steps stay as they are, such as those before a gate.
    """
    waiting: dict[Channel, deque[Receive]] = {}
    for step in plan.steps[start:]:
        if isinstance(step, Receive):
            waiting.setdefault(step.message.channel, deque()).append(step)
    in_use: Counter[Channel] = Counter()
    freed_by: dict[Op, list[Channel]] = {}
    steps: list[Step] = []

    def post(receive: Receive) -> None:
        channel, last_use = receive.message.channel, receive.message.consumer.sibling(Kind.W)
        freed_by.setdefault(last_use, []).append(channel)
        in_use[channel] += 1
        steps.append(receive)

    for index, step in enumerate(plan.steps):
        if isinstance(step, Receive):
            if index < start:
                post(step)
            continue
        if isinstance(step, Task) and index >= start:  # behind what the op before it sends
            for channel, queue in waiting.items():
                while queue and in_use[channel] < buffers[channel]:
                    post(queue.popleft())
        steps.append(step)
        if isinstance(step, Task):
            for node in step.op.nodes:
                in_use.subtract(freed_by.pop(node, ()))
    return replace(plan, steps=tuple(steps))
