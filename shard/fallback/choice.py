"""Chooses how a model of transformers is run: by the first way that gives the logits that its own code gives alone."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from penstock.kernels import dispatch
from penstock.kernels.attention_metadata import AttentionMetadata
from penstock.kernels.paged_attention import allocate_cache
from penstock.kernels.recurrent_state import LayerMemory
from penstock.shard.fallback.alone import Advance, Alone, inputs_of_all
from penstock.shard.fallback.attention import UnpagedError
from penstock.shard.fallback.hidden import Hidden
from penstock.shard.fallback.paged import Paged

TOLERANCE = {torch.float32: 1e-3, torch.float16: 0.03, torch.bfloat16: 0.1}
"""Of logits, as the norm of the difference: other orders of sums are below it, another computation is above."""
LENGTHS = (24, 9)
CHUNKS = ((11, 9), (12, 0), (1, 0))      # of the two sequences, step by step
BLOCK_SIZE = 16

Way = Paged | Alone


class NoWayError(ValueError):
    """Says why none of the ways that there are gives a model's logits."""


def prompts(vocab_size: int) -> list[Tensor]:
    """Returns the token ids that all ways are tried with."""
    generator = torch.Generator().manual_seed(5)
    return [torch.randint(vocab_size, (length,), generator=generator) for length in LENGTHS]


def plain_logits(model: Any, ids: Sequence[Tensor]) -> list[Tensor]:
    """Returns the logits of each of these sequences alone by the model's own code, [T, V], without a cache. Raises
    ValueError if that is not a row for each token."""
    found = [model(**inputs_of_all(model, sequence[None].to(model.device))).logits[0].float().cpu() for sequence in ids]
    if [len(logits) for logits in found] != list(map(len, ids)):
        raise ValueError("it does not give logits after each of its tokens")
    return found


def choose_way(model: Any, dtype: torch.dtype, expected: Sequence[Tensor]) -> tuple[Way, Hidden, str]:
    """Returns the way, what makes logits, and why the ways before it were not taken. Raises NoWayError."""
    own = model.config._attn_implementation
    reasons: list[str] = []
    vocab_size = expected[0].shape[1]
    for are_logits in (False, True):
        try:
            hidden = Hidden(model, vocab_size, are_logits)
        except Exception as error:       # any model's code may end in any
            reasons.append(_told(error))
            continue
        for make in _makers(model, hidden, dtype, own):
            try:
                way = make()
                found = _run(way, hidden, dtype)
            except Exception as error:   # any model's code may end in any
                reasons.append(_told(error))
                continue
            errors = list(map(_relative_error, found, expected))
            if all(each <= TOLERANCE[dtype] for each in errors):
                return way, hidden, reasons[0] if reasons else ""
            reasons.append(f"its logits differ by {max(errors, key=str):.1g} of their size")
    raise NoWayError("; ".join(dict.fromkeys(reason.splitlines()[0][:200] for reason in reasons)))


def _told(error: Exception) -> str:
    return f"{error}" if isinstance(error, UnpagedError) else f"{type(error).__name__}: {error}"


def _relative_error(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).norm() / expected.norm().clamp(min=1e-9))


def _makers(model: Any, hidden: Hidden, dtype: torch.dtype, own: str) -> Iterator[Callable[[], Way]]:
    if not hidden.are_logits:
        yield lambda: Paged(model, hidden, dtype)
    for advance in Advance:
        def alone(advance: Advance = advance) -> Alone:
            model.set_attn_implementation(own)
            return Alone(model, hidden, advance)
        yield alone


@torch.inference_mode()
def _run(way: Way, hidden: Hidden, dtype: torch.dtype) -> list[Tensor]:
    """Returns the logits of the prompts, whose tokens come in chunks, those of both in one step."""
    sequences = prompts(hidden.vocab_size)
    caches = _memory(way, dtype)
    found: list[list[Tensor]] = [[] for _ in sequences]
    starts = [0] * len(sequences)
    for chunk in CHUNKS:
        rows = [row for row, count in enumerate(chunk) if count]
        ids = torch.cat([sequences[row][starts[row]:starts[row] + chunk[row]] for row in rows])
        states = way.forward(ids.to(dispatch.device()), _metadata(rows, starts, chunk), caches)
        logits = torch.split(hidden.logits(states).cpu(), [chunk[row] for row in rows])
        for row, part in zip(rows, logits, strict=True):
            found[row].append(part)
            starts[row] += chunk[row]
    return [torch.cat(parts) for parts in found]


def _memory(way: Way, dtype: torch.dtype) -> list[LayerMemory]:
    layout = way.layout
    if layout.state is not None:
        return [layout.state.allocate(len(LENGTHS), dispatch.device())]
    return [allocate_cache(2 * len(LENGTHS), block_size=BLOCK_SIZE, num_kv_heads=layout.num_kv_heads,
                           head_dim=layout.head_dim, dtype=dtype, device=dispatch.device())
            for _ in range(layout.num_layers)]


def _metadata(rows: Sequence[int], starts: Sequence[int], counts: Sequence[int]) -> AttentionMetadata:
    tables = torch.tensor([[2 * row, 2 * row + 1] for row in rows], dtype=torch.int32)
    positions = [torch.arange(starts[row], starts[row] + counts[row]) for row in rows]
    mapping = [tables[index][own // BLOCK_SIZE].long() * BLOCK_SIZE + own % BLOCK_SIZE
               for index, own in enumerate(positions)]

    def column(values: list[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int32, device=dispatch.device())

    device = dispatch.device()
    return AttentionMetadata(
        torch.cat(positions).to(device), torch.cat(mapping).to(device), tables.to(device),
        column([starts[row] for row in rows]), column([counts[row] for row in rows]), column(list(rows)),
        is_decode=all(counts[row] == 1 for row in rows))
