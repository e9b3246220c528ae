"""The tokens of words that an answer must not have, as vLLM finds them."""

from collections.abc import Sequence

from penstock.router.errors import ValidationError
from penstock.router.generation.refusals import refuse_if
from penstock.router.text.encoding import TokenizerError
from penstock.router.text.tokenizer import Tokenizer

MAX_BAD_WORDS = 256
MAX_BAD_WORD_CHARACTERS = 256
MAX_BAD_WORD_TOKENS = 32
"""The most of one word: at each step all of them are compared with the end of the answer."""


def check_bad_words(words: Sequence[str]) -> None:
    """Raises ValidationError for more words, or longer ones, than are taken, and for one that is empty."""
    refuse_if(len(words) > MAX_BAD_WORDS, f"`bad_words` supports up to {MAX_BAD_WORDS} words. Given: {len(words)}",
              "array_above_max_length")
    refuse_if("" in words, "`bad_words` cannot have an empty word", "empty_string")
    longest = max(map(len, words), default=0)
    refuse_if(longest > MAX_BAD_WORD_CHARACTERS,
              f"`bad_words` must have words of <= {MAX_BAD_WORD_CHARACTERS} characters. Given: {longest}",
              "string_above_max_length")


async def encode_bad_words(words: Sequence[str], tokenizer: Tokenizer, vocab_size: int) -> tuple[tuple[int, ...], ...]:
    """Returns the sequences of tokens that spell the words, each once. Raises ValidationError for a word of too many
    tokens, or of some that the model does not have."""
    found = {tokens: None for word in words for tokens in await _spellings(word, tokenizer)}
    longest = max(map(len, found), default=0)
    refuse_if(longest > MAX_BAD_WORD_TOKENS,
              f"`bad_words` must have words of <= {MAX_BAD_WORD_TOKENS} tokens. Given: {longest}",
              "string_above_max_length")
    largest = max(map(max, found), default=0)
    refuse_if(largest >= vocab_size,
              f"`bad_words` must have words of tokens < {vocab_size}, the model's vocabulary. Given: {largest}")
    return tuple(found)


async def _spellings(word: str, tokenizer: Tokenizer) -> list[tuple[int, ...]]:
    """Returns the tokens of a word at the beginning of a text, and behind a space if that makes another token of the
    same place, as many tokenizers do. A word that is all space is taken as it is."""
    bare = word.lstrip() or word
    try:
        first = await tokenizer.encode(bare, add_special_tokens=False)
        later = await tokenizer.encode(f" {bare}", add_special_tokens=False)
    except TokenizerError as error:
        raise ValidationError(f"tokenizer error {error}", param="bad_words") from error
    is_another = len(first) == len(later) and first[:1] != later[:1]
    return [tokens for tokens in (first, later if is_another else ()) if tokens]
