"""Bodies that can't be read: statuses and plain texts, whatever is in them."""

import asyncio
import gzip
import io
import json
from pathlib import Path

import orjson
import pydantic
import pytest
from aiohttp import ClientResponse
from hypothesis import HealthCheck, given, settings, strategies

from penstock.router.api.http.body import to_body
from penstock.router.api.route_table import routes
from penstock.router.api.tgi.bodies import GenerateBody
from penstock.router.errors import WrongShape
from penstock.router.store.database import Database
from penstock.router.store.store import Store
from tests.router.api.conftest import Server, Start, of_one_server

JSON = {"content-type": "application/json"}
SHAPE = "Failed to deserialize the JSON body into the target type: "
SYNTAX = "Failed to parse the request body as JSON: "


async def post(server: Server, data: bytes, path: str = "/generate", headers: dict[str, str] = JSON) -> ClientResponse:
    response: ClientResponse = await server.client.post(path, data=io.BytesIO(data), headers=headers)
    return response


@of_one_server
@pytest.mark.parametrize("content_type", [
    "text/plain", "application/octet-stream", "application/x-www-form-urlencoded", "text/json", "nonsense"])
async def test_another_content_type(lasting_server: Server, content_type: str) -> None:
    for path in ("/", "/generate", "/generate_stream", "/tokenize"):
        response = await post(lasting_server, b'{"inputs": "a"}', path, {"content-type": content_type})
        assert response.status == 415
        assert response.headers["content-type"] == "text/plain; charset=utf-8"
        assert await response.text() == "Expected request with `Content-Type: application/json`"


@of_one_server
@pytest.mark.parametrize("content_type", [
    "application/json", "application/json; charset=utf-8", "Application/JSON", "application/vnd.api+json"])
async def test_json_by_other_names(lasting_server: Server, content_type: str) -> None:
    assert (await post(lasting_server, b'{"inputs": "a"}', headers={"content-type": content_type})).status == 200


@of_one_server
@pytest.mark.parametrize("data", [
    b"", b"{", b'{"inputs": "a"', b'{"inputs": "a"} x', b"inputs", b"\xff\xfe", b'{"inputs": "\xff"}',
    b'{"inputs": "\xed\xa0\x80"}', rb'{"inputs": "\ud800"}', rb'{"inputs": "\udc00\ud800"}', b'{"inputs": "a\nb"}',
    b'{"inputs": "a", "x": NaN}', b'{"inputs": "a", "parameters": {"temperature": Infinity}}',
    b'{"inputs": "a", "parameters": {"temperature": -Infinity}}',
    b'{"inputs": "a", "parameters": {"temperature": 1e999}}',
    b"[" * 60_000, b'{"a":' * 30_000, b'{"inputs": "a", "x": ' + b"[" * 60_000 + b"]" * 60_000 + b"}",
    b"\xef\xbb\xbf{}", b"{'inputs': 'a'}", b"\x00", gzip.compress(b'{"inputs": "a"}', mtime=0),
], ids=lambda data: repr(data[:30]))
async def test_no_json(lasting_server: Server, data: bytes) -> None:
    for path in ("/generate_stream", "/tokenize"):
        response = await post(lasting_server, data, path)
        text = await response.text()
        assert (response.status, text.startswith(SYNTAX)) == (400, True), text
        assert len(text) < 200
        assert response.headers["content-type"] == "text/plain; charset=utf-8"


@of_one_server
@pytest.mark.parametrize(("data", "what"), [
    (b"[]", "invalid type: a list, expected an object"),
    (b'"a"', 'invalid type: string "a", expected an object'),
    (b"null", "invalid type: null, expected an object"),
    (b"{}", "missing field `inputs`"),
    (b'{"inputs": null}', "inputs: invalid type: null, expected a string"),
    (b'{"inputs": ["a"]}', "inputs: invalid type: a list, expected a string"),
    (b'{"inputs": {}}', "inputs: invalid type: an object, expected a string"),
    (b'{"inputs": "a", "parameters": null}', "parameters: invalid type: null, expected an object"),
    (b'{"inputs": "a", "parameters": []}', "parameters: invalid type: a list, expected an object"),
])
async def test_another_shape(lasting_server: Server, data: bytes, what: str) -> None:
    response = await post(lasting_server, data)
    assert (response.status, await response.text()) == (422, SHAPE + what)
    assert response.headers["content-type"] == "text/plain; charset=utf-8"


CHAT = {"messages": [{"role": "user", "content": "a"}]}


