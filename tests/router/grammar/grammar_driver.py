"""Grammars driven as a model would: texts pushed token by token, and answers drawn from the masks."""

import random
from collections.abc import Sequence

import tokenizers

from penstock.router.grammar.compiler import GrammarCompiler
from penstock.router.grammar.matcher import Grammar, Matcher
from penstock.router.grammar.spec import GrammarSpec
from tests.paths import DEMO_MODEL
from tests.scripted_engine import ids_of

TOKENIZER_JSON = DEMO_MODEL / "tokenizer.json"
TOKENIZER = tokenizers.Tokenizer.from_file(str(TOKENIZER_JSON))
VOCAB_SIZE = 8200
"""More than the tokenizer's 8,192 and no multiple of 32, as models' often are."""
EOS_ID = 0
_CLOSING = sum(1 << token_id for text, token_id in TOKENIZER.get_vocab().items() if text and text[0] in '"}],')
"""What closes strings and brackets, as a mask."""


def make_compiler(**options: int) -> GrammarCompiler:
    return GrammarCompiler(TOKENIZER_JSON, VOCAB_SIZE, [EOS_ID], **options)


def allows(mask: bytes, token_id: int) -> bool:
    return bool(mask[token_id >> 3] >> (token_id & 7) & 1)


def push_text(matcher: Matcher, text: str) -> bool:
    """Whether every token of `text` was allowed."""
    for token_id in TOKENIZER.encode(text, add_special_tokens=False).ids:
        if matcher.is_complete or not allows(matcher.mask(), token_id):
            return False
        matcher.push(token_id)
    return True


def accepts(grammar: Grammar, text: str) -> bool:
    """Whether `text` is a whole answer."""
    matcher = grammar.start()
    return push_text(matcher, text) and (matcher.is_complete or allows(matcher.mask(), EOS_ID))


async def accepts_of(compiler: GrammarCompiler, spec: GrammarSpec | None, *texts: str) -> list[bool]:
    assert spec is not None
    grammar = await compiler.compile(spec)
    return [accepts(grammar, text) for text in texts]


def draw(grammar: Grammar, dice: random.Random, max_tokens: int, words: Sequence[str] = ()) -> str | None:
    """An answer of tokens drawn from the masks, what closes strings and brackets more often than not; None if it is not
    complete after `max_tokens`. It has some of the words, as far as the masks allow them."""
    matcher = grammar.start()
    token_ids: list[int] = []
    word: list[int] = []
    while not matcher.is_complete and len(token_ids) < max_tokens:
        mask = matcher.mask()
        if words and not word and dice.random() < 0.25:
            word = TOKENIZER.encode(dice.choice(words), add_special_tokens=False).ids
        if word and allows(mask, word[0]):
            token_id, *word = word
        else:
            token_id, word = _draw_token(mask, dice), []
        if token_id == EOS_ID:
            return TOKENIZER.decode(token_ids, skip_special_tokens=False)
        matcher.push(token_id)
        token_ids.append(token_id)
    return TOKENIZER.decode(token_ids, skip_special_tokens=False) if matcher.is_complete else None


def _draw_token(mask: bytes, dice: random.Random) -> int:
    if allows(mask, EOS_ID):
        return EOS_ID
    allowed = int.from_bytes(mask, "little")
    if dice.random() < 0.4 and allowed & _CLOSING:
        return dice.choice(ids_of((allowed & _CLOSING).to_bytes(len(mask), "little")))
    while allowed.bit_count() > VOCAB_SIZE // 8:  # rather than list so many
        token_id = dice.randrange(VOCAB_SIZE)
        if allows(mask, token_id):
            return token_id
    return dice.choice(ids_of(mask))
