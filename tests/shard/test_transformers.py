"""The decoder against Hugging Face's own, on the same checkpoints."""

from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from shard.distributed import Group
from shard.layers.rope import Rotary
from shard.models.decoder import Decoder
from tests.tiny_models import make_tiny, prompt_logits, random_ids

VOCAB = 160
IDS = random_ids(40, VOCAB)
HALF_DTYPES = [torch.bfloat16, torch.float16]


def ours(path: Path, dtype: torch.dtype | None) -> Tensor:
    logits = prompt_logits(Decoder.load(path, dtype, Group()), IDS)
    assert logits is not None
    assert logits.dtype == torch.float32
    return logits


@torch.no_grad()
def theirs(path: Path, dtype: torch.dtype) -> Tensor:
    logits: Tensor = LlamaForCausalLM.from_pretrained(path, dtype=dtype)(IDS[None]).logits[0]
    return logits.float()


def relative_rms(logits: Tensor, expected: Tensor) -> float:
    return float((logits - expected).double().norm() / expected.double().norm())


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("kv_heads", [8, 4, 2, 1])
@pytest.mark.parametrize("head_dim", [32, 48, 64, 80, 128, 256])
@pytest.mark.parametrize("dtype", [torch.float32, *HALF_DTYPES])
def test_logits(tmp_path: Path, dtype: torch.dtype, head_dim: int, kv_heads: int, tied: bool) -> None:
    make_tiny(tmp_path, heads=8, kv_heads=kv_heads, head_dim=head_dim, vocab=VOCAB, tied=tied, dtype=dtype)
    expected = theirs(tmp_path, torch.float32)
    error = relative_rms(ours(tmp_path, dtype), expected)
    bound = 1e-5 if dtype == torch.float32 else 1.2 * relative_rms(theirs(tmp_path, dtype), expected)
    assert error <= bound


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


def test_rotary_angles() -> None:
    theta, head_dim, num_positions = 500000.0, 128, 131072
    config = LlamaConfig(
        head_dim=head_dim,
        max_position_embeddings=num_positions,
        rope_parameters={"rope_type": "default", "rope_theta": theta},
    )
    positions = torch.arange(num_positions)[None]
    cos, sin = (table[0, :, : head_dim // 2] for table in LlamaRotaryEmbedding(config)(torch.zeros(1), positions))
    rotary = Rotary(head_dim, theta, num_positions)
    # The angles are theirs to the bit: another float32 at position 131071 would be off by 4e-3.
    torch.testing.assert_close(rotary.cos, cos, rtol=0, atol=1.2e-7)
    torch.testing.assert_close(rotary.sin, sin, rtol=0, atol=1.2e-7)
