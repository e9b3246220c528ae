"""How long each op takes beside what the hardware needs for its bytes, or its products."""

import functools
import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from penstock.bench.gpu import cudnn
from penstock.bench.gpu.ceilings import Ceilings
from penstock.bench.gpu.paged import BLOCK_SIZE, Heads, Paged, moved, randn
from penstock.bench.gpu.part import Cases, Context
from penstock.bench.gpu.records import Record
from penstock.bench.gpu.scale import SAMPLED, attention_name, sample_name
from penstock.bench.gpu.timing import QUICK_SECONDS, Call, copies, launch_seconds, median_seconds
from penstock.bench.kernels.sampling_cases import CASES, parameters
from penstock.kernels import dispatch
from penstock.kernels.activation import Activation, activate_gate
from penstock.kernels.kv_cache import LARGEST
from penstock.kernels.linear import linear, pack
from penstock.kernels.paged_attention import block_bytes, paged_attention
from penstock.kernels.rms_norm import rms_norm
from penstock.kernels.rope_kv_write import rope_kv_write
from penstock.kernels.sample import Biases, History, sample

Made = tuple[list[Call], float]
"""Calls that take turns, and the bytes that one moves."""


def cases(context: Context) -> Cases:
    for sequences, length, count in context.scale.attention:
        name = attention_name(sequences, length, count)
        yield name, functools.partial(_attention, context, name, sequences, length, count)
    for cache_dtype in LARGEST:
        for sequences, length, count in context.scale.scaled_attention:
            name = f"{attention_name(sequences, length, count)}, {str(cache_dtype).removeprefix('torch.')}"
            yield name, functools.partial(_attention, context, name, sequences, length, count, cache_dtype)
    yield from linear_cases(context)
    for rows in context.scale.linear_rows:
        for op, make in (("rms_norm + residual", _norm), ("rope + kv_write", _rope_kv_write), ("SwiGLU", _swiglu)):
            yield f"{op}, {rows}", functools.partial(_by_bytes, context, f"{op}, {rows} rows", make, rows)
    for rows in context.scale.linear_rows[:3]:
        for case in SAMPLED[:context.scale.samplings]:
            name = sample_name(case, rows)
            yield name, functools.partial(_sample, context, name, case, rows)


def linear_cases(context: Context) -> Cases:
    """Yields the matrices of the model, each beside torch's."""
    model = context.scale.model
    hidden, inner = model["hidden_size"], model["intermediate_size"]
    heads = Heads.of(model)
    shapes = {
        "qkv": ((heads.queries + 2 * heads.keys) * heads.size, hidden, 1),
        "output": (hidden, heads.queries * heads.size, 8),
        "gate and up": (2 * inner, hidden, 1),
        "down": (hidden, inner, 8),
        "head": (context.scale.vocab_size, hidden, 1)}
    for rows in context.scale.linear_rows:
        for matrix, shape in shapes.items():
            if matrix == "head" and rows > 256:
                continue
            name = f"linear {matrix}, {rows} rows"
            yield name, functools.partial(_linear, context, name, rows, *shape, matrix == "head")


def _randn(context: Context, *shape: int) -> Tensor:
    return randn(*shape, dtype=context.scale.dtype)


def _timed(
    context: Context, name: str, calls: list[Call], num_bytes: float, flops: float = 0.0, **more: object
) -> Record:
    """Times calls. The larger of the shares of the ceilings tells how near this is to the floor."""
    ceilings, repeats = Ceilings(context), context.scale.repeats
    seconds = median_seconds(calls, repeats)
    launch = launch_seconds(calls, repeats) if seconds < QUICK_SECONDS else math.nan
    return context.record(
        name, us=1e6 * seconds, **{
            "GB/s": num_bytes / seconds / 1e9, "% of copy": ceilings.share_of_copy(num_bytes, seconds),
            "TFLOP/s": flops / seconds / 1e12, "% of matmul": ceilings.share_of_matmul(flops, seconds),
            "host, us": 1e6 * launch, **more})


