"""`GET /explain/{id}`: who may ask, for what, and for how long."""

from dataclasses import replace
from typing import Any

import pytest
from aiohttp import ClientResponse

from penstock.router.api.explaining import Explanation
from penstock.router.api.http.access import Access
from penstock.router.explaining.explainer import Explainer
from penstock.router.explaining.recent import Recent
from penstock.router.explaining.story import Story
from penstock.router.generation.around import Around
from penstock.router.generation.request_record import Generation, RequestRecord
from penstock.router.keys import Keys
from tests.router.api.conftest import Server, Start


def remembering(most: int) -> Around:
    explainer = Explainer(Recent(most), most)
    return Around(journal=explainer, explains=explainer)


@pytest.fixture
async def server(start: Start) -> Server:
    return await start(make_around=lambda metrics: remembering(3))


async def explained(server: Server, id: str, key: str | None = None) -> ClientResponse:
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    response: ClientResponse = await server.client.get(f"/explain/{id}", headers=headers)
    return response


async def ask(server: Server, id: str, key: str | None = None, path: str = "/generate", **body: Any) -> ClientResponse:
    headers = {"x-request-id": id, **({} if key is None else {"authorization": f"Bearer {key}"})}
    response: ClientResponse = await server.client.post(path, json=body or {"inputs": "Say it"}, headers=headers)
    await response.read()
    return response


async def test_it_explains_a_request(server: Server) -> None:
    await ask(server, "mine")
    told = await (await explained(server, "mine")).json()
    Explanation.model_validate(told, strict=True)
    assert (told["id"], told["route"], told["status"], told["model"]) == ("mine", "POST /generate", 200, "demo")
    assert told["explanation"].startswith("Took ")
    assert sum(phase["seconds"] for phase in told["timeline"]) == pytest.approx(told["total_seconds"], abs=1e-4)
    assert {"checking", "waiting", "computing"} <= {phase["phase"] for phase in told["timeline"]}
    seconds = [cause["seconds"] for cause in told["causes"]]
    assert seconds == sorted(seconds, reverse=True)


async def test_an_answers_id_will_do(server: Server) -> None:
    response = await ask(server, "mine", path="/v1/completions", model="demo", prompt="a")
    told = await (await explained(server, (await response.json())["id"])).json()
    assert told["id"] == "mine"


async def test_an_id_may_have_slashes(server: Server) -> None:
    await ask(server, "a/b")
    for path in ("a/b", "a%2Fb", "a/b/"):
        assert (await (await explained(server, path)).json())["id"] == "a/b"


async def test_a_stream_is_explained_once_it_has_ended(server: Server) -> None:
    await ask(server, "mine", path="/generate_stream", inputs="a")
    assert (await explained(server, "mine")).status == 200


async def test_the_latest_are_remembered(server: Server) -> None:
    for number in range(4):
        await ask(server, f"n{number}")
    await ask(server, "n3")  # which takes no other's place
    assert [(await explained(server, f"n{number}")).status for number in range(4)] == [404, 200, 200, 200]
    message = (await (await explained(server, "n0")).json())["error"]
    assert message == ("No request `n0` is remembered, and none whose answer has this id: the latest 3 are remembered, "
                       "each for its own key, once they have ended")


async def test_what_no_model_was_asked_drives_out_nothing(server: Server) -> None:
    await ask(server, "mine")
    for number in range(5):
        assert (await ask(server, f"bad{number}", inputs=3)).status == 422
    assert (await explained(server, "mine")).status == 200


async def test_a_refused_request_tells_why(server: Server) -> None:
    await ask(server, "mine", inputs="")
    told = await (await explained(server, "mine")).json()
    assert (told["status"], told["error"]) == (422, "validation")
    assert "and failed (validation)" in told["explanation"]


async def test_a_key_sees_its_own_requests_alone(start: Start) -> None:
    server = await start(make_around=lambda metrics: remembering(9), access=Access(Keys(("one", "two"))))
    await ask(server, "same", "one", inputs="a b c d")
    await ask(server, "same", "two")
    await ask(server, "other", "two")
    assert (await (await explained(server, "same", "one")).json())["route"] == "POST /generate"
    assert [(await explained(server, "other", key)).status for key in ("one", "two", "three", None)] == [
        404, 200, 401, 401]


async def test_a_later_request_with_the_same_answer_is_found_once_the_first_is_forgotten() -> None:
    recent = Recent(2)
    story = Story("one", "answer", None, 0.0, "POST /generate", None, 200, None, "", {}, 0.0, 0.0, 1.0, 1.0)
    for each in (story, replace(story, id="two"), replace(story, id="three", answer_id=None)):
        recent.tell(each)
    assert await recent.find("one", None) is None
    found = await recent.find("answer", None)
    assert found is not None
    assert found.id == "two"


async def test_what_no_key_can_ask_for_drives_out_nothing() -> None:
    """It comes from the server itself, for one who bears a key."""
    is_kept = []
    for key, owner in ((None, None), ("name", None), ("name", b"digest")):
        recent = Recent(1)
        record = RequestRecord("POST /generate")
        record.key, record.owner = key, owner
        record.generations.append(Generation(b"", (), is_stream=False))
        Explainer(recent, 1).write(record, 200)
        is_kept.append(await recent.find("", owner) is not None)
    assert is_kept == [True, False, True]


async def test_a_server_may_remember_none(start: Start) -> None:
    server = await start(make_around=lambda metrics: remembering(0))
    await ask(server, "mine")
    response = await explained(server, "mine")
    assert response.status == 404
    assert "its --explained-requests is 0" in (await response.json())["error"]


async def test_receipts_have_the_reasons(server: Server) -> None:
    response = await ask(server, "mine", inputs="a", receipt=True)
    reasons = (await response.json())["receipt"]["reasons"]
    assert reasons
    assert all(reason[0].isupper() and reason.endswith(".") for reason in reasons)
