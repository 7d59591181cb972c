"""The registry, and the sleeping stage that it can build."""

import time

import pytest
import torch

import models
from models.sleep import StageTimes, wait_until


def test_gpt_is_built_stage_by_stage() -> None:
    model = models.build("gpt", 2, models.Options(layers=2, width=8, heads=2, seq_len=4))
    inputs, targets = model.make_batch(0, 3)
    hidden = model.make_stage(0)(inputs)
    assert hidden.shape == (3, 4, 8)
    assert model.loss is not None
    assert model.loss(model.make_stage(1)(hidden), targets).shape == ()


def test_sleeping_stage_passes_the_payload_on_and_takes_its_time() -> None:
    times = StageTimes(forward_ms=3, backward_act_ms=2, backward_wgt_ms=1, fused_ms=3)
    model = models.build("sleep", 2, models.Options(times=[times, times]))
    inputs, _ = model.make_batch(0, 1)
    first, last = model.make_stage(0), model.make_stage(1)
    begin = time.monotonic()
    (hidden,) = first.forward(0, (inputs,), None, split=True)
    (loss,) = last.forward(0, (hidden,), None, split=True)
    (gradient,) = last.backward_act(0, (loss,))
    first.backward(0, (gradient,))
    last.backward_wgt(0)
    assert time.monotonic() - begin >= 0.012
    assert torch.equal(hidden, inputs)
    assert loss == 0


def test_a_sleeping_stage_that_joins_passes_one_payload_on_and_one_back_to_each() -> None:
    times = [StageTimes(0, 0, 0, 0)] * 4
    needs = ((), (), (0, 1), (2, 1))
    model = models.build("sleep", 4, models.Options(times=times, needs=needs))
    inputs, targets = model.make_batch(0, 2)
    assert isinstance(inputs, dict)
    assert {stage: len(payload) for stage, payload in inputs.items()} == {0: 2, 1: 2}
    join, last = model.make_stage(2), model.make_stage(3)
    (hidden,) = join.forward(0, (inputs[0], inputs[1] + 1), None, split=False)
    assert torch.equal(hidden, inputs[0])
    assert last.forward(0, (hidden, inputs[1]), targets, split=False)[0] == 0
    found = last.backward(0, (torch.zeros(()),))
    assert [[len(one) for one in part] for part in found] == [[4096], [4096]]
    (first, second) = join.backward_act(0, found[0])
    assert first is second is found[0]


def test_waiting_for_a_moment_in_the_past_returns() -> None:
    wait_until(time.monotonic() - 1)


def test_wrong_names_and_times_are_refused() -> None:
    with pytest.raises(ValueError, match="no model is called 'bert'; known are gpt, sleep"):
        models.build("bert", 2, models.Options())
    with pytest.raises(ValueError, match="1 sets of sleep times for 2 stages"):
        models.build("sleep", 2, models.Options(times=[StageTimes(1, 1, 1, 1)]))
    with pytest.raises(ValueError, match="fused_ms is -1"):
        StageTimes(1, 1, 1, -1)
    with pytest.raises(ValueError, match="cannot cut 4 layers into 5 stages"):
        models.build("gpt", 5, models.Options(layers=4))
    with pytest.raises(ValueError, match="the layers of gpt are a chain, which the stages of this"):
        models.build("gpt", 3, models.Options(needs=((), (), (0, 1))))
