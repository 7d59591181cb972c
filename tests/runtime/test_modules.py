"""What modules may be: tied, frozen, compiled, in mixed precision; and what of them is held."""

from __future__ import annotations

import copy
import gc
import os
import shutil
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from models import gpt
from runtime.pipeline import MakeTransport, Pipeline
from runtime.reference import parameter_names, reference_step, relative_error
from runtime.session import Session, connect
from runtime.stage import ModuleStage
from runtime.ties import Tie, bind
from synth import catalog
from synth.errors import UsageError
from synth.op import Kind, Op
from synth.problem import make_problem
from synth.schedule import Certificate, Schedule
from synth.simulate import earliest

OnThreads = Callable[..., list[Any]]
WIDTH = 6


def mean_square(output: Tensor, target: Tensor) -> Tensor:
    return ((output - target) ** 2).mean()


def three(seed: int = 0) -> list[nn.Module]:
    torch.manual_seed(seed)
    make = (nn.Linear(WIDTH, WIDTH), nn.Sequential(nn.Tanh(), nn.Linear(WIDTH, WIDTH)))
    return [make[0].double(), make[1].double(), nn.Linear(WIDTH, WIDTH).double()]


def errors_under(
    schedule: Schedule, modules: list[nn.Module], on_threads: OnThreads, **options: Any
) -> dict[str, float]:
    """By parameter the error of one step; infinite where a gradient is missing."""
    batch = torch.randn(6, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    reference = reference_step(modules, batch, batch, 3, mean_square)
    own = [copy.deepcopy(modules) for _ in range(schedule.problem.devices)]

    def body(session: Session, transport: MakeTransport) -> dict[str, float]:
        pipeline = Pipeline(
            own[session.rank],
            schedule,
            loss=mean_square,
            session=session,
            transport=transport,
            **options,
        )
        pipeline.step(batch, batch)
        return {
            name: relative_error(parameter.grad, reference.gradients[name])
            for number, module in pipeline.modules.items()
            for name, parameter in parameter_names(number, module)
        }

    return {k: v for found in on_threads(len(own), body) for k, v in found.items()}


@pytest.mark.parametrize("frozen", [(0,), (1,), (2,), (0, 1), (1, 2)])
def test_whole_stages_may_be_frozen(frozen: Iterable[int], on_threads: OnThreads) -> None:
    modules = three()
    for stage in frozen:
        modules[stage].requires_grad_(False)
    errors = errors_under(catalog.build("zb-h1", make_problem(3, 3)), modules, on_threads)
    assert errors
    assert set(errors.values()) == {0}
    assert not any(name.startswith(f"{stage}.") for name in errors for stage in frozen)


@pytest.mark.parametrize("placement", ["linear", "bidirectional"])
def test_tied_parameters_have_the_sum_of_all_uses(placement: str, on_threads: OnThreads) -> None:
    name = {"linear": "zb-h1", "bidirectional": "gems"}[placement]
    problem = make_problem(3, 4 if placement == "bidirectional" else 3, placement=placement)
    modules = three()
    modules[2].weight = modules[0].weight
    reference_modules = copy.deepcopy(modules)
    torch.manual_seed(9)
    modules[2].weight = nn.Parameter(torch.randn(WIDTH, WIDTH, dtype=torch.float64))
    schedule = catalog.build(name, problem)
    batch = torch.randn(8, WIDTH, dtype=torch.float64)
    count = problem.total_microbatches
    reference = reference_step(reference_modules, batch, batch, count, mean_square)
    own = [copy.deepcopy(modules) for _ in range(3)]

    def body(session: Session, transport: MakeTransport) -> list[float]:
        pipeline = Pipeline(
            own[session.rank],
            schedule,
            loss=mean_square,
            session=session,
            ties=[Tie(((0, "weight"), (2, "weight")))],
            transport=transport,
        )
        pipeline.step(batch, batch)
        return [
            relative_error(parameter.grad, reference.gradients[name])
            for number, module in pipeline.modules.items()
            for name, parameter in parameter_names(number, module)
        ]

    assert max(error for errors in on_threads(3, body) for error in errors) <= 1e-12


def test_ties_that_make_no_sense_are_refused() -> None:
    modules = dict(enumerate(three()))
    with pytest.raises(UsageError, match="a tie connects several stages"):
        Tie(((0, "weight"), (0, "bias")))
    with pytest.raises(UsageError, match="stage 1 has no parameter 'weight' to tie"):
        bind([Tie(((0, "weight"), (1, "weight")))], modules)
    with pytest.raises(UsageError, match=r"their shapes are \(6, 6\) and \(6,\)"):
        bind([Tie(((0, "weight"), (2, "bias")))], modules)


def split_on_one_device(microbatches: int) -> Schedule:
    problem = make_problem(1, microbatches)
    kinds = (Kind.F, Kind.B, Kind.W)
    order = tuple(Op(kind, index, 0) for index in range(microbatches) for kind in kinds)
    return Schedule("split", problem, earliest(problem, (order,)), Certificate(0, 0, "none"))


CXX = os.environ.get("CXX", "g++")
"""What torch's inductor compiles with."""
BACKENDS = [
    "eager",
    pytest.param(
        "inductor",
        marks=[
            pytest.mark.slow,
            pytest.mark.skipif(shutil.which(CXX) is None, reason=f"there is no compiler {CXX}"),
            pytest.mark.filterwarnings("default"),  # torch's own, when it compiles
        ],
    ),
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("in_place", [False, True], ids=["wrapped", "in place"])
def test_compiled_stages_compute_all_gradients_in_b(in_place: bool, backend: str) -> None:
    torch.manual_seed(1)
    plain = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))
    module: Any = copy.deepcopy(plain)
    if in_place:
        module[0].compile(backend=backend)
    else:
        module = torch.compile(module, backend=backend)
    session = connect(1, device="cpu")
    pipeline = Pipeline([module], split_on_one_device(2), loss=mean_square, session=session)
    for _ in range(2):  # the first compiles, in the middle of which nothing may be deferred
        module.zero_grad()
        batch = torch.randn(4, WIDTH)
        pipeline.step(batch, batch)
        reference = reference_step([plain], batch, batch, 2, mean_square)
        for mine, theirs in zip(module.parameters(), reference.gradients.values(), strict=True):
            assert relative_error(mine.grad, theirs) < 1e-6
    stage = pipeline.stages[0]
    assert isinstance(stage, ModuleStage)
    assert stage.compiled
    assert stage.unsplit == tuple(name for name, _ in module.named_parameters())


