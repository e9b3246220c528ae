"""The promise of --deterministic, bit for bit: a row is what it is alone, a chunk what decode steps make of it, and
ranks' partial sums the whole."""

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from penstock.bench.gpu.inputs import moved, moved_parameters, randn
from penstock.bench.gpu.paged import Heads, Paged
from penstock.bench.gpu.part import Cases, Context
from penstock.bench.gpu.records import Record
from penstock.bench.kernels.sampling_cases import CASES, parameters
from penstock.kernels.activation import Activation, activate_gate
from penstock.kernels.linear import linear, pack
from penstock.kernels.rms_norm import rms_norm
from penstock.kernels.sample import Biases, History, SampleParameters, sample

Pairs = list[tuple[Tensor, Tensor]]
"""Pairs of tensors that must be equal."""


def cases(context: Context) -> Cases:
    promises = {
        "linear: batched = alone": _linear_rows, "linear: partial sums = whole": _partial_sums,
        "attention: batched = alone": _attention_alone, "attention: chunk = decode": _attention_chunks,
        "rms_norm, activation: batched = alone": _row_by_row}
    for dtype in context.scale.dtypes:
        for promise, pairs_of in promises.items():
            name = f"{promise}, {str(dtype).removeprefix('torch.')}"
            yield name, functools.partial(_record, context, name, pairs_of, dtype)
    yield "sample: batched = alone", lambda: _samples(context)


def _record(
    context: Context, name: str, pairs_of: Callable[[Context, torch.dtype], Pairs], dtype: torch.dtype
) -> Record:
    return _told(context, name, pairs_of(context, dtype))


def _told(context: Context, name: str, pairs: Pairs) -> Record:
    equal = sum(torch.equal(one, other) for one, other in pairs)
    return context.record(name, is_right=equal == len(pairs), equal=equal, of=len(pairs))


def _cuts(total: int) -> list[slice]:
    """Returns cuts of rows: one row alone at three places, some rows, and two thirds of them."""
    return [slice(0, 1), slice(total // 2, total // 2 + 1), slice(total - 1, total), slice(0, min(7, total)),
            slice(total // 3, total)]


def _linear_rows(context: Context, dtype: torch.dtype) -> Pairs:
    model, pairs = context.scale.model, []
    for outputs, inputs, segments in ((2 * model["intermediate_size"], model["hidden_size"], 1),
                                      (model["hidden_size"], model["intermediate_size"], 8), (130, 72, 8)):
        packed = pack(randn(outputs, inputs, dtype=dtype), segments)
        for rows in sorted({5, 33, max(context.scale.token_counts)}):
            x = randn(rows, inputs, dtype=dtype)
            whole = linear(x, packed)
            pairs += [(linear(x[cut].contiguous(), packed), whole[cut]) for cut in _cuts(rows)]
    return pairs


def _partial_sums(context: Context, dtype: torch.dtype) -> Pairs:
    model, pairs = context.scale.model, []
    for outputs, inputs in ((model["hidden_size"], model["intermediate_size"]), (130, 192)):
        weight, x = randn(outputs, inputs, dtype=dtype), randn(19, inputs, dtype=dtype)
        whole = linear(x, pack(weight, 8), partial=True)
        for ranks in (2, 4, 8):
            width = inputs // ranks
            sums = [linear(x[:, start:start + width].contiguous(), pack(weight[:, start:start + width].contiguous(),
                                                                        8 // ranks), partial=True)
                    for start in range(0, inputs, width)]
            while len(sums) > 1:
                sums = [left + right for left, right in zip(sums[0::2], sums[1::2], strict=True)]
            pairs.append((sums[0], whole))
    return pairs


def _attention_alone(context: Context, dtype: torch.dtype) -> Pairs:
    most = max(context.scale.token_counts)
    counts = [1, 1, 16, most, 1, 33]
    paged = Paged([1, 5 * most, 40, 2 * most, 129, 33], Heads.of(context.scale.model), dtype)
    q = paged.queries(counts)
    whole = paged.attend(q, counts).split(counts)
    return [(paged.attend(own, [count], [index]), out)
            for index, (own, count, out) in enumerate(zip(q.split(counts), counts, whole, strict=True))]


def _attention_chunks(context: Context, dtype: torch.dtype) -> Pairs:
    """Returns the attention of a prompt in chunks, and of its last rows one by one, each beside the whole's."""
    length = max(context.scale.token_counts) + 7
    paged = Paged([length], Heads.of(context.scale.model), dtype)
    q = paged.queries([length])
    whole = paged.attend(q, [length])
    pairs = []
    for size in (3, 64, length // 2):
        for start in range(0, length, max(size, length // 8)):
            end = min(start + size, length)
            pairs.append((paged.attend(q[start:end], [end - start], ends=[end]), whole[start:end]))
    pairs += [(paged.attend(q[end - 1:end], [1], ends=[end]), whole[end - 1:end])
              for end in range(max(1, length - 20), length + 1)]
    return pairs


def _row_by_row(context: Context, dtype: torch.dtype) -> Pairs:
    model, pairs = context.scale.model, []
    rows = max(context.scale.token_counts)
    x, weight = randn(rows, model["hidden_size"], dtype=dtype), randn(model["hidden_size"], dtype=dtype)
    gate_up = randn(rows, 2 * model["intermediate_size"], dtype=dtype)
    normed, _ = rms_norm(x, weight, 1e-5, x)
    activated = activate_gate(gate_up, Activation.SILU)
    for cut in _cuts(rows):
        own = x[cut].contiguous()
        alone = activate_gate(gate_up[cut].contiguous(), Activation.SILU)
        pairs += [(rms_norm(own, weight, 1e-5, own)[0], normed[cut]), (alone, activated[cut])]
    return pairs


def _samples(context: Context) -> Record:
    vocab_size = context.scale.vocab_size
    rows = [row for row in CASES.values() if not {"mask", "top_n"} & set(row)]
    logits = 3 * randn(len(rows), vocab_size, dtype=torch.float32)
    histories = torch.randint(vocab_size, (len(rows), 300))
    masks = torch.empty(0, -(-vocab_size // 32), dtype=torch.int32, device=logits.device)

    def draw(chosen: list[int]) -> tuple[Tensor, Tensor]:
        columns = parameters([rows[index] | {"position": index} for index in chosen])
        columns = SampleParameters(**{**columns.columns, "seed": torch.tensor(chosen)})
        offsets = torch.arange(len(chosen) + 1)
        history = History(histories[chosen].flatten(), 300 * offsets)
        biases = Biases(torch.empty(0, dtype=torch.int64), torch.empty(0), 0 * offsets)
        out = sample(logits[chosen], moved_parameters(columns), moved(history), moved(biases), masks, 0)
        return out.ids, out.logprobs

    batched = draw(list(range(len(rows))))
    alone = [draw([index]) for index in range(len(rows))]
    return _told(context, "sample: batched = alone", [
        (own, together[index:index + 1]) for index, pair in enumerate(alone)
        for own, together in zip(pair, batched, strict=True)])
