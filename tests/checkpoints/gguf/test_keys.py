"""Every key of llama.cpp's list is read, known to change nothing, refused, or told."""

import logging
import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gguf.constants import Keys

from penstock.checkpoints.gguf.config import model_config
from penstock.checkpoints.gguf.folder import checkpoint_files
from penstock.checkpoints.gguf.keys import NEUTRAL, READ, WITHOUT_EFFECT
from penstock.checkpoints.gguf.metadata import GgufError, Metadata
from penstock.checkpoints.gguf.reader import read as read_file
from tests.checkpoints.gguf import drafts
from tests.gguf_files import FOLDER
from tests.paths import ROOT

BASE = read_file(FOLDER / "llama-Q8_0.gguf")
SOURCES = "".join(path.read_text() for path in (ROOT / "checkpoints/gguf").glob("*.py"))
OF_OTHER_MODELS = {                      # none of which llama.cpp reads for those that are served
    "activation_sparsity_scale", "altup.active_idx", "altup.num_inputs", "attention.decay_lora_rank",
    "attention.gate_lora_rank", "attention.group_norm_epsilon", "attention.group_norm_groups",
    "attention.iclr_lora_rank", "attention.key_length_mla", "attention.key_length_swa", "attention.kv_lora_rank",
    "attention.q_lora_rank", "attention.value_length_mla", "attention.value_length_swa",
    "attention.value_residual_mix_lora_rank", "decoder_block_count", "decoder_start_token_id",
    "embedding_length_out", "embedding_length_per_layer_input", "expert_chunk_feed_forward_length",
    "expert_group_scale", "features_length", "full_attention_interval", "moe_latent_size", "n_deepstack_layers",
    "rescale_every_n_layers", "rope.dimension_count_swa", "rope.freq_base_swa", "swiglu_clamp_exp",
    "swiglu_clamp_shexp", "time_decay_extra_dim", "time_mix_extra_dim", "token_shift_count", "{dense}_feat_in",
    "{dense}_feat_out"}
OF_TOKENIZERS = {                        # of other kinds, or in no part of what a server does
    "tokenizer.ggml.add_sep_token", "tokenizer.ggml.mask_token_id", "tokenizer.ggml.precompiled_charsmap",
    "tokenizer.ggml.remove_extra_whitespaces", "tokenizer.ggml.seperator_token_id", "tokenizer.ggml.token_type_count",
    "tokenizer.huggingface.json", "tokenizer.rwkv.world",
    *(f"tokenizer.ggml.{name}_token_id" for name in (
        "fim_pre", "fim_suf", "fim_mid", "fim_pad", "fim_rep", "fim_sep", "prefix", "suffix", "middle"))}


def names(section: Any) -> Iterator[str]:
    return (value for name, value in vars(section).items() if isinstance(value, str) and not name.startswith("_"))


def config_of(**changes: Any) -> dict[str, Any]:
    """config.json of a file with some keys of its model changed; underscores stand for dots."""
    changed = {f"llama.{name}": value for name, value in changes.items()}
    values = {key: BASE.metadata[key] for key in BASE.metadata}
    return model_config(Metadata(Path("model.gguf"), values | changed), BASE.tensors)


def test_every_key_of_a_model_has_a_place() -> None:
    known = {name.removeprefix("{arch}.") for section in (Keys.LLM, Keys.Attention, Keys.Rope)
             for name in names(section)}
    places = [{*READ} - {"rope.scale_linear"}, {*WITHOUT_EFFECT}, {*NEUTRAL}, OF_OTHER_MODELS]
    assert set.union(*places) == known
    assert sum(map(len, places)) == len(known)


@pytest.mark.parametrize("name", READ)
def test_what_is_said_to_be_read_is(name: str) -> None:
    assert name.removeprefix("rope.scaling.") in SOURCES.replace("READ = (", "")


def test_every_key_of_a_tokenizer_has_a_place() -> None:
    for name in names(Keys.Tokenizer):
        short = name.removeprefix("tokenizer.ggml.").partition(".{")[0]
        assert (name in OF_TOKENIZERS) != (f'"{short}"' in SOURCES or f"}}.{short}" in SOURCES or (
            f'"{name}"' in SOURCES) or name == "tokenizer.chat_template.{name}"), name


@pytest.mark.parametrize("name", NEUTRAL)
def test_what_would_change_the_computation_is_refused(name: str) -> None:
    for value in NEUTRAL[name]:
        assert config_of(**{name: value}) == config_of()
    with pytest.raises(GgufError, match=rf"model.gguf: llama\.{name}: expected .*, found 0.25"):
        config_of(**{name: 0.25})