@of_one_server
@pytest.mark.parametrize(("path", "body", "where", "what"), [
    ("/generate", {"inputs": "a", "parameters": {"grammar": {"type": "xml", "value": "a"}}}, "parameters.grammar",
     "unknown `type`, expected one of `json`, "),
    ("/generate", {"inputs": "a", "parameters": {"grammar": {"type": "regex"}, "top_k": 0}}, "parameters.grammar",
     "missing field `value`"),
    ("/generate_stream", {"inputs": "a", "parameters": {"grammar": "a+"}}, "parameters.grammar", "must be an object"),
    ("/chat_tokenize", {**CHAT, "response_format": {"value": 1, "type": 5}}, "response_format",
     "unknown `type`, "),
])
async def test_a_grammar_of_another_shape(
    lasting_server: Server, path: str, body: dict[str, object], where: str, what: str
) -> None:
    """TGI fails to read the body, before anything else is looked at; also where its own error would be JSON."""
    response = await lasting_server.post(path, body)
    text = await response.text()
    assert (response.status, text.startswith(f"{SHAPE}{where}: invalid value: ")) == (422, True), text
    assert what in text
    assert response.headers["content-type"] == "text/plain; charset=utf-8"


@of_one_server
@pytest.mark.parametrize(("name", "value", "what"), [
    ("temperature", "1", 'invalid type: string "1", expected a number'),
    ("temperature", True, "invalid type: boolean `true`, expected a number"),
    ("temperature", 1e39, "invalid value: floating point `1e+39`: must fit into 32 bits"),
    ("top_k", 1.0, "invalid type: floating point `1.0`, expected an integer"),
    ("top_k", 2**31, "invalid value: integer `2147483648`: Input should be less than 2147483648"),
    ("max_new_tokens", -1, "invalid value: integer `-1`: Input should be greater than or equal to 0"),
    ("max_new_tokens", 2**32, "invalid value: integer `4294967296`: Input should be less than 4294967296"),
    ("max_new_tokens", "5", 'invalid type: string "5", expected an integer'),
    ("seed", -1, "invalid value: integer `-1`: Input should be greater than or equal to 0"),
    ("seed", 2**64, "invalid type: floating point `1.8446744073709552e+19`, expected an integer"),
    ("do_sample", None, "invalid type: null, expected a boolean"),
    ("do_sample", 1, "invalid type: integer `1`, expected a boolean"),
    ("watermark", None, "invalid type: null, expected a boolean"),
    ("details", None, "invalid type: null, expected a boolean"),
    ("details", "true", 'invalid type: string "true", expected a boolean'),
    ("decoder_input_details", None, "invalid type: null, expected a boolean"),
    ("stop", None, "invalid type: null, expected a list"),
    ("stop", 5, "invalid type: integer `5`, expected a list"),
    ("top_k", "a" * 1_000_000, f'invalid type: string "{"a" * 40}…", expected an integer'),
    ("adapter_id", 1, "invalid type: integer `1`, expected a string"),
])
async def test_another_type(lasting_server: Server, name: str, value: object, what: str) -> None:
    data = b'{"inputs": "a", "parameters": {"%b": %b}}' % (name.encode(), repr_json(value))
    response = await post(lasting_server, data)
    assert (response.status, await response.text()) == (422, f"{SHAPE}parameters.{name}: {what}")


def repr_json(value: object) -> bytes:
    return str(value).encode() if isinstance(value, int) and value >= 2**64 else orjson.dumps(value)


@of_one_server
@pytest.mark.parametrize(("parameters", "what"), [
    ({"stop_token_ids": [1, 2**32]},
     "stop_token_ids[1]: invalid value: integer `4294967296`: Input should be less than 4294967296"),
    ({"stop_token_ids": [1.0]}, "stop_token_ids[0]: invalid type: floating point `1.0`, expected an integer"),
    ({"stop_token_ids": 5}, "stop_token_ids: invalid type: integer `5`, expected a list"),
    ({"logit_bias": {"5": "1"}}, 'logit_bias[5]: invalid type: string "1", expected a number'),
    ({"logit_bias": [0, None]}, "logit_bias[1]: invalid type: null, expected a number"),
    ({"logit_bias": {"five": 1}}, 'logit_bias.five: invalid type: string "five", expected an integer'),
    ({"logit_bias": [0, 1] * 1025},
     "logit_bias: invalid value: a list: supports up to 1024 token ids. Given: 1025"),
    ({"logit_bias": {str(token_id): 0 for token_id in range(1025)}},
     "logit_bias: invalid value: an object: supports up to 1024 token ids. Given: 1025"),
    ({"logit_bias": 5}, "logit_bias: invalid type: integer `5`, expected an object"),
])
async def test_ids(lasting_server: Server, parameters: dict[str, object], what: str) -> None:
    response = await lasting_server.post("/generate", {"inputs": "a", "parameters": parameters})
    assert (response.status, await response.text()) == (422, f"{SHAPE}parameters.{what}")
    response = await lasting_server.post("/v1/completions", {"prompt": "a", **parameters})
    assert (response.status, (await response.json())["error"]["message"]) == (400, what)


@of_one_server
@pytest.mark.parametrize(("path", "body", "what"), [
    ("/v1/completions", {"prompt": "a", "response_format": {"type": "xml"}}, "unknown `type`, "),
    ("/v1/chat/completions", {**CHAT, "response_format": {"type": "json_schema"}},
     "`json_schema` must be an object with a `schema`"),
])
async def test_a_response_format_of_another_shape(
    lasting_server: Server, path: str, body: dict[str, object], what: str
) -> None:
    response = await lasting_server.post(path, body)
    error = (await response.json())["error"]
    assert (response.status, error["param"], error["code"]) == (400, "response_format", "invalid_value")
    assert error["message"].startswith("response_format: invalid value: ")
    assert what in error["message"]


