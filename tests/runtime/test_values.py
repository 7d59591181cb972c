"""What may be passed on, how batches are cut, and buffers that come back by themselves."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from runtime.pool import BufferPool
from runtime.spec import Spec, TensorSpec
from runtime.stage import ModuleStage
from runtime.values import as_values, cut, samples, shape_of
from synth.errors import UsageError

CPU = torch.device("cpu")


def test_batches_are_cut_along_the_samples() -> None:
    batch = as_values({"a": torch.arange(5), "b": torch.zeros(5, 2)}, "inputs")
    parts = cut(batch, 2, CPU)
    assert [samples(part) for part in parts] == [3, 2]
    assert [list(part) for part in parts] == [["a", "b"]] * 2
    assert shape_of(batch) == "a:torch.int64[5] b:torch.float32[5, 2]"
    with pytest.raises(UsageError, match=r"the tensors of a batch hold \[2, 3\] samples"):
        samples((torch.zeros(2), torch.zeros(3)))


@pytest.mark.parametrize(
    ("given", "kind"), [(3, "int"), ([torch.zeros(1), None], "list of Tensor, NoneType")]
)
def test_what_is_not_tensors_is_refused(given: object, kind: str) -> None:
    class Wrong(nn.Module):
        def forward(self, x: object) -> object:
            return given

    with pytest.raises(UsageError, match=f"what Wrong returns must be .*, not a {kind}"):
        ModuleStage(Wrong()).forward(0, (torch.zeros(1),), None, split=True)


@pytest.mark.parametrize("names", [None, ("x", "mask")])
def test_specs_travel_as_text(names: tuple[str, str] | None) -> None:
    given = (torch.zeros(2, 3, requires_grad=True), torch.ones(4, dtype=torch.bool))
    spec = Spec.of(given if names is None else dict(zip(names, given, strict=True)))
    assert Spec.read(spec.written()) == spec
    assert spec.fits(given if names is None else dict(zip(names, given, strict=True)))
    for other in ({"x": given[0], "m": given[1]}, given[:1], (given[0], given[1].float())):
        assert not spec.fits(other)
    named = ("", "") if names is None else ("x: ", "mask: ")
    assert str(spec) == (
        f"{named[0]}torch.float32 of shape (2, 3) and "
        f"{named[1]}torch.bool of shape (4,) without gradient"
    )
    assert str(Spec.of(())) == "nothing"


def test_a_buffer_is_used_again_when_nobody_refers_to_it() -> None:
    pool = BufferPool(1, CPU)
    spec = [TensorSpec((2, 3), torch.float32, True)]
    (first,) = pool.take(spec)
    address = first.data_ptr()
    product = first.requires_grad_() * torch.ones(3, requires_grad=True)
    del first  # the graph still needs it
    (second,) = pool.take(spec)
    assert second.data_ptr() != address
    assert pool.unplanned == 1
    del product
    (third,) = pool.take(spec)
    assert third.data_ptr() == address
    assert not third.requires_grad
    assert pool.held_bytes == 24


def test_buffers_of_shapes_that_are_gone_make_room() -> None:
    pool = BufferPool(2, CPU)
    for size in (4, 5, 6):
        pool.take([TensorSpec((size,), torch.uint8, False)])
    assert pool.unplanned == 0
    assert pool.held_bytes == 11
