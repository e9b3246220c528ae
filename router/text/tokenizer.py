"""The model's tokenizer, which encodes text off the event loop and decodes ids on it."""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from functools import cached_property, partial
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any, Self, TypeVar

import orjson
import tokenizers

from penstock.router.text import cutting, encoding
from penstock.router.text.cutting import Encoded
from penstock.router.text.encoding import TokenizerError, TooManyTokens
from penstock.router.text.known_parts import KnownParts, joined
from penstock.router.text.long_texts import LongTexts
from penstock.router.text.thread_jobs import ThreadJobs
from penstock.system.daemon_threads import DaemonThreads

_T = TypeVar("_T")

_MARGIN = 1 << 10
"""How far from where a long text was cut its tokens are those of the whole text, in characters."""
MAX_SHORT = 1 << 15
"""The most characters of a text that a thread tokenises, within 50 ms, for threads can't be ended; those of longer
ones come later by the 5 ms that their own process takes."""


class Tokenizer:
    """Wraps the `tokenizers` package. Short texts are encoded in `num_workers` threads and without Python's lock, long
    ones in as many processes, and one more. Of texts without tokens that are added to each, such as chats, what was in
    an earlier one is not encoded again."""

    def __init__(
        self, tokenizer: tokenizers.Tokenizer, num_workers: int = 2, digest: str = "", file: int | None = None
    ) -> None:
        """`digest` is that of the tokenizer.json, and `file` its descriptor, which this object closes; it makes one if
        there is none."""
        self.digest = digest
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        added = tokenizer.get_added_tokens_decoder()
        self._id_of_added = {token.content: token_id for token_id, token in added.items()}
        self._special_ids = frozenset(token_id for token_id, token in added.items() if token.special)
        self._texts: dict[int, str] = {}
        self._marks: dict[str, dict[str, int]] = {}
        """By text; some models have tens of thousands of added tokens."""
        self._threads = DaemonThreads(num_workers, "tokenizer")
        self._whole = ThreadJobs(self._threads, partial(cutting.encode, tokenizer), num_workers, MAX_SHORT)
        self._file = file
        self._long_texts = LongTexts(self._opened, num_workers)
        self._known = KnownParts(tokenizer)

    @classmethod
    def load(cls, path: Path, num_workers: int = 2) -> Self:
        """Reads a `tokenizer.json`. Raises TokenizerError, which names the file, if it is missing or damaged."""
        try:
            with path.open("rb") as file:
                content = file.read()
                return cls(encoding.parse(content), num_workers, sha256(content).hexdigest(), os.dup(file.fileno()))
        except (OSError, TokenizerError) as error:
            raise TokenizerError(f"cannot load the tokenizer {path}: {error}") from error

    async def encode(
        self, text: str, add_special_tokens: bool = True, truncate: int | None = None, most: int | None = None
    ) -> tuple[int, ...]:
        """Returns the token ids of `text`; at most `truncate`, the last ones beside those added to every text.

        Raises TokenizerError if the tokenizer refuses the text, and for a long text TooManyTokens if it has more than
        `most`: at once where its length tells.
        """
        if add_special_tokens or truncate is not None:
            return await self._encode(text, add_special_tokens, truncate, most)
        parts = self._known.cut(text)
        known = {part: self._known.get(part) for part in parts}
        missing = [part for part, ids in known.items() if ids is None]
        if len(missing) == len(known) or sum(map(len, missing)) > MAX_SHORT:
            ids = await self._encode(text, False, None, most)
            self._known.learn(*await self._in_thread(self._known.read, text, ids))
            return ids
        if missing:
            found = await self._in_thread(self._encode_each, missing)
            self._known.put(found)
            known |= found
        return joined(known[part] or () for part in parts)

    async def _encode(
        self, text: str, add_special_tokens: bool, truncate: int | None, most: int | None
    ) -> tuple[int, ...]:
        """Returns the token ids of a text, none of whose parts needs to be known."""
        if len(text) > MAX_SHORT:
            if most is not None and truncate is None:
                await self._check_length(text, most)
            return await self._long_texts.encode(text, add_special_tokens, truncate, most)
        return await self._in_thread(encoding.encode, self._tokenizer, text, add_special_tokens, truncate)

    def _encode_each(self, texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
        return {text: encoding.encode(self._tokenizer, text, add_special_tokens=False, truncate=None)
                for text in texts}

    async def split(self, text: str, add_special_tokens: bool = True) -> AsyncGenerator[bytes]:
        """Yields JSON lists of the tokens of `text`, each token with its place in the text: see `TextToken`."""
        if len(text) <= MAX_SHORT:
            yield await self._in_thread(self._split, text, add_special_tokens)
            return
        async with aclosing(self._long_texts.split(text, add_special_tokens)) as parts:
            async for part in parts:
                yield part

    async def encode_whole(
        self, texts: Sequence[str], add_special_tokens: bool, most: int, cuts: bool, keeps_end: bool
    ) -> Encoded:
        """Returns the tokens of a text or a pair of them, as `cutting.encode` does. Of a long text that is cut no more
        is read than that takes."""
        if any(len(text) > MAX_SHORT for text in texts):
            if cuts:
                texts = [await self._part(text, most, keeps_end) for text in texts]
            else:
                for text in texts:
                    await self._encode(text, False, None, most)
        return await self._whole.run(sum(map(len, texts)), texts, add_special_tokens, most, cuts, keeps_end)

    async def _part(self, text: str, most: int, keeps_end: bool) -> str:
        """Returns as much of a text, from the beginning or from the end, as has more than `most` tokens, if it has as
        many. Where it is cut no token is whole, so that it is cut far from those."""
        size = MAX_SHORT
        while size < len(text):
            part = text[-size:] if keeps_end else text[:size]
            inner = part[_MARGIN:] if keeps_end else part[:-_MARGIN]
            if len(await self._in_thread(encoding.encode, self._tokenizer, inner, False, None)) > most:
                return part
            size *= 2
        return text

    async def beginning(self, text: str, most: int) -> str:
        """Returns the part of `text` that has its first `most` tokens. No more of a long text is read than that takes.
        Raises TokenizerError."""
        size = MAX_SHORT
        while True:
            end = await self._in_thread(encoding.end_of, self._tokenizer, text[:size], most)
            if end < min(size, len(text)) or size >= len(text):
                return text[:end]
            size *= 2

    @cached_property
    def num_ids(self) -> int:
        """How many token ids there are, or more: all are less than this."""
        return max(self._tokenizer.get_vocab().values(), default=-1) + 1

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of `ids`, special tokens included; bytes that are no UTF-8 show as U+FFFD."""
        text: str = self._tokenizer.decode(ids, skip_special_tokens=False)
        return text

    async def decode_many(self, ids: Sequence[int], skips_special: bool) -> str:
        """Returns the text of ids that may be a million, without that of special tokens if it `skips_special`."""
        texts: list[str] = await self._in_thread(self._tokenizer.decode_batch, [ids], skips_special)
        return texts[0]

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

    @property
    def special_ids(self) -> frozenset[int]:
        """The ids of all such tokens."""
        return self._special_ids

    def special_id(self, text: str) -> int | None:
        """Returns the id of the special token `text`, if there is one."""
        token_id = self.added_id(text)
        return token_id if token_id in self._special_ids else None

    def added_id(self, text: str) -> int | None:
        """Returns the id of a token that was added to the vocabulary whole, special or not, if `text` is one."""
        return self._id_of_added.get(text)

    def marks(self, text: str) -> dict[str, int]:
        """Returns the marks whose texts are parts of `text`, with their ids: special tokens, and added ones in angle
        brackets, which grammars can allow by their ids alone."""
        if text not in self._marks:
            self._marks[text] = {
                part: token_id for part, token_id in self._id_of_added.items() if part and part in text and (
                    token_id in self._special_ids or (part.startswith("<") and part.endswith(">")))}
        return self._marks[text]

    def most_memory(self, longest: int) -> int:
        """Returns how many bytes processes take at the most for texts of up to `longest` bytes."""
        size = os.fstat(self._opened()).st_size
        return self._long_texts.most_memory(size, longest)

    def close(self) -> None:
        """Ends threads and processes; texts that they have not begun are given up."""
        self._threads.close()
        self._long_texts.close()
        if self._file is not None:
            os.close(self._file)
            self._file = None

    async def _in_thread(self, work: Callable[..., _T], *arguments: Any) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    def _split(self, text: str, add_special_tokens: bool) -> bytes:
        return orjson.dumps([*chain.from_iterable(encoding.split(self._tokenizer, text, add_special_tokens))])

    async def _check_length(self, text: str, most: int) -> None:
        """Raises TooManyTokens if the length of `text` tells that it has more tokens than `most`."""
        longest = await self._long_texts.most_bytes_of_a_token()
        if longest is not None and (number := -(-_num_bytes(text) // longest)) > most:
            raise TooManyTokens(number, is_least=True)

    def _opened(self) -> int:
        """Returns the descriptor of the tokenizer.json, whatever has happened to the file since."""
        if self._file is None:
            self._file = os.memfd_create("tokenizer.json")
            with open(self._file, "wb", closefd=False) as file:
                file.write(self._tokenizer.to_str().encode())
        return self._file


def _num_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