def _attention(
    context: Context, name: str, sequences: int, length: int, count: int, cache_dtype: torch.dtype | None = None
) -> Record:
    heads, dtype = Heads.of(context.scale.model), cache_dtype or context.scale.dtype
    token_bytes = block_bytes(
        block_size=BLOCK_SIZE, num_kv_heads=heads.keys, head_dim=heads.size, dtype=dtype) // BLOCK_SIZE
    num_sets = 1 if count > 1 else copies(sequences * length * token_bytes)
    calls: list[Call] = []
    for _ in range(num_sets):
        paged = Paged([length] * sequences, heads, context.scale.dtype, cache_dtype)
        q = paged.queries([count] * sequences)
        starts = torch.full((sequences,), length - count, dtype=torch.int32, device=q.device)
        calls.append(functools.partial(paged_attention, q, paged.cache, paged.tables, starts,
                                       torch.full_like(starts, count), scale=paged.scale, is_decode=count == 1))
        paged.k = paged.v = q
    num_bytes = sequences * (length * token_bytes + 2 * count * heads.queries * heads.size * q.itemsize)
    scores = sequences * count * (length - count + (count + 1) / 2)
    beside = {"cuDNN, us": cudnn.microseconds(paged, q, count, context.scale.repeats)} if count > 1 else {}
    return _timed(context, name, calls, num_bytes, 4 * scores * heads.queries * heads.size, **beside)


def _linear(
    context: Context, name: str, rows: int, outputs: int, inputs: int, segments: int, is_head: bool
) -> Record:
    num_bytes = outputs * inputs * context.scale.dtype.itemsize
    weights = [_randn(context, outputs, inputs) / inputs**0.5 for _ in range(copies(num_bytes))]
    packed = [pack(weight, segments) for weight in weights]
    x = _randn(context, rows, inputs)
    out_dtype = torch.float32 if is_head else x.dtype
    ours = [functools.partial(linear, x, weight, None, out_dtype) for weight in packed]
    theirs = median_seconds([functools.partial(functional.linear, x, weight) for weight in weights],
                            context.scale.repeats)
    all_bytes = num_bytes + x.nbytes + rows * outputs * out_dtype.itemsize
    timed = _timed(context, name, ours, all_bytes, 2.0 * rows * outputs * inputs)
    return replace(timed, values={
        **timed.values, "torch, us": 1e6 * theirs, "× torch": timed.values["us"] / (1e6 * theirs)})


def _by_bytes(context: Context, name: str, make: Callable[[Context, int], Made], rows: int) -> Record:
    return _timed(context, name, *make(context, rows))


def _norm(context: Context, rows: int) -> Made:
    width = context.scale.model["hidden_size"]
    weight = _randn(context, width)
    num_bytes = 4 * rows * width * weight.itemsize
    return [functools.partial(rms_norm, _randn(context, rows, width), weight, 1e-5, _randn(context, rows, width))
            for _ in range(copies(num_bytes))], num_bytes


def _rope_kv_write(context: Context, rows: int) -> Made:
    heads = Heads.of(context.scale.model)
    angles = torch.rand(rows, heads.size // 2, device=dispatch.device())
    positions = torch.arange(rows, device=angles.device)
    num_bytes = 2 * rows * (heads.queries + 2 * heads.keys) * heads.size * context.scale.dtype.itemsize
    calls: list[Call] = []
    for _ in range(copies(num_bytes)):
        paged = Paged([rows], heads, context.scale.dtype)
        slot_mapping = torch.randperm(paged.cache.num_blocks * BLOCK_SIZE, device=paged.k.device)[:rows]
        calls.append(functools.partial(
            rope_kv_write, _randn(context, rows, heads.queries, heads.size), paged.k, paged.v, angles.cos(),
            angles.sin(), positions, False, paged.cache, slot_mapping))
    return calls, num_bytes


def _swiglu(context: Context, rows: int) -> Made:
    width = context.scale.model["intermediate_size"]
    num_bytes = 3 * rows * width * context.scale.dtype.itemsize
    calls = [functools.partial(activate_gate, _randn(context, rows, 2 * width), Activation.SILU)
             for _ in range(copies(num_bytes))]
    return calls, num_bytes


def _sample(context: Context, name: str, case: str, rows: int) -> Record:
    device, vocab_size = dispatch.device(), context.scale.vocab_size
    columns = moved(parameters([CASES[case]] * rows))
    no_ids, offsets = torch.empty(0, dtype=torch.int64, device=device), torch.zeros(
        rows + 1, dtype=torch.int64, device=device)
    history, biases = History(no_ids, offsets), Biases(no_ids, torch.empty(0, device=device), offsets)
    masks = torch.empty(0, -(-vocab_size // 32), dtype=torch.int32, device=device)
    num_bytes = 4.0 * rows * vocab_size
    logits = [3 * torch.randn(rows, vocab_size, device=device) for _ in range(min(16, copies(int(num_bytes))))]
    calls = [functools.partial(sample, own, columns, history, biases, masks, 0) for own in logits]
    return _timed(context, name, calls, num_bytes)
