"""Runs a model of transformers sequence by sequence, each with a cache of transformers' own, as its `generate` does."""

import inspect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, cast

import torch
from torch import Tensor, nn

from penstock.kernels.attention_metadata import AttentionMetadata
from penstock.kernels.recurrent_state import LayerMemory
from penstock.shard.fallback.hidden import Hidden
from penstock.shard.models.model import MemoryLayout

ID_BYTES = 8


class Advance(Enum):
    """How a sequence's tokens are taken after the first of its chunks."""

    CHUNKS = "in chunks"
    TOKENS = "one by one"                # by a state that takes one token at a time
    WHOLE = "all again"                  # by a model that keeps nothing


@dataclass
class OneSequence:
    """The state of one sequence in transformers."""

    ids: Tensor                          # int64 [1, tokens so far]
    inputs: dict[str, Any] = field(default_factory=dict)  # of `prepare_inputs_for_generation`


@dataclass
class OwnStates:
    """Holds the states of the sequences in transformers, by their slots."""

    data: Tensor                         # of no bytes: what is kept comes and goes with the sequences
    sequences: dict[int, OneSequence] = field(default_factory=dict)

    def forget(self, slots: Iterable[int]) -> None:
        """Lets go of the sequences that were in these slots."""
        for slot in slots:
            self.sequences.pop(slot, None)


@dataclass(frozen=True, slots=True)
class OwnState:
    """Describes the state of a sequence that does not grow with its tokens."""

    num_bytes: int

    def allocate(self, number: int, device: torch.device) -> OwnStates:
        return OwnStates(torch.empty(0, dtype=torch.uint8, device=device))


class Alone:
    """Runs each sequence of a step by itself."""

    is_paged = False

    def __init__(self, model: Any, hidden: Hidden, advance: Advance) -> None:
        self._model = model
        self._hidden = hidden
        self.advance = advance
        parameters = inspect.signature(model.forward).parameters
        self._cache_name = "cache_params" if "mamba" in type(model).__name__.lower() else "past_key_values"
        are_few = "logits_to_keep" in parameters and not hidden.are_logits
        self._keeps_few_logits = {"logits_to_keep": 1} if are_few else {}
        self.layout = MemoryLayout(1, 1, 1, OwnState(1), frozenset({0}), ID_BYTES)
        fixed, of_token = self._measure()
        self.layout = MemoryLayout(1, 1, 1, OwnState(max(1, fixed)), frozenset({0}), of_token + ID_BYTES)

    def forward(self, input_ids: Tensor, metadata: AttentionMetadata, caches: Sequence[LayerMemory]) -> Tensor:
        """Returns the hidden states [T, C] of token ids [T]."""
        (states,) = cast(Sequence[OwnStates], caches)
        parts = [self._extend(states, slot, start, input_ids[begin:end])
                 for slot, start, begin, end in metadata.state_rows.spans()]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _extend(self, states: OwnStates, slot: int, start: int, ids: Tensor) -> Tensor:
        """Returns the hidden states [T, C] of a sequence's next tokens, whose first has the position `start`."""
        if start == 0:
            states.sequences[slot] = OneSequence(ids[None, :0])
        sequence = states.sequences[slot]
        is_apart = self.advance is Advance.TOKENS and start
        pieces = torch.split(ids, 1) if is_apart else (ids,)
        parts = [self._step(sequence, piece) for piece in pieces]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _step(self, sequence: OneSequence, ids: Tensor) -> Tensor:
        count, is_first = len(ids), not sequence.ids.shape[1]
        sequence.ids = torch.cat([sequence.ids, ids[None]], dim=1)
        if self.advance is Advance.WHOLE:
            states, _ = self._hidden.whole(**inputs_of_all(self._model, sequence.ids))
            return states[-count:]
        if is_first:
            sequence.inputs = self._first_inputs(count)
        prepared = self._model.prepare_inputs_for_generation(
            sequence.ids, next_sequence_length=None if is_first else count, is_first_iteration=is_first,
            **self._extended(sequence.inputs, 0 if is_first else count))
        states, answer = self._hidden.whole(**prepared | self._keeps_few_logits, return_dict=True)
        kept = self._model._update_model_kwargs_for_generation(answer, dict(sequence.inputs), num_new_tokens=1)
        sequence.inputs |= {name: kept[name] for name in kept if name not in ("attention_mask", "position_ids")}
        return states[-count:]

    def _first_inputs(self, count: int) -> dict[str, Any]:
        from transformers import DynamicCache

        inputs: dict[str, Any] = {"use_cache": True} | _of_tokens(self._model, count)
        if self._model._supports_default_dynamic_cache():
            inputs[self._cache_name] = DynamicCache(config=self._model.config.get_text_config(decoder=True))
        return inputs

    @staticmethod
    def _extended(inputs: dict[str, Any], count: int) -> dict[str, Any]:
        """Makes the mask and the positions longer by so many tokens, and returns all inputs."""
        if count:
            mask = inputs["attention_mask"]
            inputs["attention_mask"] = torch.cat([mask, mask.new_ones(1, count)], dim=1)
            positions = inputs.get("position_ids")
            if positions is not None:
                first = positions.shape[1]
                more = torch.arange(first, first + count, device=positions.device)[None]
                inputs["position_ids"] = torch.cat([positions, more], dim=1)
        return dict(inputs)

    def _measure(self) -> tuple[int, int]:
        """Returns the bytes that a sequence takes, and those that each of its tokens takes more."""
        sizes = []
        for length in (4, 12):
            states = OwnStates(torch.empty(0))
            self._extend(states, 0, 0, torch.arange(length, device=self._model.device))
            sizes.append(num_bytes(states.sequences[0].inputs))
        of_token = -(-max(0, sizes[1] - sizes[0]) // 8)
        return max(0, sizes[0] - 4 * of_token), of_token


def inputs_of_all(model: Any, ids: Tensor) -> dict[str, Any]:
    """Returns the arguments with which a model computes all of a sequence's token ids [1, T] at once, as its `generate`
    does."""
    inputs: dict[str, Any] = model.prepare_inputs_for_generation(
        ids, is_first_iteration=True, use_cache=False, **_of_tokens(model, ids.shape[1]))
    # Some classes keep the last token's logits alone, unless told to keep all by a 0.
    return inputs | ({"logits_to_keep": 0} if "logits_to_keep" in inputs else {})


def _of_tokens(model: Any, count: int) -> dict[str, Tensor]:
    """Returns the mask of a sequence's first tokens, and their positions if the model takes any."""
    mask = torch.ones(1, count, dtype=torch.int64, device=model.device)
    takes_positions = "position_ids" in inspect.signature(model.forward).parameters
    return {"attention_mask": mask} | ({"position_ids": mask.cumsum(1) - 1} if takes_positions else {})


def num_bytes(value: Any, seen: set[int] | None = None) -> int:
    """Returns the bytes of all tensors in a value, such as a cache."""
    seen = set() if seen is None else seen
    if id(value) in seen or isinstance(value, nn.Module):
        return 0
    seen.add(id(value))
    if isinstance(value, Tensor):
        return value.numel() * value.itemsize
    if isinstance(value, dict):
        return sum(num_bytes(item, seen) for item in value.values())
    if isinstance(value, (list, tuple)):
        return sum(num_bytes(item, seen) for item in value)
    return num_bytes(vars(value), seen) if type(value).__module__.startswith("transformers.") else 0