async def test_one_of_many_wrong_items_is_told(server: Server) -> None:
    """The others are not even looked for: a list of all of them would take seconds."""
    data = b'{"inputs": "a", "parameters": {"stop": ["a",%b1]}}' % (b"1," * 299_000)
    response = await post(server, data)
    assert await response.text() == SHAPE + "parameters.stop[1]: invalid type: integer `1`, expected a string"
    with pytest.raises(WrongShape) as refused:
        to_body(orjson.loads(data), GenerateBody)
    assert isinstance(refused.value.__cause__, pydantic.ValidationError)
    assert refused.value.__cause__.error_count() == 1


@of_one_server
@pytest.mark.parametrize(("data", "what"), [
    (b'{"inputs": "a", "x": [%b[]]}' % (b"[]," * 66_000), "65536 texts, names of fields, lists and objects"),
    (b'{"inputs": "a", "x": [%b""]}' % (b'"",' * 66_000), "65536 texts, names of fields, lists and objects"),
    (b'{"inputs": "a", "x": [%b1]}' % (b"1," * 400_000), "304092 values"),
])
async def test_too_much_in_a_body(lasting_server: Server, data: bytes, what: str) -> None:
    """To make objects of it would take a second, for which everybody waits; all of it within a text is none."""
    response = await post(lasting_server, data)
    assert (response.status, await response.text()) == (
        413, f"Failed to buffer the request body: it has more than {what}")
    response = await post(lasting_server, orjson.dumps({"inputs": "a", "x": data.decode()}))
    assert response.status == 200


async def test_stream_must_be_a_boolean_where_it_counts(server: Server) -> None:
    data = b'{"inputs": "a", "stream": "yes"}'
    response = await post(server, data, "/")
    assert (response.status, await response.text()) == (
        422, SHAPE + 'stream: invalid type: string "yes", expected a boolean')
    assert (await post(server, data, "/generate")).status == 200


async def test_too_large(server: Server) -> None:
    limit = 2_000_000
    fits = b'{"inputs": "", "x": "%b"}' % (b"a" * (limit - 23))
    assert len(fits) == limit
    assert (await post(server, fits)).status == 422
    response = await post(server, fits + b" ")
    assert response.status == 413
    assert await response.text() == "Failed to buffer the request body: length limit exceeded"
    assert response.headers["content-type"] == "text/plain; charset=utf-8"


@of_one_server
@pytest.mark.parametrize("encoding", ["gzip", "GZIP", "x-gzip", "deflate", "br", "zstd", "compress", "identity, gzip"])
async def test_a_compressed_body_is_not_unpacked(lasting_server: Server, encoding: str) -> None:
    headers = {**JSON, "content-encoding": encoding}
    response = await post(lasting_server, gzip.compress(b'{"inputs": "a"}'), headers=headers)
    assert response.status == 415
    assert await response.text() == f'Expected request without `Content-Encoding`. Given: string "{encoding}"'


async def test_no_route_unpacks_a_body(start: Start, tmp_path: Path) -> None:
    server = await start(allows_runtime_adapters=True, store=Store(Database.in_folder(tmp_path)))
    for route in routes("1"):
        if route.body is not None:
            response = await post(server, gzip.compress(b"{}"), route.path, {**JSON, "content-encoding": "gzip"})
            assert response.status == 415, route.path
            assert "Expected request without `Content-Encoding`" in await response.text()


async def test_a_body_that_says_that_it_is_not_compressed(server: Server) -> None:
    headers = {**JSON, "content-encoding": "identity"}
    assert (await post(server, b'{"inputs": "a"}', headers=headers)).status == 200


async def test_a_large_prompt_does_not_hold_up_others(server: Server) -> None:
    large = asyncio.create_task(post(server, b'{"inputs": "%b"}' % (b"the quick brown fox, " * 30_000)))
    num_answers = 0
    while not large.done():
        assert (await server.client.get("/health")).status == 200
        num_answers += 1
    assert (await large).status == 422
    assert num_answers > 10, "with a loop that is held up it is one or two"


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(strategies.recursive(
    strategies.none() | strategies.booleans() | strategies.integers() | strategies.floats() | strategies.text(),
    lambda inner: strategies.lists(inner, max_size=3) | strategies.dictionaries(
        strategies.sampled_from(["inputs", "parameters", "stop", "seed", "top_k", "temperature", "details", "stream"]),
        inner, max_size=4)))
async def test_no_body_breaks_the_server(server: Server, body: object) -> None:
    response = await post(server, json.dumps(body).encode(), "/")
    assert response.status in (200, 400, 422)
    assert (await server.client.get("/health")).status == 200
