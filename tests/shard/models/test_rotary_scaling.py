"""Rotary frequencies and tables against transformers' own, from configurations in both of their forms."""

import logging
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from penstock.shard.communication.distributed import Group
from penstock.shard.layers.decoder import Decoder
from penstock.shard.layers.rope import Rotary
from penstock.shard.models.keys import ModelConfigError
from penstock.shard.models.model_options import ModelOptions
from penstock.shard.models.reading import read_model_config
from tests.family_models import make_family
from tests.tiny_models import SCALINGS, make_tiny, rewrite_old

HEAD_DIM = 128
YARN: dict[str, Any] = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}
QWEN = YARN | {"rope_theta": 1000000.0, "original_max_position_embeddings": 32768}
LONGROPE: dict[str, Any] = {
    "rope_type": "longrope", "original_max_position_embeddings": 4096, "long_factor": [32.0] * 64,
    "short_factor": [1.0 + 0.013 * pair for pair in range(64)]}
# rope_parameters, and max_position_embeddings
ROTATIONS: dict[str, tuple[dict[str, Any], int]] = {
    "plain": ({"rope_type": "default", "rope_theta": 500000.0}, 131072),
    "linear": ({"rope_type": "linear", "factor": 2.5}, 10240),
    "Llama 3.1": ({"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
                   "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}, 131072),
    "Llama 3.2": ({"rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0, "low_freq_factor": 1.0,
                   "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}, 131072),
    "Qwen2.5": (QWEN, 32768),
    "Qwen3": (QWEN, 131072),
    "yarn, attention factor": (YARN | {"attention_factor": 1.5}, 8192),
    "yarn, betas": (YARN | {"beta_fast": 64, "beta_slow": 0.5}, 8192),
    "yarn, zeros": (YARN | {"beta_fast": 0, "beta_slow": None, "mscale": 1.0, "mscale_all_dim": 0}, 8192),
    "yarn, mscale": (YARN | {"mscale": 0.707, "mscale_all_dim": 1.0}, 8192),
    "yarn, one mscale": (YARN | {"mscale": 0.5}, 8192),
    "yarn, not truncated": (YARN | {"truncate": False}, 8192),
    "yarn, no ramp": (YARN | {"rope_theta": 1e4, "beta_fast": 2, "beta_slow": 2, "truncate": False}, 8192),
    "yarn, factor from lengths": (YARN | {"factor": None, "original_max_position_embeddings": 1500}, 8192),
    "yarn, no factor": (YARN | {"factor": 0.5}, 8192),
    "yarn, no original length": ({"rope_type": "yarn", "factor": 2.0}, 4096),
    "dynamic": ({"rope_type": "dynamic", "factor": 2.5}, 4096),
    "longrope": (LONGROPE, 131072),
    "longrope, factor": (LONGROPE | {"factor": 16.0}, 131072),
    "longrope, attention factor": (LONGROPE | {"attention_factor": 1.25}, 131072),
    "longrope, not longer": (LONGROPE, 4096),
}


@pytest.mark.parametrize(("scaling", "factor"), [("linear", 2.5), ("dynamic", 4.0)])
def test_what_is_asked_for_takes_the_place_of_what_the_checkpoint_says(
    tmp_path: Path, scaling: Literal["linear", "dynamic"], factor: float
) -> None:
    save(tmp_path, {"rope_type": scaling, "rope_theta": 5000.0, "factor": factor}, 4096)
    expected = read_model_config(tmp_path)
    save(tmp_path, QWEN | {"rope_theta": 5000.0}, 4096)
    assert read_model_config(tmp_path, ModelOptions(rope_scaling=scaling, rope_factor=factor)) == expected


@pytest.mark.parametrize("family", ["bloom", "gptj", "gemma3"])
def test_a_model_that_cannot_be_scaled(tmp_path: Path, family: str) -> None:
    with pytest.raises(ModelConfigError, match="--rope-scaling linear: the model has no rotary embeddings, or such"):
        read_model_config(make_family(tmp_path, family), ModelOptions(rope_scaling="linear", rope_factor=2.0))


def save(path: Path, rope: dict[str, Any], context: int) -> LlamaConfig:
    """Write a config.json in the new form; only what rotary embeddings need has its real size."""
    config = LlamaConfig(
        architectures=["LlamaForCausalLM"], dtype="float32", hidden_size=8, num_attention_heads=1, head_dim=HEAD_DIM,
        max_position_embeddings=context, rope_parameters={"rope_theta": 10000.0} | rope)
    config.save_pretrained(path)
    return config


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.slow if name in ("plain", "Llama 3.2", "Qwen3") else ())  # 131,072 places
    for name in ROTATIONS])
def test_angles(tmp_path: Path, name: str) -> None:
    config = save(tmp_path, *ROTATIONS[name])
    (rotation,) = read_model_config(tmp_path).rotations
    theirs = LlamaRotaryEmbedding(config)
    assert torch.equal(torch.tensor(rotation.frequencies), theirs.inv_freq)
    assert rotation.amplitude == theirs.attention_scaling
    rotary = Rotary(rotation)
    positions = torch.arange(rotation.context_length)[None]
    cos, sin = (table[0, :, : HEAD_DIM // 2] for table in theirs(torch.zeros(1), positions))
    # The angles are theirs to the bit: another float32 at position 131071 would be off by 4e-3.
    torch.testing.assert_close(rotary.cos, cos, rtol=0, atol=1.8e-7 * rotation.amplitude)
    torch.testing.assert_close(rotary.sin, sin, rtol=0, atol=1.8e-7 * rotation.amplitude)


@pytest.mark.parametrize("name", ROTATIONS)
def test_both_forms_say_the_same(tmp_path: Path, name: str) -> None:
    save(tmp_path, *ROTATIONS[name])
    new = read_model_config(tmp_path)
    rewrite_old(tmp_path / "config.json")
    assert read_model_config(tmp_path) == new


@pytest.mark.parametrize(("name", "length", "is_limited"), [
    ("plain", 131072, False), ("Llama 3.1", 131072, False), ("Qwen2.5", 32768, False), ("Qwen3", 131072, False),
    ("linear", 10240, False), ("dynamic", 4096, True), ("longrope", 4096, True), ("longrope, not longer", 4096, True),
])
def test_context(tmp_path: Path, name: str, length: int, is_limited: bool) -> None:
    save(tmp_path, *ROTATIONS[name])
    config = read_model_config(tmp_path)
    assert config.context_length == length
    assert bool(config.limitation) == is_limited


@pytest.mark.parametrize("name", ["dynamic", "longrope"])
def test_beyond_the_context_other_angles_begin(tmp_path: Path, name: str) -> None:
    """What the limit is for: one position more, and transformers turns the first tokens otherwise."""
    config = save(tmp_path, *ROTATIONS[name])
    length = read_model_config(tmp_path).context_length
    theirs = LlamaRotaryEmbedding(config)
    within, beyond = (theirs(torch.zeros(1), torch.arange(end)[None])[0][0, :length] for end in (length, length + 1))
    assert not torch.equal(within, beyond)


@pytest.mark.parametrize(("scaling", "messages"), [
    ("yarn", []),
    ("dynamic", ["The context ends at 256 tokens: dynamic rotary scaling changes every angle of a longer sequence"]),
    ("longrope", ["The context ends at 128 tokens: longrope rotary scaling changes every angle of a longer sequence"]),
])
def test_the_limit_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, scaling: str, messages: list[str]
) -> None:
    make_tiny(tmp_path, rope=SCALINGS[scaling])
    with caplog.at_level(logging.WARNING, logger="penstock.shard"):
        Decoder.load(tmp_path, None, Group())
    assert [record.getMessage() for record in caplog.records if record.name.startswith("penstock.shard")] == messages


def test_only_rank_0_says_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make_tiny(tmp_path, rope=SCALINGS["dynamic"])
    Decoder.load(tmp_path, None, Group(1, 2))
    assert [record for record in caplog.records if record.name.startswith("penstock.shard")] == []
