"""All blocks of an encoder in one call, by the compiled kernels: the bits are those of the ops one after the other."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from penstock.kernels import native
from penstock.kernels.activation import Activation, activate, activate_gate
from penstock.kernels.attention_metadata import AttentionMetadata
from penstock.kernels.full_attention import full_attention
from penstock.kernels.fused.encoder import EncoderBlocks, EncoderLayer, LayerNorm
from penstock.kernels.layer_norm import layer_norm
from penstock.kernels.linear import PackedWeight, linear, pack
from penstock.kernels.linear.tiled import pack_tiled
from penstock.kernels.rope import rope
from tests import kernel_sets
from tests.kernels.accuracy import DTYPES
from tests.kernels.compiled import poison, threads

WIDTH, INNER, HEADS, KV_HEADS, DIM = 80, 96, 4, 2, 24
COUNTS = [5, 1, 0, 33]
Packing = Callable[..., PackedWeight]


@dataclass(frozen=True)
class Form:
    """What blocks may have."""

    is_post_norm: bool = True
    is_gated: bool = False
    has_biases: bool = True
    is_rotated: bool = False
    window: int = 0
    reach: int | None = None
    is_first_normed: bool = True


FORMS = {
    "bert": Form(), "modernbert": Form(False, True, False, True, 6, None, False),
    "mpnet": Form(reach=5), "nomic": Form(True, True, False, True), "pre-norm": Form(False)}


def layers(form: Form, dtype: torch.dtype, pack: Packing = pack) -> list[EncoderLayer]:
    generator = torch.Generator().manual_seed(7)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator) * shape[-1] ** -0.5

    def bias(size: int) -> Tensor | None:
        return random(size).to(dtype) if form.has_biases else None

    def norm() -> LayerNorm:
        return LayerNorm(1 + random(1, WIDTH).to(dtype), random(1, WIDTH).to(dtype) if form.has_biases else None, 1e-5)

    def layer() -> EncoderLayer:
        outputs, inner = (HEADS + 2 * KV_HEADS) * DIM, (1 + form.is_gated) * INNER
        angles = torch.arange(40)[:, None] * 0.7 ** torch.arange(DIM // 2)
        return EncoderLayer(
            norm(), pack(random(outputs, WIDTH).to(dtype)), bias(outputs),
            (angles.cos(), angles.sin()) if form.is_rotated else None,
            pack(random(WIDTH, HEADS * DIM).to(dtype), 8), bias(WIDTH), norm(),
            pack(random(inner, WIDTH).to(dtype)), bias(inner), pack(random(WIDTH, INNER).to(dtype), 8), bias(WIDTH),
            HEADS, KV_HEADS, DIM, 0.2, form.window,
            None if form.reach is None else random(HEADS, 2 * form.reach + 1), Activation.GELU, form.is_gated,
            form.is_post_norm)

    first, *rest = (layer() for _ in range(3))
    return [first if form.is_first_normed else replace(first, attention_norm=None), *rest]


def metadata(counts: list[int]) -> AttentionMetadata:
    positions = torch.cat([torch.arange(count) for count in counts])
    lengths = torch.tensor(counts, dtype=torch.int32)
    tables = torch.empty(len(counts), 0, dtype=torch.int32)
    return AttentionMetadata(positions, torch.zeros_like(positions), tables, torch.zeros_like(lengths), lengths)


def by_ops(chosen: list[EncoderLayer], x: Tensor, step: AttentionMetadata) -> tuple[Tensor, Tensor | None]:
    delta = None
    for layer in chosen:
        if layer.is_post_norm:
            x = normed(layer.attention_norm, attended(layer, x, step), x)[0]
            x = normed(layer.feed_forward_norm, fed(layer, x), x)[0]
        else:
            own, x = normed(layer.attention_norm, x, delta)
            own, x = normed(layer.feed_forward_norm, x, attended(layer, own, step))
            delta = fed(layer, own)
    return x, delta


def normed(norm: LayerNorm | None, x: Tensor, residual: Tensor | None) -> tuple[Tensor, Tensor]:
    return (x, x) if norm is None else layer_norm(x, norm.weight, norm.bias, norm.eps, residual)


def attended(layer: EncoderLayer, x: Tensor, step: AttentionMetadata) -> Tensor:
    q, k, v = linear(x, layer.qkv, layer.qkv_bias).view(len(x), -1, DIM).split([HEADS, KV_HEADS, KV_HEADS], 1)
    if layer.rotation is not None:
        q, k = rope(q, k, *layer.rotation, step.positions)
    out = full_attention(q, k, v, step.counts, scale=layer.scale, window=layer.window, bias=layer.bias)
    return linear(out.flatten(1), layer.output, layer.output_bias)


def fed(layer: EncoderLayer, x: Tensor) -> Tensor:
    inner = linear(x, layer.gate_up, layer.gate_up_bias)
    return linear((activate_gate if layer.is_gated else activate)(inner, layer.activation), layer.down, layer.down_bias)


def numbers(count: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(count, WIDTH, generator=torch.Generator().manual_seed(8)).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", FORMS)
def test_bits_are_those_of_the_ops(cpu_kernels, monkeypatch, form, dtype):
    poison(monkeypatch)
    chosen, step, x = layers(FORMS[form], dtype), metadata(COUNTS), numbers(sum(COUNTS), dtype)
    total, delta = by_ops(chosen, x, step)
    for count in (1, 3):
        with threads(count):
            own = x.clone()
            found, found_delta = EncoderBlocks(chosen)(own, step)
            assert found is own
            assert torch.equal(found, total)
            assert (found_delta is None) == (delta is None)
            assert delta is None or torch.equal(found_delta, delta)


@pytest.mark.skipif(not native.may_use_tiles(), reason="this processor has no tiles")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("form", FORMS)
def test_bits_are_those_of_the_ops_in_tiles(monkeypatch, form, dtype):
    kernel_sets.use(monkeypatch, f"cpu-{native.TILES}")
    poison(monkeypatch)
    chosen, step, x = layers(FORMS[form], dtype, pack_tiled), metadata(COUNTS), numbers(sum(COUNTS), torch.float32)
    total, delta = by_ops(chosen, x, step)
    with threads(2):
        found, found_delta = EncoderBlocks(chosen)(x.clone(), step)
    assert torch.equal(found, total)
    assert delta is None or torch.equal(found_delta, delta)


def test_many_texts_are_computed_some_at_a_time(cpu_kernels):
    chosen = layers(FORMS["modernbert"], torch.float32)
    wide = replace(chosen[0], gate_up=pack(torch.randn(2 * 30000, WIDTH) * 0.1), down=pack(torch.randn(WIDTH, 30000)))
    step, x = metadata(COUNTS), numbers(sum(COUNTS), torch.float32)
    total, delta = by_ops([wide, *chosen[1:]], x, step)
    found, found_delta = EncoderBlocks([wide, *chosen[1:]])(x.clone(), step)
    assert torch.equal(found, total)
    assert torch.equal(found_delta, delta)


def test_layers_that_do_not_fit_together(cpu_kernels):
    (bert, *_), (modern, *_) = layers(FORMS["bert"], torch.float32), layers(FORMS["modernbert"], torch.float32)
    with pytest.raises(ValueError, match=r"EncoderLayer: down is \[80, 96\], expected|gate_up is \[96, 80\]"):
        replace(bert, is_gated=True)
    with pytest.raises(ValueError, match="a block of post-norm needs both norms"):
        replace(bert, attention_norm=None)
    with pytest.raises(ValueError, match=r"widths \[80\], expected one, and one order"):
        EncoderBlocks([bert, modern])
    with pytest.raises(ValueError, match="only the first block may have no norm"):
        EncoderBlocks([modern, modern])


def test_counts_of_other_rows(cpu_kernels):
    blocks, step = EncoderBlocks(layers(FORMS["bert"], torch.float32)), metadata([3])
    step.counts.fill_(2)
    with pytest.raises(ValueError, match="q has 3 rows, counts are"):
        blocks(numbers(3, torch.float32), step)
