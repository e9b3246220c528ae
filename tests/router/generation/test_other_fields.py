"""Fields of other servers: what is refused, what asks for nothing, and that the list has what their pages name."""

from typing import Any

import pytest
from transformers import GenerationConfig

from penstock.router.errors import ValidationError
from penstock.router.generation.other_fields import (
    IGNORED,
    REFUSED_BESIDE_INPUTS,
    REFUSED_IN_CHATS,
    REFUSED_IN_COMPLETIONS,
    REFUSED_IN_PARAMETERS,
    refuse_unsupported,
)
from penstock.router.generation.parameters import Parameters

LISTS = {"chats": REFUSED_IN_CHATS, "completions": REFUSED_IN_COMPLETIONS, "parameters": REFUSED_IN_PARAMETERS,
         "beside inputs": REFUSED_BESIDE_INPUTS}
ASKED = [
    {"repeat_penalty": 1.1}, {"mirostat": 2}, {"mirostat_tau": 5.0}, {"dry_multiplier": 0.8}, {"xtc_probability": 0.5},
    {"n_predict": 20}, {"num_beam_groups": 2}, {"diversity_penalty": 0.5}, {"constraints": [[1]]}, {"beam_width": 4},
    {"force_words_ids": [[1]]}, {"bad_words_ids": [[1]]}, {"thinking": {"type": "enabled"}},
    {"max_time": 5}, {"mirostat": 2, "mirostat_tau": 5.0}, {"num_beam_groups": 1, "xtc_threshold": 0.1},
    {"extra_body": {"top_k": 1}}, {"stop_sequences": ["a"]}, {"min_new_tokens": 3},
]
NOTHING: list[dict[str, Any]] = [
    {"repeat_penalty": 1}, {"repeat_penalty": 1.0, "repeat_last_n": 64}, {"num_beams": 1, "diversity_penalty": 2.0},
    {"mirostat": 0, "mirostat_tau": 5.0, "mirostat_eta": 0.1}, {"xtc_probability": 0.0, "xtc_threshold": 0.1},
    {"dry_multiplier": 0, "dry_base": 1.75, "dry_sequence_breakers": ["\n"]}, {"bad_words_ids": None},
    {"n_predict": -1}, {"dynamic_temperature": False, "dynatemp_low": 0.5, "dynatemp_exponent": 1.5}, {},
]
OUR_NAMES = {"max_new_tokens", "do_sample", "temperature", "top_k", "top_p", "min_p", "typical_p", "repetition_penalty",
             "num_beams", "num_return_sequences", "length_penalty", "early_stopping"}
"""GenerationConfig's names that TGI's routes have too."""
NOT_SAMPLING = {
    "_from_model_config", "assistant_confidence_threshold", "assistant_early_exit", "assistant_ensemble_weight",
    "assistant_lookbehind", "bos_token_id", "cache_config", "compile_config", "continuous_batching_config",
    "decoder_start_token_id", "disable_compile", "is_assistant", "low_memory", "max_cache_len",
    "max_matching_ngram_size", "num_assistant_tokens_schedule", "prefill_chunk_size", "remove_invalid_values",
    "speculation_type", "target_lookbehind", "transformers_version", "use_mtp"}
"""GenerationConfig's names that say how an answer is computed, not which, or that are written by programs."""


@pytest.mark.parametrize("where", LISTS)
@pytest.mark.parametrize("fields", ASKED, ids=str)
def test_it_is_refused_by_name(where: str, fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as refusal:
        refuse_unsupported(fields, LISTS[where])
    assert any(f"`{name}`" in str(refusal.value) for name in fields)


@pytest.mark.parametrize("where", LISTS)
@pytest.mark.parametrize("fields", NOTHING, ids=str)
def test_it_asks_for_nothing(where: str, fields: dict[str, Any]) -> None:
    refuse_unsupported(fields, LISTS[where])


def test_no_field_of_ours_is_refused() -> None:
    assert not Parameters.model_fields.keys() & (REFUSED_IN_PARAMETERS.keys() | IGNORED.keys())


def test_all_that_transformers_generates_by_is_known() -> None:
    """A new release brings new names: they belong into one of the lists."""
    names = GenerationConfig().to_dict().keys() - OUR_NAMES - NOT_SAMPLING
    assert names - REFUSED_IN_PARAMETERS.keys() - IGNORED.keys() == set()
