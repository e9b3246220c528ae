"""Every op of the GPU in all the ways that make a kernel of its own, on tensors whose contents never matter: what
tests/kernels/compile_only.py compiles, and what a memory checker runs on a GPU: `python -m tests.kernels.launches`."""

from collections.abc import Callable
from unittest import mock

import torch

from penstock.kernels import dispatch
from penstock.kernels.activation import Activation
from penstock.kernels.activation import gpu as activation
from penstock.kernels.causal_conv import gpu as causal_conv
from penstock.kernels.experts import Experts
from penstock.kernels.experts import gpu as experts
from penstock.kernels.full_attention import gpu as full_attention
from penstock.kernels.kv_cache import LARGEST, KvCache
from penstock.kernels.kv_write import gpu as kv_write
from penstock.kernels.layer_norm import gpu as layer_norm
from penstock.kernels.linear import DenseWeight, fixed_order
from penstock.kernels.paged_attention import gpu as paged_attention
from penstock.kernels.paged_attention.score_form import ScoreForm
from penstock.kernels.prompt_logprobs import gpu as prompt_logprobs
from penstock.kernels.quantised_linear import QuantisedWeight
from penstock.kernels.quantised_linear import gpu as quantised_linear
from penstock.kernels.quantised_linear.activations import Activations
from penstock.kernels.ranks import gpu as ranks
from penstock.kernels.recurrence import gpu as recurrence
from penstock.kernels.recurrence.heads import RecurrentHeads
from penstock.kernels.recurrent_state import StateRows, StateShape
from penstock.kernels.rms_norm import gpu as rms_norm
from penstock.kernels.rope import gpu as rope
from penstock.kernels.rope_kv_write import gpu as rope_kv_write
from penstock.kernels.route import gpu as route
from penstock.kernels.route.form import RouteForm, Scoring
from penstock.kernels.sample import Biases, History, SampleParameters
from penstock.kernels.sample import gpu as sample
from penstock.kernels.sample.parameters import COLUMNS
from penstock.kernels.segment_sum import gpu as segment_sum
from penstock.kernels.softcap import gpu as softcap
from tests.kernels.accuracy import DTYPES
from tests.kernels.coded import make

_divisor = 1


def part(size: int) -> int:
    """Returns a size of a real model, or for a memory checker, which is a hundred times slower, an eighth of it."""
    return size // _divisor


def norms() -> None:
    for dtype, width in (
            *((dtype, part(4096)) for dtype in DTYPES), (torch.bfloat16, 80), (torch.bfloat16, part(16384))):
        x = torch.ones(3, width, dtype=dtype)
        rms_norm.rms_norm(x, x[0], 1e-5, None)
        rms_norm.rms_norm(x, x[0], 1e-5, x)
        layer_norm.layer_norm(x, x[:1], None, 1e-5, None)
        layer_norm.layer_norm(x, x, x, 1e-5, x)


def activations() -> None:
    for dtype in DTYPES:
        for kind in Activation:
            activation.activate_gate(torch.ones(3, 2 * part(14336), dtype=dtype), kind)
            activation.activate(torch.ones(3, part(14336), dtype=dtype), kind)


def linears() -> None:
    """Of Llama 8B's shapes the narrow one and the wide one, with one segment and with eight."""
    for dtype in DTYPES:
        for inputs, outputs, segments in ((4096, 6144, 1), (14336, 4096, 8), (4096, 28672, 1)):
            inputs, outputs = part(inputs), part(outputs)
            weight, bias = torch.ones(outputs, inputs, dtype=dtype), torch.ones(outputs, dtype=dtype)
            for num_tokens in (1, 128, part(4096)) if dtype == torch.bfloat16 else (128,):
                x = torch.ones(num_tokens, inputs, dtype=dtype)
                fixed_order.matmul(x, weight, segments, None, dtype)
        fixed_order.matmul(x, weight, 1, bias, torch.float32)


def coded_linears() -> None:
    """Codes of 4 and 8 bits, with one zero or many, minima, a table; inputs in 8 bits and as they are."""
    for name, inputs in (("q4_0", 256), ("awq", 256), ("q5_k", 512), ("mxfp4", 256)):
        for activations in Activations:
            parts = quantised_linear.pack(make(name, 64, inputs), 1, activations)
            data = tuple(part.to(torch.get_default_device()) for part in parts)
            weight = QuantisedWeight(64, inputs, 1, torch.bfloat16, data, activations)
            for num_tokens in (1, 128):
                quantised_linear.linear(torch.ones(num_tokens, inputs, dtype=torch.bfloat16), weight, None,
                                        torch.bfloat16)


