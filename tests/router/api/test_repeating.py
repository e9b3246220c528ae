"""Answers that are had again: by their name, and by the client's key."""

from typing import Any

import pytest

from penstock.router.chat.template import ChatTemplate
from tests.router.api.clouds.conftest import CHAT as TALK
from tests.router.api.conftest import Server, Start
from tests.router.api.openai.chats import HELLO
from tests.router.api.resuming import SeededFleet, post, refusal, with_other_numerics

BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "/generate": ("/generate", {"inputs": "a", "parameters": {"do_sample": True, "max_new_tokens": 6}}),
    "best of": ("/generate", {"inputs": "a", "parameters": {
        "do_sample": True, "max_new_tokens": 6, "best_of": 2, "details": True}}),
    "/": ("/", {"inputs": "a", "parameters": {"temperature": 0.5, "max_new_tokens": 6}}),
    "/generate_stream": ("/generate_stream", {"inputs": "a", "parameters": {"do_sample": True, "max_new_tokens": 6}}),
    "completions": ("/v1/completions", {"prompt": ["a", "b"], "n": 2, "max_tokens": 6}),
    "kserve": ("/v2/models/demo/generate", {"text_input": "a", "temperature": 0.5, "n": 2, "max_tokens": 6}),
    "kserve's stream": ("/v2/models/demo/generate_stream", {"text_input": "a", "temperature": 0.5, "max_tokens": 6}),
    "chats": ("/v1/chat/completions", {"messages": HELLO, "n": 2, "max_tokens": 6}),
}
PLAIN = BODIES["/generate"]


@pytest.fixture
async def server(start: Start, demo: ChatTemplate) -> Server:
    return await start(template=demo, make_fleet=SeededFleet)


def drawn(server: Server) -> list[tuple[int, int]]:
    """The seeds and branches of all answers since the last look."""
    found = [(state.sampling.seed, state.sampling.branch) for state in server.fleet.initial_states]
    server.fleet.plans.clear()
    return found


@pytest.mark.parametrize("name", BODIES)
async def test_an_answer_is_had_again_by_its_name(server: Server, name: str) -> None:
    path, body = BODIES[name]
    first = await post(server, path, body)
    seeds = drawn(server)
    again = await post(server, path, body, penstock_answer=first.headers["penstock-answer"])
    assert drawn(server) == seeds
    assert len(set(seeds)) == len(seeds)
    assert again.headers["penstock-answer"] == first.headers["penstock-answer"]
    await post(server, path, body)
    assert not set(drawn(server)) & set(seeds)


async def test_the_name_of_a_stream_is_that_of_the_whole_answer(server: Server) -> None:
    path, body = PLAIN
    name = (await post(server, "/generate_stream", body)).headers["penstock-answer"]
    seeds = drawn(server)
    await post(server, path, body, penstock_answer=name)
    assert drawn(server) == seeds
    assert [str(seed) for seed, _ in seeds] == [name.split(".")[1]]


@pytest.mark.parametrize("name", BODIES)
async def test_fields_that_are_ignored_are_no_part_of_the_name(server: Server, name: str) -> None:
    path, body = BODIES[name]
    first = await post(server, path, body)
    more = {**body, "user": "me", "num_beam_groups": 1}
    if "parameters" in body:
        more["parameters"] = {**body["parameters"], "user": "me", "num_beam_groups": 1}
    again = await post(server, path, more, penstock_answer=first.headers["penstock-answer"])
    assert (again.status, again.headers["penstock-answer"]) == (200, first.headers["penstock-answer"])


