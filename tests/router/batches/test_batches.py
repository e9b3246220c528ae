"""The life of a batch, driven by OpenAI's client."""

import asyncio
import os
from dataclasses import replace

import openai
import pytest

from penstock.router import leased_work
from penstock.router.batches import answers as answers_module
from penstock.router.batches import batch_run, checking, runner
from penstock.router.batches.answers import LineAnswer
from penstock.router.batches.lines import Line
from penstock.router.chat.template import ChatTemplate
from penstock.router.generation.services import Services
from penstock.router.store import leases
from penstock.router.store.batch_leases import BatchLease
from tests.eventually import until
from tests.fakes import LIMITS
from tests.router.api.openai.chats import HELLO
from tests.router.api.openai.test_thinking import ANSWER, SOURCE, THOUGHTS
from tests.router.batches.servers import URL, BatchServer, StartBatches, line, lines, with_both


@with_both
async def test_the_whole_life_of_a_batch(batches: BatchServer) -> None:
    content = lines(range(20)) + b"\n\n" + line("wrong", max_tokens="x") + b"\n"
    batch = await batches.create(content, metadata={"night": "shift"}, output_expires_after={
        "anchor": "created_at", "seconds": 7200})
    assert (batch.object, batch.status, batch.endpoint, batch.completion_window) == (
        "batch", "validating", URL, "24h")
    assert batch.metadata == {"night": "shift"}
    assert batch.expires_at == batch.created_at + 86400
    batch = await batches.ended(batch)
    assert batch.status == "completed"
    assert batch.in_progress_at <= batch.finalizing_at <= batch.completed_at
    assert batch.request_counts.model_dump() == {"total": 21, "completed": 20, "failed": 1}
    assert batch.usage.output_tokens == 80
    assert batch.usage.total_tokens == batch.usage.input_tokens + 80
    answers = await batches.lines(batch.output_file_id)
    assert [answer["custom_id"] for answer in answers] == [str(number) for number in range(20)]
    for answer in answers:
        assert answer["error"] is None
        assert answer["response"]["status_code"] == 200
        assert answer["response"]["body"]["choices"][0]["finish_reason"] == "length"
    [wrong] = await batches.lines(batch.error_file_id)
    assert (wrong["custom_id"], wrong["response"]["status_code"]) == ("wrong", 400)
    assert wrong["response"]["body"]["error"]["param"] == "max_tokens"
    output = await batches.client.files.retrieve(batch.output_file_id)
    assert (output.purpose, output.filename) == ("batch_output", f"{batch.id}_output.jsonl")
    assert output.expires_at == output.created_at + 7200
    series = batches.server.series()
    assert series['penstock_batch_lines{outcome="completed"}'] == 20
    assert series['penstock_batch_lines{outcome="failed"}'] == 1
    assert series['penstock_batches{status="completed"}'] == 1


async def test_chats(start_batches: StartBatches, demo: object) -> None:
    batches = await start_batches(template=demo)
    url = "/v1/chat/completions"
    batch = await batches.ended(await batches.create(line("a", url, messages=HELLO, model="any"), endpoint=url))
    assert (batch.status, batch.model) == ("completed", "any")
    [answer] = await batches.lines(batch.output_file_id)
    assert answer["response"]["body"]["object"] == "chat.completion"


async def test_responses(start_batches: StartBatches, demo: object) -> None:
    batches = await start_batches(template=demo)
    url = "/v1/responses"
    content = b"\n".join([line("a", url, input="Hello", max_tokens=None, max_output_tokens=4),
                          line("b", url, input="Hello", max_tokens=None, background=True)])
    batch = await batches.ended(await batches.create(content, endpoint=url))
    assert (batch.status, batch.request_counts.model_dump()) == ("completed", {"total": 2, "completed": 1, "failed": 1})
    [answer] = await batches.lines(batch.output_file_id)
    body = answer["response"]["body"]
    assert (body["object"], body["status"], body["store"]) == ("response", "incomplete", False)
    assert batch.usage.output_tokens == body["usage"]["output_tokens"] == 4
    assert batch.usage.input_tokens == body["usage"]["input_tokens"]
    [refused] = await batches.lines(batch.error_file_id)
    assert refused["response"]["body"]["error"]["message"] == "`background` is not for lines of batches"


async def test_thoughts_are_counted(start_batches: StartBatches) -> None:
    batches = await start_batches(template=ChatTemplate({"default": SOURCE}, {}), answer=ANSWER)
    for url, body in (("/v1/chat/completions", {"messages": HELLO}), ("/v1/responses", {"input": "Hello"})):
        content = line("a", url, **{**body, "max_tokens": None})
        batch = await batches.ended(await batches.create(content, endpoint=url))
        number = len(await batches.server.tokenizer.encode(f"\n{THOUGHTS}\n"))
        assert batch.usage.output_tokens_details.reasoning_tokens == number


