"""What a call makes of answers that a server of another kind, or a gateway before one, may give."""

import pytest

from penstock.client import ServerFault, Unauthorized
from penstock.client.call import StreamCall
from penstock.client.errors import error_of_body
from penstock.client.events import ServerEvent
from penstock.client.patience import Patience
from penstock.client.replies import ChatChunk


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