@pytest.mark.parametrize("name", BODIES)
async def test_a_key_decides_the_seed(start: Start, demo: ChatTemplate, name: str) -> None:
    """At any server, for each request apart."""
    path, body = BODIES[name]
    server, other = [await start(template=demo, make_fleet=SeededFleet) for _ in range(2)]
    found = []
    for each, key in ((server, "one"), (other, "one"), (server, "two")):
        assert (await post(each, path, body, idempotency_key=key)).status == 200
        found.append(drawn(each))
    changed = ({**body, "parameters": {**body["parameters"], "temperature": 0.9}} if "parameters" in body
               else {**body, "temperature": 0.9})
    assert (await post(server, path, changed, idempotency_key="one")).status == 200
    found.append(drawn(server))
    first, elsewhere, another_key, another_request = map(set, found)
    assert first == elsewhere
    assert len(first) == len(another_key) == len(another_request) >= 1
    assert not first & another_key
    assert not first & another_request


async def test_a_seed_of_the_request_stays(server: Server) -> None:
    path, body = PLAIN
    seeded = {**body, "parameters": {**body["parameters"], "seed": 77}}
    response = await post(server, path, seeded, idempotency_key="one")
    assert drawn(server) == [(77, 0)]
    assert response.headers["penstock-answer"].split(".")[1] == "77"


@pytest.mark.parametrize(("headers", "what"), [
    ({"idempotency_key": "k" * 256}, "`Idempotency-Key` must have 1 to 255 characters. Given: 256"),
    ({"penstock_answer": "mine"}, "`penstock-answer` must be the `id` of an event"),
    ({"penstock_answer": f"{'0' * 16}.1.{'0' * 8}.0"}, "names an answer to another request"),
])
async def test_refusals(server: Server, headers: dict[str, str], what: str) -> None:
    for path, body in BODIES.values():
        found = await refusal(server, path, body, **headers)
        assert found[0] == (400 if path.startswith(("/v1/", "/v2/")) else 422)
        assert what in found[1]


async def test_other_numerics(server: Server) -> None:
    path, body = PLAIN
    first = await post(server, path, body)
    with_other_numerics(server)
    status, message = await refusal(server, path, body, penstock_answer=first.headers["penstock-answer"])
    assert status == 409
    assert "what this server would answer differs from it" in message


async def test_fields_at_their_defaults_change_no_name(server: Server) -> None:
    """Nor does the way of writing them: a version that knows more fields gives the same name."""
    names = []
    for parameters in ({"seed": 5, "do_sample": True}, {"do_sample": True, "seed": 5, "stop": [], "temperature": None}):
        response = await post(server, "/generate", {"inputs": "a", "parameters": parameters})
        names.append(response.headers["penstock-answer"])
    assert names[0] == names[1]


async def test_so_many_answers_that_they_are_refused(server: Server) -> None:
    """Before their names would take the memory."""
    for path, body, status in (
            ("/v1/chat/completions", {"messages": HELLO, "n": 2**32 - 1}, 400),
            ("/generate", {"inputs": "a", "parameters": {"best_of": 2**60, "do_sample": True}}, 422)):
        assert (await refusal(server, path, body))[0] == status


async def test_vertex(server: Server) -> None:
    """Each instance has its own name, and its own seed, even if it is the same as another."""
    plain = {"inputs": "a", "parameters": {"do_sample": True, "max_new_tokens": 6}}
    body = {"instances": [plain, plain, {"messages": TALK, "max_tokens": 6}]}
    first = await post(server, "/vertex", body, idempotency_key="one")
    names, seeds = first.headers["penstock-answer"], drawn(server)
    assert len(set(seeds)) == 3
    for headers in ({"idempotency_key": "one"}, {"penstock_answer": names}):
        again = await post(server, "/vertex", body, **headers)
        assert await again.json() == await first.json()
        assert sorted(drawn(server)) == sorted(seeds)
    assert (await post(server, "/vertex", body, idempotency_key="k" * 255)).status == 200
    status, message = await refusal(server, "/vertex", body, penstock_answer=names.partition(", ")[0])
    assert (status, message.rpartition(": ")[2]) == (422, "1")
    assert (await refusal(server, "/vertex", body, last_event_id=names.partition(", ")[0]))[0] == 422
