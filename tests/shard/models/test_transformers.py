"""The decoder against Hugging Face's own, on the same checkpoints."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from penstock.shard.communication.distributed import Group
from penstock.shard.layers.decoder import Decoder
from tests.pairwise import pairwise
from tests.tiny_models import SCALINGS, SLIDING_LAYERS, WINDOW, make_tiny, prompt_logits, random_ids

VOCAB = 160
IDS = random_ids(40, VOCAB)
FAMILIES: dict[str, dict[str, Any]] = {  # for make_tiny
    "llama": {"family": "llama"},
    "mistral, window": {"family": "mistral", "sliding_window": WINDOW},
    "qwen2, window": {"family": "qwen2", "max_window_layers": 1, **SLIDING_LAYERS},
    "qwen3, window, biases": {"family": "qwen3", "max_window_layers": 0, "attention_bias": True, **SLIDING_LAYERS},
}
HALF_DTYPES = [torch.bfloat16, torch.float16]


def ours(path: Path, dtype: torch.dtype | None) -> Tensor:
    logits = prompt_logits(Decoder.load(path, dtype, Group()), IDS)
    assert logits is not None
    assert logits.dtype == torch.float32
    return logits


@torch.no_grad()
def theirs(path: Path, dtype: torch.dtype) -> Tensor:
    model = AutoModelForCausalLM.from_pretrained(path, dtype=dtype, attn_implementation="eager")
    logits: Tensor = model(IDS[None]).logits[0]
    return logits.float()


def relative_rms(logits: Tensor, expected: Tensor) -> float:
    return float((logits - expected).double().norm() / expected.double().norm())


def check(path: Path, dtype: torch.dtype) -> None:
    """In float32 the logits are theirs; in a shorter format they are about as near to those as theirs are."""
    expected = theirs(path, torch.float32)
    bound = 1e-5 if dtype == torch.float32 else 1.2 * relative_rms(theirs(path, dtype), expected)
    assert relative_rms(ours(path, dtype), expected) <= bound


@pairwise(dtype=[torch.float32, *HALF_DTYPES], head_dim=[32, 48, 64, 80, 128, 256], kv_heads=[8, 4, 2, 1],
          tied=[False, True])
def test_logits(tmp_path: Path, dtype: torch.dtype, head_dim: int, kv_heads: int, tied: bool) -> None:
    make_tiny(tmp_path, heads=8, kv_heads=kv_heads, head_dim=head_dim, vocab=VOCAB, tied=tied, dtype=dtype)
    check(tmp_path, dtype)


@pairwise(dtype=[torch.float32, torch.bfloat16], scaling=list(SCALINGS), name=list(FAMILIES))
def test_scalings(tmp_path: Path, dtype: torch.dtype, scaling: str, name: str) -> None:
    make_tiny(tmp_path, vocab=VOCAB, dtype=dtype, rope=SCALINGS[scaling], **FAMILIES[name])
    check(tmp_path, dtype)


@pytest.mark.parametrize("name", list(FAMILIES)[1:])
def test_the_window_matters_and_only_beyond_it(tmp_path: Path, name: str) -> None:
    """Otherwise a window that neither of the two observes would go unnoticed above."""
    narrow, wide = (
        ours(make_tiny(tmp_path / f"{window}", vocab=VOCAB, **FAMILIES[name] | {"sliding_window": window}), None)
        for window in (WINDOW, len(IDS)))
    assert torch.equal(narrow[:WINDOW], wide[:WINDOW])
    assert relative_rms(narrow[WINDOW:], wide[WINDOW:]) > 0.01


@pytest.mark.parametrize("scaling", [None, *SCALINGS])
@pytest.mark.parametrize("name", FAMILIES)
def test_old_configurations(tmp_path: Path, name: str, scaling: str | None) -> None:
    new, old = (
        make_tiny(tmp_path / form, vocab=VOCAB, rope=SCALINGS.get(scaling or ""), is_old_config=form == "old",
                  **FAMILIES[name]) for form in ("new", "old"))
    assert torch.equal(ours(old, None), ours(new, None))


@pytest.mark.parametrize("dtype", HALF_DTYPES)
def test_checkpoint_in_another_dtype(tmp_path: Path, dtype: torch.dtype) -> None:
    make_tiny(tmp_path, vocab=VOCAB, dtype=dtype)
    assert relative_rms(ours(tmp_path, torch.float32), theirs(tmp_path, torch.float32)) <= 1e-5


def test_biases(tmp_path: Path) -> None:
    make_tiny(tmp_path, vocab=VOCAB, has_bias=True)
    assert relative_rms(ours(tmp_path, None), theirs(tmp_path, torch.float32)) <= 1e-5


def test_old_configuration_and_many_files(tmp_path: Path) -> None:
    new = make_tiny(tmp_path / "new", vocab=VOCAB, head_dim=16, dtype=torch.bfloat16)
    old = make_tiny(tmp_path / "old", vocab=VOCAB, head_dim=16, dtype=torch.bfloat16,
                    max_file_size="50KB", is_old_config=True)
    assert len(list(old.glob("*.safetensors"))) > 2
    assert torch.equal(ours(old, None), ours(new, None))


@pytest.mark.parametrize("rows", [[], [39], [3, 0, 39]])
def test_only_the_wanted_rows_have_logits(tmp_path: Path, rows: list[int]) -> None:
    make_tiny(tmp_path, vocab=VOCAB)
    decoder, wanted = Decoder.load(tmp_path, None, Group()), torch.tensor(rows, dtype=torch.int64)
    logits = prompt_logits(decoder, IDS, output_rows=wanted)
    assert logits is not None
    assert torch.equal(logits, ours(tmp_path, None)[wanted])
