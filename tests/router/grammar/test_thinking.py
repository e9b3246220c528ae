"""Answers that think first: budgets to the token, and grammars that bind the rest alone."""

import pickle
import random

import pytest

from penstock.router.grammar.compiler import GrammarCompiler
from penstock.router.grammar.matcher import Grammar, Matcher
from penstock.router.grammar.spec import GrammarSpec, ThinkingRule, ThinkingSpec
from tests.router.grammar.grammar_driver import EOS_ID, TOKENIZER, VOCAB_SIZE, allows, push_text

BEGIN, END = "<think>", "</think>"
NUM_BYTES = (VOCAB_SIZE + 31) // 32 * 4


def ids_of(text: str) -> tuple[int, ...]:
    return tuple(TOKENIZER.encode(text, add_special_tokens=False).ids)


def rule(is_open: bool = False, budget: int | None = None) -> ThinkingRule:
    return ThinkingRule(BEGIN, END, ids_of(BEGIN), ids_of(END), is_open, budget)


async def grammar_of(
    compiler: GrammarCompiler, form: str | None, is_open: bool = False, budget: int | None = None
) -> Grammar:
    kind, source = ("any", "") if form is None else ("regex", form)
    return await compiler.compile(ThinkingSpec(kind, source, rule(is_open, budget)))


def allowed(matcher: Matcher, token_id: int) -> bool:
    mask = matcher.mask()
    return mask is None or allows(mask, token_id)


def push(matcher: Matcher, text: str) -> None:
    for token_id in ids_of(text):
        assert allowed(matcher, token_id), f"{text!r} may come"
        matcher.push(token_id)


def members(mask: bytes) -> list[int]:
    return [8 * index + bit for index, byte in enumerate(mask) if byte for bit in range(8) if byte >> bit & 1]


async def test_a_form_binds_the_answer_behind_the_thinking(compiler: GrammarCompiler) -> None:
    matcher = (await grammar_of(compiler, "[0-9]+")).start()
    push(matcher, "<think>\nLet me see < 3, </thin")
    assert not allowed(matcher, EOS_ID)
    push(matcher, " the answer is</think>")
    assert not allowed(matcher, ids_of("the")[0])
    assert not allowed(matcher, EOS_ID)
    push(matcher, "\n42")
    assert allowed(matcher, EOS_ID)
    assert not allowed(matcher, ids_of("\n")[0])


async def test_an_answer_may_do_without_thinking(compiler: GrammarCompiler) -> None:
    matcher = (await grammar_of(compiler, "[0-9]{2}")).start()
    assert not allowed(matcher, ids_of("the")[0])
    push(matcher, "42")
    assert matcher.is_complete


async def test_a_form_may_begin_as_the_mark_does(compiler: GrammarCompiler) -> None:
    grammar = await grammar_of(compiler, "<th[a-z]+[0-9]")
    matcher = grammar.start()
    for token_id in TOKENIZER.encode("<th").ids + TOKENIZER.encode("at").ids + TOKENIZER.encode("1").ids:
        assert allowed(matcher, token_id)
        matcher.push(token_id)
    assert matcher.is_complete
    thinking = grammar.start()
    push(thinking, "<think>anything")
    assert not thinking.is_complete


async def test_the_thinking_that_the_prompt_has_opened(compiler: GrammarCompiler) -> None:
    matcher = (await grammar_of(compiler, "[0-9]{2}", is_open=True)).start()
    push(matcher, "42 is nice</think>\n\n42")
    assert matcher.is_complete


async def test_without_a_form_nothing_is_masked_before_the_budget(compiler: GrammarCompiler) -> None:
    matcher = (await grammar_of(compiler, None, is_open=True, budget=3)).start()
    thoughts = ids_of("a b c")[:3]
    assert len(thoughts) == 3
    for token_id in thoughts:
        assert matcher.masks() is None
        matcher.push(token_id)
    for token_id in ids_of(END):
        assert matcher.masks() == (1 << token_id).to_bytes(NUM_BYTES, "little")
        matcher.push(token_id)
    assert matcher.masks() is None
    push(matcher, "anything")
    assert matcher.masks(ids_of("at all")) is None
    assert not matcher.is_complete