def test_keys_that_are_not_followed_are_told(caplog: pytest.LogCaptureFixture) -> None:
    values = {key: BASE.metadata[key] for key in BASE.metadata} | {
        "llama.ssm.state_size": 8, "llama.of_a_later_release": "x" * 100, "general.sampling.temp": 0.6,
        "general.sampling.top_k": 20, "qwen2.logit_scale": 2.0}
    with caplog.at_level(logging.WARNING):
        model_config(Metadata(Path("model.gguf"), values), BASE.tensors)
    assert caplog.messages == [
        f"model.gguf: llama.of_a_later_release {'x' * 60}, llama.ssm.state_size 8: not read, for models of this "
        "architecture are not known to have them",
        "model.gguf: general.sampling.temp 0.6, general.sampling.top_k 20: not applied, as in TGI: a request's own "
        "parameters alone say how it is sampled"]


@pytest.mark.parametrize("name", ["attention.head_count", "attention.head_count_kv", "feed_forward_length"])
def test_lists_of_a_number_for_each_layer_are_read(name: str) -> None:
    layers = BASE.metadata["llama.block_count"]
    value = BASE.metadata[f"llama.{name}"]
    assert config_of(**{name: [value] * layers}) == config_of()
    for wrong in ([value] * (layers + 1), [value] * (layers - 1), [], [0] * layers,
                  [2**31] * layers, [float(value)] * layers, [True] * layers):
        with pytest.raises(GgufError, match=rf"llama.{name}: expected one whole number .*, or {layers} equal ones"):
            config_of(**{name: wrong})
    with pytest.raises(GgufError, match=rf"llama.{name}: expected one whole number .*, or 2 equal ones"):
        config_of(**{name: [value, value * 2], "block_count": 2})


def test_a_file_with_lists_is_read(tmp_path: Path) -> None:
    draft, path = drafts.read(FOLDER / "llama-Q8_0.gguf"), tmp_path / "model.gguf"
    layers, heads = (BASE.metadata[f"llama.{name}"] for name in ("block_count", "attention.head_count_kv"))
    draft = draft.with_field("llama.attention.head_count_kv", drafts.ARRAY, struct.pack(
        f"<IQ{layers}I", 4, layers, *[heads] * layers))
    path.write_bytes(draft.to_bytes())
    assert checkpoint_files(path)["config.json"] == checkpoint_files(FOLDER / "llama-Q8_0.gguf")["config.json"]


@pytest.mark.parametrize(("changes", "rope"), [
    ({}, {"rope_type": "default"}),
    ({"rope.scaling.factor": 4.0}, {"rope_type": "linear", "factor": 4.0}),
    ({"rope.scale_linear": 4.0}, {"rope_type": "linear", "factor": 4.0}),
    ({"rope.scaling.factor": 0.0}, {"rope_type": "default"}),
    ({"rope.scaling.factor": 4.0, "rope.scaling.type": "none"}, {"rope_type": "default"}),
])
def test_a_factor_alone_is_linear(changes: dict[str, Any], rope: dict[str, Any]) -> None:
    theta = config_of()["rope_parameters"]["rope_theta"]
    assert config_of(**changes)["rope_parameters"] == {"rope_theta": theta, **rope}


@pytest.mark.parametrize(("changes", "attention_factor"), [
    ({}, 0.1 * math.log(4) + 1),
    ({"attn_factor": 0.5}, 0.5 * (0.1 * math.log(4) + 1)),
    ({"yarn_log_multiplier": 1.0}, 1.0),
    ({"yarn_log_multiplier": 0.5, "attn_factor": 2.0}, 2 * (0.1 * math.log(4) + 1) / (0.05 * math.log(4) + 1)),
])
def test_the_factors_of_yarn(changes: dict[str, Any], attention_factor: float) -> None:
    """As llama.cpp has them: https://github.com/ggml-org/llama.cpp/blob/master/src/llama-context.cpp"""
    rope = config_of(**{"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.yarn_beta_fast": 16.0,
                        "rope.scaling.original_context_length": 64} | {
        f"rope.scaling.{name}": value for name, value in changes.items()})["rope_parameters"]
    assert rope.pop("attention_factor") == pytest.approx(attention_factor)
    assert rope == {"rope_theta": rope["rope_theta"], "rope_type": "yarn", "factor": 4.0, "beta_fast": 16.0,
                    "original_max_position_embeddings": 64}
