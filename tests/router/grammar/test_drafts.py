"""A grammar's masks behind drafts, and the tokens that it forces."""

import pytest

from penstock.router.grammar.matcher import Matcher
from penstock.router.grammar.spec import GrammarSpec
from tests.router.grammar.grammar_driver import EOS_ID, TOKENIZER, GrammarCompiler, allows


def ids_of(text: str) -> list[int]:
    ids: list[int] = TOKENIZER.encode(text, add_special_tokens=False).ids
    return ids


async def started(compiler: GrammarCompiler, pattern: str) -> Matcher:
    return (await compiler.compile(GrammarSpec("regex", pattern))).start()


async def test_masks_behind_drafts_are_those_behind_tokens(compiler: GrammarCompiler) -> None:
    matcher, other = await started(compiler, "ab?c[d-f]{3}"), await started(compiler, "ab?c[d-f]{3}")
    drafts = ids_of("a") + ids_of("c") + ids_of("e")
    masks = matcher.masks(drafts)
    assert len(masks) == 4 * len(matcher.mask())
    expected = [other.mask()]
    for draft in drafts:
        other.push(draft)
        expected.append(other.mask())
    assert masks == b"".join(expected)
    assert matcher.mask() == expected[0], "the matcher is where it was"


@pytest.mark.parametrize("drafts", ["ax", "x", "abcdefz"])
async def test_behind_a_draft_that_may_not_come_all_may(compiler: GrammarCompiler, drafts: str) -> None:
    matcher = await started(compiler, "abcdef[0-9]")
    ids = [token_id for letter in drafts for token_id in ids_of(letter)]
    masks, length = matcher.masks(ids), len(matcher.mask())
    assert not allows(masks[(len(ids) - 1) * length:][:length], ids[-1])
    assert masks[len(ids) * length:] == b"\xff" * length


async def test_behind_the_end_all_may_come(compiler: GrammarCompiler) -> None:
    matcher = await started(compiler, "ab")
    masks, length = matcher.masks([*ids_of("ab"), EOS_ID, 9]), len(matcher.mask())
    assert masks[-length:] == b"\xff" * length
    assert matcher.mask() == masks[:length]
    assert not matcher.is_complete


async def test_forced_tokens_spell_the_one_text(compiler: GrammarCompiler) -> None:
    matcher = await started(compiler, "return [0-9]")
    assert TOKENIZER.decode(matcher.forced(20)) == "return"
    assert len(matcher.forced(20, takes_longest=False)) > len(matcher.forced(20))
    assert TOKENIZER.decode(matcher.forced(20, takes_longest=False)).startswith("return")
    assert len(matcher.forced(1)) == 1
    matcher.push(ids_of("return")[0])
    assert allows(matcher.mask(), ids_of(" ")[0]), "the matcher is where it was"


async def test_nothing_is_forced_where_there_is_a_choice(compiler: GrammarCompiler) -> None:
    assert (await started(compiler, "[a-z]+")).forced(9) == []
    assert (await started(compiler, "ab|cd")).forced(9) == []


async def test_an_endless_forced_text_is_told_as_far_as_asked(compiler: GrammarCompiler) -> None:
    assert len((await started(compiler, "a{1000000000}")).forced(9)) == 9


async def test_a_grammar_that_cannot_go_back(compiler: GrammarCompiler) -> None:
    source = 'start: "abcdefgh" b "hello world"\nb[max_tokens=3]: /[0-9]*/\n'
    matcher = (await compiler.compile(GrammarSpec("lark", source))).start()
    assert TOKENIZER.decode(matcher.forced(8)).startswith("abc")
    ids = matcher.forced(8, takes_longest=False)
    mask = matcher.mask()
    assert matcher.masks(ids)[:len(mask)] == mask
    assert matcher.mask() == mask
    for token_id in ids[:3]:
        matcher.push(token_id)


async def test_a_limit_behind_a_wrong_draft_harms_nobody(compiler: GrammarCompiler) -> None:
    matcher = await started(compiler, "x[0-9]+|y[a-z ]*(q[a-z ]{40}z)")
    drafts = [token_id for letter in "y" + "qabqcd" * 4 for token_id in ids_of(letter)]
    for _ in range(3):
        assert len(matcher.masks(drafts)) == (1 + len(drafts)) * len(matcher.mask())
