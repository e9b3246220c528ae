"""Every op beside its float64 computation, in all dtypes, at real and at awkward shapes."""

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice, product
from unittest import mock

import torch
from torch import Tensor
from torch.nn import functional

from penstock.bench.gpu.inputs import moved, moved_parameters, randn
from penstock.bench.gpu.paged import Heads, Paged
from penstock.bench.gpu.part import Cases, Context
from penstock.bench.gpu.records import Record
from penstock.bench.kernels.sampling_cases import CASES, parameters
from penstock.kernels import dispatch
from penstock.kernels.activation import Activation, activate_gate
from penstock.kernels.activation import reference as activation_reference
from penstock.kernels.kv_cache import LARGEST
from penstock.kernels.linear import linear, pack
from penstock.kernels.paged_attention import block_bytes
from penstock.kernels.prompt_logprobs import prompt_logprobs
from penstock.kernels.rms_norm import reference as rms_norm_reference
from penstock.kernels.rms_norm import rms_norm
from penstock.kernels.rope import reference as rope_reference
from penstock.kernels.rope import rope
from penstock.kernels.sample import Biases, History, sample
from penstock.kernels.sample import reference as sample_reference

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 5e-3, torch.float16: 6e-4}
"""Rounding the exact result alone is 1.7e-3 for bfloat16 and 2.1e-4 for float16."""
LOGPROB_TOLERANCE = 1e-5
AWKWARD_HEADS = (Heads(5, 1, 80), Heads(8, 8, 64), Heads(6, 2, 256))
FORMS: dict[str, dict[str, object]] = {
    "": {}, " window": {"window": 20}, " softcap": {"softcap": 3.0}, " sinks": {"sinks": True}}
Errors = Iterator[float]


def cases(context: Context) -> Cases:
    heads, few = Heads.of(context.scale.model), context.scale.attention_forms
    for dtype in context.scale.dtypes:
        name = str(dtype).removeprefix("torch.")
        for form in islice(FORMS, few):
            yield (f"paged_attention{form} {name}",
                   functools.partial(_attention, context, f"paged_attention{form} {name}", dtype, heads, form))
        for op, errors in (("linear", _linear), ("rms_norm", _norm), ("rope", _rope), ("activation", _activation)):
            yield f"{op} {name}", functools.partial(_check, context, f"{op} {name}", dtype, errors)
        for other in AWKWARD_HEADS[:few]:
            title = f"paged_attention, {other.queries}/{other.keys} heads of {other.size}, {name}"
            yield title, functools.partial(_attention, context, title, dtype, other, "")
    yield "sample", lambda: _sample(context)
    yield "prompt_logprobs", lambda: _prompt_logprobs(context)
    for cache_dtype in islice(LARGEST, few):
        title = f"paged_attention, cache {str(cache_dtype).removeprefix('torch.')}"
        yield title, functools.partial(_scaled_attention, context, title, cache_dtype)


