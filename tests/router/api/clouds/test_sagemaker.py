"""SageMaker's route."""

import pytest

from tests.router.api.clouds.conftest import CHAT, TEXT
from tests.router.api.conftest import Server


@pytest.mark.parametrize(("body", "path"), [
    ({"inputs": "Say it"}, "/"),
    ({"inputs": "Say it", "parameters": {"details": True, "return_full_text": False, "seed": 1}}, "/"),
    ({"prompt": "Say it", "seed": 1}, "/v1/completions"),
    ({"messages": CHAT, "seed": 1}, "/v1/chat/completions"),
    ({"inputs": "Say it", "messages": CHAT, "prompt": "Say it"}, "/"),
    ({"messages": CHAT, "prompt": "Say it"}, "/v1/chat/completions"),
    ({"inputs": "Say it", "parameters": {"temperature": 0}}, "/"),
    ({"inputs": 1}, "/"),
    ({"prompt": 1}, "/v1/completions"),
    ({"messages": []}, "/v1/chat/completions"),
    ({"messages": [{"role": "user"}]}, "/v1/chat/completions"),
])
@pytest.mark.parametrize("is_stream", [False, True])
async def test_an_invocation_is_answered_as_its_own_route_answers_it(
    server: Server, body: dict[str, object], path: str, is_stream: bool
) -> None:
    told = {**body, "stream": is_stream}
    answers = [await server.post(to, told) for to in ("/invocations", path)]
    assert answers[0].status == answers[1].status
    assert answers[0].content_type == answers[1].content_type
    texts = [await answer.text() for answer in answers]
    if answers[0].status == 200 and "seed" not in str(body):
        assert TEXT in texts[0] or is_stream
    times = [answer.headers.get("x-prompt-tokens") for answer in answers]
    assert times[0] == times[1]
    assert without_times(texts[0]) == without_times(texts[1])


def without_times(text: str) -> list[str]:
    """Of an answer, what does not change from one second to the next, or with a warm cache."""
    return [part for part in text.replace("{", ",").split(",")
            if not part.startswith(('"created"', '"prefix_hit_tokens"', '"prompt_tokens_details"', '"cached_tokens"'))]


@pytest.mark.parametrize("body", [{}, [], "inputs", 1, {"input": "a"}, ["inputs"]])
async def test_an_invocation_of_no_route(server: Server, body: object) -> None:
    response = await server.post("/invocations", body)
    assert (response.status, await response.text()) == (
        422, "Failed to deserialize the JSON body into the target type: data did not match any variant of untagged "
             "enum SagemakerRequest")