class CallsCompiled(nn.Module):
    """Not compiled itself, but one of the functions that it calls is."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.second(self.function(x, self.first.weight, self.first.bias))


def activated(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return functional.gelu(functional.linear(x, weight, bias))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_compiled_function_inside_a_stage_keeps_its_gradients(backend: str) -> None:
    torch.manual_seed(1)
    plain = CallsCompiled(activated)
    module = copy.deepcopy(plain)
    module.function = torch.compile(activated, backend=backend, fullgraph=True)
    session = connect(1, device="cpu")
    pipeline = Pipeline([module], split_on_one_device(3), loss=mean_square, session=session)
    for _ in range(2):
        module.zero_grad()
        batch = torch.randn(6, WIDTH)
        pipeline.step(batch, batch)
        reference = reference_step([plain], batch, batch, 3, mean_square)
        for mine, theirs in zip(module.parameters(), reference.gradients.values(), strict=True):
            assert relative_error(mine.grad, theirs) < 1e-6
    stage = pipeline.stages[0]
    assert isinstance(stage, ModuleStage)
    # The eager backend runs the operations one by one, as if nothing had been compiled.
    assert stage.unsplit == (() if backend == "eager" else ("first.weight", "first.bias"))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_compiled_model_on_several_ranks(backend: str, on_threads: OnThreads) -> None:
    """Compiled stages beside one that is not, each of several micro-batches of two sizes."""
    modules = three()
    batch = torch.randn(7, WIDTH, dtype=torch.float64)
    reference = reference_step(modules, batch, batch, 4, mean_square)
    own = copy.deepcopy(modules)
    for module in own[:2]:
        module.compile(backend=backend)

    def body(session: Session, transport: MakeTransport) -> list[float]:
        schedule = catalog.build("zb-h1", make_problem(3, 4))
        stages = {session.rank: own[session.rank]}
        pipeline = Pipeline(
            stages, schedule, loss=mean_square, session=session, transport=transport
        )
        pipeline.step(batch, batch)
        return [
            relative_error(parameter.grad, reference.gradients[name])
            for name, parameter in parameter_names(session.rank, own[session.rank])
        ]

    assert max(error for errors in on_threads(3, body) for error in errors) <= 1e-12


def test_mixed_precision_with_a_gradient_scaler(on_threads: OnThreads) -> None:
    torch.manual_seed(4)
    modules = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(2)]
    plain = copy.deepcopy(modules)
    batch = torch.randn(6, WIDTH)
    for part in batch.tensor_split(3):
        with torch.autocast("cpu", torch.bfloat16):
            loss = mean_square(plain[1](plain[0](part)), part)
        (loss / 3).backward()

    def body(session: Session, transport: MakeTransport) -> list[tuple[Tensor, Tensor]]:
        pipeline = Pipeline(
            {session.rank: modules[session.rank]},
            catalog.build("zb-h1", make_problem(2, 3)),
            loss=mean_square,
            session=session,
            autocast=torch.bfloat16,
            transport=transport,
        )
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        scaler.scale(torch.zeros(()))  # sets the scaler up
        optimizer = torch.optim.SGD(pipeline.parameters(), lr=0.0)
        pipeline.step(batch, batch, loss_scale=scaler.get_scale())
        stage = pipeline.stages[session.rank]
        assert isinstance(stage, ModuleStage)
        assert stage.unsplit == ()
        scaler.unscale_(optimizer)
        pairs = zip(pipeline.parameters(), plain[session.rank].parameters(), strict=True)
        return [(mine.grad, theirs.grad) for mine, theirs in pairs]

    for mine, theirs in (pair for found in on_threads(2, body) for pair in found):
        assert mine.dtype is torch.float32
        assert torch.allclose(mine, theirs, rtol=2e-2, atol=1e-4)


# What is held --------------------------------------------------------------------------------


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of all memory made while it is on and still referred to."""

    def __init__(self) -> None:
        super().__init__()
        self._made: dict[int, tuple[weakref.ref[torch.UntypedStorage], int]] = {}

    @property
    def now(self) -> int:
        gc.collect()
        return sum(size for storage, size in self._made.values() if storage() is not None)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given = {t.untyped_storage()._cdata for t in tree_leaves(args) if isinstance(t, Tensor)}
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                if storage._cdata not in given:
                    self._made[storage._cdata] = (weakref.ref(storage), storage.nbytes())
        return result