async def test_the_answer_does_not_begin_within_the_mark(compiler: GrammarCompiler) -> None:
    """Tokens whose text is the mark's last letters and more are left out while that would end the thinking."""
    beyond = TOKENIZER.token_to_id(">.")
    matcher = (await grammar_of(compiler, "[0-9]+", is_open=True)).start()
    assert allowed(matcher, beyond)
    push(matcher, "a </think")
    assert not allowed(matcher, beyond)
    push(matcher, ">")
    assert not allowed(matcher, beyond)


@pytest.mark.parametrize("form", [None, "[0-9]{1,4}", "(.|\\n)*"])
@pytest.mark.parametrize("is_open", [False, True])
async def test_budgets_hold_to_the_token(compiler: GrammarCompiler, form: str | None, is_open: bool) -> None:
    """Whatever tokens the model likes, with drafts and without, exactly the budget comes, or the model ends before."""
    dice = random.Random(f"{form} {is_open}")
    for _ in range(20):
        budget = dice.randrange(0, 12)
        matcher = (await grammar_of(compiler, form, is_open, budget)).start()
        token_ids: list[int] = []
        if not is_open:
            push(matcher, BEGIN)
        liked = ids_of(END)
        for _ in range(budget + len(ids_of(END)) + 6):
            token_id = liked[len(token_ids) % len(liked)] if dice.random() < 0.4 else dice.randrange(1, 8000)
            mask = matcher.mask()
            if mask is not None and not allows(mask, token_id):
                token_id = dice.choice(members(mask))
            if token_id == EOS_ID:
                break
            drafts = [token_id, *(dice.randrange(1, 8000) for _ in range(2))]
            ahead = matcher.masks(drafts)
            matcher.push(token_id)
            token_ids.append(token_id)
            if matcher.is_complete:
                break
            following = matcher.mask()
            if ahead is not None:
                assert ahead[NUM_BYTES:2 * NUM_BYTES] == (following or b"\xff" * NUM_BYTES)
            else:
                assert following is None
        number = next(number for number in range(len(token_ids) + 1)
                      if END in TOKENIZER.decode(token_ids[:number], skip_special_tokens=False))
        assert number <= budget + len(ids_of(END))


async def test_the_state_follows_from_the_tokens(compiler: GrammarCompiler) -> None:
    grammar = await grammar_of(compiler, "[0-9]{2}", budget=4)
    token_ids = [*ids_of(BEGIN), *ids_of("a b c d")[:4], *ids_of(END), *ids_of("42")]
    matchers: list[Matcher] = [grammar.start()]
    for number, token_id in enumerate(token_ids):
        fresh = grammar.start()
        for each in token_ids[:number]:
            fresh.push(each)
        assert len({matcher.masks(token_ids[number:number + 2]) for matcher in [*matchers, fresh]}) == 1
        matchers = [matchers[-1], matchers[-1].copy()]
        for matcher in matchers:
            matcher.push(token_id)
    assert all(matcher.is_complete for matcher in matchers)


async def test_what_is_forced_is_the_mark(compiler: GrammarCompiler) -> None:
    matcher = (await grammar_of(compiler, "yes", is_open=True, budget=2)).start()
    assert matcher.forced(9) == []
    push(matcher, "a b")
    assert matcher.forced(9) == [*ids_of(END)]
    assert matcher.forced(2) == [*ids_of(END)][:2]
    matcher.push(ids_of(END)[0])
    assert matcher.forced(9) == [*ids_of(END)][1:]


async def test_equal_rules_are_equal_specs() -> None:
    first, second = (ThinkingSpec("any", "", rule(budget=budget)) for budget in (1, 2))
    assert first != second
    assert {first: 1}[ThinkingSpec("any", "", rule(budget=1))]
    assert first != GrammarSpec("any", "")
    assert pickle.loads(pickle.dumps(first)) == first, "as it goes to the process of the engine"


async def test_a_text_is_pushed_through_an_ordinary_grammar_too(compiler: GrammarCompiler) -> None:
    matcher = (await grammar_of(compiler, None)).start()
    push(matcher, "no thoughts, <think>then")
    assert matcher.masks(ids_of("any")) is None
    assert push_text((await compiler.compile(GrammarSpec("regex", "a+"))).start(), "aa")  # type: ignore[arg-type]
