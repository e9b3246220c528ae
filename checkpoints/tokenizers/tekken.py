"""Mistral's tekken.json, which says how texts are split."""

import base64
import binascii
from pathlib import Path
from typing import Any

from penstock.checkpoints.tokenizers import ranks
from penstock.checkpoints.tokenizers.pre_tokenizers import PreTokenizer
from penstock.checkpoints.tokenizers.settings import Settings, read_json
from penstock.checkpoints.tokenizers.vocabulary import MAX_TOKENS, Vocabulary
from penstock.system.fields import Fields, FileError

SPECIAL = ("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]",
           "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]",
           "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]")
"""The special tokens of files that name none."""


MAX_SPECIAL = 100_000


def tokenizer(path: Path, settings: Settings) -> dict[str, Any]:
    """Returns the content of a tokenizer.json: the special tokens have the first ids, as many as `config` says, and the
    others follow. Raises FileError."""
    file = read_json(path)
    if not isinstance(file.get("config"), dict):
        raise FileError(path, "expected an object `config`")
    config = Fields(path, file["config"])
    special = _special(path, file.get("special_tokens"))
    count = config.integer("default_num_special_tokens", len(special), least=len(special), most=MAX_SPECIAL)
    size = config.integer("default_vocab_size", least=count + 1, most=MAX_TOKENS)
    known = ranks.spelled(_tokens(path, file.get("vocab"), size - count, count))
    vocabulary = Vocabulary(path, known)
    for token_id in range(count):
        vocabulary.add(special.get(token_id, f"<SPECIAL_{token_id}>"), token_id)
    pre = PreTokenizer((config.text("pattern"),))
    settings = settings.with_roles(bos_token="<s>", eos_token="</s>")
    return ranks.tokenizer(known, vocabulary, settings, pre, adds_bos=True)


def _special(path: Path, given: Any) -> dict[int, str]:
    if given is None:
        return dict(enumerate(SPECIAL))
    match given:
        case [*items] if all(isinstance(item, dict) for item in items):
            found = {item.get("rank"): item.get("token_str") for item in items}
            if set(found) == set(range(len(items))) and all(isinstance(text, str) for text in found.values()):
                return found
    raise FileError(path, "special_tokens: expected a list of objects with a `token_str` and a `rank`, from 0 on")


def _tokens(path: Path, given: Any, size: int, first_id: int) -> dict[bytes, int]:
    """Returns the ids of the tokens; the list may have more of them than the model, at its end."""
    if not isinstance(given, list) or len(given) < size:
        raise FileError(path, f"vocab: expected a list of at least {size} tokens")
    found: dict[bytes, int] = {}
    for number, item in enumerate(given[:size]):
        try:
            token = base64.b64decode(item["token_bytes"], validate=True)
        except (TypeError, KeyError, ValueError, binascii.Error):
            token = b""
        if not token or token in found:
            raise FileError(path, "vocab: expected a token that no other item has, in base64, as `token_bytes` of "
                                  f"item {number}, found {item!r:.100}")
        found[token] = first_id + number
    return found
