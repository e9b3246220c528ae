"""Reading config.json in both of its forms, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from shard.models.config import ModelConfig, ModelConfigError
from tests.tiny_models import DEMO_MODEL

NEW: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "dtype": "bfloat16",
    "eos_token_id": 2,
    "head_dim": 32,
    "hidden_act": "silu",
    "hidden_size": 256,
    "intermediate_size": 704,
    "max_position_embeddings": 2048,
    "mlp_bias": False,
    "num_attention_heads": 8,
    "num_hidden_layers": 3,
    "num_key_value_heads": 4,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"},
    "tie_word_embeddings": True,
    "vocab_size": 8192,
}
ABSENT = object()


def read(path: Path, generation: dict[str, Any] | None = None, **changes: Any) -> ModelConfig:
    """The configuration NEW with some of its keys changed, or removed."""
    values = {key: value for key, value in (NEW | changes).items() if value is not ABSENT}
    (path / "config.json").write_text(json.dumps(values))
    if generation is not None:
        (path / "generation_config.json").write_text(json.dumps(generation))
    return ModelConfig.from_dir(path)


def test_new_form(tmp_path: Path) -> None:
    assert read(tmp_path) == ModelConfig(
        architecture="LlamaForCausalLM",
        vocab_size=8192,
        hidden_size=256,
        intermediate_size=704,
        num_layers=3,
        num_heads=8,
        num_kv_heads=4,
        head_dim=32,
        context_length=2048,
        rms_norm_eps=1e-6,
        rope_theta=500000.0,
        qkv_bias=False,
        output_bias=False,
        mlp_bias=False,
        is_head_tied=True,
        dtype=torch.bfloat16,
        eos_token_ids=(2,),
    )


@pytest.mark.parametrize("scaling", [ABSENT, None, {"rope_type": "default"}, {"type": "default"}])
def test_old_form(tmp_path: Path, scaling: Any) -> None:
    old = read(tmp_path, rope_parameters=ABSENT, rope_theta=500000.0, rope_scaling=scaling,
               dtype=ABSENT, torch_dtype="bfloat16", head_dim=ABSENT)
    assert old == read(tmp_path)


def test_defaults(tmp_path: Path) -> None:
    names = ("rope_parameters", "dtype", "attention_bias", "mlp_bias", "tie_word_embeddings", "hidden_act")
    absent: dict[str, Any] = dict.fromkeys(names, ABSENT)
    config = read(tmp_path, head_dim=None, num_key_value_heads=None, eos_token_id=None, **absent)
    assert config.rope_theta == 10000.0
    assert config.dtype == torch.float32
    assert (config.head_dim, config.num_kv_heads) == (32, 8)
    assert (config.qkv_bias, config.output_bias, config.mlp_bias, config.is_head_tied) == (False,) * 4
    assert config.eos_token_ids == ()


def test_switches(tmp_path: Path) -> None:
    config = read(tmp_path, attention_bias=True)
    assert (config.qkv_bias, config.output_bias, config.mlp_bias) == (True, True, False)
    assert read(tmp_path, mlp_bias=True).mlp_bias


@pytest.mark.parametrize(
    ("in_config", "in_generation", "expected"),
    [
        (2, None, (2,)),
        ([2, 3], None, (2, 3)),
        (2, {"eos_token_id": [5, 6]}, (5, 6)),
        (2, {"eos_token_id": 7}, (7,)),
        (2, {"eos_token_id": None}, (2,)),
        (2, {}, (2,)),
    ],
)
def test_end_tokens(tmp_path: Path, in_config: Any, in_generation: Any, expected: tuple[int, ...]) -> None:
    assert read(tmp_path, in_generation, eos_token_id=in_config).eos_token_ids == expected


def test_demo_model() -> None:
    config = ModelConfig.from_dir(DEMO_MODEL)
    assert (config.num_layers, config.context_length, config.dtype) == (8, 2048, torch.bfloat16)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": ["MambaForCausalLM"]},
         r"architectures: expected one of LlamaForCausalLM, found \['MambaForCausalLM'\]"),
        ({"architectures": ABSENT}, "architectures: expected one of LlamaForCausalLM, found no such key"),
        ({"hidden_act": "gelu"}, "hidden_act: expected 'silu', the only one supported, found 'gelu'"),
        ({"quantization_config": {"bits": 4}}, "quantization_config: expected none, found {'bits': 4}"),
        ({"vocab_size": ABSENT}, "vocab_size: expected a whole number of at least 1, found no such key"),
        ({"num_hidden_layers": 0}, "num_hidden_layers: expected a whole number of at least 1, found 0"),
        ({"hidden_size": "256"}, "hidden_size: expected a whole number of at least 1, found '256'"),
        ({"intermediate_size": True}, "intermediate_size: expected a whole number of at least 1, found True"),
        ({"rms_norm_eps": -1}, "rms_norm_eps: expected a number above 0, found -1"),
        ({"rms_norm_eps": ABSENT}, "rms_norm_eps: expected a number above 0, found no such key"),
        ({"num_key_value_heads": 3}, "num_key_value_heads: expected a divisor of num_attention_heads = 8, found 3"),
        ({"head_dim": 33}, "head_dim: expected an even size, .*, found 33"),
        ({"head_dim": None, "hidden_size": 100}, "hidden_size: expected a multiple of num_attention_heads = 8,"),
        ({"mlp_bias": 1}, "mlp_bias: expected true or false, found 1"),
        ({"dtype": "float8_e4m3fn"}, "dtype: expected one of float32, bfloat16, float16, found 'float8_e4m3fn'"),
        ({"dtype": ABSENT, "torch_dtype": ["x"]}, r"torch_dtype: expected one of .*, found \['x'\]"),
        ({"rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0}},
         "rope_parameters.rope_type: expected 'default', the only one supported, found 'llama3'"),
        ({"rope_parameters": ABSENT, "rope_scaling": {"type": "linear", "factor": 2.0}},
         "rope_scaling.type: expected 'default', the only one supported, found 'linear'"),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1e4}}}, "rope_parameters.full_attention: expected none"),
        ({"rope_parameters": [1]}, r"rope_parameters: expected an object or null, found \[1\]"),
        ({"rope_parameters": {"rope_theta": "x"}}, "rope_parameters.rope_theta: expected a number above 0, found 'x'"),
        ({"rope_parameters": ABSENT, "rope_theta": 0}, "rope_theta: expected a number above 0, found 0"),
        ({"eos_token_id": "</s>"}, "eos_token_id: expected a token id, a list of them, or null, found '</s>'"),
        ({"eos_token_id": [2, -1]}, r"eos_token_id: expected a token id, a list of them, or null, found \[2, -1\]"),
    ],
)
def test_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelConfigError, match=f"config.json: {message}"):
        read(tmp_path, **changes)


def test_end_tokens_refused_name_their_file(tmp_path: Path) -> None:
    with pytest.raises(ModelConfigError, match=r"generation_config.json: eos_token_id: expected .* found 'x'"):
        read(tmp_path, {"eos_token_id": "x"})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"config.json does not exist"),
        ("{", r"config.json cannot be read: "),
        ("[]", r"config.json: expected an object of keys and values, found list"),
    ],
)
def test_unreadable(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(ModelConfigError, match=message):
        ModelConfig.from_dir(tmp_path)


def test_world_sizes(tmp_path: Path) -> None:
    config = read(tmp_path, num_attention_heads=12, num_key_value_heads=12, intermediate_size=704)
    for world_size in (1, 2, 4):
        config.check_world_size(world_size)
    with pytest.raises(ModelConfigError, match=r"over 3 shards.* intermediate_size = 704; it can be over 1, 2, 4$"):
        config.check_world_size(3)
    with pytest.raises(ModelConfigError, match="num_attention_heads = 12, num_key_value_heads = 12; it can be"):
        config.check_world_size(8)
    with pytest.raises(ModelConfigError, match=r"over 4 shards.* vocab_size = 5; it can be over 1, 2$"):
        read(tmp_path, num_attention_heads=8, num_key_value_heads=8, vocab_size=5).check_world_size(4)