@contextmanager
def poisoned() -> Iterator[None]:
    """Lets torch.empty and empty_like give NaN, or a large number where there is none, while the block runs."""
    def poison(original: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def make(*args: object, **kwargs: object) -> Tensor:
            out = original(*args, **kwargs)
            return out.fill_(torch.nan if out.is_floating_point() else torch.iinfo(out.dtype).max)
        return make

    with ExitStack() as stack:
        for name in ("empty", "empty_like"):
            stack.enter_context(mock.patch.object(torch, name, poison(getattr(torch, name))))
        yield


def relative_error(out: Tensor, exact: Tensor) -> float:
    """Returns the norm of the error over that of the exact result; NaN if something was not written."""
    return float((out.double() - exact).norm() / exact.norm())


def _check(context: Context, name: str, dtype: torch.dtype, errors: Callable[[Context, torch.dtype], Errors]) -> Record:
    with poisoned():
        found = list(errors(context, dtype))
    return _judged(context, name, found, TOLERANCE[dtype])


def _judged(context: Context, name: str, errors: list[float], tolerance: float, **values: object) -> Record:
    is_right = all(error <= tolerance for error in errors)           # not so for NaN
    worst = next((error for error in errors if error != error), max(errors))
    return context.record(name, is_right=is_right, error=worst, tolerance=tolerance, shapes=len(errors), **values)


def _linear(context: Context, dtype: torch.dtype) -> Errors:
    model = context.scale.model
    shapes = [(model["hidden_size"], model["intermediate_size"], 8), (2 * model["intermediate_size"],
              model["hidden_size"], 1), (130, 72, 8), (77, 100, 1)]
    for outputs, inputs, segments in shapes:
        weight, bias = randn(outputs, inputs, dtype=dtype), randn(outputs, dtype=dtype)
        packed = pack(weight, segments)
        for rows in context.scale.token_counts:
            x = randn(rows, inputs, dtype=dtype)
            exact = functional.linear(x.double(), weight.double(), bias.double())
            yield relative_error(linear(x, packed, bias), exact)
            yield relative_error(linear(x, packed, partial=True), exact - bias.double())


def _norm(context: Context, dtype: torch.dtype) -> Errors:
    for rows, width in product(context.scale.token_counts, (context.scale.model["hidden_size"], 80)):
        x, residual, weight = randn(rows, width, dtype=dtype), randn(rows, width, dtype=dtype), randn(
            width, dtype=dtype)
        out, _ = rms_norm(x, weight, 1e-5)
        yield relative_error(out, rms_norm_reference.rms_norm(x.double(), weight.double(), 1e-5, None)[0])
        out, total = rms_norm(x, weight, 1e-5, residual)
        yield relative_error(total, x.double() + residual.double())
        yield relative_error(out, rms_norm_reference.rms_norm(total.double(), weight.double(), 1e-5, None)[0])


def _rope(context: Context, dtype: torch.dtype) -> Errors:
    for rows, heads in product(context.scale.token_counts, (Heads.of(context.scale.model), AWKWARD_HEADS[0])):
        joined = randn(rows, heads.queries + heads.keys, heads.size, dtype=dtype)
        q, k = joined.split([heads.queries, heads.keys], dim=1)
        angles = 100 * torch.rand(500, heads.size // 2, device=dispatch.device())
        positions = torch.randint(500, (rows,), device=dispatch.device())
        exact = rope_reference.rope(q.double(), k.double(), angles.cos(), angles.sin(), positions, is_interleaved=False)
        for out, own in zip(rope(q, k, angles.cos(), angles.sin(), positions), exact, strict=True):
            yield relative_error(out, own)


def _activation(context: Context, dtype: torch.dtype) -> Errors:
    for rows, width in product(context.scale.token_counts, (context.scale.model["intermediate_size"], 77)):
        x = randn(rows, 2 * width, dtype=dtype)
        for activation in Activation:
            exact = activation_reference.activate_gate(x.double(), activation)
            yield relative_error(activate_gate(x, activation), exact)


def _attention(context: Context, name: str, dtype: torch.dtype, heads: Heads, form: str) -> Record:
    """Checks decode rows, chunks behind a context, whole prompts, and all of them in one call."""
    kept = dict(FORMS[form])
    if "sinks" in kept:
        kept["sinks"] = torch.linspace(-2, 4, heads.queries, device=dispatch.device())
    most = max(context.scale.token_counts)
    batches = [([1, 17, 3 * most, 5 * most + 3], [1, 1, 1, 1]), ([most + 7, 33], [most, 33]),
               ([2, 40, 2 * most, 16, 129], [1, 40, most, 16, 1])]
    errors = []
    for lengths, counts in batches:
        paged = Paged(lengths, heads, dtype)
        q = paged.queries(counts)
        with poisoned():
            out = paged.attend(q, counts, **kept)
        errors.append(relative_error(out, paged.exact(q, counts, **kept)))
    return _judged(context, name, errors, TOLERANCE[dtype])


def _scaled_attention(context: Context, name: str, cache_dtype: torch.dtype) -> Record:
    dtype, heads = context.scale.dtypes[0], Heads.of(context.scale.model)
    try:
        block_bytes(block_size=16, num_kv_heads=heads.keys, head_dim=heads.size, dtype=cache_dtype)
    except ValueError as error:
        return context.record(name, note=str(error))
    errors, some = [], min(70, max(context.scale.token_counts))
    for lengths, counts in (([4 * some + 20, 17], [1, 1]), ([some + 30, 40], [some, 40])):
        paged = Paged(lengths, heads, dtype, cache_dtype)
        q = paged.queries(counts)
        errors.append(relative_error(paged.attend(q, counts), paged.exact(q, counts)))
    return _judged(context, name, errors, TOLERANCE[torch.bfloat16])


def _sample(context: Context) -> Record:
    """Checks each case of CASES in its row: the same token as in float64, and as likely."""
    vocab_size = context.scale.vocab_size
    rows = [row for row in CASES.values() if "top_n" not in row]
    logits = 3 * randn(len(rows), vocab_size, dtype=torch.float32)
    columns = parameters(rows)
    ids = torch.randint(vocab_size, (300 * len(rows),))
    history = History(ids, torch.arange(0, len(ids) + 1, 300))
    biases = Biases(torch.tensor([1, 2]), torch.tensor([2.0, -torch.inf]), torch.tensor([0, 2] + [2] * (len(rows) - 1)))
    masks = torch.randint(-(2**31), 2**31, (1, -(-vocab_size // 32))).int()
    on_device = (moved_parameters(columns), moved(history), moved(biases), masks.to(logits.device))
    with poisoned():
        out = sample(logits, *on_device, 0)
    exact = sample_reference.sample(logits.cpu(), columns, history, biases, masks, 0)
    equal = int((out.ids.cpu() == exact.ids).sum())
    errors = (out.logprobs.cpu() - exact.logprobs).abs() / exact.logprobs.abs().clamp(min=1)
    return context.record("sample", is_right=equal == len(rows) and bool((errors <= LOGPROB_TOLERANCE).all()),
                          error=float(errors.max()), tolerance=LOGPROB_TOLERANCE, shapes=len(rows),
                          note=f"{equal} of {len(rows)} tokens are those of float64")


def _prompt_logprobs(context: Context) -> Record:
    errors = []
    for rows in context.scale.token_counts:
        logits = 3 * randn(rows, context.scale.vocab_size, dtype=torch.float32)
        targets = torch.randint(context.scale.vocab_size, (rows,), device=logits.device)
        with poisoned():
            logprobs, _ = prompt_logprobs(logits, targets, torch.zeros_like(targets), 0)
        exact = torch.log_softmax(logits.double(), dim=1).gather(1, targets[:, None])[:, 0]
        errors.append(relative_error(logprobs, exact))
    return _judged(context, "prompt_logprobs", errors, LOGPROB_TOLERANCE)
