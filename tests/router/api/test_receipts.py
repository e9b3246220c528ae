"""The receipts of answers."""

import copy
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import anthropic
import pytest
from cryptography.exceptions import InvalidSignature

from penstock.contract.step_result import StepResult
from penstock.router.generation.around import Around
from penstock.router.generation.digests import digest_of_ids
from penstock.router.metrics.metrics import Metrics
from penstock.system.receipt_signature import BadSignature, Signer, canonical, verify
from tests.fakes import FACTS
from tests.paths import ROOT
from tests.router.api.conftest import Server, Start
from tests.router.api.resuming import SeededFleet
from tests.router.api.sdk import openai_client
from tests.signing_keys import make_key

SAMPLED = {"max_new_tokens": 6, "do_sample": True, "details": True}
CHAT = [{"role": "user", "content": "Say it"}]


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return make_key(tmp_path / "key.pem")


async def signing(start: Start, key: Path, **settings: Any) -> Server:
    def around(metrics: Metrics) -> Around:
        return Around(signer=Signer.opened(key))

    return await start(make_fleet=SeededFleet, make_around=around, **settings)


def names_of(content: Any) -> Iterator[str]:
    """All names of fields, at whatever depth."""
    if isinstance(content, dict):
        yield from content
    for each in content.values() if isinstance(content, dict) else content if isinstance(content, list) else ():
        yield from names_of(each)


async def test_it_tells_of_a_request(server: Server) -> None:
    response = await server.client.post(
        "/generate", json={"inputs": "Say it", "parameters": SAMPLED, "receipt": True},
        headers={"x-request-id": "mine"})
    answer = await response.json()
    receipt = answer.pop("receipt")
    details = answer["details"]
    ids = [token["id"] for token in details["tokens"]]
    [told] = receipt["answers"]
    assert told == {"finish_reason": details["finish_reason"], "tokens": len(ids), "sha256": digest_of_ids(ids),
                    "seed": str(details["seed"]), "branch": 0}
    assert receipt["id"] == "mine"
    assert json.loads(receipt["request"]["body"]) == {"inputs": "Say it", "parameters": SAMPLED}
    assert receipt["request"]["path"] == "/generate"
    assert receipt["request"]["answer"] == response.headers["penstock-answer"]
    assert receipt["model"] == {
        "name": "demo", "revision": "abc", "digest": FACTS.model, "dtype": FACTS.dtype, "kv_dtype": FACTS.kv_dtype,
        "numerics": FACTS.numerics, "implementation": FACTS.implementation}
    tokens = receipt["tokens"]
    assert tokens["input"] == tokens["computed"] + tokens["cached"] == 3
    assert (tokens["output"], tokens["replayed"], tokens["drafted"]) == (len(ids), 0, 0)
    assert 0 < sum(receipt["waits_us"].values()) <= receipt["total_us"]
    assert receipt["step_us"] > 0
    assert "signature" not in receipt


class MeasuredFleet(SeededFleet):
    """Knows the energy of its steps."""

    async def next_result(self) -> StepResult:
        return replace(await super().next_result(), energy_uj=1000)


async def test_it_tells_the_energy_where_the_machine_does(start: Start, server: Server) -> None:
    body = {"inputs": "Say it", "parameters": SAMPLED, "receipt": True}
    assert "energy_uj" not in (await (await server.post("/generate", body)).json())["receipt"]
    measured = await start(make_fleet=MeasuredFleet)
    receipt = (await (await measured.post("/generate", body)).json())["receipt"]
    assert 6000 <= receipt["energy_uj"] == 1e6 * measured.series()["penstock_energy_joules"]


async def test_nobody_gets_one_who_does_not_ask(server: Server) -> None:
    assert "receipt" not in await server.generate()
    response = await server.client.post("/generate", json={"inputs": "a", "receipt": False})
    assert "receipt" not in await response.json()


async def test_a_header_asks_for_one(server: Server) -> None:
    response = await server.client.post("/", json={"inputs": "a"}, headers={"penstock-receipt": "true"})
    [answer] = await response.json()
    assert answer["receipt"]["request"]["path"] == "/"
    assert answer["generated_text"].startswith("a")


async def test_that_of_a_stream_is_its_last_event(start: Start) -> None:
    server = await start(make_fleet=SeededFleet)
    body = {"inputs": "a", "parameters": {"max_new_tokens": 3, "seed": 1, "do_sample": True}, "receipt": True}
    events = (await (await server.post("/generate_stream", body)).text()).strip().split("\n\n")
    name, data = events.pop().split("\n")
    assert name == "event: receipt"
    ids = [json.loads(event.removeprefix("data: "))["token"]["id"] for event in events]
    [told] = json.loads(data.removeprefix("data: "))["receipt"]["answers"]
    assert (told["tokens"], told["sha256"], told["seed"]) == (3, digest_of_ids(ids), "1")


async def test_openais_client_has_it(start: Start, demo: Any) -> None:
    server = await start(make_fleet=SeededFleet, template=demo)
    async with openai_client(server) as client:
        ask: dict[str, Any] = {"model": "demo", "messages": CHAT, "max_tokens": 5, "seed": 3, "extra_body": {
            "receipt": True}}
        whole: Any = await client.chat.completions.create(**ask)
        stream = await client.chat.completions.create(**ask, stream=True)
        chunks: list[Any] = [chunk async for chunk in stream]
        several: Any = await client.completions.create(
            model="demo", prompt="a", n=3, max_tokens=5, extra_body={"receipt": True})
    assert chunks[-1].choices == []
    assert whole.receipt["answers"] == chunks[-1].receipt["answers"]
    assert whole.receipt["tokens"]["output"] == whole.usage.completion_tokens == 5
    assert len(several.receipt["answers"]) == 3
    assert several.receipt["tokens"]["output"] == 15


