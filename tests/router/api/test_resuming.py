"""Streams that broke off and are gone on with, at the same server and at another one."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.contract.facts import Facts
from penstock.router.chat.template import ChatTemplate
from penstock.router.engine.transfer import Transfer
from penstock.router.grammar.compiler import GrammarCompiler
from tests.fakes import LIMITS
from tests.router.api.conftest import DEMO, Server, Start
from tests.router.api.openai.chats import HELLO, TIME, WEATHER
from tests.router.api.openai.test_chat_tools import CALLS
from tests.router.api.resuming import SeededFleet, by_answer, post, refusal, stream, with_other_numerics

GENERATE = "/generate_stream"
BODY = {"inputs": "Say: ", "parameters": {"do_sample": True, "details": True}}
SAMPLED = {"do_sample": True, "max_new_tokens": 12}
CHAT = {"messages": HELLO, "stream": True, "max_tokens": 12}
USAGE = {"stream_options": {"include_usage": True}}
STREAMS: dict[str, tuple[str, dict[str, Any]]] = {
    "tgi": (GENERATE, BODY),
    "top tokens": (GENERATE, {"inputs": "a", "parameters": {**SAMPLED, "top_n_tokens": 2, "details": True}}),
    "seed": (GENERATE, {"inputs": "a", "parameters": {**SAMPLED, "seed": 7}}),
    "greedy": (GENERATE, {"inputs": "a", "parameters": {"max_new_tokens": 12}}),
    "stop": (GENERATE, {"inputs": "a", "parameters": {**SAMPLED, "stop": ["is a"], "seed": 0}}),
    "full text": ("/", {"inputs": "ab", "stream": True, "parameters": SAMPLED}),
    "SageMaker": ("/invocations", {"inputs": "ab", "stream": True, "parameters": SAMPLED}),
    "completion": ("/v1/completions", {"prompt": "a", "max_tokens": 12, "stream": True, "stop": " is", **USAGE}),
    "completions": ("/v1/completions", {"prompt": ["a", "bc"], "n": 2, "max_tokens": 6, "stream": True, "logprobs": 2,
                                        "echo": True, "return_token_ids": True}),
    "chat": ("/v1/chat/completions", CHAT),
    "chats": ("/v1/chat/completions", {**CHAT, "n": 3, "logprobs": True, "top_logprobs": 2, "model": "tgi",
                                       "stop": ["rl", " is"], **USAGE}),
    "shown": ("/v1/completions", {
        "prompt": "a", "max_tokens": 12, "stream": True, "stop": " is", "include_stop_str_in_output": True,
        "logprobs": 1, "skip_special_tokens": False, "return_tokens_as_token_ids": True, "bad_words": ["no"],
        "cache_salt": "a"}),
    "echo": ("/v1/chat/completions", {
        **CHAT, "messages": [*HELLO, {"role": "assistant", "content": "So: "}], "echo": True, "n": 2, "stop": "wö",
        "include_stop_str_in_output": True, "functions": [TIME["function"]], "truncate_prompt_tokens": -1}),
    "usage": ("/v1/chat/completions", {
        **CHAT, "n": 2, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}),
}


@pytest.fixture
async def server(start: Start, hermes: ChatTemplate) -> Server:
    return await start(template=hermes, make_fleet=SeededFleet)


@pytest.mark.parametrize("name", STREAMS)
async def test_a_stream_goes_on_wherever_it_broke_off(
    start: Start, server: Server, hermes: ChatTemplate, name: str
) -> None:
    """At another server, which knows nothing of it, behind each of its events."""
    path, body = STREAMS[name]
    whole = await stream(server, path, body)
    other = await start(template=hermes, make_fleet=SeededFleet)
    for number, event in enumerate(whole, 1):
        rest = await stream(other, path, body, last_event_id=event.id)
        assert by_answer(rest) == by_answer(whole[number:])
        assert sum(event.counts) == number
        if rest:
            assert rest[-1].id == whole[-1].id
    assert other.series()["penstock_resumed_answers"] > 0


async def test_tools(start: Start, hermes: ChatTemplate) -> None:
    """Also between the chunks of one token; calls keep their ids."""
    fleet = {"template": hermes, "answer": "Let me see.\n" + CALLS + "<|im_end|>", "make_fleet": SeededFleet}
    server, other = await start(**fleet), await start(**fleet)
    body = {"messages": HELLO, "stream": True, "tools": [WEATHER, TIME], "temperature": 0, "logprobs": True, "n": 1}
    path = "/v1/chat/completions"
    whole = await stream(server, path, body)
    assert '"id": "call_' in str([event.data for event in whole]).replace("'", '"')
    for number, event in enumerate(whole, 1):
        assert by_answer(await stream(other, path, body, last_event_id=event.id)) == by_answer(whole[number:])


async def test_grammars(start: Start, grammars: GrammarCompiler) -> None:
    """With tokens that the client has, too: they are shown to the grammar."""
    answer = '"wörld"<|im_end|>'
    server = await start(grammars=grammars, answer=answer, make_fleet=SeededFleet)
    body = {"inputs": "a", "parameters": {"grammar": {"type": "regex", "value": '"wörld"'}}}
    whole = await stream(server, GENERATE, body, penstock_answer=await greedy_name(server, body))
    assert whole[-1].data["generated_text"] == '"wörld"'
    ids = [event.data["token"]["id"] for event in whole]
    for number in range(1, len(whole)):
        known = ",".join(map(str, ids[:number]))
        rest = await stream(server, GENERATE, body, last_event_id=whole[number - 1].id, penstock_output_ids=known)
        assert by_answer(rest) == by_answer(whole[number:])
    wrong = ",".join(map(str, ids[1:3]))
    response = await post(server, GENERATE, body, last_event_id=whole[1].id, penstock_output_ids=wrong)
    assert "the grammar can't be followed any further" in await response.text()


async def greedy_name(server: Server, body: object) -> str:
    """The name of an answer with the seed 0, from which the seeded fleet begins at the answer's first token."""
    first = (await post(server, GENERATE, body)).headers["penstock-answer"]
    digest, _, rest = first.split(".", 2)
    return f"{digest}.0.{rest}"


