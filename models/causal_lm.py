"""Stages of a causal language model from Hugging Face `transformers`, whose code stays as it is.

    model = LlamaForCausalLM(LlamaConfig(num_hidden_layers=8))
    modules = [stage(model, sizes=(2, 2, 2, 2), index=i) for i in range(4)]
    schedule = ...                                           # for four stages
    Pipeline(modules, schedule, loss=loss, session=session, ties=map(Tie, ties(model, stages=4)))

Fits the models that are made like Llama (Mistral, Qwen2, Qwen3 and their kin): `model.model` holds
`embed_tokens`, `layers` and `norm`, begins with `inputs_embeds` where it is given them, and
`model.lm_head` makes the logits. Every stage is such a model with fewer layers: it calls the
original forward, which makes masks and positions itself. Nothing of `transformers` is imported.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

_NOT_A_LABEL = -100
Use = tuple[int, str]


class CausalStage(nn.Module):
    """Some layers: from tokens or from hidden states, to hidden states or to logits."""

    def __init__(self, base: nn.Module, head: nn.Module | None) -> None:
        super().__init__()
        self.base = base
        self.head = head

    def forward(
        self,
        tokens: Tensor | None = None,
        attention_mask: Tensor | None = None,
        hidden: Tensor | None = None,
    ) -> Tensor | dict[str, Tensor]:
        """Shapes: tokens and mask (batch, tokens), hidden (batch, tokens, width)."""
        result: Any = self.base(
            input_ids=tokens, inputs_embeds=hidden, attention_mask=attention_mask, use_cache=False
        )
        grown: Tensor = result.last_hidden_state
        if self.head is not None:
            logits: Tensor = self.head(grown)
            return logits
        passed_on = {"hidden": grown}
        if attention_mask is not None:
            passed_on["attention_mask"] = attention_mask
        return passed_on


def stage(model: nn.Module, sizes: Sequence[int], index: int) -> CausalStage:
    """One stage of the model, which shares its parameters with the model.

    Args:
        model: the whole model.
        sizes: layers per stage.
        index: which stage.

    Raises:
        ValueError: the sizes do not add up to the model's layers, or it is made differently.
    """
    base, head = _parts(model)
    if sum(sizes) != len(base.layers) or min(sizes) < 1:
        raise ValueError(f"{list(sizes)} layers per stage for a model of {len(base.layers)} layers")
    first = sum(sizes[:index])
    part = _shallow(base)
    part.layers = nn.ModuleList(list(base.layers)[first : first + sizes[index]])
    if index > 0:
        part.embed_tokens = None
    if index + 1 < len(sizes):
        part.norm = nn.Identity()
    return CausalStage(part, head if index + 1 == len(sizes) else None)


def ties(model: nn.Module, stages: int) -> tuple[tuple[Use, Use], ...]:
    """What stages have in common: the embedding and the head, where the model ties them."""
    base, head = _parts(model)
    if stages == 1 or head.weight is not base.embed_tokens.weight:
        return ()
    return (((0, "base.embed_tokens.weight"), (stages - 1, "head.weight")),)


def loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean cross entropy of predicting the next token; labels of -100 do not count."""
    return functional.cross_entropy(
        logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=_NOT_A_LABEL
    )


def _parts(model: nn.Module) -> tuple[Any, Any]:
    base, head = getattr(model, "model", None), getattr(model, "lm_head", None)
    wanted = ("embed_tokens", "layers", "norm")
    if head is None or not all(hasattr(base, name) for name in wanted):
        raise ValueError(
            f"{type(model).__name__} has no lm_head, or no model with {', '.join(wanted)}"
        )
    return base, head


def _shallow(module: nn.Module) -> Any:
    """The same module, whose children can be replaced without changing the original."""
    part = copy.copy(module)
    part._modules = dict(module._modules)
    return part
