"""Attention for transformers' models: what it calls its attention interface, onto the paged cache.

A model's attention calls the function that its configuration names with q, k and v of all tokens, and without a mask if
none is made for that name. A step's tokens come as one row, flattened, with their positions.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from penstock.kernels.attention_metadata import AttentionMetadata
from penstock.kernels.kv_cache import KvCache
from penstock.kernels.kv_write import kv_write
from penstock.kernels.paged_attention import paged_attention

PAGED, PROBED = "penstock_paged", "penstock_probed"
FAR = 1 << 24                            # a position behind which any window ends


class UnpagedError(Exception):
    """Says what a model's attention does that the paged cache does not."""


@dataclass(frozen=True, slots=True)
class CallForm:
    """Describes one of the calls of attention that a step makes, in the same order every time."""

    num_heads: int
    num_kv_heads: int
    key_dim: int
    value_dim: int
    window: int                          # tokens that each sees, itself included; 0 for all


class Calls(Protocol):
    """Takes the calls of one step."""

    def attend(self, module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Any, options: dict[str, Any]) -> Tensor:
        """Returns [1, T, H, V] of q [1, H, T, K], k [1, KV, T, K] and v [1, KV, T, V]."""


_calls: ContextVar[Calls] = ContextVar("calls")


@contextmanager
def answering(calls: Calls) -> Iterator[None]:
    """Lets these take the calls that are made while the block runs."""
    token = _calls.set(calls)
    try:
        yield
    finally:
        _calls.reset(token)


def is_answering() -> bool:
    """Tells whether the calls of attention are taken."""
    return _calls.get(None) is not None


def _attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any = None, **options: Any
) -> tuple[Tensor, None]:
    return _calls.get().attend(module, query, key, value, attention_mask, options), None


def register() -> None:
    """Makes the two names known to transformers: of attention onto the cache, and of the probe, which gets masks."""
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(PAGED, _attend)
    AttentionInterface.register(PROBED, _attend)
    AttentionMaskInterface.register(PROBED, ProbedMask)


class ProbedMask:
    """Stands for a mask, and tells what it would have hidden."""

    def __init__(self, mask_function: Any = None, local_size: int | None = None, **_: Any) -> None:
        self._allows = mask_function
        self._local_size = local_size

    def window(self) -> int:
        """Returns how many tokens each sees; 0 for all before it. Raises UnpagedError for any other mask."""
        first = 0 if self._local_size is None else FAR - self._local_size + 1
        expected = {first: True, FAR: True, FAR + 1: False, first - 1: False}
        for position, is_seen in expected.items():
            if position >= 0 and self._sees(position) != is_seen:
                raise UnpagedError("its attention's mask is neither causal nor a window")
        return self._local_size or 0

    def _sees(self, position: int) -> bool:
        zero = torch.tensor(0)
        return bool(self._allows(zero, zero, torch.tensor(FAR), torch.tensor(position)))


@dataclass
class Probe:
    """Notes the form of each call, and answers with zeros."""

    forms: list[CallForm] = field(default_factory=list)

    def attend(self, module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Any, options: dict[str, Any]) -> Tensor:
        if not options.get("is_causal", getattr(module, "is_causal", True)):
            raise UnpagedError("its tokens see those behind them")
        if q.shape[2] != k.shape[2] or q.shape[0] != 1:
            raise UnpagedError("its attention is over other tokens than those of the step")
        if mask is not None and not isinstance(mask, ProbedMask):
            raise UnpagedError("it makes masks of its own")
        window = options.get("sliding_window") or 0
        if mask is not None:
            window = mask.window()
        self.forms.append(CallForm(q.shape[1], k.shape[1], q.shape[3], v.shape[3], window))
        return torch.zeros(1, q.shape[2], q.shape[1], v.shape[3], dtype=q.dtype, device=q.device)


class PagedCalls:
    """Writes keys and values into the layers' caches, and attends over them."""

    def __init__(
        self, forms: Sequence[CallForm], metadata: AttentionMetadata, caches: Sequence[KvCache], dtype: torch.dtype
    ) -> None:
        self._calls = zip(forms, caches, strict=True)
        self._metadata = metadata
        self._dtype = dtype

    def attend(self, module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Any, options: dict[str, Any]) -> Tensor:
        form, cache = next(self._calls)
        metadata, dim, dtype = self._metadata, cache.head_dim, q.dtype
        scale = options.get("scaling") or form.key_dim ** -0.5
        q, k, v = (self._rows(part, dim) for part in (q, k, v))
        if cache.num_kv_heads != form.num_kv_heads:
            k, v = (part.repeat_interleave(cache.num_kv_heads // form.num_kv_heads, dim=1) for part in (k, v))
        kv_write(k, v, cache, metadata.slot_mapping)
        sinks = options.get("s_aux")
        attended = paged_attention(
            q, cache, metadata.tables, metadata.starts, metadata.counts, scale=scale, window=form.window,
            softcap=options.get("softcap") or 0.0, sinks=None if sinks is None else sinks.float().contiguous(),
            is_decode=metadata.is_decode)
        if form.value_dim != dim:
            attended = attended[..., :form.value_dim]
        return attended[None] if attended.dtype is dtype else attended.to(dtype)[None]

    def _rows(self, part: Tensor, dim: int) -> Tensor:
        """Returns [T, heads, dim] of [1, heads, T, D]."""
        if part.shape[3] != dim:
            part = pad(part, (0, dim - part.shape[3]))
        return rows_of_heads(part if part.dtype is self._dtype else part.to(self._dtype))


def rows_of_heads(part: Tensor) -> Tensor:
    """Returns [T, heads, D] of [1, heads, T, D], whose rows may lie apart."""
    rows = part[0].transpose(0, 1)
    _, head, number = rows.stride()
    return rows if number == 1 and head == rows.shape[2] else rows.contiguous()