async def test_a_file_that_is_no_input(batches: BatchServer) -> None:
    content = b"\n".join([line("a"), b"{", line("a"), line("b", "/v1/chat/completions"), line("c", stream=True)])
    batch = await batches.ended(await batches.create(content))
    assert batch.status == "failed"
    assert batch.failed_at
    assert batch.output_file_id is None
    assert batch.errors is not None
    assert [(error.line, error.code, error.param) for error in batch.errors.data or ()] == [
        (2, "invalid_json_line", None), (4, "mismatched_url", "url"), (5, "invalid_value", "body.stream"),
        (3, "duplicate_custom_id", "custom_id")]


@pytest.mark.parametrize(("content", "code", "message"), [
    (b"", "empty_file", "the input file must have a request. Given: none"),
    (b"\n \n", "empty_file", "the input file must have a request. Given: none"),
    (lines(range(6)), "too_many_lines", "the input file must have at most 5 requests. Given: more"),
])
async def test_files_of_too_little_or_too_much(
    batches: BatchServer, monkeypatch: pytest.MonkeyPatch, content: bytes, code: str, message: str
) -> None:
    monkeypatch.setattr(checking, "MAX_LINES", 5)
    batch = await batches.ended(await batches.create(content))
    assert batch.errors is not None
    [error] = batch.errors.data or ()
    assert (batch.status, error.code, error.message) == ("failed", code, message)


async def test_a_file_of_many_blank_lines(batches: BatchServer) -> None:
    """They count as little as it says: there may be more of them than a file may have requests."""
    content = b"\n" * 60_000 + lines("ab") + b"\n" * 60_000 + line("c")
    batch = await batches.ended(await batches.create(content))
    assert (batch.status, batch.request_counts.completed) == ("completed", 3)
    assert [answer["custom_id"] for answer in await batches.lines(batch.output_file_id)] == ["a", "b", "c"]


async def test_a_line_that_is_blank_as_far_as_it_is_read(start_batches: StartBatches) -> None:
    batches = await start_batches(limits=replace(LIMITS, payload_limit=1000))
    batch = await batches.ended(await batches.create(lines("ab") + b"\n" + b" " * 1001 + b"wrong\n" + line("c")))
    assert batch.errors is not None
    assert [(error.line, error.code, error.message) for error in batch.errors.data or ()] == [
        (3, "line_too_long", "line 3: it must have at most 1000 bytes. Given: 1006")]


async def test_of_many_errors_some_are_told(batches: BatchServer) -> None:
    batch = await batches.ended(await batches.create(b"\n".join([b"{"] * 300)))
    assert batch.errors is not None
    assert len(batch.errors.data or ()) == checking.MAX_ERRORS


@with_both
async def test_a_batch_is_cancelled(batches: BatchServer, monkeypatch: pytest.MonkeyPatch) -> None:
    answer_line = answers_module.answer_line

    async def answer(services: Services, line: Line) -> LineAnswer:
        if len(line.custom_id) > 1:
            await asyncio.Event().wait()
        return await answer_line(services, line)

    monkeypatch.setattr(answers_module, "answer_line", answer)
    batch = await batches.until(
        await batches.create(lines(range(200))), lambda batch: batch.request_counts.completed == 10)
    batch = await batches.client.batches.cancel(batch.id)
    assert batch.status == "cancelling"
    batch = await batches.ended(batch)
    assert batch.status == "cancelled"
    assert batch.cancelling_at <= batch.cancelled_at
    counts = batch.request_counts
    answers, errors = await batches.lines(batch.output_file_id), await batches.lines(batch.error_file_id)
    assert len(answers) == counts.completed == 10
    assert len(answers) + len(errors) == counts.total == 200
    assert {error["error"]["code"] for error in errors} == {"batch_cancelled"}
    with pytest.raises(openai.ConflictError, match="can't be cancelled any more: it is completed"):
        await batches.client.batches.cancel((await batches.ended(await batches.create(lines("a")))).id)
    await batches.server.until_idle()


async def test_lines_do_not_look_like_load(batches: BatchServer) -> None:
    """Whoever starts servers for it, or is woken by night, would do so for nothing."""
    batches.server.fleet.may_answer.clear()
    batch = await batches.create(lines(range(50)))
    await batches.server.fleet.has_plan.wait()
    series = batches.server.series()
    assert series['penstock_background_sequences{state="running"}'] > 0
    assert series["penstock_kv_usage"] == series["tgi_queue_size"] == 0
    batches.server.fleet.may_answer.set()
    assert (await batches.ended(batch)).request_counts.completed == 50
    series = batches.server.series()
    for name in ("penstock_time_to_first_token_seconds", "penstock_inter_token_latency_seconds"):
        assert series[f"{name}_count"] == 0
    await batches.server.generate(max_new_tokens=3)
    assert batches.server.series()["penstock_time_to_first_token_seconds_count"] == 1


async def test_a_batch_expires(batches: BatchServer) -> None:
    batches.server.fleet.may_answer.clear()
    batch = await batches.until(await batches.create(lines("abc"), "90s"), lambda batch: batch.status == "in_progress")
    assert batch.expires_at == batch.created_at + 90
    await batches.expire(batch)
    batch = await batches.ended(batch)
    assert batch.status == "expired"
    assert batch.expired_at
    errors = await batches.lines(batch.error_file_id)
    assert [(error["custom_id"], error["response"], error["error"]["code"]) for error in errors] == [
        (custom_id, None, "batch_expired") for custom_id in "abc"]
    batches.server.fleet.may_answer.set()
    await batches.server.until_idle()


