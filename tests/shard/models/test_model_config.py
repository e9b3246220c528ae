"""Reading config.json in both of its forms, and what is refused."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from penstock.shard.models.config import ModelConfig
from penstock.shard.models.families import NAMES
from penstock.shard.models.keys import ModelConfigError
from penstock.shard.models.parts import AttentionConfig, HeadConfig, HeadNorm, MlpConfig, NormConfig
from penstock.shard.models.reading import read_model_config
from penstock.shard.models.rotary_scaling import Rotation
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
QWEN = {"architectures": ["Qwen2ForCausalLM"], "use_sliding_window": True, "sliding_window": 64}
ALL = NAMES
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}


def read(path: Path, generation: dict[str, Any] | None = None, **changes: Any) -> ModelConfig:
    """The configuration NEW with some of its keys changed, or removed."""
    values = {key: value for key, value in (NEW | changes).items() if value is not ABSENT}
    (path / "config.json").write_text(json.dumps(values))
    if generation is not None:
        (path / "generation_config.json").write_text(json.dumps(generation))
    return read_model_config(path)


def biases_of(config: ModelConfig) -> tuple[bool, ...]:
    return config.attention.qkv_bias, config.attention.output_bias, config.mlp.has_bias


def expect_refusal(path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelConfigError, match=f"config.json: {message}"):
        read(path, **changes)


def test_new_form(tmp_path: Path) -> None:
    assert read(tmp_path) == ModelConfig(
        architecture="LlamaForCausalLM",
        vocab_size=8192,
        hidden_size=256,
        num_layers=3,
        context_length=2048,
        attention=AttentionConfig(
            num_heads=8, num_kv_heads=4, head_dim=32, scale=32**-0.5, windows=(0, 0, 0), rotations=(Rotation(
                frequencies=tuple((1 / 500000.0 ** (torch.arange(0, 32, 2) / 32)).tolist()), amplitude=1.0,
                context_length=2048),) * 3),
        mlp=MlpConfig(inner_size=704),
        norm=NormConfig(1e-6),
        head_norm=NormConfig(1e-6),
        head=HeadConfig(is_tied=True),
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
    assert config.rotations == read(tmp_path, rope_parameters={"rope_theta": 10000.0}).rotations
    assert config.dtype == torch.float32
    assert (config.attention.head_dim, config.attention.num_kv_heads) == (32, 8)
    assert biases_of(config) == (False,) * 3
    assert not config.head.is_tied
    assert config.eos_token_ids == ()


def test_switches(tmp_path: Path) -> None:
    config = read(tmp_path, attention_bias=True)
    assert biases_of(config) == (True, True, False)
    assert read(tmp_path, mlp_bias=True).mlp.has_bias


@pytest.mark.parametrize(
    ("architecture", "changes", "biases", "has_head_norms"),
    [
        ("LlamaForCausalLM", {"attention_bias": True}, (True, True, False), False),
        ("MistralForCausalLM", {"attention_bias": True}, (False, False, False), False),
        ("Qwen2ForCausalLM", {"attention_bias": ABSENT}, (True, False, False), False),
        ("Qwen3ForCausalLM", {}, (False, False, False), True),
        ("Qwen3ForCausalLM", {"attention_bias": True}, (True, True, False), True),
    ],
)
def test_families(
    tmp_path: Path, architecture: str, changes: dict[str, Any], biases: tuple[bool, ...], has_head_norms: bool
) -> None:
    config = read(tmp_path, architectures=[architecture], **changes)
    assert config.architecture == architecture
    assert biases_of(config) == biases
    assert config.attention.head_norm is (HeadNorm.SHARED if has_head_norms else HeadNorm.NONE)


@pytest.mark.parametrize(("architecture", "head_dim"), [("MistralForCausalLM", 32), ("Qwen3ForCausalLM", 128)])
def test_head_dim_of_a_configuration_without_it(tmp_path: Path, architecture: str, head_dim: int) -> None:
    assert read(tmp_path, architectures=[architecture], head_dim=ABSENT).attention.head_dim == head_dim
    assert read(tmp_path, architectures=[architecture], head_dim=64).attention.head_dim == 64


@pytest.mark.parametrize(
    ("architecture", "changes", "windows"),
    [
        ("LlamaForCausalLM", {"sliding_window": 64}, (0, 0, 0)),
        ("MistralForCausalLM", {"sliding_window": 64}, (64, 64, 64)),
        ("MistralForCausalLM", {"sliding_window": None}, (0, 0, 0)),
        ("MistralForCausalLM", {}, (4096, 4096, 4096)),
        ("Qwen2ForCausalLM", {}, (0, 0, 0)),
        ("Qwen2ForCausalLM", {"sliding_window": 64, "max_window_layers": 0}, (0, 0, 0)),
        ("Qwen2ForCausalLM", {"sliding_window": 64, "max_window_layers": 0, "use_sliding_window": False}, (0, 0, 0)),
        ("Qwen2ForCausalLM", {"sliding_window": 64, "max_window_layers": 0, "use_sliding_window": True}, (64, 64, 64)),
        ("Qwen2ForCausalLM", {"sliding_window": 64, "max_window_layers": 2, "use_sliding_window": True}, (0, 0, 64)),
        ("Qwen2ForCausalLM", {"sliding_window": 64, "max_window_layers": 28, "use_sliding_window": True}, (0, 0, 0)),
        ("Qwen2ForCausalLM", {"sliding_window": 64, "use_sliding_window": True}, (0, 0, 0)),
        ("Qwen2ForCausalLM", {"max_window_layers": 1, "use_sliding_window": True}, (0, 4096, 4096)),
        ("Qwen2ForCausalLM", {"sliding_window": None, "max_window_layers": 0, "use_sliding_window": True}, (0, 0, 0)),
        ("Qwen3ForCausalLM", {"sliding_window": 64, "max_window_layers": 0, "use_sliding_window": True,
                              "layer_types": ["full_attention", "sliding_attention", "full_attention"]}, (0, 64, 0)),
        ("Qwen3ForCausalLM", {"sliding_window": None, "use_sliding_window": False,
                              "layer_types": ["full_attention"] * 3}, (0, 0, 0)),
    ],
)
def test_windows(tmp_path: Path, architecture: str, changes: dict[str, Any], windows: tuple[int, ...]) -> None:
    assert read(tmp_path, architectures=[architecture], **changes).attention.windows == windows


def test_where_rotary_parameters_are_looked_for(tmp_path: Path) -> None:
    expected = read(tmp_path, rope_parameters=YARN | {"rope_theta": 500000.0})
    old: dict[str, Any] = {"rope_theta": 500000.0, "rope_scaling": YARN}
    assert read(tmp_path, rope_parameters=ABSENT, **old) == expected
    assert read(tmp_path, rope_parameters={"rope_type": "linear", "factor": 2.0}, **old) == expected
    assert read(tmp_path, rope_parameters=ABSENT, **old | {"rope_scaling": YARN | {"type": "linear"}}) == expected
    elsewhere = YARN | {"original_max_position_embeddings": 16}
    assert read(tmp_path, rope_parameters=elsewhere | {"rope_theta": 500000.0},
                original_max_position_embeddings=512) == expected
    assert read(tmp_path, rope_parameters=NEW["rope_parameters"], rope_scaling={}) == read(tmp_path)
    assert read(tmp_path, partial_rotary_factor=1.0) == read(tmp_path)


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
    config = read_model_config(DEMO_MODEL)
    assert (config.num_layers, config.context_length, config.dtype) == (8, 2048, torch.bfloat16)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": ["MambaForCausalLM"]},
         rf"architectures: expected one of {ALL}, found \['MambaForCausalLM'\]"),
        ({"architectures": ABSENT}, f"architectures: expected one of {ALL}, found no such key"),
        ({"hidden_act": "mish"}, "hidden_act: expected one of silu, swish, gelu, .*, found 'mish'"),
        ({"quantization_config": {"bits": 4}}, "quantization_config: expected none, or a quant_method of awq, "),
        ({"vocab_size": None}, "vocab_size: expected a whole number of at least 1, found None"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers: expected at most 4096, found 1000000000"),
        ({"max_position_embeddings": 10**12}, "max_position_embeddings: expected at most 16777216, found 1000000000"),
        ({"hidden_size": 10**12}, "hidden_size: expected at most 2147483647, found 1000000000000"),
        ({"head_dim": 2**31 - 2}, "head_dim: expected at most 16384, found 2147483646"),
        ({"num_hidden_layers": 10**4000}, r"num_hidden_layers: expected at most 4096, found 10{199}… \(4001 char"),
        ({"num_hidden_layers": 0}, "num_hidden_layers: expected a whole number of at least 1, found 0"),
        ({"hidden_size": "256"}, "hidden_size: expected a whole number of at least 1, found '256'"),
        ({"intermediate_size": True}, "intermediate_size: expected a whole number of at least 1, found True"),
        ({"rms_norm_eps": -1}, "rms_norm_eps: expected a number above 0, found -1"),
        ({"rms_norm_eps": None}, "rms_norm_eps: expected a number above 0, found None"),
        ({"num_key_value_heads": 3}, "num_key_value_heads: expected a divisor of num_attention_heads = 8, found 3"),
        ({"head_dim": 33}, "head_dim: expected an even size, .*, found 33"),
        ({"head_dim": None, "hidden_size": 100}, "hidden_size: expected a multiple of num_attention_heads = 8,"),
        ({"mlp_bias": 1}, "mlp_bias: expected true or false, found 1"),
        ({"dtype": "float8_e4m3fn"}, "dtype: expected one of float32, bfloat16, float16, found 'float8_e4m3fn'"),
        ({"dtype": ABSENT, "torch_dtype": ["x"]}, r"torch_dtype: expected one of .*, found \['x'\]"),
        ({"eos_token_id": "</s>"}, "eos_token_id: expected a token id, a list of them, or null, found '</s>'"),
        ({"eos_token_id": [2, "x"]}, r"eos_token_id: expected a token id, a list of them, or null, found \[2, 'x'\]"),
    ],
)
def test_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    expect_refusal(tmp_path, changes, message)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": ["MistralForCausalLM"], "sliding_window": 0},
         "sliding_window: expected a whole number of at least 1, found 0"),
        ({"architectures": ["MistralForCausalLM"], "layer_types": ["sliding_attention"] * 3},
         r"layer_types: expected none, found \['sliding_attention', "),
        (QWEN | {"use_sliding_window": 1}, "use_sliding_window: expected true or false, found 1"),
        (QWEN | {"sliding_window": "x"}, "sliding_window: expected a whole number of at least 1, found 'x'"),
        (QWEN | {"max_window_layers": -1}, "max_window_layers: expected a whole number of at least 0, found -1"),
        (QWEN | {"layer_types": ["full_attention"]},
         r"layer_types: expected a list of 3, each full_attention or sliding_attention, found \['full_attention'\]"),
        (QWEN | {"layer_types": ["full_attention", "conv", []]}, r"layer_types: expected a list of 3, .* \[\]\]"),
        (QWEN | {"layer_types": "full_attention"}, "layer_types: expected a list of 3, .* found 'full_attention'"),
        (QWEN | {"layer_types": ["sliding_attention"] * 3, "use_sliding_window": False},
         "layer_types: expected no sliding_attention, for sliding_window is null or use_sliding_window false, found"),
        (QWEN | {"layer_types": ["sliding_attention"] * 3, "sliding_window": None},
         "layer_types: expected no sliding_attention, for sliding_window is null or use_sliding_window false, found"),
    ],
)
def test_refused_windows(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    expect_refusal(tmp_path, changes, message)


@pytest.mark.parametrize(
    ("rope", "message"),
    [
        ({"rope_type": "proportional"},
         "rope_type: expected one of default, linear, factors, llama3, yarn, dynamic, longrope, found 'proportional'"),
        ({"type": "su"}, "short_factor: expected a list of 16 numbers above 0, found no such key"),
        ({"rope_type": ["yarn"]}, r"rope_type: expected one of .*, found \['yarn'\]"),
        ({"rope_theta": "x"}, "rope_theta: expected a number above 1, found 'x'"),
        ({"full_attention": {"rope_theta": 1e4}},
         "full_attention: expected none, for the keys of default are rope_theta, rope_type, type, partial_"),
        ({"rope_type": "linear", "factor": 2.0, "alpha": 3}, "alpha: expected none, for the keys of linear .*factor"),
        ({"rope_type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 512},
         "original_max_position_embeddings: expected none, for the keys of dynamic are"),
        ({"partial_rotary_factor": 0.1}, "partial_rotary_factor: expected a share of .* an even number of them, found"),
        ({"partial_rotary_factor": 1.5}, "partial_rotary_factor: expected a share of the 32 dimensions of a head"),
        ({"rope_type": "linear"}, "factor: expected a number above 0, found no such key"),
        ({"rope_type": "dynamic", "factor": 0}, "factor: expected a number above 0, found 0"),
        ({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0},
         "high_freq_factor: expected a number above 0, found no such key"),
        ({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4.0, "high_freq_factor": 4.0},
         "high_freq_factor: expected a number above low_freq_factor = 4.0, found 4.0"),
        (YARN | {"truncate": "yes"}, "truncate: expected true or false, found 'yes'"),
        (YARN | {"beta_fast": "32"}, "beta_fast: expected a number above 0, found '32'"),
        (YARN | {"attention_factor": 0}, "attention_factor: expected a number above 0, found 0"),
        (YARN | {"original_max_position_embeddings": 1},
         "original_max_position_embeddings: expected a whole number of at least 2, found 1"),
        ({"rope_type": "longrope", "short_factor": [1.0] * 15, "long_factor": [1.0] * 16},
         r"short_factor: expected a list of 16 numbers above 0, found \[1.0, "),
        ({"rope_type": "longrope", "short_factor": [0] * 16, "long_factor": [1.0] * 16},
         r"short_factor: expected a list of 16 numbers above 0, found \[0, "),
        ({"rope_type": "longrope"}, r"short_factor: expected a list of 16 numbers above 0, found no such key"),
    ],
)
@pytest.mark.parametrize("key", ["rope_parameters", "rope_scaling"])
def test_refused_rotary_parameters(tmp_path: Path, key: str, rope: dict[str, Any], message: str) -> None:
    expect_refusal(tmp_path, {"rope_parameters": ABSENT, key: rope}, rf"{key}\.{message}")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rope_parameters": [1]}, r"rope_parameters: expected an object or null, found \[1\]"),
        ({"rope_parameters": ABSENT, "rope_theta": 0}, "rope_theta: expected a number above 1, found 0"),
        ({"partial_rotary_factor": 0.01}, "partial_rotary_factor: expected a share of the 32 .*, found 0.01"),
        ({"rope_parameters": YARN, "original_max_position_embeddings": "x"},
         "original_max_position_embeddings: expected a whole number of at least 2, found 'x'"),
    ],
)
def test_refused_outside_of_rotary_parameters(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    expect_refusal(tmp_path, changes, message)


def test_end_tokens_refused_name_their_file(tmp_path: Path) -> None:
    with pytest.raises(ModelConfigError, match=r"generation_config.json: eos_token_id: expected .* found 'x'"):
        read(tmp_path, {"eos_token_id": "x"})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"config.json does not exist"),
        ("{", r"config.json cannot be read: "),
        ("[" * 100_000, r"config.json cannot be read: its values are nested too deeply"),
        ("[]", r"config.json: expected an object of keys and values, found list"),
    ],
)
def test_unreadable(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(ModelConfigError, match=message):
        read_model_config(tmp_path)


@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
def test_a_pipe_is_not_waited_for(tmp_path: Path, name: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(NEW))
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    with pytest.raises(ModelConfigError, match=rf"/{name} is no file$"):
        read_model_config(tmp_path)


def test_world_sizes(tmp_path: Path) -> None:
    config = read(tmp_path, num_attention_heads=12, num_key_value_heads=12, intermediate_size=704)
    for world_size in range(1, 13):
        config.check_world_size(world_size)
    with pytest.raises(ModelConfigError, match=r"over 13 shards, .* has 12 heads, 12 KV heads; it can be over 1, 2, 3"):
        config.check_world_size(13)
    with pytest.raises(ModelConfigError, match=r"over 8 shards, .* feed-forward networks of inner size 9; it can "
                                               r"be over 1, 2, 3, 5, 6, 7, 9$"):
        read(tmp_path, num_attention_heads=9, num_key_value_heads=9, intermediate_size=9,
             head_dim=32).check_world_size(8)
    with pytest.raises(ModelConfigError, match=r"over 4 shards.* has 5 tokens; it can be over 1, 2, 3, 5$"):
        read(tmp_path, num_attention_heads=8, num_key_value_heads=8, vocab_size=5).check_world_size(4)


def test_more_shards_than_kv_heads(tmp_path: Path) -> None:
    config = read(tmp_path, num_attention_heads=24, num_key_value_heads=2, intermediate_size=768)
    for world_size in (1, 2, 4, 8, 24):
        config.check_world_size(world_size)
    with pytest.raises(ModelConfigError, match="over 3 shards, for it has 2 KV heads; it can be over 1, 2, 4, 6"):
        config.check_world_size(3)
