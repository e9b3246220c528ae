"""The tokenizer.json that is made of a model's other files."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tokenizers

from penstock.checkpoints.tokenizers import gpt2, sentencepiece, tekken, tiktoken
from penstock.checkpoints.tokenizers.completion import completed
from penstock.checkpoints.tokenizers.settings import Settings
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