async def test_batches_are_listed(start_batches: StartBatches) -> None:
    batches = await start_batches(has_runner=False)
    made = [(await batches.create(lines("a"))).id for _ in range(5)]
    assert [batch.id async for batch in batches.client.batches.list(limit=2)] == made[::-1]
    page = await batches.client.batches.list(limit=2, after=made[2])
    assert ([batch.id for batch in page.data], page.has_more) == (made[1::-1], False)


async def test_a_batch_waits_for_a_group_that_is_away(batches: BatchServer) -> None:
    fleet = batches.server.fleet
    fleet.may_open.clear()
    fleet.is_lost.set()
    batches.server.engine.give_up()
    batch = await batches.until(await batches.create(lines(range(5))), lambda batch: batch.status == "in_progress")
    fleet.may_open.set()
    batch = await batches.ended(batch)
    assert batch.request_counts.completed == 5


@with_both
async def test_another_router_goes_on_with_a_batch(
    start_batches: StartBatches, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first is not told to end: its lease runs out, as if its machine had died."""
    monkeypatch.setattr(leases, "LEASE_SECONDS", 0.3)
    one, other = await start_batches("one"), await start_batches("other", has_runner=False)
    one.server.fleet.may_answer.clear()
    batch = await one.until(await one.create(lines(range(50))), lambda batch: batch.status == "in_progress")
    await one.server.fleet.has_plan.wait()

    async def never() -> None:
        await asyncio.sleep(3600)

    monkeypatch.setattr(one.store.database, "_check", never)
    third = await start_batches("third")
    batch = await third.ended(batch)
    assert batch.request_counts.completed == 50
    answers = await other.lines(batch.output_file_id)
    assert [answer["custom_id"] for answer in answers] == [str(number) for number in range(50)]
    one.server.fleet.may_answer.set()


@with_both
async def test_two_routers_share_the_batches(start_batches: StartBatches, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each batch is worked on by one, and every line is answered once."""
    monkeypatch.setattr(runner, "MAX_BATCHES", 1)
    one, other = await start_batches("one"), await start_batches("other")
    fleets = [one.server.fleet, other.server.fleet]
    for fleet in fleets:
        fleet.may_answer.clear()
    made = [await one.create(lines(range(10))) for _ in range(4)]
    for fleet in fleets:  # before either answers, or one might be done with all
        await fleet.has_plan.wait()
    for fleet in fleets:
        fleet.may_answer.set()
    for batch in made:
        batch = await one.ended(batch)
        assert batch.request_counts.completed == 10
        assert len(await other.lines(batch.output_file_id)) == 10
    numbers = [each.server.series()['penstock_batch_lines{outcome="completed"}'] for each in (one, other)]
    assert sum(numbers) == 40
    assert min(numbers) >= 10


async def test_a_router_that_ends_leaves_its_batches_to_others(
    start_batches: StartBatches, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, and with the answers that it has, of which none was stored yet."""
    monkeypatch.setattr(batch_run, "SAVE_SECONDS", 3600.0)
    monkeypatch.setattr(leased_work, "FAREWELL_SECONDS", 60.0)
    one, other = await start_batches("one"), await start_batches("other", has_runner=False)
    asked, has_ended = list[str](), asyncio.Event()

    async def answer(services: Services, line: Line) -> LineAnswer:
        asked.append(line.custom_id)
        if line.custom_id == "c":
            await has_ended.wait()
        return LineAnswer(line.custom_id, 200, "req_1", {})

    monkeypatch.setattr(answers_module, "answer_line", answer)
    batch = await one.create(lines("abc"))
    await until(lambda: asked == ["a", "b", "c"])
    assert one.server.client.server is not None
    await one.server.client.server.close()
    has_ended.set()
    monkeypatch.setattr(batch_run, "SAVE_SECONDS", 0.01)
    third = await start_batches("third")
    batch = await third.ended(await other.client.batches.retrieve(batch.id))
    assert (batch.status, batch.request_counts.completed) == ("completed", 3)
    assert asked == ["a", "b", "c", "c"]


async def test_a_batch_that_is_cancelled_while_it_is_checked_has_no_files(start_batches: StartBatches) -> None:
    idle = await start_batches(has_runner=False)
    batch = await idle.create(lines("abc"))
    lease = await BatchLease.claim(idle.store.database, "one", ())
    assert lease is not None
    await lease.add_lines([(1, "a")])
    assert (await idle.client.batches.cancel(batch.id)).status == "cancelling"
    await lease.release()
    batch = await (await start_batches()).ended(batch)
    assert (batch.status, batch.error_file_id) == ("cancelled", None)


def test_each_server_has_an_owners_name_of_its_own() -> None:
    """Which is the same for all processes of the router that it starts one after another."""
    assert runner.owner_name(os.getpid()) == runner.owner_name(os.getpid())
    assert runner.owner_name(os.getpid()) != runner.owner_of_this_process() == runner.owner_name(os.getppid())
