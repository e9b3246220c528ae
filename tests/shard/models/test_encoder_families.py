"""Encoders' files as their authors write them, and what no encoder here does."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from penstock.shard.models.encoder_config import EncoderConfig
from penstock.shard.models.keys import ModelConfigError
from penstock.shard.models.reading import read_model_config
from tests.encoder_models import make_encoder

NOMIC = {"n_embd": "hidden_size", "n_layer": "num_hidden_layers", "n_head": "num_attention_heads",
         "n_inner": "intermediate_size", "n_positions": "max_position_embeddings",
         "layer_norm_epsilon": "layer_norm_eps"}
SWITCHES = {"activation_function": "swiglu", "prenorm": False, "rotary_emb_base": 1000, "rotary_emb_fraction": 1.0,
            "rotary_emb_scale_base": None, "rotary_emb_interleaved": False, "qkv_proj_bias": False}


def change(path: Path, **keys: Any) -> None:
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | keys))


def read(path: Path) -> EncoderConfig:
    config = read_model_config(path)
    assert isinstance(config, EncoderConfig)
    return config


def test_nomics_own_keys(tmp_path: Path) -> None:
    expected, path = read(make_encoder(tmp_path, "nomic")), tmp_path / "config.json"
    keys = json.loads(path.read_text())
    old = {name: keys[key] for name, key in NOMIC.items()} | {
        key: keys[key] for key in ("architectures", "dtype", "vocab_size", "type_vocab_size")} | SWITCHES
    path.write_text(json.dumps(old))
    assert read(tmp_path) == expected
    change(tmp_path, max_trained_positions=32)
    assert read(tmp_path).context_length == 32
    change(tmp_path, prenorm=True)
    with pytest.raises(ModelConfigError, match="prenorm: expected False, the only one supported, found True"):
        read(tmp_path)


def test_gtes_own_scaling(tmp_path: Path) -> None:
    make_encoder(tmp_path, "gte")
    own = {"architectures": ["NewModel"], "rope_parameters": None, "rope_theta": 20000.0, "rope_scaling": None}
    change(tmp_path, **own)
    (plain,) = read(tmp_path).rotations
    change(tmp_path, **own | {"rope_scaling": {"type": "ntk", "factor": 8.0}})
    (scaled,) = read(tmp_path).rotations
    pairs = torch.arange(4)
    for rotation, expected in ((plain, 20000.0 ** (-pairs / 4)), (scaled, 160000.0 ** (-pairs / 4) / 8 ** (1 / 4))):
        torch.testing.assert_close(torch.tensor(rotation.frequencies), expected)
    change(tmp_path, rope_scaling={"type": "ntk", "factor": 8.0, "mixed_b": 0.5})
    with pytest.raises(ModelConfigError, match=r"mixed_b: expected none, found 0\.5"):
        read(tmp_path)


@pytest.mark.parametrize(("name", "key", "value"), [
    ("bert", "position_embedding_type", "relative_key"), ("bert", "is_decoder", True), ("roberta", "is_decoder", True),
    ("mpnet", "relative_attention_num_buckets", 16), ("gte", "pack_qkv", False), ("gte", "type_vocab_size", -1),
    ("roberta", "pad_token_id", None), ("roberta", "max_position_embeddings", 2), ("bert", "hidden_act", "softsign"),
    ("modernbert", "local_attention", 1)])
def test_what_is_not_computed_is_refused(tmp_path: Path, name: str, key: str, value: Any) -> None:
    change(make_encoder(tmp_path, name), **{key: value})
    with pytest.raises(ModelConfigError, match=rf"config.json: {key}: expected .*found {value!r}"):
        read(tmp_path)


def test_the_names_are_those_below_the_shortest_base(tmp_path: Path) -> None:
    assert read(make_encoder(tmp_path / "alone", "bert")).base == ""
    assert read(make_encoder(tmp_path / "masked", "bert, tanh, masked")).base == "bert."
    assert read(make_encoder(tmp_path / "classes", "modernbert, biases")).names.norm == "model.final_norm"
