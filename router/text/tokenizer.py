"""The model's tokenizer, which encodes text off the event loop and decodes ids on it."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from typing import Self

import tokenizers


class TokenizerError(Exception):
    """Raised when the tokenizer can't be loaded or refuses a text."""


@dataclass(frozen=True, slots=True)
class TextToken:
    """A token and the part of the text that it stands for; `start` and `stop` count bytes of UTF-8."""

    id: int
    text: str
    start: int
    stop: int


def _keep_last(encoding: tokenizers.Encoding, number: int) -> None:
    """Truncates by halves: what is cut off is kept in pieces of the new length, and a million pieces take seconds."""
    while len(encoding) > number:
        encoding.truncate(max(number, len(encoding) // 2), direction="left")


class Tokenizer:
    """Wraps the `tokenizers` package. Encoding runs in `num_workers` threads and without Python's lock."""

    def __init__(self, tokenizer: tokenizers.Tokenizer, num_workers: int = 2, digest: str = "") -> None:
        """digest: of the file that the tokenizer was read from"""
        self.digest = digest
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        self._id_of_special = {
            token.content: token_id for token_id, token in tokenizer.get_added_tokens_decoder().items()
            if token.special}
        self._special_ids = frozenset(self._id_of_special.values())
        self._texts: dict[int, str] = {}
        self._threads = ThreadPoolExecutor(num_workers, thread_name_prefix="tokenizer")

    @classmethod
    def load(cls, path: Path, num_workers: int = 2) -> Self:
        """Reads a `tokenizer.json`. Raises TokenizerError, which names the file, if it is missing or damaged."""
        try:
            content = path.read_bytes()
            tokenizer = tokenizers.Tokenizer.from_buffer(content)
        except Exception as error:  # the package raises nothing narrower
            raise TokenizerError(f"cannot load the tokenizer {path}: {error}") from error
        return cls(tokenizer, num_workers, sha256(content).hexdigest())

    async def encode(self, text: str, add_special_tokens: bool = True, truncate: int | None = None) -> tuple[int, ...]:
        """Returns the token ids of `text`; at most `truncate`, the last ones beside those added to every text.

        Raises TokenizerError if the tokenizer refuses the text.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._encode, text, add_special_tokens, truncate)

    async def split(self, text: str, add_special_tokens: bool = True) -> list[TextToken]:
        """Returns the tokens of `text`, each with its place in the text."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._split, text, add_special_tokens)

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of `ids`, special tokens included; bytes that are no UTF-8 show as U+FFFD."""
        text: str = self._tokenizer.decode(ids, skip_special_tokens=False)
        return text

    def text_of(self, token_id: int) -> str:
        """Returns a token's text as inside a text, with the space that decoders drop from a text's first token.

        Bytes that are no whole character show as U+FFFD.
        """
        text = self._texts.get(token_id)
        if text is None:
            text = self._texts[token_id] = self.decode([token_id, token_id])[len(self.decode([token_id])):]
        return text

    def is_special(self, token_id: int) -> bool:
        """Tells whether a token is a mark for the model, such as the end of a turn, and no part of an answer's text."""
        return token_id in self._special_ids

    def special_id(self, text: str) -> int | None:
        """Returns the id of the special token `text`, if there is one."""
        return self._id_of_special.get(text)

    def close(self) -> None:
        """Ends the threads; texts that they have not begun are given up."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _encode(self, text: str, add_special_tokens: bool, truncate: int | None) -> tuple[int, ...]:
        encoding = self._one(self._tokenizer.encode_batch_fast, text, add_special_tokens)
        if truncate is not None and len(encoding) > truncate:
            encoding = self._one(self._tokenizer.encode_batch_fast, text, add_special_tokens=False)
            num_added = self._tokenizer.num_special_tokens_to_add(is_pair=False) if add_special_tokens else 0
            _keep_last(encoding, max(0, truncate - num_added))
            encoding = self._tokenizer.post_process(encoding, add_special_tokens=add_special_tokens)
        return tuple(encoding.ids[:truncate])

    def _split(self, text: str, add_special_tokens: bool) -> list[TextToken]:
        encoding = self._one(self._tokenizer.encode_batch, text, add_special_tokens)
        byte_at = [0, *accumulate(len(character.encode()) for character in text)]
        return [TextToken(token_id, text[start:stop], byte_at[start], byte_at[stop])
                for token_id, (start, stop) in zip(encoding.ids, encoding.offsets, strict=True)]

    @staticmethod
    def _one(encode_batch: Callable[..., list[tokenizers.Encoding]], text: str, add_special_tokens: bool
             ) -> tokenizers.Encoding:
        """Encodes a batch of one text, because to encode a single text keeps Python's lock."""
        try:
            return encode_batch([text], add_special_tokens=add_special_tokens)[0]
        except Exception as error:  # the package raises nothing narrower
            raise TokenizerError(str(error)) from error
