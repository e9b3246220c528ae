"""Parts a causal language model of transformers in two: what makes hidden states of tokens, and logits of those."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


class _Given(nn.Module):
    """Stands for a base model, and answers with hidden states that are there already."""

    def __init__(self, kind: Any, states: Tensor) -> None:
        """kind: the class of what the base model answers"""
        super().__init__()
        self._answer = (states,) if kind is tuple else kind(last_hidden_state=states)

    def forward(self, *_: Any, **__: Any) -> Any:
        return self._answer


class Hidden:
    """The hidden states of a model, from which its own code makes logits, with the scalings that it has."""

    def __init__(self, model: Any, vocab_size: int, are_logits: bool = False) -> None:
        """are_logits: logits of all tokens are computed at once, and stand for their hidden states"""
        self._model = model
        self._kind: Any = tuple
        self._states = torch.empty(0)
        self.vocab_size = vocab_size
        self.are_logits = are_logits
        self.base = model if are_logits else _first_called(model)
        self._place = None if are_logits else _place_of(self.base, model)

    def run(self, **inputs: Any) -> Tensor:
        """Returns the hidden states [T, C] of one sequence, or of tokens flattened to one, by the base model alone."""
        if self.are_logits:
            return _logits(self._model(**inputs))
        return self._taken(self.base(**inputs))

    def whole(self, **inputs: Any) -> tuple[Tensor, Any]:
        """Returns the hidden states [T, C] that the whole model makes on its way, and its answer."""
        if self.are_logits:
            answer = self._model(**inputs)
            return _logits(answer), answer
        with _hooked(self.base, self._keep):
            answer = self._model(**inputs)
        return self._states, answer

    def logits(self, states: Tensor) -> Tensor:
        """Returns float32 logits [R, V] of hidden states [R, C]."""
        if self._place is None:
            return states
        parent, name = self._place
        parent._modules[name] = _Given(self._kind, states[None])
        try:
            ids = torch.zeros(1, len(states), dtype=torch.int64, device=states.device)
            return _logits(self._model(input_ids=ids, use_cache=False))
        finally:
            parent._modules[name] = self.base

    def _keep(self, _: nn.Module, __: Any, answer: Any) -> None:
        self._states = self._taken(answer)

    def _taken(self, answer: Any) -> Tensor:
        """Returns the states of an answer of the base model, of which nothing but the class is kept: it may have a
        sequence's cache in it."""
        self._kind = type(answer)
        states: Tensor = answer[0][0]
        return states


def _logits(answer: Any) -> Tensor:
    logits: Tensor = answer.logits[0]
    return logits.float()


def _first_called(model: Any) -> nn.Module:
    """Returns the module that a model's own code calls first: what makes its hidden states."""
    called: list[nn.Module] = []
    hooks = [module.register_forward_pre_hook(lambda module, _: called.append(module)) for module in model.modules()]
    try:
        model(input_ids=torch.zeros(1, 1, dtype=torch.int64, device=model.device), use_cache=False)
    finally:
        for hook in hooks:
            hook.remove()
    return called[1]                     # after the model itself


@contextmanager
def _hooked(module: nn.Module, hook: Any) -> Iterator[None]:
    handle = module.register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


def _place_of(module: nn.Module, model: nn.Module) -> tuple[nn.Module, str]:
    """Returns the module that a module belongs to, and its name there."""
    return next((parent, name) for parent in model.modules() for name, child in parent.named_children()
                if child is module)