def held_by_w(stage: ModuleStage, outside: set[int]) -> int:
    """Bytes of the layer inputs and output gradients that W will need."""
    storages = {
        storage._cdata: storage.nbytes()
        for work in stage._owed[0].queue
        for storage in (
            work.layer_input.untyped_storage(),
            work.output_gradient.untyped_storage(),
        )
    }
    return sum(size for address, size in storages.items() if address not in outside)


def test_after_b_bytes_held_are_the_w_context_and_after_w_only_gradients() -> None:
    config = gpt.GPTConfig(layers=3, width=16, heads=2, context=8, seed=1)
    module = gpt.stage(config, 3, 1)  # a block, between others
    stage = ModuleStage(module)
    inputs = torch.randn(2, 8, 16).requires_grad_()
    passed = torch.randn(2, 8, 16)
    outside = {t.untyped_storage()._cdata for t in (inputs, passed, *module.parameters())}
    live = LiveBytes()
    with live:
        (output,) = stage.forward(0, (inputs,), None, split=True)
        after_forward = live.now
        del output
        (of_input,) = stage.backward_act(0, (passed,))
        inside_b = {p.grad for p in module.parameters() if p.grad is not None}
        finished = sum(g.nbytes for g in inside_b) + of_input.nbytes
        after_b = live.now
        assert after_b - finished == held_by_w(stage, outside)
        assert after_b - finished < after_forward
        stage.backward_wgt(0)
        gradients = [p.grad for p in module.parameters()]
        assert live.now == sum(g.nbytes for g in gradients if g is not None) + of_input.nbytes
    assert stage.held == 0