@pytest.mark.parametrize("name", ["tgi", "top tokens", "seed", "greedy", "stop", "full text", "completion", "chat"])
async def test_tokens_that_the_client_has_are_not_computed_again(server: Server, name: str) -> None:
    path, body = STREAMS[name]
    if path.startswith("/v1"):
        body = {**body, "return_token_ids": True}
    whole = await stream(server, path, body)
    events = [event for event in whole if event.index == 0]
    ids = [event.data["choices"][0]["token_ids"][0] if path.startswith("/v1") else event.data["token"]["id"]
           for event in events]
    for number in (1, 2, len(events) - 1):
        for num_known in {1, number}:
            known = ", ".join(map(str, ids[:num_known]))
            computed = server.series()["penstock_generated_tokens"]
            rest = await stream(server, path, body, last_event_id=events[number - 1].id, penstock_output_ids=known)
            assert by_answer(rest) == by_answer(whole[number:])
            assert server.series()["penstock_generated_tokens"] - computed <= len(events) - num_known + 1
            assert server.fleet.initial_states[-1].prompt_length > 0


@pytest.mark.parametrize(("ids", "what"), [
    ("1,x", "`penstock-output-ids` must be token ids with commas between them. Given: `x`"),
    ("1,-1", "Given: `-1`"),
    ("67,8192", "`penstock-output-ids` must have token ids < 8192, the model's vocabulary. Given: 8192"),
    ("67,67,67,67", "`penstock-output-ids` must have no more than the 3 tokens that came up to `Last-Event-ID`. "
                    "Given: 4"),
    ("67,2,67", "`penstock-output-ids` must not go on behind the answer's end. Given: 2"),
])
async def test_tokens_that_can_be_none_of_the_answer(server: Server, ids: str, what: str) -> None:
    body = {"inputs": "a", "parameters": {"max_new_tokens": 3}}
    id = (await stream(server, GENERATE, body))[2].id
    response = await post(server, GENERATE, body, last_event_id=id, penstock_output_ids=ids)
    assert what in await response.text()
    assert response.status == (422 if "vocabulary" not in what and "end." not in what else 200)
    response = await post(server, GENERATE, body, last_event_id=id.removesuffix("3") + "4",
                          penstock_output_ids="67,67,67,67")
    assert "must have no more token ids than the answer may have, 3. Given: 4" in await response.text()


