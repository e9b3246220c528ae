"""The requests of a checkpoint's files that this server does not follow, in sentences for the log."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.shard.models.end_tokens import EOS, GENERATION, end_tokens, named_end_tokens
from penstock.shard.models.keys import Keys
from penstock.shard.models.quantised_linears import UNFOLLOWED
from penstock.shard.models.quantization import section_of
from penstock.shard.models.reading import decoder_keys, is_encoder, is_known

KEY_OF_8_BITS = "load_in_8bit"
COMPUTE_DTYPE = "bnb_4bit_compute_dtype"
SIZES = (
    ("vocab_size",), ("hidden_size", "n_embd", "n_embed", "d_model"), ("num_hidden_layers", "n_layer", "n_layers"),
    ("num_attention_heads", "n_head", "n_heads"), ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"),
    ("max_position_embeddings", "n_positions", "seq_length", "max_seq_len"))
"""Each by its names in different families."""
SETTINGS_OF_ANSWERS = (
    "bad_words_ids", "begin_suppress_tokens", "constraints", "diversity_penalty", "do_sample", "dola_layers",
    "early_stopping", "encoder_no_repeat_ngram_size", "encoder_repetition_penalty", "epsilon_cutoff", "eta_cutoff",
    "exponential_decay_length_penalty", "force_words_ids", "forced_bos_token_id", "forced_eos_token_id",
    "guidance_scale", "length_penalty", "max_length", "max_new_tokens", "max_time", "min_length", "min_new_tokens",
    "min_p", "no_repeat_ngram_size", "num_beam_groups", "num_beams", "num_return_sequences", "penalty_alpha",
    "remove_invalid_values", "renormalize_logits", "repetition_penalty", "sequence_bias", "stop_strings",
    "suppress_tokens", "temperature", "token_healing", "top_h", "top_k", "top_p", "typical_p", "watermarking_config")
"""Keys of generation_config.json by which transformers' `generate` answers otherwise."""
NEUTRAL: tuple[Any, ...] = (None, False, 0, 1, [], {})
"""The values with which most of them change nothing."""
MAX_SHOWN = 60
"""The characters of a value that a sentence shows."""


def unfollowed(directory: Path, vocab_size: int, continues_texts: bool = True) -> list[str]:
    """Returns a sentence for each kind of thing in a checkpoint's files that is not done as they say. Raises
    ModelConfigError."""
    keys = Keys.read(directory / "config.json")
    if is_encoder(keys) or not continues_texts:  # nothing is sampled, and nothing ends a text
        return [*_quantisation(keys)]
    keys = decoder_keys(keys) if is_known(keys) else keys
    return [*_end_tokens(keys, vocab_size), *_sampling(keys), *_quantisation(keys)]


def absent_sizes(directory: Path) -> list[str]:
    """Returns a sentence that names the sizes which config.json lacks, if it does: to be told before the weights are
    read, for errors that come of it speak of tensors alone. Raises ModelConfigError."""
    keys = Keys.read(directory / "config.json")
    if not is_known(keys):
        return []
    keys = decoder_keys(keys)
    absent = [f"{name} {keys.get(name)}" for names in SIZES if not keys.names.intersection(names)
              for name in names if keys.get(name) is not None]
    return [f"{keys.path} lacks sizes, in whose place are those that transformers takes: {', '.join(absent)}"] * bool(
        absent)


def _end_tokens(keys: Keys, vocab_size: int) -> Iterator[str]:
    named = named_end_tokens(keys)
    left_out = [str(token) for token in named if not 0 <= token < vocab_size]
    if left_out:
        yield (f"{keys.path.parent}: {EOS}: {', '.join(left_out)} cannot be generated, for the model has {vocab_size} "
               "tokens, and so ends no answer")
    if not end_tokens(keys, vocab_size):
        yield (f"{keys.path.parent}: no file names a token that ends an answer: answers end at their length or a stop "
               "sequence, and grammars and tools are refused")


def _sampling(keys: Keys) -> Iterator[str]:
    path = keys.path.with_name(GENERATION)
    holder = Keys.read(path) if path.is_file() else keys
    found = [f"{name} {_shown(holder.get(name))}" for name in SETTINGS_OF_ANSWERS
             if holder.get(name) is True or holder.get(name) not in NEUTRAL]
    if found:
        yield (f"{holder.path}: {', '.join(found)}: not applied, as in TGI: a request's own parameters alone say how "
               "it is sampled and where it ends")


def _quantisation(keys: Keys) -> Iterator[str]:
    section = section_of(keys)
    if section is None:
        return
    groups = section.section("config_groups")
    sections = [section, *(groups.section(name) for name in sorted(groups.names))]
    for name, reason in UNFOLLOWED.items():
        value = next((each.get(name) for each in sections if each.get(name) not in NEUTRAL), None)
        if value is not None and _has_effect(name, section, keys):
            yield f"{section.path}: {name} {_shown(value)}: not followed, for {reason}"


def _has_effect(name: str, section: Keys, keys: Keys) -> bool:
    """Tells whether those who follow a key would compute otherwise for it."""
    if name.startswith("llm_int8"):
        return bool(section.get(KEY_OF_8_BITS))
    if name == COMPUTE_DTYPE:
        is_4_bits = not section.get(KEY_OF_8_BITS)
        return is_4_bits and bool(section.get(name) != keys.get("dtype", keys.get("torch_dtype")))
    return bool(section.get(name) != 16)  # bits, which plain numbers have


def _shown(value: Any) -> str:
    text = str(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"
