"""The tokens that end an answer, as a checkpoint's files name them."""

import json
from pathlib import Path
from typing import Any

from penstock.shard.models.keys import Keys, is_integer
from penstock.system.tokenizer_json import added_tokens

EOS = "eos_token_id"
GENERATION = "generation_config.json"
LEAST_ID = -(2**63)                      # some files say -1 where they mean none


def end_tokens(keys: Keys, vocab_size: int) -> tuple[int, ...]:
    """Returns the ids of the tokens that end an answer: those of generation_config.json, or else of config.json, and
    the tokenizer's end token. Where there are none of them, what an absent key says ends it.

    Ids that the model of `vocab_size` can't generate are left out. Raises ModelConfigError.
    """
    return tuple(token for token in named_end_tokens(keys) if 0 <= token < vocab_size)


def named_end_tokens(keys: Keys) -> list[int]:
    """Returns the same, with those that can't be generated."""
    path = keys.path.with_name(GENERATION)
    generation = Keys.read(path) if path.exists() else None
    if generation is not None and generation.get(EOS) is not None:
        found = _ids(generation)
    else:
        found = _ids(keys) if EOS in keys.names else []
    token = _end_of_tokenizer(keys.path.parent)
    if token is not None and token not in found:
        found.append(token)
    return found if found or EOS in keys.names else _ids(keys)


def _ids(keys: Keys) -> list[int]:
    value = keys.get(EOS)
    ids = [] if value is None else value if isinstance(value, list) else [value]
    if not all(is_integer(token, LEAST_ID) for token in ids):
        raise keys.error(EOS, "a token id, a list of them, or null")
    return list(dict.fromkeys(ids))


def _end_of_tokenizer(folder: Path) -> int | None:
    """Returns the id of the token that ends a text, as the tokenizer's files have it, which the router and not this
    process is to read: None where they say none, or make no sense."""
    try:
        config, special = (_object(folder / name) for name in ("tokenizer_config.json", "special_tokens_map.json"))
        # special_tokens_map.json holds, unless the other has all of the tokens, as transformers has it.
        ordered = (config, special) if "added_tokens_decoder" in config else (special, config)
        token = next((each["eos_token"] for each in ordered if each.get("eos_token") is not None), None)
        text = token.get("content") if isinstance(token, dict) else token
        if not isinstance(text, str):
            return None
        listed = config.get("added_tokens_decoder") or {
            token["id"]: token for token in added_tokens(folder / "tokenizer.json")}
        return next((int(token_id) for token_id, token in listed.items() if token["content"] == text), None)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def _object(path: Path) -> dict[str, Any]:
    value = json.loads(path.read_bytes()) if path.is_file() else {}
    return value if isinstance(value, dict) else {}