@pytest.mark.parametrize("end", ["length", "eos", "stop"])
async def test_a_client_may_have_all_tokens_and_not_know_of_the_end(start: Start, end: str) -> None:
    """The connection broke between the last token and `[DONE]`."""
    server = await start(answer="hello world<|im_end|>", make_fleet=SeededFleet)
    body = {"prompt": "a", "stream": True, "return_token_ids": True, "temperature": 0,
            **{"length": {"max_tokens": 3}, "eos": {}, "stop": {"stop": "world"}}[end]}
    whole = await stream(server, "/v1/completions", body)
    ids = ",".join(str(event.data["choices"][0]["token_ids"][0]) for event in whole
                   if event.data != "[DONE]")
    rest = await (await post(server, "/v1/completions", body, last_event_id=whole[-2].id,
                             penstock_output_ids=ids)).text()
    assert rest.startswith("data: [DONE]\n")


async def test_the_last_token_is_believed_where_another_might_be_computed(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on GPUs that are not deterministic: behind all tokens a stream ends without another step."""
    body = {"prompt": "a", "stream": True, "return_token_ids": True, "max_tokens": 3, **USAGE}
    whole = await stream(server, "/v1/completions", body)
    ids = ",".join(str(event.data["choices"][0]["token_ids"][0]) for event in whole[:3])
    monkeypatch.setattr(Facts, "is_deterministic", False)
    computed = server.series()["penstock_generated_tokens"]
    rest = await stream(server, "/v1/completions", body, last_event_id=whole[2].id, penstock_output_ids=ids)
    assert rest == whole[3:]
    assert server.series()["penstock_generated_tokens"] == computed
    assert server.series()["tgi_request_success"] == 2


@pytest.mark.parametrize("name", ["greedy", "completion"])
async def test_an_id_behind_the_answer_s_end(server: Server, name: str) -> None:
    """As of a server whose answers may be longer: an error in the place of a stream without events or an end."""
    path, body = STREAMS[name]
    whole = await stream(server, path, body)
    last = whole[-1] if name == "greedy" else whole[-3]
    name, _, count = last.id.rpartition(".")
    told = await (await post(server, path, body, last_event_id=f"{name}.{int(count) + 1}")).text()
    assert "`Last-Event-ID` counts more events than the answer has here" in told
    assert "another_answer" in told


async def test_a_flag_that_changes_the_events_of_openais_routes(start: Start, demo: ChatTemplate) -> None:
    server = await start(template=demo, make_fleet=SeededFleet)
    other = await start(replace(LIMITS, tgi_openai_routes=True), template=demo, make_fleet=SeededFleet)
    for path, body in (("/v1/chat/completions", CHAT), ("/v1/completions", {"prompt": "a", "stream": True})):
        id = (await stream(server, path, body))[0].id
        status, told = await refusal(other, path, body, last_event_id=id)
        assert status == 409
        assert "numbers of shards or flags" in told
    whole = await stream(server, GENERATE, BODY)
    assert by_answer(await stream(other, GENERATE, BODY, last_event_id=whole[0].id)) == by_answer(whole[1:])


@pytest.mark.parametrize("header", ["Last-Event-ID", "penstock-answer", "penstock-output-ids"])
async def test_headers_that_are_no_utf_8(server: Server, header: str) -> None:
    id = (await stream(server, GENERATE, BODY))[0].id
    head = f"POST {GENERATE} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nConnection: close\r\n"
    head += f"Last-Event-ID: {id}\r\n" * (header == "penstock-output-ids")
    body = json.dumps(BODY)
    reader, writer = await asyncio.open_connection(server.client.host, server.client.port)
    writer.write(f"{head}{header}: ".encode() + b"\xff\xfe\r\n" + f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
    reply = (await reader.read()).decode()
    writer.close()
    assert reply.startswith("HTTP/1.1 422"), reply
    assert "Given: `\\\\udcff\\\\udcfe`" in reply


async def test_where_tokens_can_t_be_given(server: Server) -> None:
    path, body = STREAMS["chats"]
    id = (await stream(server, path, body))[0].id
    assert "for one answer. Asked for: 3" in (
        await refusal(server, path, body, last_event_id=id, penstock_output_ids="1"))[1]
    body = {**CHAT, "tools": [TIME]}
    id = (await stream(server, path, body))[0].id
    assert "may call tools" in (await refusal(server, path, body, last_event_id=id, penstock_output_ids="1"))[1]
    assert (await refusal(server, "/generate", BODY, penstock_output_ids="1"))[0] == 422
    path, body = "/v1/completions", {"prompt": "ab", "echo": True, "logprobs": 1, "stream": True, "max_tokens": 5}
    id = (await stream(server, path, body))[0].id
    assert "for the prompt's logprobs" in (
        await refusal(server, path, body, last_event_id=id, penstock_output_ids="1"))[1]


async def test_only_streams_whose_client_reads_ids_have_them(server: Server) -> None:
    """Others read each line as data, as load generators do."""
    for path, body in STREAMS.values():
        response = await server.client.post(path, json=body, headers={"accept": "*/*"})
        assert "\nid:" not in await response.text()
        assert response.headers["penstock-answer"]


async def test_a_stream_is_gone_on_with_by_the_header_and_a_count(server: Server) -> None:
    """So that a client which reads no ids can go on, too: there is an event a token."""
    response = await server.client.post(GENERATE, json=BODY)
    name, lines = response.headers["penstock-answer"], (await response.text()).split("\n\n")[:-1]
    assert name.endswith(".0")
    rest = await stream(server, GENERATE, BODY, last_event_id=name.removesuffix(".0") + ".4")
    assert [event.counts for event in rest] == [[number] for number in range(5, len(lines) + 1)]
    assert [event.data["index"] for event in rest] == list(range(5, len(lines) + 1))


async def test_errors_have_no_id(server: Server) -> None:
    server.fleet.may_answer.clear()
    response = await post(server, GENERATE, BODY)
    server.fleet.failure = ZeroDivisionError("a fault")
    server.fleet.may_answer.set()
    assert "id:" not in await response.text()
    assert "error" in await response.text()


@pytest.mark.parametrize("id", [
    "x", "1", "a.b.c.1", "0123456789abcdef.1.01234567.1-", f"{'0' * 16}.{2**64}.{'0' * 8}.1"])
@pytest.mark.parametrize("path", [GENERATE, "/v1/chat/completions"])
async def test_an_id_that_is_none(server: Server, path: str, id: str) -> None:
    status, message = await refusal(server, path, CHAT if "chat" in path else BODY, last_event_id=id)
    assert status == (400 if path.startswith("/v1/") else 422)
    assert f"must be the `id` of an event, or the `penstock-answer`, of an answer of this kind of server. " \
           f"Given: `{id}`" in message
    assert server.series()['tgi_request_failure{err="validation"}'] == 1


async def test_another_body(server: Server) -> None:
    id = (await stream(server, GENERATE, BODY))[0].id
    others = [("/", {**BODY, "stream": True}), (GENERATE, {**BODY, "inputs": "Say"}),
              (GENERATE, {"inputs": "Say: ", "parameters": {"do_sample": True}})]
    for path, body in others:
        status, message = await refusal(server, path, body, last_event_id=id)
        assert (status, message) == (422, "Input validation error: `Last-Event-ID` names an answer to another request: "
                                          "the body must be the same")
    seed = id.split(".")[1]
    body = {**BODY, "parameters": {**BODY["parameters"], "seed": 5}}
    assert f"with the seed {seed}, and `seed` is 5" in (await refusal(server, GENERATE, body, last_event_id=id))[1]
    body["parameters"]["seed"] = int(seed)
    assert await stream(server, GENERATE, body, last_event_id=id)
    count = id.rpartition(".")[0] + ".1-0-0"
    assert "a count for each of 1 answers. Given: 3" in (await refusal(server, GENERATE, BODY, last_event_id=count))[1]


async def test_a_stream_with_ids_never_moves_to_other_numerics(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or its client might go on with another answer than its ids name."""
    taken, take = [], server.engine.take

    def noting(transfer: Transfer) -> None:
        taken.append(transfer.receiver.request.needs_bits)
        take(transfer)

    monkeypatch.setattr(server.engine, "take", noting)
    await stream(server, GENERATE, BODY)
    await server.post("/generate_stream", BODY)
    await server.post("/generate", BODY)
    assert taken == [True, False, False]


async def test_other_numerics_are_told_and_never_computed_with(server: Server) -> None:
    ids = [(path, body, (await stream(server, path, body))[0].id) for path, body in STREAMS.values()]
    with_other_numerics(server)
    for path, body, id in ids:
        for header in ("last_event_id", "penstock_answer"):
            status, message = await refusal(server, path, body, **{header: id})
            assert status == 409
            assert ("names an answer of another model, or of other kernels, number formats, numbers of shards or flags"
                    in message)


@pytest.mark.parametrize("facts", [
    {"weights_digest": "another"}, {"settings_digest": "another"}, {"numerics": "scripted/ranks-3"},
    {"dtype": "bfloat16"}, {"kv_dtype": "int8"}, {"implementation": "transformers"},
], ids=str)
async def test_nothing_goes_on_by_what_computes_other_bits(server: Server, facts: dict[str, str]) -> None:
    id = (await stream(server, GENERATE, BODY))[0].id
    with_other_numerics(server, **facts)
    status, _ = await refusal(server, GENERATE, BODY, last_event_id=id)
    assert status == 409


async def test_another_tokenizer_is_part_of_the_name(server: Server, start: Start, tmp_path: Path) -> None:
    id = (await stream(server, GENERATE, BODY))[0].id
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(json.loads(DEMO.read_bytes()) | {"normalizer": {"type": "Lowercase"}}))
    other = await start(tokenizer_file=path, make_fleet=SeededFleet)
    status, _ = await refusal(other, GENERATE, BODY, last_event_id=id)
    assert status == 409


