"""The tokenizer.json that is made of a model's other files."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, Tokenizer

from penstock.checkpoints.tokenizers import gpt2, sentencepiece, tekken, tiktoken
from penstock.checkpoints.tokenizers.settings import Settings, read_json
from penstock.checkpoints.tokenizers.sources import MODEL, TEKKEN, TOKENIZER, VOCABULARY, Source
from penstock.system.fields import FileError


def convert(source: Source) -> str:
    """Returns the text of tokenizer.json. Raises FileError."""
    try:
        settings = Settings.read(source.path.parent)
        if source.path.name == TOKENIZER:
            return completed(source.path, settings)
        content = json.dumps(_converter(source.path)(source.path, settings), ensure_ascii=False)
        content.encode()
        tokenizers.Tokenizer.from_str(content)
    except FileError:
        raise
    except Exception as error:  # the package raises nothing narrower
        raise FileError(source.path, f"what it says makes no tokenizer: {error}") from error
    return content


def _converter(path: Path) -> Callable[[Path, Settings], dict[str, Any]]:
    if path.name == TEKKEN:
        return tekken.tokenizer
    if path.name == VOCABULARY:
        return gpt2.tokenizer
    if path.name != MODEL or tiktoken.is_tiktoken(path):
        return tiktoken.tokenizer
    return sentencepiece.tokenizer


def completed(path: Path, settings: Settings) -> str:
    """Returns the text of a tokenizer.json with the tokens that it lacks, each with the id that the vocabulary gives
    it, or the next one. Those whose id the model has not are left out: their texts stay texts."""
    tokenizer = Tokenizer.from_file(str(path))
    known = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    num_tokens = _num_tokens(path.with_name("config.json"))
    by_id = sorted(settings.added, key=lambda token: (token.token_id is None, token.token_id or 0))
    for token in (token for token in by_id if token.text not in known):
        token_id = tokenizer.token_to_id(token.text)
        if num_tokens is not None and (tokenizer.get_vocab_size() if token_id is None else token_id) >= num_tokens:
            continue
        flags = {"special": token.is_special, "normalized": False} | token.flags
        tokenizer.add_tokens([AddedToken(token.text, **flags)])
        known.add(token.text)
    return tokenizer.to_str()


def _num_tokens(config: Path) -> int | None:
    """Returns how many tokens the model has, if its configuration says it."""
    values: dict[str, Any] = read_json(config) if config.exists() else {}
    inner = values.get("text_config")
    size = values.get("vocab_size", inner.get("vocab_size") if isinstance(inner, dict) else None)
    return size if isinstance(size, int) else None
