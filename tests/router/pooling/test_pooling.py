"""From texts to vectors and scores, through permits, checks and the engine."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace

import pytest

from penstock.contract.facts import Facts
from penstock.contract.pooling import Task
from penstock.router.errors import (
    EmptyText,
    GenerationError,
    KilledGroup,
    Overloaded,
    RouterError,
    TooLong,
    ValidationError,
    WrongTask,
)
from penstock.router.generation.asking import Asking
from penstock.router.generation.poison_memory import PoisonMemory
from penstock.router.generation.service import ServerInfo, Service
from penstock.router.generation.text_rules import TextRules
from penstock.router.limits import Limits
from penstock.router.metrics.metrics import Metrics
from penstock.router.pooling.numbers import TEXTS_PER_PERMIT
from penstock.router.pooling.pooled import Pooled
from penstock.router.pooling.pooling import pooled
from penstock.router.pooling.spec import PoolingSpec
from penstock.router.text.tokenizer import Tokenizer
from tests.fakes import FACTS, LIMITS, ScriptedFleet
from tests.paths import DEMO_MODEL
from tests.pooling_fleet import CLASSIFIER, EMBEDDER, SIZE, SPARSE, PoolingFleet, cut, numbers
from tests.scripted_engine import TOKENIZER, running_groups

NO_RULES = TextRules()
SMALL = replace(LIMITS, max_input_tokens=20, max_total_tokens=20)


@asynccontextmanager
async def serving(
    facts: Facts = EMBEDDER, limits: Limits = SMALL, texts: TextRules = NO_RULES, fleet: ScriptedFleet | None = None
) -> AsyncIterator[tuple[Service, ScriptedFleet]]:
    fleet = PoolingFleet(facts) if fleet is None else fleet
    async with running_groups(fleet, facts=facts, limits=limits) as groups:
        yield Service(groups, TOKENIZER, Metrics(limits), ServerInfo("m", "1", "cpu"), PoisonMemory(60.0),
                      texts=texts), fleet


async def ask(service: Service, *specs: PoolingSpec) -> list[Pooled]:
    with Asking(service) as asking:
        return await pooled(asking, specs)


async def failure(service: Service, *specs: PoolingSpec) -> RouterError:
    with pytest.raises(RouterError) as caught:
        await ask(service, *specs)
    return caught.value


def spec(inputs: object = "some text", task: object = Task.EMBED, **fields: object) -> PoolingSpec:
    return PoolingSpec(inputs, task, **fields)  # type: ignore[arg-type]


async def test_vectors_of_texts_in_their_order() -> None:
    async with serving() as (service, _):
        texts = [f"text {'number ' * number}" for number in range(8)]
        found = await ask(service, *map(spec, texts))
        for text, each in zip(texts, found, strict=True):
            ids = await TOKENIZER.encode(text)
            wanted = numbers(ids, SIZE)
            length = sum(number ** 2 for number in wanted) ** 0.5
            assert [*each.values] == pytest.approx([number / length for number in wanted], rel=1e-5)
            assert each.num_tokens == len(ids)
            assert min(each.tokenization, each.queue, each.inference) >= 0
        text = service.metrics.exposition().decode()
        assert "tgi_request_success 1.0" in text
        assert "tgi_request_queue_duration_count 8.0" in text


async def test_what_is_asked_for_comes_to_the_shards() -> None:
    async with serving() as (service, fleet):
        [found] = await ask(service, spec(dimensions=3, normalized=False))
        assert isinstance(fleet, PoolingFleet)
        assert (fleet.asked[-1].dimensions, fleet.asked[-1].normalized) == (3, False)
        assert [*found.values] == pytest.approx(cut(numbers(fleet.texts[-1], SIZE), fleet.asked[-1]), rel=1e-5)
        await ask(service, spec((5, 6, 7)))
        assert [*fleet.texts[-1]] == [5, 6, 7]


async def test_sparse_vectors_and_vectors_of_tokens() -> None:
    async with serving(SPARSE) as (service, _):
        [found] = await ask(service, spec((9, 4, 9), Task.EMBED_SPARSE))
        assert [*found.indices] == [4, 9]
    async with serving() as (service, _):
        [found] = await ask(service, spec((9, 4, 9), Task.EMBED_ALL))
        assert len(found.values) == 3 * SIZE


async def test_prompts_stand_before_texts() -> None:
    rules = TextRules({"query": "query: ", "none": ""}, default_prompt="passage: ")
    async with serving(texts=rules) as (service, fleet):
        await ask(service, spec("a b"))
        await ask(service, spec("a b", prompt_name="query"))
        await ask(service, spec("a b", prompt_name="none"))
        assert isinstance(fleet, PoolingFleet)
        assert [TOKENIZER.decode(ids) for ids in fleet.texts[-3:]] == [
            TOKENIZER.decode(await TOKENIZER.encode(text)) for text in ("passage: a b", "query: a b", "a b")]
        error = await failure(service, spec(prompt_name="document"))
        assert error.reason == "`prompt_name` must be one of `query`, `none`. Given: `document`"
    async with serving() as (service, _):
        assert (await failure(service, spec(prompt_name="query"))).reason == (
            "`prompt_name` can't be `query`: the checkpoint has no prompts")


async def test_a_vector_may_leave_its_prompt_out() -> None:
    async with serving(texts=TextRules({"q": "query: "}, includes_prompt=False)) as (service, fleet):
        await ask(service, spec("a b", prompt_name="q"))
        assert isinstance(fleet, PoolingFleet)
        assert fleet.asked[-1].skipped == len(await TOKENIZER.encode("query: "))


async def test_of_a_prompt_that_was_cut_as_much_as_is_left_is_left_out() -> None:
    """Its beginning is gone where the end of the text is kept."""
    prompt, text = "one two three four five six ", "seven eight nine"
    async with serving(texts=TextRules({"q": prompt}, includes_prompt=False)) as (service, fleet):
        assert isinstance(fleet, PoolingFleet)
        num_text, num_all = [len(await TOKENIZER.encode(each)) for each in (text, prompt + text)]
        for most in range(2, num_all + 1):
            await ask(service, spec(text, prompt_name="q", max_tokens=most, keeps_end=True))
            assert len(fleet.texts[-1]) == most
            assert fleet.asked[-1].skipped == max(0, most - num_text)


LONG = " ".join(f"word{number}" for number in range(50))


async def test_a_text_of_too_many_tokens_is_refused_or_cut() -> None:
    ids = await TOKENIZER.encode(LONG)
    async with serving() as (service, fleet):
        assert isinstance(fleet, PoolingFleet)
        error = await failure(service, spec(LONG))
        assert isinstance(error, TooLong)
        assert error.reason == f"`inputs` must have less than 20 tokens. Given: {len(ids)}"
        for fields in ({"truncates": True}, {"max_tokens": 20}):
            [found] = await ask(service, spec(LONG, **fields))
            assert found.num_tokens == 20
            assert tuple(fleet.texts[-1])[:18] == ids[:18]
        await ask(service, spec(LONG, truncates=True, keeps_end=True))
        assert tuple(fleet.texts[-1])[-18:] == ids[-18:]
        await ask(service, spec(tuple(range(30)), truncates=True, keeps_end=True))
        assert [*fleet.texts[-1]] == [*range(10, 30)]
        assert (await failure(service, spec(tuple(range(30))))).reason == (
            "`inputs` must have less than 20 tokens. Given: 30")
        assert "`truncate` must be > 0 and <= 20. Given: 21" in str(await failure(service, spec(max_tokens=21)))
    async with serving(texts=TextRules(truncates=True)) as (service, _):
        assert (await ask(service, spec(LONG)))[0].num_tokens == 20
        assert isinstance(await failure(service, spec(LONG, truncates=False)), TooLong)


async def test_a_million_characters_are_refused_or_cut() -> None:
    """The process that reads so long a text ends with the tokenizer."""
    text = "word " * 200_000
    async with serving() as (shared, _):
        with closing(Tokenizer.load(DEMO_MODEL / "tokenizer.json")) as tokenizer:
            service = replace(shared, tokenizer=tokenizer)
            assert isinstance(await failure(service, spec(text)), TooLong)
            for keeps_end in (False, True):
                [found] = await ask(service, spec(text, truncates=True, keeps_end=keeps_end))
                assert found.num_tokens == 20


@pytest.mark.parametrize(("fields", "kind", "sentence"), [
    ({"inputs": ""}, EmptyText, "`inputs` cannot be empty"),
    ({"inputs": ()}, EmptyText, "`inputs` cannot be empty"),
    ({"inputs": ("", "b")}, EmptyText, "`inputs` cannot be empty"),
    ({"inputs": (1, 9000)}, ValidationError, "`inputs` must have token ids < 8192, the model's vocabulary. Given"),
    ({"dimensions": 0}, ValidationError, "`dimensions` must be > 0 and <= 8, the size of the model's vectors"),
    ({"dimensions": 9}, ValidationError, "`dimensions` must be > 0 and <= 8, the size of the model's vectors"),
    ({"task": Task.CLASSIFY}, WrongTask, "the model gives texts no scores; it has /v1/embeddings, /embed"),
    ({"adapter": "a"}, RouterError, "a"),
    ({"priority": -5}, ValidationError, "`priority` must be >= 0"),
])
async def test_what_is_wrong_is_told_by_a_sentence(
    fields: dict[str, object], kind: type[RouterError], sentence: str
) -> None:
    async with serving() as (service, _):
        error = await failure(service, spec(**fields))
        assert isinstance(error, kind)
        assert sentence in error.reason
        await ask(service, spec())


async def test_a_checkpoint_may_say_how_many_numbers_vectors_have() -> None:
    """Vectors of tokens stay whole, as sentence-transformers leaves them; a request has the last word."""
    fleet = PoolingFleet(EMBEDDER)
    wishes: list[tuple[dict[str, object], int]] = [({}, 5), ({"dimensions": 3}, 3), ({"task": Task.EMBED_ALL}, 0)]
    async with serving(texts=TextRules(dimensions=5), fleet=fleet) as (service, _):
        for fields, wanted in wishes:
            await ask(service, spec(**fields))
            assert fleet.asked[-1].dimensions == wanted
    async with serving(texts=TextRules(dimensions=5000)) as (service, _):
        assert len((await ask(service, spec()))[0].values) == SIZE


async def test_vectors_of_tokens_have_a_size_of_their_own() -> None:
    """Behind a layer a text's vector has another."""
    facts = replace(EMBEDDER, vector_size=SIZE // 2)
    async with serving(facts) as (service, _):
        [found] = await ask(service, spec((1, 2), Task.EMBED_ALL, dimensions=SIZE - 1))
        assert len(found.values) == 2 * (SIZE - 1)
        error = await failure(service, spec((1, 2), Task.EMBED_ALL, dimensions=SIZE + 1))
        assert f"`dimensions` must be > 0 and <= {SIZE}" in error.reason
        assert f"<= {SIZE // 2}" in (await failure(service, spec((1, 2), dimensions=SIZE))).reason


async def test_a_text_is_scored_by_the_last_token_that_fills_nothing_up() -> None:
    async with serving(replace(CLASSIFIER, pad_token_ids=frozenset({9}))) as (service, fleet):
        assert isinstance(fleet, PoolingFleet)
        for ids, scored in (((5, 9, 6, 9, 9), [5, 9, 6]), ((9, 9), [9]), ((5,), [5])):
            await ask(service, spec(ids, Task.CLASSIFY))
            assert [*fleet.texts[-1]] == scored


async def test_scores_have_no_dimensions() -> None:
    async with serving(CLASSIFIER) as (service, _):
        assert "is for vectors" in (await failure(service, spec(task=Task.CLASSIFY, dimensions=2))).reason
        assert len((await ask(service, spec(("a", "b"), Task.CLASSIFY)))[0].values) == 3


async def test_a_request_takes_a_permit_for_some_texts_and_more_for_many() -> None:
    async with serving(limits=replace(SMALL, max_concurrent_requests=2)) as (service, _):
        many = [spec((5, 6))] * (TEXTS_PER_PERMIT + 1)
        assert len(await ask(service, *many)) == len(many)
        async with service.engine.permit():
            assert len(await ask(service, *many[1:])) == TEXTS_PER_PERMIT
            assert isinstance(await failure(service, *many), Overloaded)


async def test_a_request_of_ever_so_many_texts_is_answered_where_there_is_no_other() -> None:
    async with serving(limits=replace(SMALL, max_concurrent_requests=1)) as (service, _):
        many = [spec((5, 6))] * (2 * TEXTS_PER_PERMIT)
        assert len(await ask(service, *many)) == len(many)


async def test_a_model_that_generates_makes_no_vectors() -> None:
    async with serving(FACTS, fleet=ScriptedFleet(lambda row: 70)) as (service, _):
        assert "the model makes no vectors of texts; it has /generate" in str(await failure(service, spec()))


class Killing(PoolingFleet):
    """Dies of each text that begins with the token 66."""

    async def submit(self, plan: object) -> None:
        await super().submit(plan)  # type: ignore[arg-type]
        if any(row.token_ids[0] == 66 for row in plan.rows):  # type: ignore[attr-defined]
            self.fail_at("next_result", 1)


async def test_a_text_that_kills_the_group_fails_and_is_refused_for_a_while() -> None:
    async with serving(fleet=Killing()) as (service, _):
        assert isinstance(await failure(service, spec((66, 1)), *[spec((5, number)) for number in range(3)]),
                          KilledGroup)
        error = await failure(service, spec((66, 1)))
        assert isinstance(error, GenerationError)
        assert "it is refused for 60 s" in error.reason
        await ask(service, *[spec((5, number)) for number in range(3)])