async def test_where_answers_depend_on_the_batch_only_tokens_help(server: Server) -> None:
    server.engine.facts = replace(server.engine.facts, keeps_bits=False)
    server.groups.note()
    whole = await stream(server, GENERATE, BODY)
    ids = [event.data["token"]["id"] for event in whole]
    for known in (None, ",".join(map(str, ids[:3]))):
        headers = {"last_event_id": whole[3].id, **({} if known is None else {"penstock_output_ids": known})}
        assert (await refusal(server, GENERATE, BODY, **headers))[0] == 409
    assert (await refusal(server, GENERATE, BODY, penstock_answer=whole[0].id))[0] == 409
    rest = await stream(server, GENERATE, BODY, last_event_id=whole[3].id,
                        penstock_output_ids=",".join(map(str, ids[:4])))
    assert by_answer(rest) == by_answer(whole[4:])


async def test_only_streams_go_on(server: Server) -> None:
    id = (await stream(server, GENERATE, BODY))[0].id
    status, message = await refusal(server, "/generate", BODY, last_event_id=id)
    assert status == 422
    assert "is for requests for a stream" in message


async def test_strict_streams_go_on(start: Start) -> None:
    server = await start(limits=replace(LIMITS, strict_streaming_errors=True), make_fleet=SeededFleet)
    whole = await stream(server, GENERATE, BODY)
    assert by_answer(await stream(server, GENERATE, BODY, last_event_id=whole[2].id)) == by_answer(whole[3:])