async def test_anthropics_client_has_it(start: Start, demo: Any) -> None:
    server = await start(make_fleet=SeededFleet, template=demo)
    async with anthropic.AsyncAnthropic(base_url=str(server.client.make_url("")), api_key="unused") as client:
        message: Any = await client.messages.create(
            model="demo", max_tokens=5, messages=CHAT, extra_headers={"penstock-receipt": "true"})  # type: ignore[arg-type]
    assert message.receipt["tokens"]["output"] == message.usage.output_tokens
    assert message.receipt["request"]["path"] == "/v1/messages"


async def test_a_request_is_repeated_by_its_receipt(start: Start) -> None:
    server = await start(make_fleet=SeededFleet)
    body = {"inputs": "a", "parameters": {"max_new_tokens": 9, "do_sample": True}, "receipt": True}
    receipt = (await (await server.post("/generate", body)).json())["receipt"]
    asked = receipt["request"]
    response = await server.client.post(asked["path"], data=asked["body"], headers={
        "content-type": "application/json", "penstock-answer": asked["answer"], "penstock-receipt": "true"})
    again = (await response.json())["receipt"]
    assert again["answers"] == receipt["answers"]
    assert again["request"] == receipt["request"]


async def test_a_signature_holds_for_what_was_said(start: Start, key: Path) -> None:
    server = await signing(start, key)
    body = {"inputs": "a ü \u2028 \x07", "parameters": {"max_new_tokens": 2, "temperature": 0.7}, "receipt": True}
    receipt = (await (await server.post("/generate", body)).json())["receipt"]
    public = (await (await server.client.get("/receipt-key")).json())["public_key"].encode()
    verify(receipt, public)
    for name in sorted({*names_of({**receipt, "signature": None})} - {"signature"}):
        with pytest.raises(BadSignature):
            verify(altered(receipt, name), public)


async def test_the_pages_program_checks_a_signature(start: Start, key: Path) -> None:
    [program] = re.findall(r"```python\n(.*?)```", (ROOT / "docs/receipts.md").read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(program, names)
    server = await signing(start, key)
    receipt = (await (await server.post("/generate", {"inputs": "ü \u2028", "receipt": True})).json())["receipt"]
    public = (await (await server.client.get("/receipt-key")).json())["public_key"]
    names["check"](receipt, public)
    with pytest.raises(InvalidSignature):
        names["check"](altered(receipt, "step_us"), public)


def altered(receipt: dict[str, Any], name: str) -> dict[str, Any]:
    """The receipt with another value for all fields of a name."""
    def alter(content: Any) -> None:
        for field, value in content.items() if isinstance(content, dict) else enumerate(content):
            if field == name:
                content[field] = f"{value}0" if isinstance(value, str) else [value]
            elif isinstance(value, dict | list):
                alter(value)

    other = copy.deepcopy(receipt)
    alter(other)
    return other


def test_the_canonical_form_is_that_of_the_rfc() -> None:
    """Its names in their order, its texts with no more escapes than JSON asks for."""
    assert canonical({"b": [1, {"d": "ü\u2028\x07\n\"", "c": -2}], "a": {}, "signature": {"value": "x"}}) == (
        '{"a":{},"b":[1,{"c":-2,"d":"ü\u2028\\u0007\\n\\""}]}'.encode())


def test_another_key_proves_nothing(tmp_path: Path, key: Path) -> None:
    signed = Signer.opened(key).signed({"version": 1})
    other = make_key(tmp_path / "other.pem")
    with pytest.raises(BadSignature, match="signed by the key"):
        verify(signed, Signer.opened(other).public_key.encode())
    with pytest.raises(BadSignature, match="not signed"):
        verify({"version": 1}, Signer.opened(key).public_key.encode())
    with pytest.raises(BadSignature, match="no public key in PEM"):
        verify(signed, b"nothing")


async def test_without_a_key_nothing_is_signed(server: Server) -> None:
    assert (await server.client.get("/receipt-key")).status == 404


@pytest.mark.parametrize(("path", "body", "headers", "message"), [
    ("/generate", {"inputs": "a", "receipt": 3}, {}, "`receipt` must be true or false. Given: '3'"),
    ("/generate", {"inputs": "a"}, {"penstock-receipt": "maybe"},
     "`penstock-receipt` must be true or false. Given: 'maybe'"),
    ("/tokenize", {"inputs": "a"}, {"penstock-receipt": "true"}, "`penstock-receipt` is for routes that generate")])
async def test_what_can_not_have_one(
    server: Server, path: str, body: object, headers: dict[str, str], message: str
) -> None:
    response = await server.client.post(path, json=body, headers=headers)
    assert response.status == 422
    assert (await response.json())["error"].startswith(f"Input validation error: {message}")


async def test_an_error_has_none(server: Server) -> None:
    response = await server.post("/generate", {"inputs": "", "receipt": True})
    assert response.status == 422
    assert set(await response.json()) == {"error", "error_type"}
    assert (await server.post("/generate", {"inputs": 3, "receipt": True})).status == 422
