"""The tokens of a text or a pair of texts for a model that reads them whole, cut to as many as it takes."""

from collections.abc import Sequence
from typing import NamedTuple

import tokenizers

from penstock.router.text.encoding import TokenizerError, TooManyTokens, keep_first, keep_last


class Encoded(NamedTuple):
    """The ids of a text or of a pair, of which the second begins at the token `second`; 0 if there is none."""

    ids: tuple[int, ...]
    second: int = 0


def encode(
    tokenizer: tokenizers.Tokenizer, texts: Sequence[str], add_special_tokens: bool, most: int, cuts: bool,
    keeps_end: bool,
) -> Encoded:
    """Returns the tokens of one text or two. More than `most` are cut off if it `cuts`, at the end or with `keeps_end`
    at the beginning, of the longer text first. Raises TooManyTokens if it does not, and TokenizerError."""
    try:
        [encoding] = tokenizer.encode_batch_fast([tuple(texts) if len(texts) > 1 else texts[0]],
                                                 add_special_tokens=add_special_tokens)
        if len(encoding) > most:
            if not cuts:
                raise TooManyTokens(len(encoding))
            del encoding  # of which there should be one at a time
            encoding = _cut(tokenizer, texts, add_special_tokens, most, keeps_end)
    except (TooManyTokens, TokenizerError):
        raise
    except Exception as error:  # the package raises nothing narrower
        raise TokenizerError(str(error)) from error
    types = encoding.type_ids if len(texts) > 1 else ()
    return Encoded(tuple(encoding.ids), types.index(1) if 1 in types else 0)


def _cut(
    tokenizer: tokenizers.Tokenizer, texts: Sequence[str], add_special_tokens: bool, most: int, keeps_end: bool
) -> tokenizers.Encoding:
    parts = [tokenizer.encode_batch_fast([text], add_special_tokens=False)[0] for text in texts]
    num_added = tokenizer.num_special_tokens_to_add(is_pair=len(texts) > 1) if add_special_tokens else 0
    if num_added > most:
        raise TokenizerError(f"adds {num_added} special tokens to each text, and {most} are allowed")
    for part, length in zip(parts, lengths([len(part) for part in parts], most - num_added), strict=True):
        (keep_last if keeps_end else keep_first)(part, length)
    return tokenizer.post_process(parts[0], parts[1] if len(parts) > 1 else None, add_special_tokens)


def lengths(given: Sequence[int], most: int) -> list[int]:
    """Returns how long texts of the lengths `given` are once the longer one has lost what is beyond `most`, and then
    both, as transformers' strategy `longest_first` has it."""
    if len(given) == 1:
        return [min(given[0], most)]
    short, long = sorted(given)
    long = min(long, max(short, most - short))
    if short + long > most:
        short, long = most // 2, most - most // 2
    return [short, long] if given[0] <= given[1] else [long, short]