def logprobs() -> None:
    for num_rows, vocabulary, width in ((1, 8192, 5), (part(256), part(128256), 0)):
        ids = torch.zeros(num_rows, dtype=torch.int64)
        prompt_logprobs.prompt_logprobs(torch.ones(num_rows, vocabulary), ids, ids, width)
        ranks.ranks(torch.ones(num_rows, vocabulary), ids)


def samples() -> None:
    for num_rows, vocabulary, width in ((1, 8192, 5), (part(256), part(128256), 0), (3, part(128256), part(1024))):
        columns = {name: torch.ones(num_rows, dtype=dtype) for name, dtype in COLUMNS.items()}
        ids, offsets = torch.ones(3, dtype=torch.int64), torch.full((num_rows + 1,), 3)
        offsets[0] = 0
        masks = torch.ones(2, vocabulary // 32, dtype=torch.int32)
        sample.sample(torch.ones(num_rows, vocabulary), SampleParameters(**columns), History(ids, offsets),
                      Biases(ids, ids.float(), offsets), masks, width)


def caps() -> None:
    softcap.softcap(torch.zeros(3, part(128256)), 30.0)


def routes() -> None:
    for form in (RouteForm(8, Scoring.SIGMOID, num_groups=8, top_groups=4, group_best=2), RouteForm(8),
                 RouteForm(2, Scoring.SPARSE_MIXER, jitter=0.01)):
        route.route(torch.zeros(3, 128), torch.zeros(128) if form.scoring is Scoring.SIGMOID else None, form)


def mixtures() -> None:
    """Of Qwen3 30B-A3B's shape, then biases of gpt-oss's."""
    for dtype, inner, kind in (*((dtype, 768, Activation.SILU) for dtype in DTYPES),
                               (torch.bfloat16, 2880, Activation.CLAMPED_SWIGLU)):
        gate_up = DenseWeight(2 * inner, 2048, 1, dtype, torch.ones(2 * inner, 2048, dtype=dtype))
        down = DenseWeight(2048, inner, 8, dtype, torch.ones(2048, inner, dtype=dtype))
        bias = None if kind is Activation.SILU else torch.ones(4, 2 * inner, dtype=dtype)
        with mock.patch("penstock.kernels.experts._prepare", experts.prepare):
            layer = Experts([gate_up] * 4, [down] * 4, kind, bias)
        for is_deterministic in (False, True):
            with mock.patch.object(dispatch, "is_deterministic", lambda chosen=is_deterministic: chosen):
                ids = torch.arange(2, dtype=torch.int32).repeat(3, 1)
                experts.experts(torch.ones(3, 2048, dtype=dtype), ids, torch.ones(3, 2), layer, dtype)


def rotations() -> None:
    for dtype, head_dim, half in (
            *((dtype, 128, 64) for dtype in DTYPES), (torch.bfloat16, 80, 16), (torch.bfloat16, 256, 128)):
        q, table = torch.zeros(3, 32, head_dim, dtype=dtype), torch.zeros(8, half)
        for is_interleaved in (False, True):
            rope.rope(q, q[:, :8], table, table, torch.arange(3), is_interleaved)


def rotated_cache_writes() -> None:
    """Whole heads, then the halves in pairs, then a quarter of each."""
    tables, tokens = torch.zeros(2, 8, 64), torch.arange(3)
    forms = [(dtype, dtype, 64, False) for dtype in DTYPES]
    forms += [(torch.bfloat16, dtype, 64, False) for dtype in LARGEST]
    forms += [(torch.bfloat16, dtype, half, half == 64) for dtype in (torch.bfloat16, torch.int8) for half in (64, 16)]
    for dtype, cache_dtype, half, is_interleaved in forms:
        q = torch.zeros(3, 32, 128, dtype=dtype)
        rope_kv_write.rope_kv_write(q, q[:, :8], q[:, 8:16], *tables[:, :, :half].contiguous(), tokens, is_interleaved,
                                    _cache(128, cache_dtype), tokens)


def states() -> None:
    """Of Qwen3-Next and of Granite 4."""
    rows, dtype = StateRows(*torch.tensor([[1, 0], [0, 5], [2, 1]], dtype=torch.int32)), torch.bfloat16
    for heads in (RecurrentHeads(16, 128, 128, torch.zeros(32), torch.zeros(32), is_delta=True),
                  RecurrentHeads(1, 128, 64, torch.zeros(48), torch.zeros(48), torch.zeros(48))):
        matrices = heads.num_heads, heads.key_dim, heads.value_dim
        state = StateShape(3, heads.width, matrices, dtype).allocate(2, torch.get_default_device())
        x, bias = torch.zeros(3, heads.width, dtype=dtype), torch.zeros(heads.width)
        weight = torch.zeros(4, heads.width)
        causal_conv.causal_conv(x, weight, None if heads.is_delta else bias, state.inputs, rows)
        steps = torch.zeros(3, heads.num_heads, dtype=dtype)
        recurrence.recurrence(x, steps, steps if heads.is_delta else None, heads, state.matrices, rows)


def cache_writes() -> None:
    pairs = {*((dtype, dtype) for dtype in DTYPES), *((torch.bfloat16, dtype) for dtype in (*DTYPES, *LARGEST))}
    for dtype, cache_dtype in sorted(pairs, key=str):
        kv_write.kv_write(*torch.zeros(2, 3, 8, 128, dtype=dtype), _cache(128, cache_dtype), torch.arange(3))


def attention() -> None:
    """The head sizes of models in bfloat16, and other dtypes."""
    for dtype, head_dim in ((torch.bfloat16, 64), *((dtype, 128) for dtype in DTYPES), (torch.bfloat16, 256)):
        for is_ordered in (False, True):
            _attend(dtype, dtype, head_dim, is_ordered)


def attention_forms() -> None:
    """Caches of other dtypes, and all that may be done to scores."""
    for cache_dtype in (torch.float8_e4m3fn, torch.int8):
        for is_ordered in (False, True):
            _attend(torch.bfloat16, cache_dtype, 128, is_ordered)
    _attend(torch.bfloat16, torch.float8_e5m2, 128, False)
    _attend(torch.bfloat16, torch.float16, 128, False)
    for is_ordered in (False, True):
        _attend(torch.bfloat16, torch.bfloat16, 128, is_ordered,
                ScoreForm(0.1, window=100, softcap=30.0, sinks=torch.zeros(32), slopes=torch.zeros(32)))


def whole_texts() -> None:
    """Attention of encoders, of MiniLM's and of BERT's heads: plain, with a window, and with a bias. None has both."""
    counts = torch.tensor([300, 20], dtype=torch.int32)
    for dtype, head_dim in (*((dtype, 64) for dtype in DTYPES), (torch.bfloat16, 32)):
        q = torch.zeros(320, 12, head_dim, dtype=dtype)
        full_attention.full_attention(q, q, q, counts, 0.1, 0, None)
        full_attention.full_attention(q, q, q, counts, 0.1, 64, None)
        full_attention.full_attention(q, q, q, counts, 0.1, 0, torch.zeros(12, 257))


def segments() -> None:
    for dtype in DTYPES:
        segment_sum.segment_sum(torch.zeros(9, 384, dtype=dtype), torch.tensor([9], dtype=torch.int32),
                                torch.zeros(1, 384))


def _attend(dtype: torch.dtype, cache_dtype: torch.dtype, head_dim: int, is_ordered: bool,
            form: ScoreForm | None = None) -> None:
    """A chunk and a decode row."""
    starts, counts = torch.tensor([40, 5], dtype=torch.int32), torch.tensor([1, 30], dtype=torch.int32)
    tables = torch.arange(8, dtype=torch.int32).view(2, 4)
    with mock.patch.object(dispatch, "is_deterministic", return_value=is_ordered):
        paged_attention.paged_attention(torch.zeros(31, 32, head_dim, dtype=dtype), _cache(head_dim, cache_dtype),
                                        tables, starts, counts, form or ScoreForm(0.1), False)


def _cache(head_dim: int, dtype: torch.dtype) -> KvCache:
    size = paged_attention.block_bytes(16, 8, head_dim, dtype)
    return KvCache(torch.zeros(8, size, dtype=torch.uint8), 16, 8, head_dim, dtype)


LAUNCHES: tuple[Callable[[], None], ...] = (
    norms, activations, caps, attention, attention_forms, whole_texts, routes, linears, mixtures, rotations, samples,
    rotated_cache_writes, segments, states, logprobs, cache_writes, coded_linears)


def main() -> None:
    global _divisor
    _divisor = 8
    torch.set_default_device("cuda")
    for launch in LAUNCHES:
        launch()
        torch.cuda.synchronize()
        print(f"{launch.__name__}: ran", flush=True)


if __name__ == "__main__":
    main()
