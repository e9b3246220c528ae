"""Texts and pairs are cut as transformers cuts them."""

import itertools

import pytest
import tokenizers
from tokenizers import models, pre_tokenizers, processors

from penstock.router.text.cutting import encode, lengths
from penstock.router.text.encoding import TokenizerError, TooManyTokens

CLS, SEP = 1, 2


@pytest.fixture(scope="module")
def bert() -> tokenizers.Tokenizer:
    """One whose words are letters, with BERT's special tokens and types."""
    letters = {chr(ord("a") + number): 10 + number for number in range(26)}
    tokenizer = tokenizers.Tokenizer(models.WordLevel({"[UNK]": 0, "[CLS]": CLS, "[SEP]": SEP, **letters}, "[UNK]"))
    tokenizer.add_special_tokens(["[CLS]", "[SEP]"])
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", [("[CLS]", CLS), ("[SEP]", SEP)])
    return tokenizer


def words(first: str, number: int) -> str:
    return " ".join(chr(ord(first) + index % 10) for index in range(number))


@pytest.mark.parametrize("keeps_end", [False, True])
@pytest.mark.parametrize("most", [5, 8, 11, 40])
def test_pairs_lose_what_the_tokenizers_own_truncation_takes(
    bert: tokenizers.Tokenizer, most: int, keeps_end: bool
) -> None:
    for one, other in itertools.product((1, 2, 5, 9, 20), repeat=2):
        pair = (words("a", one), words("k", other))
        bert.enable_truncation(most, strategy="longest_first", direction="left" if keeps_end else "right")
        wanted = bert.encode(*pair)
        bert.no_truncation()
        found = encode(bert, pair, True, most, cuts=True, keeps_end=keeps_end)
        assert list(found.ids) == wanted.ids
        assert found.second == wanted.type_ids.index(1)


def test_single_texts(bert: tokenizers.Tokenizer) -> None:
    ids = encode(bert, [words("a", 9)], True, 6, cuts=True, keeps_end=False)
    assert ids == ((CLS, 10, 11, 12, 13, SEP), 0)
    assert encode(bert, [words("a", 9)], True, 6, cuts=True, keeps_end=True).ids == (CLS, 15, 16, 17, 18, SEP)
    assert encode(bert, ["a b"], False, 6, cuts=False, keeps_end=False).ids == (10, 11)


def test_what_may_not_be_cut_is_told(bert: tokenizers.Tokenizer) -> None:
    with pytest.raises(TooManyTokens, match="11"):
        encode(bert, [words("a", 9)], True, 10, cuts=False, keeps_end=False)
    with pytest.raises(TokenizerError, match="adds 2 special tokens to each text, and 1 are allowed"):
        encode(bert, ["a"], True, 1, cuts=True, keeps_end=False)


def test_lengths() -> None:
    assert lengths([9], 4) == [4]
    assert lengths([3, 20], 10) == [3, 7]
    assert lengths([20, 3], 10) == [7, 3]
    assert lengths([20, 30], 9) == [4, 5]
    assert lengths([30, 20], 9) == [5, 4]
    assert lengths([3, 3], 10) == [3, 3]
