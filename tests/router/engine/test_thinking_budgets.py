"""Budgets of thinking in the engine: with guesses and without, deep and flat, and where the group dies amid it."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from penstock.contract.row import Row
from penstock.contract.sampling import Sampling
from penstock.router.engine.request import Request
from penstock.router.grammar.spec import ThinkingRule
from penstock.router.grammar.thinking import ThinkingGrammar, Words
from tests.fakes import FACTS, LIMITS, ScriptedFleet
from tests.scripted_engine import ListGrammar, collect, first_allowed, running_engine, submit, token_ids

BEGIN, END = "<t>", "</t>"
BEGIN_IDS, END_IDS = tuple(BEGIN.encode()), tuple(END.encode())
EOS = 2
WORDS = Words([bytes([token_id]) if token_id > 32 else b"" for token_id in range(128)], FACTS.vocab_size // 8, [EOS])
LETTERS = range(65, 91)


def counting(row: Row) -> int:
    """Three letters over and over, which are soon guessed."""
    return 70 + (row.start + row.num_inputs) % 3


def drawn(seed: int) -> Callable[[Row], int]:
    """Letters and parts of the closing mark, each of which follows from its position alone."""
    def draw(row: Row) -> int:
        dice = random.Random(f"{seed} {row.start + row.num_inputs}")
        return dice.choice([*LETTERS, *END_IDS * 3])
    return draw


async def answer(
    fleet_answer: Callable[[Row], int], grammar: ThinkingGrammar, speculate: int, depth: int, fails_at: int
) -> tuple[list[int], int]:
    def allowed(row: Row, mask: bytes) -> int:
        liked = fleet_answer(row)
        return liked if mask[liked >> 3] >> (liked & 7) & 1 else first_allowed(row, mask)

    fleet = ScriptedFleet(fleet_answer, allowed)
    async with running_engine(fleet, depth=depth, limits=replace(LIMITS, speculate=speculate)) as engine:
        if fails_at:
            fleet.fail_at("next_result", fails_at)
        request = Request((10, 11, 12), Sampling(), 40, grammar=grammar, ignore_eos=False)
        return token_ids(await collect(submit(engine, request))), len(fleet.plans)


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("has_form", [False, True])
@pytest.mark.parametrize("budget", [0, 1, 15])
async def test_exactly_so_many_tokens_come(budget: int, has_form: bool, depth: int) -> None:
    form = ListGrammar({80}, {81, 82}, {83}) if has_form else None
    grammar = ThinkingGrammar(ThinkingRule(BEGIN, END, BEGIN_IDS, END_IDS, True, budget), form, WORDS)
    plain, num_plain = await answer(counting, grammar, 0, depth, 0)
    assert tuple(plain[budget:budget + len(END)]) == END_IDS
    assert not set(plain[:budget]) & {*END_IDS}
    assert plain[budget + len(END):] in ([80, 81, 83], [80, 82, 83]) if has_form else len(plain) == 40
    for speculate, fails_at in ((5, 0), (0, 3), (5, 3), (5, 5)):
        others, num_steps = await answer(counting, grammar, speculate, depth, fails_at)
        assert others == plain
        assert num_steps < num_plain or budget < 9 or not speculate or fails_at


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("speculate", [0, 5])
async def test_no_step_waits_for_a_mask_before_the_budget(speculate: int, is_open: bool) -> None:
    """Where the answer has no form."""
    grammar = ThinkingGrammar(ThinkingRule(BEGIN, END, BEGIN_IDS, END_IDS, is_open, 12), None, WORDS)
    fleet = ScriptedFleet(counting, lambda row, mask: first_allowed(row, mask))
    async with running_engine(fleet, depth=2, limits=replace(LIMITS, speculate=speculate)) as engine:
        await collect(submit(engine, Request((10, 11, 12), Sampling(), 30, grammar=grammar)))
    free = 12 + (not is_open)
    for plan in fleet.plans:
        for row in plan.rows:
            last = row.start + row.num_inputs - 3  # the place in the output of the last token that is sampled
            assert row.late_mask == (last >= free)


@pytest.mark.parametrize("seed", range(6))
async def test_no_answer_thinks_longer(seed: int) -> None:
    """Neither where the mark has begun by itself, nor where guesses lead over the budget's end."""
    budget = seed % 9
    rule = ThinkingRule(BEGIN, END, BEGIN_IDS, END_IDS, True, budget)
    for form in (None, ListGrammar({80}, {81, 82}, {83})):
        grammar = ThinkingGrammar(rule, form, WORDS)
        plain, _ = await answer(drawn(seed), grammar, 0, 1, 0)
        assert bytes(plain).index(END.encode()) <= budget
        assert plain == (await answer(drawn(seed), grammar, 5, 2, 4))[0]
