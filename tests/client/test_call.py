"""What a call makes of answers that a server of another kind, or a gateway before one, may give."""

from typing import Any

import httpx2
import pytest

from penstock.client import Overloaded, ServerFault, Unauthorized
from penstock.client.call import MAX_IDS_CHARACTERS, StreamCall, WholeCall
from penstock.client.errors import Gone, error_of_body, error_of_event
from penstock.client.events import ServerEvent
from penstock.client.patience import Patience
from penstock.client.replies import ChatChunk, Generated, GeneratedToken
from penstock.client.settings import token_id_of_tgi, token_ids_of_openai


@pytest.mark.parametrize("data", ["<html>", "[]", '{"choices": 3}', '{"error": {"message": "no", "code": "a_word"}}'])
def test_events_that_are_none_of_the_answers(data: str) -> None:
    call = StreamCall(Patience(["http://one"], 1.0), {}, None, None, ChatChunk, lambda content: None)
    with pytest.raises(ServerFault):
        call.take(ServerEvent(data))
    assert call.last_event_id is None


def test_an_error_whose_code_is_a_word() -> None:
    error = error_of_body(b'{"error": {"message": "the key is wrong", "code": "invalid_api_key"}}', 401)
    assert isinstance(error, Unauthorized)
    assert str(error) == "the key is wrong"


@pytest.mark.parametrize("event", [
    {"error": "late", "error_type": "deadline"},
    {"error": {"message": "late", "type": "requests", "code": "deadline_too_near"}},
    {"error": {"message": "The answer would take about 3.4 s: 2.1 s of waiting", "http_status_code": 422}},
    {"error": {"message": "It is not known how long the answer would take", "http_status_code": 422}}])
def test_a_deadline_for_which_there_is_no_time_now(event: dict[str, Any]) -> None:
    error = error_of_event(event)
    assert isinstance(error, Overloaded)
    assert error.status == 429


def test_whole_answers_that_are_no_objects() -> None:
    call = WholeCall(Patience(["http://one"], 1.0), {}, None, None, Generated)
    with pytest.raises(ServerFault, match="can't be read"):
        call.take(200, {}, b"[]")


def test_an_answer_that_was_begun_waits_for_room() -> None:
    """Whoever comes back behind a router's death may find no permit; a new request is refused."""
    call = WholeCall(Patience(["http://one"], 10.0), {}, None, None, Generated)
    call.failed(httpx2.ConnectError("refused"))
    with pytest.raises(Overloaded):
        call.take(429, {}, b"")
    call.failed(httpx2.ReadError("reset"))
    with pytest.raises(Gone):
        call.take(429, {}, b"")


def test_as_many_tokens_as_fit_into_a_header_are_given_back() -> None:
    call = StreamCall(Patience(["http://one"], 1.0), {}, None, None, GeneratedToken, token_id_of_tgi)
    call.begin(200, {"penstock-answer": "name.0"}, b"")
    assert "penstock-output-ids" not in call.headers
    ids = [str(10 + number % 90) for number in range(3000)]
    for id in ids:
        call.take(ServerEvent(
            f'{{"index": 1, "token": {{"id": {id}, "text": "", "logprob": 0, "special": false}}}}', "name.1"))
    sent = call.headers["penstock-output-ids"]
    assert MAX_IDS_CHARACTERS - 3 < len(sent) <= MAX_IDS_CHARACTERS
    assert sent.split(",") == ids[:len(sent.split(","))]


@pytest.mark.parametrize(("body", "is_known"), [
    ({}, True), ({"prompt": ["a"]}, True), ({"prompt": ["a", "b"]}, False),
    ({"prompt": ("a", "b")}, False), ({"prompt": [[1, 2]]}, True), ({"prompt": [1, 2]}, True),
    ({"n": 2}, False), ({"tools": [{}]}, False),
    ({"echo": True}, False)])
def test_whether_the_tokens_of_a_stream_can_be_given_back(body: dict[str, Any], is_known: bool) -> None:
    assert (token_ids_of_openai(body)({"choices": [{"index": 0, "token_ids": [7]}]}) == 7) == is_known


def test_a_stream_goes_on_with_the_model_that_began_it() -> None:
    call = StreamCall(Patience(["http://one"], 1.0), {}, None, None, GeneratedToken, token_id_of_tgi)
    call.begin(200, {"penstock-answer": "name.0", "penstock-model": "code@2"}, b"")
    assert (call.headers["last-event-id"], call.headers["penstock-model"]) == ("name.0", "code@2")
