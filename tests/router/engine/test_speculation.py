"""An engine that guesses delivers what one does that guesses nothing, and tells how many guesses were right."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from penstock.contract.row import Row
from penstock.contract.sampling import Sampling
from penstock.router.engine.request import Request
from penstock.router.engine.stream import Event, Guesses
from penstock.router.scheduling.finish_reason import FinishReason
from tests.fakes import FACTS, LIMITS, ScriptedFleet
from tests.scripted_engine import ListGrammar, collect, first_allowed, running_engine, submit, token_ids

GUESSING = replace(LIMITS, speculate=5)
EOS = 2


def counting(row: Row) -> int:
    """Three tokens over and over, which are soon guessed."""
    return 70 + (row.start + row.num_inputs) % 3


def ending(row: Row) -> int:
    return EOS if row.start + row.num_inputs == 30 else counting(row)


def request(grammar: ListGrammar | None = None, max_new_tokens: int = 40, stop: tuple[str, ...] = ()) -> Request:
    return Request((10, 11, 12), Sampling(top_n=2), max_new_tokens, grammar=grammar, stop=stop)


async def answers(
    answer: Callable[[Row], int], asked: Request, speculate: int, depth: int, *, fails_at: int = 0,
    has_draft_model: bool = False,
) -> tuple[list[Event], Guesses | None, int]:
    """The events, the guesses counted, and the number of steps."""
    fleet = ScriptedFleet(answer, first_allowed)
    facts = fleet.facts = replace(FACTS, draft_context=FACTS.context_length if has_draft_model else 0)
    limits = replace(LIMITS, speculate=speculate)
    async with running_engine(fleet, depth=depth, limits=limits, facts=facts) as engine:
        if fails_at:
            fleet.fail_at("next_result", fails_at)
        stream = submit(engine, asked)
        return await collect(stream), stream.guesses, len(fleet.plans)


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("case", ["length", "end", "grammar", "cut grammar", "loss"])
async def test_nothing_changes_but_the_number_of_steps(depth: int, case: str) -> None:
    grammar = ListGrammar(*({70 + index % 2} for index in range(18)), {80, 81}, *({90},) * 6)
    asked = request(grammar if "grammar" in case else None, max_new_tokens=16 if case == "cut grammar" else 40)
    answer = ending if case == "end" else counting
    plain, none, num_plain = await answers(answer, asked, 0, depth)
    assert none is None
    events, guesses, num_steps = await answers(answer, asked, 5, depth, fails_at=4 if case == "loss" else 0)
    assert events == plain
    assert guesses is not None
    assert 0 < guesses.accepted <= guesses.drafted
    assert num_steps < 0.9 * num_plain
    last = events[-1].ending
    assert last is not None
    assert last.finish_reason is (FinishReason.EOS_TOKEN if case in ("end", "grammar") else FinishReason.LENGTH)
    assert last.num_tokens == len(events) == {"end": 28, "grammar": 25, "cut grammar": 16}.get(case, 40)


def climbing(row: Row) -> int:
    """Tokens that were never there before."""
    return 30 + row.start + row.num_inputs


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("case", ["length", "grammar", "loss"])
async def test_a_draft_model_changes_nothing_either(depth: int, case: str) -> None:
    asked = request(ListGrammar(*({70 + index % 2} for index in range(18))) if case == "grammar" else None)
    plain, _, num_plain = await answers(climbing, asked, 0, depth)
    events, guesses, num_steps = await answers(
        climbing, asked, 5, depth, fails_at=4 if case == "loss" else 0, has_draft_model=True)
    assert events == plain
    assert guesses is not None
    if case != "grammar":
        assert 10 < guesses.accepted < guesses.drafted
        assert num_steps < 0.9 * num_plain


async def test_an_answer_ends_amid_guesses_that_were_right() -> None:
    """The tokens behind a stop string are dropped, though their step yielded them."""
    whole = [event.token.text for event in (await answers(counting, request(), 0, 1))[0]]
    for length in range(20, 24):
        stop = ("".join(whole[:length])[-9:],)
        (plain, _, _), (events, _, _) = [
            await answers(counting, request(stop=stop), speculate, 1) for speculate in (0, 5)]
        assert events == plain
        assert token_ids(events) == token_ids(plain)
