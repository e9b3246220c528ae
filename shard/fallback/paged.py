"""Runs a model of transformers on the tokens of a step, flattened, with keys and values in the paged cache."""

import inspect
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from penstock.kernels.attention_metadata import AttentionMetadata
from penstock.kernels.kv_cache import KvCache
from penstock.kernels.recurrent_state import LayerMemory
from penstock.shard.fallback.attention import (
    PAGED,
    PROBED,
    CallForm,
    PagedCalls,
    Probe,
    UnpagedError,
    answering,
)
from penstock.shard.fallback.hidden import Hidden
from penstock.shard.models.model import MemoryLayout

PROBE_TOKENS = 3


class Paged:
    """Lets tokens see each other by attention alone, whose calls are those that a probe has seen."""

    is_paged = True

    def __init__(self, model: Any, hidden: Hidden, dtype: torch.dtype) -> None:
        """Raises UnpagedError for a model that computes otherwise."""
        if not getattr(model, "_supports_attention_backend", False):
            raise UnpagedError("its attention cannot be exchanged")
        if getattr(model, "_is_stateful", False):
            raise UnpagedError("it carries a state from token to token")
        if "position_ids" not in inspect.signature(hidden.base.forward).parameters:
            raise UnpagedError("its tokens are not told their positions")
        self._hidden = hidden
        self._dtype = dtype
        self._forms = _probe(model, hidden)
        model.set_attn_implementation(PAGED)
        most = max(form.num_kv_heads for form in self._forms)
        if any(most % form.num_kv_heads or form.num_heads % most for form in self._forms):
            raise UnpagedError("the KV heads of its layers do not fit one cache")
        head_dim = max(max(form.key_dim, form.value_dim) for form in self._forms)
        self.layout = MemoryLayout(len(self._forms), most, head_dim)

    def forward(self, input_ids: Tensor, metadata: AttentionMetadata, caches: Sequence[LayerMemory]) -> Tensor:
        """Returns the hidden states [T, C] of token ids [T]."""
        calls = PagedCalls(self._forms, metadata, cast(Sequence[KvCache], caches), self._dtype)
        with answering(calls):
            return self._hidden.run(
                input_ids=input_ids[None], position_ids=metadata.positions[None], use_cache=False)


def _probe(model: Any, hidden: Hidden) -> list[CallForm]:
    """Returns the calls of attention that a few tokens make."""
    model.set_attn_implementation(PROBED)
    probe = Probe()
    ids = torch.arange(PROBE_TOKENS, device=model.device)[None]
    with answering(probe):
        hidden.run(input_ids=ids, position_ids=ids, use_cache=False)
    if not probe.forms:
        raise UnpagedError("it does not call the attention that it is given")
    return probe.forms
