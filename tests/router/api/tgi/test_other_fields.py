"""Fields that TGI's bodies do not have: as in TGI they are ignored, but for those of other servers by which the answer
would be another."""

import pytest

from penstock.router.generation.other_fields import IGNORED
from tests.router.api.conftest import Server

ROUTES = ("/generate", "/generate_stream", "/", "/invocations")


@pytest.mark.parametrize("path", ROUTES)
async def test_a_field_of_another_server_is_refused_by_name(server: Server, path: str) -> None:
    for body in ({"inputs": "a", "parameters": {"num_beam_groups": 4}}, {"inputs": "a", "num_beam_groups": 4}):
        response = await server.post(path, body)
        assert (response.status, await response.json()) == (422, {
            "error": "Input validation error: `num_beam_groups`, other than 1, is not supported",
            "error_type": "validation"})
    assert server.series()['tgi_request_failure{err="validation"}'] == 2
    assert server.series()["tgi_request_count"] == 2


async def test_it_is_refused_in_a_prediction(server: Server) -> None:
    response = await server.post("/vertex", {"instances": [{"inputs": "a", "parameters": {"max_tokens": 5}}]})
    assert response.status == 422
    assert "`max_tokens` is not supported" in await response.text()


async def test_all_others_are_ignored(server: Server) -> None:
    plain = await server.generate(max_new_tokens=2)
    others = {name: {"asked": [1]} for name in [*IGNORED, "a_name_that_nobody_knows"]}
    neutral = {"num_beams": 1, "repeat_penalty": 1.0, "max_tokens": None, "tools": []}
    assert await server.generate(max_new_tokens=2, **others, **neutral) == plain
    response = await server.post("/generate", {
        "inputs": "Say it", "parameters": {"max_new_tokens": 2}, "options": {"use_cache": False}, "temperature": 0.5})
    assert (response.status, await response.json()) == (200, plain)
