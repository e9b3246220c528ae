"""The tokens of a text as the `tokenizers` package finds them, for threads and for the processes of long texts."""

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice

import tokenizers

_SLICE = 4096
"""How many tokens are described at once, so that a million of them are never in memory."""


class TokenizerError(Exception):
    """Raised when the tokenizer can't be loaded or refuses a text."""


class TooManyTokens(Exception):
    """Raised for a text of more tokens than are of use; `number` of them, or more than that if it `is_least`."""

    def __init__(self, number: int, is_least: bool = False) -> None:
        super().__init__(f"{'at least ' * is_least}{number}")
        self.number = number
        self.is_least = is_least


@dataclass(frozen=True, slots=True)
class TextToken:
    """A token and the part of the text that it stands for; `start` and `stop` count bytes of UTF-8."""

    id: int
    text: str
    start: int
    stop: int


def parse(content: bytes) -> tokenizers.Tokenizer:
    """Returns the tokenizer that a tokenizer.json describes. Raises TokenizerError."""
    try:
        return tokenizers.Tokenizer.from_buffer(content)
    except Exception as error:  # the package raises nothing narrower
        raise TokenizerError(str(error)) from error


def encode(
    tokenizer: tokenizers.Tokenizer, text: str, add_special_tokens: bool, truncate: int | None
) -> tuple[int, ...]:
    """Returns the token ids of `text`; at most `truncate`, the last ones beside those added to every text. Raises
    TokenizerError."""
    encoding = _one(tokenizer.encode_batch_fast, text, add_special_tokens)
    if truncate is not None and len(encoding) > truncate:
        del encoding  # of which there should be one at a time
        encoding = _one(tokenizer.encode_batch_fast, text, add_special_tokens=False)
        num_added = tokenizer.num_special_tokens_to_add(is_pair=False) if add_special_tokens else 0
        keep_last(encoding, max(0, truncate - num_added))
        encoding = tokenizer.post_process(encoding, add_special_tokens=add_special_tokens)
    return tuple(encoding.ids[:truncate])


def end_of(tokenizer: tokenizers.Tokenizer, text: str, most: int) -> int:
    """Returns where the part of `text` ends that has its first `most` tokens, in characters. Raises TokenizerError."""
    encoding = _one(tokenizer.encode_batch, text, add_special_tokens=False)
    if len(encoding) <= most:
        return len(text)
    start, _ = encoding.token_to_chars(most) or (0, 0)
    return start


def split(tokenizer: tokenizers.Tokenizer, text: str, add_special_tokens: bool) -> Iterator[list[TextToken]]:
    """Yields the tokens of `text` in order, each with its place in it. Raises TokenizerError before the first."""
    encoding = _one(tokenizer.encode_batch, text, add_special_tokens)
    byte_at = _byte_places(text)
    numbered = enumerate(encoding.ids)
    while part := [_place(encoding, number, token_id, text, byte_at)
                   for number, token_id in islice(numbered, _SLICE)]:
        yield part


def _place(
    encoding: tokenizers.Encoding, number: int, token_id: int, text: str, byte_at: Sequence[int]
) -> TextToken:
    # One by one, for the list of all places takes ten times as much memory as the text's tokens.
    start, stop = encoding.token_to_chars(number) or (0, 0)
    return TextToken(token_id, text[start:stop], byte_at[start], byte_at[stop])


def _byte_places(text: str) -> Sequence[int]:
    """Returns where each character begins, in bytes, and last where the text ends."""
    if text.isascii():
        return range(len(text) + 1)
    return array("Q", accumulate((len(character.encode()) for character in text), initial=0))


def keep_last(encoding: tokenizers.Encoding, number: int) -> None:
    """Truncates by halves: what is cut off is kept in pieces of the new length, and a million pieces take seconds."""
    while len(encoding) > number:
        encoding.truncate(max(number, len(encoding) // 2), direction="left")


def keep_first(encoding: tokenizers.Encoding, number: int) -> None:
    """Truncates by halves, too."""
    while len(encoding) > number:
        encoding.truncate(max(number, len(encoding) // 2), direction="right")


def _one(encode_batch: Callable[..., list[tokenizers.Encoding]], text: str, add_special_tokens: bool
         ) -> tokenizers.Encoding:
    """Encodes a batch of one text, because to encode a single text keeps Python's lock."""
    try:
        return encode_batch([text], add_special_tokens=add_special_tokens)[0]
    except Exception as error:  # the package raises nothing narrower
        raise TokenizerError(str(error)) from error
