"""The tokens of a model by their ids, as several files tell of them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.checkpoints.tokenizers.description import added_token
from penstock.system.fields import FileError

MAX_TOKENS = 1 << 22
"""More than any vocabulary has: a list of this length is no danger."""


class Vocabulary:
    """Tokens and ids, one for the other, and which tokens are found in texts as they stand."""

    def __init__(self, path: Path, ids: Mapping[str, int]) -> None:
        """path: the file that messages name"""
        self.path = path
        self.ids = dict(ids)
        self._texts = {token_id: text for text, token_id in ids.items()}
        self._next = max(self._texts, default=-1) + 1
        self._added: dict[int, dict[str, Any]] = {}

    def add(self, text: str, token_id: int | None = None, is_special: bool = True, **flags: bool) -> None:
        """Adds a token with the id that is given, else the one that the text has, else the next. Who comes later tells
        what a token is. Raises FileError for an id that none can have."""
        if token_id is None:
            token_id = self.ids.get(text, self._next)
        if not 0 <= token_id < MAX_TOKENS:
            raise FileError(self.path, f"{text!r:.100}: expected an id from 0 to {MAX_TOKENS - 1}, found {token_id}")
        replaced = self._texts.get(token_id)
        if replaced is not None and self.ids[replaced] == token_id:
            del self.ids[replaced]
        before = self.ids.get(text)
        if before is not None:
            self._added.pop(before, None)
            del self._texts[before]
        self.ids[text] = token_id
        self._texts[token_id] = text
        self._next = max(self._next, token_id + 1)
        self._added[token_id] = added_token(token_id, text, is_special, **flags)

    def is_added(self, text: str) -> bool:
        """Tells whether a token is found in texts as it stands."""
        return self.ids.get(text) in self._added

    def added(self) -> list[dict[str, Any]]:
        """Returns `added_tokens` of tokenizer.json."""
        return [self._added[token_id] for token_id in sorted(self._added)]

    def texts(self) -> list[str]:
        """Returns the tokens in the order of their ids. Raises FileError if an id between them has none."""
        missing = next((token_id for token_id in range(len(self._texts)) if token_id not in self._texts), None)
        if missing is not None:
            raise FileError(self.path, f"expected a token of every id from 0 to {self._next - 1}, found none of "
                                       f"{missing}")
        return [self._texts[token_id] for token_id in range(len(self._texts))]
